"""The analyst's profile: one file with everything needed to ask, written by the consortium, read by the analyst."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from wardround.federation.configuration import holds_texts, read_text
from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.identity import write_private

FORM = "wardround profile 1"


@dataclass(frozen=True, slots=True, repr=False)
class Profile:
    """Where the coordinator is, how to recognise it, and the certificate and key that say who asks (PEM)."""

    name: str
    address: str
    study: str
    authority: str
    certificate: str
    key: str


def write_profile(profile: Profile, path: Path) -> None:
    """Write the file, readable by its owner only."""
    document = {"form": FORM, **asdict(profile)}
    write_private(path, json.dumps(document, indent=1, sort_keys=True).encode())


def read_profile(path: Path) -> Profile:
    """The profile in a file, or one clear sentence."""
    try:
        document = json.loads(read_text(path))
        if document.pop("form") == FORM and holds_texts(document, broken=("authority", "certificate", "key")):
            return Profile(**document)
    except (ValueError, TypeError, KeyError, AttributeError):
        pass  # Answered below: whatever is wrong with it, it is not a profile.
    msg = f"{path} is not an analyst's profile; ask the consortium for one (wardround coordinator analyst)."
    raise ConfigurationMistaken(msg)
