"""One line of a ledger: chained to the one before it and signed by whoever keeps the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Annotated

from wardround.federation import canonical
from wardround.federation.limits import SIGNATURE_BYTES, Size, Text, Whole, hash_of, word_of
from wardround.federation.trust.identity import Identity, PublicIdentity, Purpose

GENESIS = "0" * 64
MAX_BODY = 256 * 1024


@dataclass(frozen=True, slots=True)
class Head:
    """A place in a chain: how many entries, and the digest of the last. Sequence 0 is the empty chain."""

    sequence: Annotated[int, Whole("a head's sequence")]
    digest: Annotated[str, hash_of("a head's digest")]

    def fault(self) -> str | None:
        """Only the empty chain has no entries."""
        same = (self.sequence == 0) == (self == EMPTY)
        return None if same else "a head without entries is not the empty chain's."


EMPTY = Head(0, GENESIS)


# Without slots, so that the digest is computed once.
@dataclass(frozen=True)
class Entry:
    """What happened (`kind`, `body` as canonical JSON text), after what, signed."""

    sequence: Annotated[int, Whole("an entry's sequence", 1)]
    previous: Annotated[str, hash_of("an entry's predecessor")]
    kind: Annotated[str, word_of("an entry's kind")]
    body: Annotated[str, Text("an entry's body", longest=MAX_BODY, plain=True)]
    signature: Annotated[bytes, Size("an entry's signature", SIGNATURE_BYTES)]

    def fault(self) -> str | None:
        """Only the first entry has none before it."""
        same = (self.sequence == 1) == (self.previous == GENESIS)
        return None if same else "only the first entry follows the empty chain."

    @cached_property
    def digest(self) -> str:
        """What the next entry points to, and what the signature covers."""
        return entry_digest(self.sequence, self.previous, self.kind, self.body)

    @property
    def head(self) -> Head:
        """The chain's head once this entry is its last."""
        return Head(self.sequence, self.digest)

    def signed_by(self, identity: PublicIdentity) -> bool:
        """Whether `identity` signed exactly this entry."""
        return identity.verifies(Purpose.ENTRY, bytes.fromhex(self.digest), self.signature)


def follow_each_other(entries: Sequence[Entry]) -> bool:
    """Whether each entry names the one before it."""
    return all(
        (later.sequence, later.previous) == (earlier.sequence + 1, earlier.digest)
        for earlier, later in pairwise(entries)
    )


def places(entries: Sequence[Entry]) -> tuple[Head, ...]:
    """The places of a chain that entries fix which follow each other: their own, and the one before the first."""
    first = entries[0]
    before = () if first.sequence == 1 else (Head(first.sequence - 1, first.previous),)
    return (*before, *(entry.head for entry in entries))


def entry_digest(sequence: int, previous: str, kind: str, body: str) -> str:
    """SHA-256 over everything but the signature."""
    return canonical.digest((sequence, previous, kind, body))


def make_entry(identity: Identity, *, after: Head, kind: str, body: str) -> Entry:
    """The next entry of a chain whose head is `after`."""
    sequence = after.sequence + 1
    digest = entry_digest(sequence, after.digest, kind, body)
    entry = Entry(sequence, after.digest, kind, body, identity.sign(Purpose.ENTRY, bytes.fromhex(digest)))
    # What was just signed need not be derived again.
    vars(entry)["digest"] = digest
    return entry
