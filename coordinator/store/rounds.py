"""Rounds in the ledger: a plan with its charge, how far it is, how it was settled, and its answer.

A round is here once it is paid for: its row, the debits of its sites and its entry are one transaction. A plan is kept
as its canonical bytes, whose hash is its id, so that a restart hands out exactly what was reserved.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from coordinator.store import trainings
from coordinator.store.trainings import Begun, Due, TrainingStore
from wardround.federation import canonical
from wardround.federation.canonical import decode
from wardround.federation.errors import InvariantBroken, LedgerCorrupt, MalformedMessage, QueryMistaken
from wardround.federation.ledger import accounts, chain
from wardround.federation.ledger.entry_body import Body, Plain, asked_body, cost_body, facts_body
from wardround.federation.ledger.rewriting import Read, StoredColumn, rewrite
from wardround.federation.ledger.sqlite_file import Database
from wardround.federation.plan.plan import Charge, Plan
from wardround.federation.trust.asked_by import AskedBy
from wardround.federation.trust.identity import Identity
from wardround.privacy.accounting.cost import Cost

_PLANS = StoredColumn(
    others="SELECT plan_id FROM rounds WHERE substr(plan, 1, 1) <> ?",
    stored="SELECT plan FROM rounds WHERE plan_id = ?",
    replace="UPDATE rounds SET plan = ? WHERE plan_id = ?",
)
_REMEMBERED = 32


@dataclass(frozen=True, slots=True)
class Question:
    """A plan with what its analyst asked for; the first who asks is the one remembered, with the signature.

    ε and δ are what the study charges for; those that the analyst signed may leave them to the study.
    """

    plan: Plan
    analyst: str
    epsilon: float
    delta: float
    asked_by: AskedBy | None = None

    def facts(self) -> dict[str, Plain]:
        """Who asked and for how much, as the entry says it that charges for it."""
        facts: dict[str, Plain] = {"analyst": self.analyst, "epsilon": self.epsilon, "delta": self.delta}
        return facts | asked_body(self.asked_by)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Which sites a round's answer is made of, fixed when it is settled."""

    answered: tuple[str, ...]
    refused: tuple[tuple[str, str], ...]
    missing: tuple[str, ...]

    def without(self, sites: tuple[str, ...]) -> Outcome:
        """The same, with these sites' answers left out."""
        return Outcome(tuple(site for site in self.answered if site not in sites), self.refused, self.missing)


class RoundState(StrEnum):
    """How far a round is."""

    RESERVED = "reserved"
    OPEN = "open"
    SETTLED = "settled"
    ANSWERED = "answered"


@dataclass(frozen=True, slots=True)
class RoundStanding:
    """How far a round is, and how it was settled once it is."""

    state: RoundState
    outcome: Outcome | None


@dataclass(frozen=True, slots=True)
class ChargeEntry:
    """An entry of the chain that charges a plan, or gives a charge back."""

    sequence: int
    kind: str
    body: str


@dataclass(frozen=True, slots=True)
class ReservingRound:
    """A plan inside the transaction that may charge it, with what that is decided by.

    `spent` is what every site has spent, `begun` the training that the plan belongs to, once it is paid.
    """

    reserved: bool
    spent: Mapping[str, Cost]
    begun: Begun | None
    _connection: sqlite3.Connection
    _identity: Identity

    def charge(self, question: Question, due: Due, *, require: int = 0, at: float, now: float) -> None:
        """Write down the round, its debits, its place in a training, and the entry; open a task for each site."""
        plan, cost = question.plan, due.charge.cost
        if cost != Cost.zero():
            for site in due.sites:
                accounts.debit(self._connection, site, cost)
        insert_round(self._connection, question, cost, at=at)
        if require:
            self._connection.execute("INSERT INTO required (plan_id, sites) VALUES (?, ?)", (plan.plan_id, require))
        trainings.take(self._connection, plan, due)
        open_tasks(self._connection, plan, left_out=[site for site, _ in due.left_out], at=at, now=now)
        body: Body = {
            "plan_id": plan.plan_id,
            "sites": due.sites,
            "facts": facts_body(due.charge.facts),
            **cost_body(cost),
            **question.facts(),
        }
        chain.append(self._connection, self._identity, kind="reserved", body=body)


def insert_round(connection: sqlite3.Connection, question: Question, cost: Cost, *, at: float) -> None:
    """Write down a plan that is charged, and who asked it, inside a running transaction."""
    plan, asked_by = question.plan, question.asked_by
    asked = (question.analyst, question.epsilon, question.delta)
    connection.execute(
        "INSERT INTO rounds"
        " (plan_id, plan, analyst, epsilon, delta, mu_squared, pure, slack, reserved_at, state, opened_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'reserved', ?)",
        (plan.plan_id, encode_plan(plan), *asked, cost.mu_squared, cost.pure, cost.slack, at, at),
    )
    if asked_by is not None:
        row = (plan.plan_id, canonical.encode(asked_by))
        connection.execute("INSERT INTO askers (plan_id, asked_by) VALUES (?, ?)", row)


