"""How a site comes onto the roster, and the files that the consortium hands out: an invitation, an analyst's profile.

Each is one JSON document of texts, for its owner's eyes only. Whoever holds an invitation may enrol under its name
until it is used or expires, so it travels by a channel the hospital trusts. It carries the study and pins the
coordinator; the authority's certificate inside is what the enrolment connection is checked against.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, TypeVar

from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.limits import SIGNATURE_BYTES, Needed, Pem, Size, StudyHash, Text, Whole, name_of
from wardround.federation.private_files import write_private
from wardround.federation.strict_toml import holds_texts, read_text
from wardround.federation.study.study import Study
from wardround.federation.study.study_file import parse_study
from wardround.federation.trust.entry import Entry, Head
from wardround.federation.trust.identity import PublicIdentity
from wardround.federation.trust.public_limits import PublicLimits

MAX_PATIENTS = 10**10
MAX_DATASET = 256
MAX_VERSION = 64
SECRET_BYTES = 32

_Site = Annotated[str, name_of("the site's name")]

_Word = TypeVar("_Word")

INVITATION_FORM = "wardround invitation 1"

PROFILE_FORM = "wardround profile 1"


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
    limits: PublicLimits | None = None


@dataclass(frozen=True, slots=True)
class Presenting:
    """What a site says when it greets: its public limits, the newest receipt that it holds, and its version."""

    limits: PublicLimits | None = None
    receipt: Entry | None = None
    version: Annotated[str, Text("a version", longest=MAX_VERSION, shortest=0, plain=True)] = ""


@dataclass(frozen=True, slots=True)
class Standing:
    """How far the coordinator knows a site's ledger: the last place that has a receipt, and the site's own entry there.

    A place alone proves nothing, because anybody can invent one; the entry is under the site's signature. With
    `recovered`, the coordinator's own entry, it came back from a backup and asks the site to rejoin.
    """

    known: Annotated[Head, Needed("a standing has no place.")]
    proof: Entry | None = None
    recovered: Entry | None = None


@dataclass(frozen=True, slots=True)
class Greeting:
    """Whom the coordinator takes the caller for, which study it runs, what time it has, and how far it knows it.

    One of an earlier version says nothing about the last.
    """

    site: _Site
    study_hash: StudyHash
    unix_milliseconds: Annotated[int, Whole("the time")]
    standing: Standing | None = None


def write_handed(path: Path, texts: Mapping[str, str], *, form: str) -> None:
    """Write the file, readable by its owner only; `form` says what it is."""
    write_private(path, json.dumps({"form": form, **texts}, indent=1, sort_keys=True).encode())


def read_handed(path: Path, make: Callable[..., _Word], *, form: str, broken: Iterable[str], otherwise: str) -> _Word:
    """The word that `make` makes of the texts in a file of this form, or one sentence: the file is `otherwise`.

    The texts under the keys in `broken` may have several lines.
    """
    try:
        document = json.loads(read_text(path))
        if document.pop("form") == form and holds_texts(document, broken=broken):
            return make(**document)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass  # Answered below: whatever is wrong with it, it is not of this form.
    raise ConfigurationMistaken(f"{path} is {otherwise}")


@dataclass(frozen=True, slots=True, repr=False)
class Invitation:
    """What a hospital is given."""

    site: str
    token: str
    expires: str
    address: str
    enrolment_address: str
    authority: str
    coordinator_key: str
    study_hash: str
    study_text: str

    @property
    def coordinator(self) -> PublicIdentity:
        """The identity that will sign this site's tasks."""
        return PublicIdentity(self.coordinator_key)

    def study(self) -> Study:
        """The study the invitation carries, which must have the hash it names."""
        study = parse_study(self.study_text, name="the invitation's study")
        if study.study_hash != self.study_hash:
            raise ConfigurationMistaken(
                "the invitation's study does not have the hash it names; ask the consortium for a new invitation."
            )
        return study


def write_invitation(invitation: Invitation, path: Path) -> None:
    """Write the file, readable by its owner only."""
    write_handed(path, asdict(invitation), form=INVITATION_FORM)


def read_invitation(path: Path) -> Invitation:
    """The invitation in a file, or one clear sentence."""
    otherwise = "not an invitation; ask the consortium for one (wardround coordinator invite)."
    return read_handed(path, Invitation, form=INVITATION_FORM, broken=("authority", "study_text"), otherwise=otherwise)


@dataclass(frozen=True, slots=True, repr=False)
class AnalystProfile:
    """Where the coordinator is, how to recognise it, and the certificate and key that say who asks (PEM)."""

    name: str
    address: str
    study: str
    authority: str
    certificate: str
    key: str


def write_profile(profile: AnalystProfile, path: Path) -> None:
    """Write the file, readable by its owner only."""
    write_handed(path, asdict(profile), form=PROFILE_FORM)


def read_profile(path: Path) -> AnalystProfile:
    """The profile in a file, or one clear sentence."""
    otherwise = "not an analyst's profile; ask the consortium for one (wardround coordinator analyst)."
    return read_handed(
        path, AnalystProfile, form=PROFILE_FORM, broken=("authority", "certificate", "key"), otherwise=otherwise
    )
