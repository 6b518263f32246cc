"""The invitation: one file, one use, one site. It carries the study and pins the coordinator.

Whoever holds the file may enrol under its name until it is used or expires, so it travels by a channel
the hospital trusts. The authority's certificate inside is what the enrolment connection is checked against.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from wardround.federation.configuration import holds_texts, read_text
from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.identity import PublicIdentity, write_private
from wardround.federation.study import Study
from wardround.federation.study_file import parse_study

FORM = "wardround invitation 1"


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
            msg = "the invitation's study does not have the hash it names; ask the consortium for a new invitation."
            raise ConfigurationMistaken(msg)
        return study


def write_invitation(invitation: Invitation, path: Path) -> None:
    """Write the file, readable by its owner only."""
    document = {"form": FORM, **asdict(invitation)}
    write_private(path, json.dumps(document, indent=1, sort_keys=True).encode())


def read_invitation(path: Path) -> Invitation:
    """The invitation in a file, or one clear sentence."""
    try:
        document = json.loads(read_text(path))
        if document.pop("form") == FORM and holds_texts(document, broken=("authority", "study_text")):
            return Invitation(**document)
    except (ValueError, TypeError, KeyError, AttributeError):
        pass  # Answered below: whatever is wrong with it, it is not an invitation.
    msg = f"{path} is not an invitation; ask the consortium for one (wardround coordinator invite)."
    raise ConfigurationMistaken(msg)