def open_tasks(connection: sqlite3.Connection, plan: Plan, *, left_out: Collection[str], at: float, now: float) -> None:
    """One task for each participant that is asked; whoever was missing is asked again."""
    plan_id = plan.plan_id
    # An answer must come after what the site had signed before it could know the plan.
    known = connection.execute("SELECT name, head_sequence FROM sites")
    heads = {site: sequence for site, sequence in known if site not in left_out}
    (number,) = connection.execute("SELECT number FROM rounds WHERE plan_id = ?", (plan_id,)).fetchone()
    connection.executemany(
        "INSERT INTO tasks (plan_id, site, number, state, opened_after) VALUES (?, ?, ?, 'open', ?)"
        " ON CONFLICT (plan_id, site) DO UPDATE SET state = 'open' WHERE state = 'missing'",
        [(plan_id, site, number, heads[site]) for site in plan.participants if site in heads],
    )
    connection.execute("UPDATE rounds SET state = 'open', opened_at = ? WHERE plan_id = ?", (at, plan_id))
    connection.execute(
        "INSERT INTO windows (plan_id, opened) VALUES (?, ?) ON CONFLICT DO UPDATE SET opened = excluded.opened",
        (plan_id, now),
    )
    note_served(connection, now)


def note_served(connection: sqlite3.Connection, seconds: float) -> None:
    """Coordinators have served this folder for so long by now."""
    connection.execute(
        "INSERT INTO served (row, seconds) VALUES (1, ?) ON CONFLICT DO UPDATE SET seconds = excluded.seconds",
        (seconds,),
    )


class RoundStore:
    """The rounds of a study, and what every site has spent on them."""

    def __init__(self, database: Database, identity: Identity, trainings: TrainingStore, *, least: int) -> None:
        self._database = database
        self._identity = identity
        self._trainings = trainings
        self._least = least
        self._plans = ReservedPlans()

    def rewrite_messages(self, read: Read) -> None:
        """Bring plans that an earlier version stored as messages into canonical form; `read` reads one."""
        rewrite(self._database, _PLANS, read)

    def question(self, plan_id: str) -> Question | None:
        """The question under this plan id, if it was ever reserved."""
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT plan, analyst, epsilon, delta FROM rounds WHERE plan_id = ?", (plan_id,)
            ).fetchone()
            asked_by = self.asked_by(plan_id)
        return None if row is None else Question(decode_plan(row[0], plan_id=plan_id), row[1], row[2], row[3], asked_by)

    def asked_by(self, plan_id: str) -> AskedBy | None:
        """Who asked a plan first, in the analyst's own signature; None where nobody signed."""
        with self._database.reading() as connection:
            row = connection.execute("SELECT asked_by FROM askers WHERE plan_id = ?", (plan_id,)).fetchone()
        try:
            return None if row is None else decode(AskedBy, row[0])
        except MalformedMessage:
            raise LedgerCorrupt(private="who asked a plan cannot be read") from None

    def plan(self, plan_id: str) -> Plan:
        """The plan that was reserved under this id; the caller has found a task of it."""
        with self._database.reading() as connection:
            return self._plans.reserved(connection, plan_id)

    def charged(self, plan_id: str) -> Cost | None:
        """What the plan was charged at each site that was asked, if it was reserved."""
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT mu_squared, pure, slack FROM rounds WHERE plan_id = ?", (plan_id,)
            ).fetchone()
        return None if row is None else Cost(*row)

    def spent(self) -> dict[str, Cost]:
        """What every site has spent."""
        with self._database.reading() as connection:
            return {name: balance.spent for name, balance in accounts.balances(connection).items()}

    @contextmanager
    def reserving(self, plan_id: str, charge: Charge) -> Iterator[ReservingRound]:
        """Looking at the budget and charging it, in one transaction: of two questions for the last one comes second."""
        with self._database.transaction() as connection:
            reserved = self.charged(plan_id) is not None
            begun = self._trainings.begun(charge)
            yield ReservingRound(reserved, self.spent(), begun, connection, self._identity)

    def standing(self, plan_id: str) -> RoundStanding:
        """How far a reserved round is."""
        with self._database.reading() as connection:
            row = connection.execute("SELECT state, outcome FROM rounds WHERE plan_id = ?", (plan_id,)).fetchone()
        if row is None:
            raise InvariantBroken(private=f"plan {plan_id} was never reserved")
        state = RoundState(row[0])
        return RoundStanding(state, _outcome(row[1]) if state in (RoundState.SETTLED, RoundState.ANSWERED) else None)

    def unanswered(self) -> tuple[str, ...]:
        """Every round that has no answer, oldest first."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT plan_id FROM rounds WHERE state IN ('reserved', 'open', 'settled')"
                " AND plan_id NOT IN (SELECT plan_id FROM lost) ORDER BY number"
            )
            return tuple(found for (found,) in rows)

    def open_now(self) -> int:
        """How many rounds wait for their sites."""
        with self._database.reading() as connection:
            (found,) = connection.execute("SELECT count(*) FROM rounds WHERE state IN ('reserved', 'open')").fetchone()
            return int(found)

    def required(self, plan_id: str) -> int:
        """How many hospitals the answer must have, as it was asked; 0 where nothing was said."""
        with self._database.reading() as connection:
            row = connection.execute("SELECT sites FROM required WHERE plan_id = ?", (plan_id,)).fetchone()
        return 0 if row is None else int(row[0])

    def needed(self, plan_id: str) -> int:
        """How many hospitals must answer: what was required, and never fewer than the study needs."""
        return max(self._least, self.required(plan_id))

    def require_no_more(self, plan_id: str, sites: int) -> None:
        """From now on the answer must have no more hospitals than these; what is required is never raised."""
        if sites >= self.required(plan_id):
            return
        with self._database.transaction() as connection:
            connection.execute("UPDATE required SET sites = ?2 WHERE plan_id = ?1 AND sites > ?2", (plan_id, sites))

    def window(self, plan_id: str) -> tuple[float, float | None]:
        """When an open round was opened: the date, and the seconds served by then, if an earlier version did not."""
        with self._database.reading() as connection:
            date, opened = connection.execute(
                "SELECT rounds.opened_at, windows.opened FROM rounds LEFT JOIN windows USING (plan_id)"
                " WHERE plan_id = ?",
                (plan_id,),
            ).fetchone()
        return float(date), None if opened is None else float(opened)

    def served(self) -> float:
        """For how many seconds coordinators have served this folder, as far as it was noted."""
        with self._database.reading() as connection:
            row = connection.execute("SELECT seconds FROM served").fetchone()
        return 0.0 if row is None else float(row[0])

    def note_served(self, seconds: float) -> None:
        """Coordinators have served this folder for so long by now."""
        with self._database.transaction() as connection:
            note_served(connection, seconds)

    def charges_after(self, sequence: int) -> tuple[ChargeEntry, ...]:
        """The entries after this number that charge or give back, in order."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT sequence, kind, body FROM entries"
                " WHERE kind IN ('reserved', 'voided', 'imported') AND sequence > ? ORDER BY sequence",
                (sequence,),
            )
            return tuple(ChargeEntry(*row) for row in rows)

    def dates_after(self, number: int) -> dict[str, float]:
        """When each plan was charged that follows the first `number` plans."""
        with self._database.reading() as connection:
            return dict(connection.execute("SELECT plan_id, reserved_at FROM rounds WHERE number > ?", (number,)))


