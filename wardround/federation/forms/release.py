"""A release: the only thing about patients that ever leaves a site.

A noised integer vector with a date and nothing else: no fingerprint of the rows, no true count, no time
of day. Its bytes are fixed when it is kept, and only those bytes are ever sent.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from dataclasses import dataclass

import numpy as np

from wardround.federation.errors import MalformedMessage
from wardround.federation.limits import MAX_TEXT
from wardround.federation.plain_text import is_plain
from wardround.federation.question.query import MAX_KEYS
from wardround.federation.study.study import parse_date
from wardround.privacy.budget.facts import AnyFact
from wardround.privacy.mechanisms.partition_selection import SelectionFact
from wardround.privacy.noise.vectors import IntVector

MAX_VALUES = 8_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """One site's noised answer to one plan; where keys were selected, one value for each key that is shown."""

    plan_id: str
    site: str
    date: str
    values: IntVector
    keys: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """A line of JSON, then the integers as little-endian 64-bit words."""
        header: dict[str, object] = {
            "date": self.date,
            "plan_id": self.plan_id,
            "site": self.site,
            "values": int(self.values.size),
        }
        # Absent when there are none: what was released before keys could be is the same bytes still.
        if self.keys:
            header["keys"] = self.keys
        line = json.dumps(header, sort_keys=True, separators=(",", ":")).encode("ascii")
        return line + b"\n" + self.values.astype("<i8").tobytes()


@dataclass(frozen=True, slots=True)
class Extent:
    """How much a release says: its values, its keys, and the least of its values where it has keys (0 elsewhere)."""

    values: int
    keys: int
    least: int

    def is_paid_by(self, facts: tuple[AnyFact, ...]) -> bool:
        """Whether these facts pay for a release of this extent."""
        if any(isinstance(fact, SelectionFact) for fact in facts):
            (fact, *more) = facts
            above = isinstance(fact, SelectionFact) and (self.values == 0 or self.least > fact.threshold)
            return above and not more and self.keys == self.values <= MAX_KEYS
        paid = sum(fact.dimension for fact in facts if not isinstance(fact, SelectionFact))
        return (self.keys, self.values) == (0, paid)


def extent(release: Release) -> Extent:
    """The extent of a release."""
    # Only keys have a threshold to pass.
    least = int(release.values.min()) if release.keys and release.values.size else 0
    return Extent(int(release.values.size), len(release.keys), least)


def release_hash(payload: bytes) -> str:
    """What a ledger entry says about the bytes of a release."""
    return hashlib.sha256(payload).hexdigest()


def showable(key: str) -> bool:
    """Whether a text of a hospital's table may be a key: short and plain, so that it can be asked about afterwards.

    Any other is left out by this rule, which is public and looks at the text alone; it counts in every other statistic.
    """
    return 0 < len(key) <= MAX_TEXT and is_plain(key)


def is_one_vote(values: IntVector) -> bool:
    """Whether these are zeros and a single one."""
    return bool(values.size and values.min() >= 0 and values.max() == 1 and values.sum() == 1)


@dataclass(frozen=True, slots=True)
class ReleaseHeader:
    """What the first line of a release says: the date, and how many numbers follow."""

    date: str
    values: int


def read_header(line: bytes) -> ReleaseHeader:
    """The header in the first line of a release that was kept; what follows it is not looked at."""
    try:
        header = json.loads(line)
        return ReleaseHeader(str(header["date"]), int(header["values"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise MalformedMessage("a release does not begin with its header.") from None


def decode_release(payload: bytes) -> Release:
    """The release in these bytes; `MalformedMessage` unless they are exactly its encoding."""
    line, _, body = payload.partition(b"\n")
    try:
        header = json.loads(line)
        plan_id, site, date = str(header["plan_id"]), str(header["site"]), str(header["date"])
        keys = tuple(header.get("keys", ()))
        values = np.frombuffer(body, dtype="<i8").astype(np.int64)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise MalformedMessage("a release does not begin with its header.") from None
    if keys and not _listed(keys, values):
        raise MalformedMessage("the keys of a release are not showable texts in rising order, with one value for each.")
    release = Release(plan_id, site, date, values, keys)
    day = parse_date(date)
    if day is None or day.isoformat() != date or values.size > MAX_VALUES or release.encode() != payload:
        raise MalformedMessage("a release does not have its canonical form.")
    return release


def _listed(keys: tuple[object, ...], values: IntVector) -> bool:
    texts = [key for key in keys if isinstance(key, str)]
    return (
        len(texts) == len(keys) == values.size <= MAX_KEYS
        and all(map(showable, texts))
        and all(earlier < later for earlier, later in itertools.pairwise(texts))
    )
