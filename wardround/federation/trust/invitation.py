"""The invitation: one file, one use, one site. It carries the study and pins the coordinator.

Whoever holds the file may enrol under its name until it is used or expires, so it travels by a channel
the hospital trusts. The authority's certificate inside is what the enrolment connection is checked against.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.study.study import Study
from wardround.federation.study.study_file import parse_study
from wardround.federation.trust.handed_file import read_handed, write_handed
from wardround.federation.trust.identity import PublicIdentity

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
            raise ConfigurationMistaken(
                "the invitation's study does not have the hash it names; ask the consortium for a new invitation."
            )
        return study


def write_invitation(invitation: Invitation, path: Path) -> None:
    """Write the file, readable by its owner only."""
    write_handed(path, asdict(invitation), form=FORM)


def read_invitation(path: Path) -> Invitation:
    """The invitation in a file, or one clear sentence."""
    otherwise = "not an invitation; ask the consortium for one (wardround coordinator invite)."
    return read_handed(path, Invitation, form=FORM, broken=("authority", "study_text"), otherwise=otherwise)
