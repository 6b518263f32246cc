"""How a site comes onto the roster and finds out that it is there, as words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from wardround.federation.limits import SIGNATURE_BYTES, Pem, Size, StudyHash, Text, Whole, name_of
from wardround.federation.trust.identity import PublicIdentity

MAX_PATIENTS = 10**10
MAX_DATASET = 256
SECRET_BYTES = 32

_Site = Annotated[str, name_of("the site's name")]


@dataclass(frozen=True, slots=True, repr=False)
class Enrolment:
    """What a new site says about itself.

    The invitation's secret is in it, so the word has no repr and no log can show it.
    """

    secret: Annotated[bytes, Size("an invitation's secret", SECRET_BYTES)]
    site: _Site
    identity: PublicIdentity
    study_hash: StudyHash
    study_signature: Annotated[bytes, Size("a signature", SIGNATURE_BYTES)]
    certificate_request: Annotated[bytes, Pem("a certificate request")]
    patients: Annotated[int, Whole("the number of patients", 1, MAX_PATIENTS)]
    dataset: Annotated[str, Text("a dataset's name", longest=MAX_DATASET, plain=True)]


@dataclass(frozen=True, slots=True)
class Greeting:
    """Whom the coordinator takes the caller for, which study it runs, and what time it has."""

    site: _Site
    study_hash: StudyHash
    unix_milliseconds: Annotated[int, Whole("the time")]
