"""The analyst's profile: one file with everything needed to ask, written by the consortium, read by the analyst."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from wardround.federation.trust.handed_file import read_handed, write_handed

FORM = "wardround profile 1"


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
    write_handed(path, asdict(profile), form=FORM)


def read_profile(path: Path) -> AnalystProfile:
    """The profile in a file, or one clear sentence."""
    otherwise = "not an analyst's profile; ask the consortium for one (wardround coordinator analyst)."
    return read_handed(path, AnalystProfile, form=FORM, broken=("authority", "certificate", "key"), otherwise=otherwise)
