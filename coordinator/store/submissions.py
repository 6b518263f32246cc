"""What sites handed in, as the ledger keeps it: once, with its receipt, and with the place in the site's own chain."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from coordinator.store.members import MemberState, MemberStore, freeze
from coordinator.store.recovery import has_charge, imported_cost, incarnation
from coordinator.store.rounds import RoundStore
from wardround.federation.errors import InvariantBroken
from wardround.federation.forms.release import release_hash
from wardround.federation.ledger import accounts, chain
from wardround.federation.ledger.entry_body import Body
from wardround.federation.ledger.sqlite_file import Database
from wardround.federation.plan.task import Declined, Released
from wardround.federation.question.answer import SiteState
from wardround.federation.trust.entry import Entry
from wardround.federation.trust.identity import Identity


@dataclass(frozen=True, slots=True)
class Kept:
    """What a site answered before: the digest of its entry, the bytes, and the number of our receipt."""

    entry: str
    payload: bytes
    receipt: int


@dataclass(frozen=True, slots=True)
class AcceptingTask:
    """A site's task inside a transaction: where it stands, and what may become of it.

    `opened_after` is how far the site's chain was known when the task was opened; None if it never was. What is `late`
    comes after its round was settled, and is in no answer.
    """

    plan_id: str
    site: str
    standing: MemberState | None
    opened_after: int | None
    late: bool
    _connection: sqlite3.Connection
    _identity: Identity
    _rounds: RoundStore

    def kept(self) -> Kept | None:
        """What the site answered to this plan before."""
        row = self._connection.execute(
            "SELECT entry, payload, receipt FROM submissions WHERE plan_id = ? AND site = ?", (self.plan_id, self.site)
        ).fetchone()
        return None if row is None else Kept(*row)

    def receipt(self, sequence: int) -> Entry:
        """The receipt with this number."""
        entry = chain.entry_at(self._connection, sequence)
        if entry is None:
            raise InvariantBroken(private=f"receipt {sequence} is not in the chain")
        return entry

    def digest_at(self, sequence: int) -> str | None:
        """What the site's own chain is known to hold at a place."""
        return digest_at(self._connection, self.site, sequence)

    def note(self, state: SiteState) -> None:
        """Where the site says it is; what it answered is its last word."""
        self._connection.execute(
            "UPDATE tasks SET state = ? WHERE plan_id = ? AND site = ? AND state IN ('open', 'pending', 'failed')",
            (state.value, self.plan_id, self.site),
        )

    @property
    def charged(self) -> bool:
        """Whether the plan is charged at this site; one that was forgotten may be no more than known to it."""
        return has_charge(self._connection, self.plan_id, self.site)

    def keep(self, submission: Released | Declined, *, before: str = "") -> Entry:
        """Store an answer, the entries that it shows of the site's chain, and sign its receipt.

        `before` says what the receipt was that a coordinator gave for it whose ledger is lost.
        """
        entry, key = submission.entry, (self.plan_id, self.site)
        body: Body = {"plan_id": self.plan_id, "site": self.site, "sequence": entry.sequence, "digest": entry.digest}
        if self.late:
            body = {**body, "late": True}
        if submission.chain:
            body = {**body, "shown_from": submission.chain[0].sequence}
        if number := incarnation(self._connection):
            body = {**body, "incarnation": number}
        if before:
            body = {**body, "before": before}
        if isinstance(submission, Released):
            state, payload, code = SiteState.RELEASED, submission.payload, ""
            body = {**body, "release_hash": release_hash(payload)}
            receipt = chain.append(self._connection, self._identity, kind="received", body=body)
        else:
            state, payload, code = SiteState.REFUSED, b"", submission.code
            body = {**body, "code": code}
            receipt = chain.append(self._connection, self._identity, kind="declined", body=body)
        self._connection.execute(
            "INSERT INTO submissions (plan_id, site, entry, code, payload, receipt) VALUES (?, ?, ?, ?, ?, ?)",
            (*key, entry.digest, code, payload, receipt.sequence),
        )
        self._connection.execute("UPDATE tasks SET state = ? WHERE plan_id = ? AND site = ?", (state.value, *key))
        keep_entries(self._connection, self.site, (*submission.chain, entry))
        self._connection.execute(
            "UPDATE sites SET head_sequence = ?, head_digest = ? WHERE name = ? AND head_sequence < ?",
            (entry.sequence, entry.digest, self.site, entry.sequence),
        )
        return receipt

    def give_back(self) -> None:
        """Give back what the plan was charged at this site."""
        cost = imported_cost(self._connection, self.plan_id, self.site) or self._rounds.charged(self.plan_id)
        if cost is None:
            raise InvariantBroken(private="a task belongs to no round")
        accounts.credit(self._connection, self.site, cost)
        chain.append(self._connection, self._identity, kind="voided", body={"plan_id": self.plan_id, "site": self.site})

    def freeze(self, reason: str) -> None:
        """Silence the site, which is active."""
        freeze(self._connection, self._identity, self.site, reason)


