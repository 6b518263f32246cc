"""Files and folders that are their owner's alone: keys, ledgers, invitations, prepared rows.

Whoever can write to a folder can plant things there: links, pipes, other people's files, under the very name that we
are about to use. So nothing here follows what it finds. What is written is always a new file, made under a name that
nobody foresees, and takes its place by being renamed; modes are set on what is open, whatever the umask says. What
others can reach is looked at without opening anything, so that it says the same to every user, to root too.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.file_faults import file_fault

STAGED = ".new-"
"""How the name of a file begins that has not yet its place; one that stays was left by a process that was killed."""

_OWNER_READS, _OWNER_ENTERS = 0o600, 0o700
# A folder above a role's own: others may pass, and never write.
_OTHERS_PASS = 0o755

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, durably and as one step; one clear sentence when that is impossible.

    What had that name before is replaced: a link itself, and never what it leads to.
    """
    try:
        write_whole(path, content, mode=_OWNER_READS)
    except OSError as error:
        raise file_fault(str(path), error, done="written") from None


def write_whole(path: Path, content: bytes, *, mode: int) -> None:
    """As `write_private`, for files that others may read too; `OSError` when it is impossible."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=STAGED)
    staged = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(descriptor, mode)
            stream.write(content)
            stream.flush()
            os.fsync(descriptor)
            staged.replace(path)
            ours = os.path.samestat(os.fstat(descriptor), path.lstat())
    except BaseException:
        staged.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)
    if not ours:
        raise ConfigurationMistaken(
            f"{path} was replaced by somebody while it was written; name a folder that nobody else can write to."
        )


def create_whole(path: Path, content: bytes) -> None:
    """As `write_private`, but never in place of anything: `FileExistsError` where the name is taken, else `OSError`."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=STAGED)
    staged = Path(name)
    try:
        with os.fdopen(_private(descriptor), "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(descriptor)
        # Unlike renaming, linking replaces nothing: of two processes one is first.
        os.link(staged, path, follow_symlinks=False)
    finally:
        staged.unlink(missing_ok=True)
    sync_folder(path.parent)


def create_private(path: Path) -> BinaryIO:
    """A new file that only its owner can read; `FileExistsError` where anything has that name."""
    flags = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_WRONLY
    return os.fdopen(_private(os.open(path, flags, _OWNER_READS)), "wb")


def open_lock(path: Path) -> int:
    """The descriptor of a file that is only there to be locked, made where there is none; never through a link."""
    return _private(os.open(path, os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_RDWR, _OWNER_READS))


def make_private_folder(path: Path) -> None:
    """Make the folder, or close one of this user's own to others; one clear sentence when that is impossible."""
    try:
        for above in reversed(path.parents):
            if not above.exists():
                above.mkdir(mode=_OTHERS_PASS, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=_OWNER_ENTERS)
        if path.is_symlink():
            raise ConfigurationMistaken(f"{path} is a link; name the folder itself.")
        descriptor = os.open(path, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(descriptor).st_uid != os.geteuid():
                raise ConfigurationMistaken(f"{path} belongs to another user; name a folder of your own.")
            os.fchmod(descriptor, _OWNER_ENTERS)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise file_fault(str(path), error, done="made a folder of yours") from None


def sync_folder(path: Path) -> None:
    """Make durable which names a folder holds."""
    descriptor = os.open(path, os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _private(descriptor: int) -> int:
    try:
        os.fchmod(descriptor, _OWNER_READS)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def everything_in(folder: Path) -> Iterator[Path]:
    """A folder and all that is in it, at any depth; links are named and not entered."""
    yield folder
    for above, folders, files in os.walk(folder):
        yield from (Path(above) / name for name in (*folders, *files))


def exposed(paths: Iterable[Path], *, owner: int) -> Iterator[str]:
    """What is wrong with these paths, of those that exist, if they should be the user's with this number alone."""
    links: list[Path] = []
    foreign: list[Path] = []
    loose: list[Path] = []
    for path in paths:
        try:
            found = path.lstat()
        except FileNotFoundError:
            # A journal comes and goes while an agent serves.
            continue
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            links.append(path)
        elif found.st_uid != owner:
            foreign.append(path)
        elif found.st_mode & _OTHERS:
            loose.append(path)
    if links:
        yield (f"a link or a pipe instead of a file or folder; restore it from the backup after: rm {_joined(links)}")
    if foreign:
        yield f"owned by another user; run: chown {name_of(owner)} {_joined(foreign)}"
    if loose:
        yield f"accessible to other users; run: chmod go-rwx {_joined(loose)}"


def replaceable(folder: Path) -> bool:
    """Whether others could put another file in the place of one in this folder; a sticky folder keeps them from it."""
    mode = folder.stat().st_mode if folder.exists() else 0
    return bool(mode & _OTHERS_WRITE) and not mode & stat.S_ISVTX


def name_of(user: int) -> str:
    """A user's name, or the number where it has none."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def _joined(paths: list[Path]) -> str:
    return shlex.join(map(str, paths))