def _outcome(text: str) -> Outcome:
    answered, refused, missing = json.loads(text)
    return Outcome(tuple(answered), tuple((site, code) for site, code in refused), tuple(missing))


def encode_plan(plan: Plan) -> bytes:
    """The plan's bytes for the ledger; `QueryMistaken` when what it asks could not be read again."""
    try:
        _read(plan.encoding)
    except MalformedMessage as malformed:
        raise QueryMistaken(malformed.message) from None
    return plan.encoding


def decode_plan(stored: bytes, *, plan_id: str) -> Plan:
    """The plan in these bytes; `LedgerCorrupt` unless it is the one that was reserved under `plan_id`."""
    try:
        plan = _read(stored)
    except MalformedMessage:
        raise LedgerCorrupt(private="a stored plan cannot be read") from None
    if plan.plan_id != plan_id:
        raise LedgerCorrupt(private="a stored plan is not the one that was reserved")
    return plan


# A plan is read when it is stored, once for each of its sites, and again for each of their answers.
@lru_cache(maxsize=_REMEMBERED)
def _read(stored: bytes) -> Plan:
    plan = decode(Plan, stored)
    # What was just compared need not be written again.
    vars(plan)["encoding"] = stored
    return plan


class ReservedPlans:
    """Plans of tasks by their ids. An id is the hash of what its plan says, so none is read twice.

    A plan names all its participants and is handed out to each of them, so reading it each time would cost the
    square of their number.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._known: dict[str, Plan] = {}

    def reserved(self, connection: sqlite3.Connection, plan_id: str) -> Plan:
        """The plan that was reserved under this id; the caller has found a task of it."""
        with self._guard:
            known = self._known.get(plan_id)
        if known is not None:
            return known
        row = connection.execute("SELECT plan FROM rounds WHERE plan_id = ?", (plan_id,)).fetchone()
        if row is None:
            raise LedgerCorrupt(private="a task belongs to no round")
        plan = decode_plan(row[0], plan_id=plan_id)
        with self._guard:
            self._known[plan_id] = plan
            while len(self._known) > _REMEMBERED:
                del self._known[next(iter(self._known))]
        return plan
