"""The state of files in one text: another size, time or inode is another state.

The time of the last change of the inode is in it too, because a copy can keep every other time; it is left out
only for files that a reader itself touches.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path


def stat_text(paths: Iterable[str | Path], *, inode_times: bool = True) -> str:
    """A digest of the paths and the state of the file at each; OSError where one cannot be looked at."""
    states: list[tuple[str, int, int, int, int, int]] = []
    for path in sorted(str(each) for each in paths):
        found = Path(path).stat()
        changed = found.st_ctime_ns if inode_times else 0
        states.append((path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, changed))
    return digest_text(states)


def digest_text(words: object) -> str:
    """A digest of words that JSON can write down: a source may be named by a path that is nobody else's business."""
    return hashlib.sha256(json.dumps(words, ensure_ascii=True).encode()).hexdigest()
