"""Rounds in the ledger: a plan with its charge, how far it is, and how it was settled.

A round is here once it is paid for: its row, the debits of its sites and its entry are one transaction.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from coordinator.store import trainings
from coordinator.store.plans import ReservedPlans, decode_plan, encode_plan
from coordinator.store.trainings import Begun, Due, TrainingStore
from wardround.federation.errors import InvariantBroken
from wardround.federation.ledger import accounts, chain
from wardround.federation.ledger.entry_body import Body, cost_body, facts_body
from wardround.federation.ledger.rewriting import Read, StoredColumn, rewrite
from wardround.federation.ledger.sqlite_file import Database
from wardround.federation.plan.plan import Charge, Plan
from wardround.federation.trust.identity import Identity
from wardround.privacy.accounting.cost import Cost

_PLANS = StoredColumn(
    others="SELECT plan_id FROM rounds WHERE substr(plan, 1, 1) <> ?",
    stored="SELECT plan FROM rounds WHERE plan_id = ?",
    replace="UPDATE rounds SET plan = ? WHERE plan_id = ?",
)


@dataclass(frozen=True, slots=True)
class Question:
    """A plan with what its analyst asked for; the first who asks is the one remembered."""

    plan: Plan
    analyst: str
    epsilon: float
    delta: float


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

    def charge(self, question: Question, due: Due, *, at: float) -> None:
        """Write down the round, its debits, its place in a training, and the entry."""
        plan, cost = question.plan, due.charge.cost
        if cost != Cost.zero():
            for site in due.sites:
                accounts.debit(self._connection, site, cost)
        asked = (question.analyst, question.epsilon, question.delta)
        self._connection.execute(
            "INSERT INTO rounds"
            " (plan_id, plan, analyst, epsilon, delta, mu_squared, pure, slack, reserved_at, state)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'reserved')",
            (plan.plan_id, encode_plan(plan), *asked, cost.mu_squared, cost.pure, cost.slack, at),
        )
        trainings.take(self._connection, plan, due)
        body: Body = {
            "plan_id": plan.plan_id,
            "sites": due.sites,
            "facts": facts_body(due.charge.facts),
            **cost_body(cost),
        }
        chain.append(self._connection, self._identity, kind="reserved", body=body)


class RoundStore:
    """The rounds of a study, and what every site has spent on them."""

    def __init__(self, database: Database, identity: Identity, trainings: TrainingStore) -> None:
        self._database = database
        self._identity = identity
        self._trainings = trainings
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
        return None if row is None else Question(decode_plan(row[0], plan_id=plan_id), row[1], row[2], row[3])

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

    def unanswered(self, plan_id: str | None = None) -> tuple[str, ...]:
        """Every round (or the one named) that has no answer, oldest first."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT plan_id FROM rounds WHERE state <> 'answered' AND (?1 IS NULL OR plan_id = ?1) ORDER BY number",
                (plan_id,),
            )
            return tuple(found for (found,) in rows)

    def charges_after(self, sequence: int) -> tuple[ChargeEntry, ...]:
        """The entries after this number that charge or give back, in order."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT sequence, kind, body FROM entries WHERE kind IN ('reserved', 'voided') AND sequence > ?"
                " ORDER BY sequence",
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
