"""Whether files that should be their owner's alone are: what others can reach, and the command that ends it.

Looked at without opening anything and without following a link, so that it says the same to every user, to root too.
"""

from __future__ import annotations

import os
import pwd
import shlex
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


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
        yield f"no file or folder but a link or a pipe; restore it from the backup after: rm {_joined(links)}"
    if foreign:
        yield f"of another user; run: chown {name_of(owner)} {_joined(foreign)}"
    if loose:
        yield f"open to others; run: chmod go-rwx {_joined(loose)}"


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
