"""A release: the only thing about patients that ever leaves a site.

A noised integer vector with a date and nothing else: no fingerprint of the rows, no true count, no time
of day. Its bytes are fixed when it is kept, and only those bytes are ever sent.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

import numpy as np

from wardround.federation.errors import MalformedMessage
from wardround.federation.study import parse_date
from wardround.privacy.bounded import IntVector

MAX_VALUES = 8_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """One site's noised answer to one plan."""

    plan_id: str
    site: str
    date: str
    values: IntVector

    def encode(self) -> bytes:
        """A line of JSON, then the integers as little-endian 64-bit words."""
        header = {
            "date": self.date,
            "plan_id": self.plan_id,
            "site": self.site,
            "values": int(self.values.size),
        }
        line = json.dumps(header, sort_keys=True, separators=(",", ":")).encode("ascii")
        return line + b"\n" + self.values.astype("<i8").tobytes()


def release_hash(payload: bytes) -> str:
    """What a ledger entry says about the bytes of a release."""
    return hashlib.sha256(payload).hexdigest()


def decode_release(payload: bytes) -> Release:
    """The release in these bytes; `MalformedMessage` unless they are exactly its encoding."""
    line, _, body = payload.partition(b"\n")
    try:
        header = json.loads(line)
        plan_id, site, date = str(header["plan_id"]), str(header["site"]), str(header["date"])
        values = np.frombuffer(body, dtype="<i8").astype(np.int64)
    except (ValueError, KeyError, TypeError, RecursionError):
        msg = "a release does not begin with its header."
        raise MalformedMessage(msg) from None
    release = Release(plan_id, site, date, values)
    day = parse_date(date)
    if day is None or day.isoformat() != date or values.size > MAX_VALUES or release.encode() != payload:
        msg = "a release does not have its canonical form."
        raise MalformedMessage(msg)
    return release
