"""A role's folder: keys and ledger live in it, so only its owner may enter."""

from __future__ import annotations

from pathlib import Path

from wardround.federation.errors import ConfigurationMistaken


def make_private_folder(path: Path) -> None:
    """Make the folder, or close an existing one to others; one clear sentence when that is impossible."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
    except OSError as error:
        raise ConfigurationMistaken(f"{path} cannot be made a folder of yours: {error.strerror}.") from None
