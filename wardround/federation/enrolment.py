"""How a site comes onto the roster and finds out that it is there, as words."""

from __future__ import annotations

from dataclasses import dataclass

from wardround.federation.identity import PublicIdentity


@dataclass(frozen=True, slots=True, repr=False)
class Enrolment:
    """What a new site says about itself.

    The invitation's secret is in it, so the word has no repr and no log can show it.
    """

    secret: bytes
    site: str
    identity: PublicIdentity
    study_hash: str
    study_signature: bytes
    certificate_request: bytes
    patients: int
    dataset: str


@dataclass(frozen=True, slots=True)
class Greeting:
    """Whom the coordinator takes the caller for, which study it runs, and what time it has."""

    site: str
    study_hash: str
    unix_milliseconds: int
