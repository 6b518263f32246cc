"""A consistent copy of a role's folder, made while it is served; and how such a copy is known for one.

The ledger is copied in one view: whoever serves can go on and only waits with its commits meanwhile. Everything else
in the folder never changes once it is there, or is replaced as a whole. A copy is marked, and a marked folder is not
served: it may lack what was charged since, so it is recovered first, whatever it lacks.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.ledger import chain
from wardround.federation.ledger.database_faults import translated
from wardround.federation.ledger.sqlite_file import BUSY_SECONDS, LEDGER_FILE
from wardround.federation.private_files import (
    STAGED,
    create_private,
    everything_in,
    make_private_folder,
    sync_folder,
    write_private,
)
from wardround.federation.trust.entry import Head

MARK = "backup.json"
FORM = "wardround backup 1"

_PAGES = 1024

_IN_A_NAME = "%Y-%m-%dT%H%M%S.%fZ"

Report = Callable[[int, int], None]
"""Hears how many pages of the ledger are left, and of how many."""


@dataclass(frozen=True, slots=True)
class BackupMark:
    """What a copy says about itself: when it was made, and how far the ledger was."""

    made: str
    head: Head


def copy_folder(
    folder: Path, out: Path, *, files: Iterable[str], made: str, besides: Iterable[Path] = (), report: Report
) -> Head:
    """Copy the ledger, the named files and folders, and databases that lie elsewhere, to a new folder; where it ended.

    `besides` are copied after the ledger: an account that is shared is charged before it, so the copy is not behind.
    """
    if out.exists() or not out.parent.is_dir():
        raise ConfigurationMistaken(f"{out} exists already, or what it is in does not; name a new folder.")
    try:
        staged = Path(tempfile.mkdtemp(dir=out.parent, prefix=STAGED))
    except OSError as error:
        raise ConfigurationMistaken(f"{out} cannot be written: {error.strerror}.") from None
    try:
        _copy_database(folder / LEDGER_FILE, staged / LEDGER_FILE, report)
        head = _head(staged / LEDGER_FILE)
        for other in besides:
            _copy_database(other, staged / f"shared-{other.name}", report)
        for name in files:
            _copy(folder / name, staged / name)
        mark = {"form": FORM, "made": made, "sequence": head.sequence, "digest": head.digest}
        write_private(staged / MARK, json.dumps(mark, indent=1).encode())
        _close_to_others(staged)
        staged.rename(out)
        sync_folder(out.parent)
    except OSError as error:
        raise ConfigurationMistaken(f"{out} cannot be written: {error.strerror}.") from None
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    return head


def backup_mark(folder: Path) -> BackupMark | None:
    """What the folder says about itself if it is a copy; None for one that is not."""
    try:
        document = json.loads((folder / MARK).read_bytes())
        return BackupMark(str(document["made"]), Head(int(document["sequence"]), str(document["digest"])))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        # Whatever it says, it is there.
        return BackupMark("an unknown time", Head(0, "0" * 64))


def refuse_backup(folder: Path, *, recover: str) -> None:
    """A copy may lack what was charged since it was made, so it is not served before it is recovered."""
    if (mark := backup_mark(folder)) is not None:
        raise ConfigurationMistaken(
            f"{folder} is a backup made at {mark.made}; questions asked since are not in it. Put it in its place, then "
            f"run: {recover}"
        )


def place_among(copies: Path, name: str, *, now: datetime.datetime) -> Path:
    """Where the next of a series of copies goes: by the name of what is copied, and the time."""
    return copies / f"{name}-{now.astimezone(datetime.UTC).strftime(_IN_A_NAME)}"


def remove_older(copies: Path, name: str, *, keep: int) -> list[Path]:
    """Remove all but the newest copies of a series; what is no copy of ours stays, whatever it is called."""
    series = []
    for path in copies.iterdir():
        with contextlib.suppress(ValueError):
            made = datetime.datetime.strptime(path.name.removeprefix(f"{name}-"), _IN_A_NAME).replace(
                tzinfo=datetime.UTC
            )
            if backup_mark(path) is not None and path.name.startswith(f"{name}-"):
                series.append((made, path))
    older = [path for _, path in sorted(series)[:-keep]]
    for path in older:
        shutil.rmtree(path)
    return older


def _copy_database(source: Path, target: Path, report: Report) -> None:
    """Copy a database as it is at one moment."""
    create_private(target).close()
    address = f"{source.absolute().as_uri()}?mode=rw"
    with (
        translated(source),
        contextlib.closing(sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS, isolation_level=None)) as reading,
        contextlib.closing(sqlite3.connect(target, isolation_level=None)) as writing,
    ):
        # The view begins here; whoever commits waits until the last page is copied.
        reading.execute("BEGIN")
        reading.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()
        reading.backup(writing, pages=_PAGES, progress=lambda _, left, total: report(left, total), sleep=0.0)
    with target.open("rb") as stream:
        os.fsync(stream.fileno())


def _head(path: Path) -> Head:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return chain.head(connection)


def _copy(source: Path, target: Path) -> None:
    if source.is_symlink():
        raise ConfigurationMistaken(f"{source} is a link; name the file itself.")
    if source.is_dir():
        make_private_folder(target)
        for inside in source.iterdir():
            _copy(inside, target / inside.name)
    elif source.exists():
        write_private(target, source.read_bytes())


def _close_to_others(folder: Path) -> None:
    for path in everything_in(folder):
        path.chmod(0o700 if path.is_dir() else 0o600)