@dataclass(frozen=True, slots=True)
class ShowingChain:
    """A site's own chain inside the transaction that may keep more of it."""

    site: str
    standing: MemberState | None
    _connection: sqlite3.Connection
    _identity: Identity

    def digest_at(self, sequence: int) -> str | None:
        """What the site's own chain is known to hold at a place."""
        return digest_at(self._connection, self.site, sequence)

    def keep(self, entries: Sequence[Entry]) -> None:
        """Store entries that follow each other and contradict nothing, and sign that they were shown."""
        first, last = entries[0].sequence, entries[-1].sequence
        if all(self._has(entry) for entry in entries):
            return
        keep_entries(self._connection, self.site, entries)
        body: Body = {"site": self.site, "shown_from": first, "sequence": last}
        chain.append(self._connection, self._identity, kind="shown", body=body)

    def freeze(self, reason: str) -> None:
        """Silence the site, which is active."""
        freeze(self._connection, self._identity, self.site, reason)

    def _has(self, entry: Entry) -> bool:
        statement = "SELECT 1 FROM site_entries WHERE site = ? AND sequence = ?"
        return self._connection.execute(statement, (self.site, entry.sequence)).fetchone() is not None


def digest_at(connection: sqlite3.Connection, site: str, sequence: int) -> str | None:
    """What a site's own chain is known to hold at a place: it showed the entry, or the one that follows it."""
    for statement in (
        "SELECT digest FROM site_entries WHERE site = ?1 AND sequence = ?2",
        "SELECT previous FROM site_entries WHERE site = ?1 AND sequence = ?2 + 1",
        # Of answers that an earlier version took, no more is known.
        "SELECT digest FROM places WHERE site = ?1 AND sequence = ?2",
    ):
        if (row := connection.execute(statement, (site, sequence)).fetchone()) is not None:
            return str(row[0])
    return None


def keep_entries(connection: sqlite3.Connection, site: str, entries: Iterable[Entry]) -> None:
    """Store what a site showed of its own chain; the caller has compared it with what is known."""
    connection.executemany(
        "INSERT INTO site_entries (site, sequence, previous, kind, body, signature, digest)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        [(site, e.sequence, e.previous, e.kind, e.body, e.signature, e.digest) for e in entries],
    )


class SubmissionStore:
    """The answers of sites."""

    def __init__(self, database: Database, identity: Identity, members: MemberStore, rounds: RoundStore) -> None:
        self._database = database
        self._identity = identity
        self._members = members
        self._rounds = rounds

    def releases(self, plan_id: str) -> dict[str, bytes]:
        """The bytes that every site released for a plan."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT site, payload FROM submissions WHERE plan_id = ? AND code = ''", (plan_id,)
            )
            return dict(rows.fetchall())

    def entries_after(self, site: str, sequence: int, *, most: int) -> tuple[Entry, ...]:
        """What a site showed of its own chain after this place, in order."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT sequence, previous, kind, body, signature FROM site_entries"
                " WHERE site = ? AND sequence > ? ORDER BY sequence LIMIT ?",
                (site, sequence, most),
            )
            return tuple(Entry(*row) for row in rows)

    def piece(self, plan_id: str, site: str, *, first_byte: int, most: int) -> bytes:
        """Some bytes of what a site released for a plan, if it did."""
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT substr(payload, ?, ?) FROM submissions WHERE plan_id = ? AND site = ?",
                (first_byte + 1, most, plan_id, site),
            ).fetchone()
        return b"" if row is None else bytes(row[0])

    @contextmanager
    def accepting(self, plan_id: str, site: str) -> Iterator[AcceptingTask]:
        """Looking at a site's task and changing it, in one transaction; what the site may not do is undone with it."""
        with self._database.transaction() as connection:
            row = connection.execute(
                "SELECT tasks.opened_after, rounds.state IN ('settled', 'answered') FROM tasks"
                " JOIN rounds USING (plan_id) WHERE plan_id = ? AND site = ?",
                (plan_id, site),
            ).fetchone()
            opened_after, late = (None, False) if row is None else (int(row[0]), bool(row[1]))
            standing = self._members.standing(site)
            yield AcceptingTask(plan_id, site, standing, opened_after, late, connection, self._identity, self._rounds)

    @contextmanager
    def showing(self, site: str) -> Iterator[ShowingChain]:
        """Looking at what is known of a site's chain and keeping more of it, in one transaction."""
        with self._database.transaction() as connection:
            yield ShowingChain(site, self._members.standing(site), connection, self._identity)
