"""A site's ledger made again: its own chain up to a place, the entries that it signed after that, and what they say.

A restored ledger froze, or has to be supposed to lack something. What it signed since it was restored is nothing but
that, so the chain goes on where it had been: its own entries come back from the coordinator, each under the site's own
signature, with the bytes that they name. The new file takes the place of the old one in one step.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from wardround.federation import canonical
from wardround.federation.errors import MalformedMessage
from wardround.federation.forms.release import release_hash
from wardround.federation.ledger import accounts, chain, site_tables
from wardround.federation.ledger.entry_body import (
    Body,
    Plain,
    cap_body,
    cap_in,
    cost_body,
    cost_in,
    decode_body,
    facts_in,
    text_in,
)
from wardround.federation.ledger.sqlite_file import Database
from wardround.federation.plan.task import SignedTask
from wardround.federation.trust.entry import Entry
from wardround.federation.trust.identity import Identity
from wardround.privacy.accounting.cost import Cost
from wardround.privacy.budget.facts import BlockFact, StepFact
from wardround.privacy.budget.filter import Cap

_COPIED = ("charges", "releases", "refusals", "receipts", "requests", "steps", "plans", "readings", "decisions")
SIGNED_SINCE = frozenset(("attested", "frozen", "capped", "pinned", "closed", "reopened"))
"""What a restored ledger may have signed of itself; nothing of it speaks of a plan."""


@dataclass(frozen=True, slots=True)
class Given:
    """What the coordinator gives back of a plan: the task, what was released for it, and how a steward reads it."""

    task: SignedTask
    payload: bytes
    summary: str


@dataclass
class Rebuilding:
    """A new ledger that is being filled; `give` is asked for each plan that entries which come back speak of.

    `shown_anew` are the digests of what a steward reads of plans, by these, where another version had other words.
    """

    connection: sqlite3.Connection
    account: str
    give: Callable[[str], Given]
    shown_anew: dict[str, Plain] = field(default_factory=dict)
    _closed: dict[str, int] = field(default_factory=dict)
    _given: dict[str, Given] = field(default_factory=dict)

    def copy(self, old: sqlite3.Connection, own: Sequence[Entry]) -> None:
        """Take over what the old ledger holds, with its chain as far as it is kept."""
        for entry in own:
            self._append(entry)
        for table in _COPIED:
            columns = [row[1] for row in old.execute(f"PRAGMA table_info({table})")]
            places = ", ".join("?" * len(columns))
            rows = old.execute(f"SELECT {', '.join(columns)} FROM {table}")  # noqa: S608 -- names of our own
            self.connection.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})", rows)  # noqa: S608
        for entry in own:
            self._account(entry)

    def take(self, entry: Entry) -> None:
        """Write down an entry that comes back, and what it says."""
        self._append(entry)
        body = decode_body(entry.body)
        match entry.kind:
            case "charged":
                self._charged(entry, body)
            case "released":
                self._released(entry, body)
            case "refused":
                self._insert("refusals", text_in(body, "plan_id"), entry.sequence, text_in(body, "date"))
            case "held":
                self._held(body)
            case "approved" | "denied":
                self._decided(entry, text_in(body, "plan_id"))
        if "asked" in body:
            self._asked(body)
        self._account(entry)

    def finish(self) -> None:
        """Close the tables that are closed now."""
        for name, sequence in self._closed.items():
            self._insert("closed_tables", name, sequence)

    def remaining(self) -> Cost:
        """What could still be spent."""
        found = accounts.balance(self.connection, self.account)
        return Cost(
            mu_squared=found.allowance.mu_squared - found.spent.mu_squared,
            pure=found.allowance.pure - found.spent.pure,
            slack=found.allowance.slack - found.spent.slack,
        )

    def _append(self, entry: Entry) -> None:
        row = (entry.sequence, entry.previous, entry.kind, entry.body, entry.signature, entry.digest)
        self._insert("entries", *row)

    def _account(self, entry: Entry) -> None:
        """What an entry does to the account, to the keys that are known, and to the tables that are closed."""
        body = decode_body(entry.body)
        match entry.kind:
            case "capped":
                accounts.open_account(self.connection, text_in(body, "account"), cap_in(body).allowance())
            case "charged" | "recovered" if (cost := cost_in(body)) != Cost.zero():
                accounts.debit(self.connection, self.account, cost)
            case "pinned":
                name = text_in(body, "analyst")
                self.connection.execute("DELETE FROM pins WHERE analyst = ?", (name,))
                self._insert("pins", name, text_in(body, "key"), entry.sequence)
            case "closed":
                self._closed[text_in(body, "table")] = entry.sequence
            case "reopened":
                self._closed.pop(text_in(body, "table"), None)

    def _charged(self, entry: Entry, body: dict[str, object]) -> None:
        plan_id = text_in(body, "plan_id")
        self._insert("charges", plan_id, entry.sequence)
        for fact in facts_in(body):
            if isinstance(fact, BlockFact | StepFact):
                self._insert("steps", fact.block, fact.place, plan_id)

    def _released(self, entry: Entry, body: dict[str, object]) -> None:
        plan_id = text_in(body, "plan_id")
        payload = self._give(plan_id).payload
        if release_hash(payload) != text_in(body, "release_hash"):
            raise MalformedMessage("The coordinator does not have the bytes of what this site released.")
        self._insert("releases", plan_id, entry.sequence, payload)
        self.connection.execute("DELETE FROM readings WHERE plan_id = ?", (plan_id,))

    def _held(self, body: dict[str, object]) -> None:
        plan_id = text_in(body, "plan_id")
        given = self._give(plan_id)
        self._insert("requests", plan_id, canonical.encode(given.task), given.summary, "pending", text_in(body, "date"))
        digest = hashlib.sha256(given.summary.encode()).hexdigest()
        if body.get("summary", digest) != digest:
            self.shown_anew[plan_id] = digest

    def _decided(self, entry: Entry, plan_id: str) -> None:
        self.connection.execute("UPDATE requests SET state = ? WHERE plan_id = ?", (entry.kind, plan_id))
        self.connection.execute("DELETE FROM decisions WHERE plan_id = ?", (plan_id,))
        self._insert("decisions", plan_id, entry.sequence)

    def _asked(self, body: dict[str, object]) -> None:
        """The plan and who asked it, exactly as the site had them."""
        plan_id = text_in(body, "plan_id")
        signed = self._give(plan_id).task
        asked_by = b"" if signed.asked_by is None else canonical.encode(signed.asked_by)
        if ("" if signed.asked_by is None else canonical.digest(signed.asked_by)) != text_in(body, "asked"):
            raise MalformedMessage("The coordinator says that somebody else asked what this site answered.")
        row = (plan_id, signed.task.plan.encoding, asked_by, "")
        self.connection.execute(
            "INSERT INTO plans (plan_id, plan, asked_by, hour) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", row
        )

    def _give(self, plan_id: str) -> Given:
        if plan_id not in self._given:
            given = self.give(plan_id)
            if given.task.task.plan.plan_id != plan_id:
                raise MalformedMessage("The coordinator gave back another plan.")
            # Of one plan several entries follow each other closely; of all of them only the last are remembered.
            self._given = {plan_id: given}
        return self._given[plan_id]

    def _insert(self, table: str, *row: object) -> None:
        places = ", ".join("?" * len(row))
        self.connection.execute(f"INSERT INTO {table} VALUES ({places})", row)  # noqa: S608 -- names of our own


class OldLedger:
    """What is there of the site's ledger, to be read."""

    def __init__(self, path: Path) -> None:
        self._database = Database(path, schema=site_tables.SCHEMA, later=site_tables.LATER, existing=True)

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One view of it."""
        with self._database.reading() as connection:
            yield connection

    def entries(self) -> list[Entry]:
        """Every entry of its chain, in order."""
        with self.reading() as connection:
            return list(chain.entries(connection))

    def plans(self) -> set[str]:
        """Every plan that was charged or refused."""
        with self.reading() as connection:
            rows = connection.execute("SELECT plan_id FROM charges UNION SELECT plan_id FROM refusals")
            return {plan_id for (plan_id,) in rows}

    def blocks(self) -> set[str]:
        """Every training that was charged."""
        with self.reading() as connection:
            return {block for (block,) in connection.execute("SELECT block FROM steps")}


def rebuild(  # noqa: PLR0913 -- all by name
    old: OldLedger,
    staged: Path,
    *,
    identity: Identity,
    account: str,
    kept: int,
    back: Sequence[Entry],
    give: Callable[[str], Given],
    cap: Cap,
    lost: Cost | None,
    said: Body,
) -> Cost:
    """Make a ledger of the old one's first `kept` entries and those that come `back`; what was charged for the rest.

    `lost` is what may have been charged besides, None where that is not known: then it is all that is left.
    """
    database = Database(staged, schema=site_tables.SCHEMA, later=site_tables.LATER)
    try:
        with old.reading() as before, database.transaction() as connection:
            made = Rebuilding(connection, account, give)
            made.copy(before, list(chain.entries(before, before=kept + 1)))
            for entry in back:
                made.take(entry)
            made.finish()
            latest = chain.last(connection, "capped")
            if latest is None or cap_in(decode_body(latest.body)) != cap:
                accounts.open_account(connection, account, cap.allowance())
                chain.append(connection, identity, kind="capped", body=cap_body(account, cap))
            left = made.remaining()
            charged = left if lost is None else _least(left, lost)
            body = {**said, "complete": lost is not None, "account": account, **cost_body(charged)}
            if made.shown_anew:
                body = {**body, "shown_anew": made.shown_anew}
            chain.append(connection, identity, kind="recovered", body=body)
            accounts.debit(connection, account, charged)
    finally:
        database.close()
    return charged


def _least(one: Cost, other: Cost) -> Cost:
    return Cost(
        mu_squared=min(one.mu_squared, other.mu_squared),
        pure=min(one.pure, other.pure),
        slack=min(one.slack, other.slack),
    )
