"""Tasks in the ledger: one row for each participant of a plan that is asked, from opening to settling its round."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from coordinator.store.kept_answers import WrittenAnswer, keep_answer
from coordinator.store.rounds import Outcome, RoundStanding, RoundStore, open_tasks
from coordinator.store.trainings import TrainingStore
from wardround.federation.ledger import chain
from wardround.federation.ledger.entry_body import Body
from wardround.federation.ledger.sqlite_file import Database
from wardround.federation.plan.plan import Plan
from wardround.federation.question.answer import SiteState
from wardround.federation.trust.identity import Identity


@dataclass(frozen=True, slots=True)
class OpeningRound:
    """A reserved round inside the transaction that may open it."""

    before: RoundStanding
    _plan: Plan
    _left_out: frozenset[str]
    _connection: sqlite3.Connection
    _identity: Identity

    def open(self, *, at: float, now: float) -> None:
        """One task for each participant that is asked; whoever was missing is asked again."""
        chain.append(self._connection, self._identity, kind="asked_again", body={"plan_id": self._plan.plan_id})
        open_tasks(self._connection, self._plan, left_out=self._left_out, at=at, now=now)


@dataclass(frozen=True, slots=True)
class SettlingRound:
    """A round inside the transaction that may settle it.

    `refusals` are the codes of whoever refused the plan, or is not asked for having declined its training.
    """

    plan_id: str
    before: RoundStanding
    states: Mapping[str, SiteState]
    refusals: Mapping[str, str]
    _connection: sqlite3.Connection
    _identity: Identity

    def settle(self, outcome: Outcome) -> None:
        """Fix the outcome; whoever has not answered is missing."""
        self._connection.execute(
            "UPDATE tasks SET state = 'missing' WHERE plan_id = ? AND state NOT IN ('released', 'refused')",
            (self.plan_id,),
        )
        text = json.dumps([outcome.answered, outcome.refused, outcome.missing], separators=(",", ":"))
        self._connection.execute(
            "UPDATE rounds SET state = 'settled', outcome = ? WHERE plan_id = ?", (text, self.plan_id)
        )
        body: Body = {
            "plan_id": self.plan_id,
            "answered": outcome.answered,
            "refused": dict(outcome.refused),
            "missing": outcome.missing,
        }
        chain.append(self._connection, self._identity, kind="settled", body=body)

    def answer(self, answer: WrittenAnswer) -> None:
        """Store the answer of a round that is settled; one that is already there stays as it is."""
        keep_answer(self._connection, self._identity, self.plan_id, answer)


class TaskStore:
    """The tasks of every round."""

    def __init__(self, database: Database, identity: Identity, rounds: RoundStore, trainings: TrainingStore) -> None:
        self._database = database
        self._identity = identity
        self._rounds = rounds
        self._trainings = trainings

    def exists(self, plan_id: str, site: str) -> bool:
        """Whether the plan was opened for this site."""
        with self._database.reading() as connection:
            row = connection.execute("SELECT 1 FROM tasks WHERE plan_id = ? AND site = ?", (plan_id, site)).fetchone()
        return row is not None

    def states(self, plan_id: str) -> dict[str, SiteState]:
        """The stored state of every task of a plan, by site."""
        with self._database.reading() as connection:
            rows = connection.execute("SELECT site, state FROM tasks WHERE plan_id = ? ORDER BY site", (plan_id,))
            return {site: SiteState(state) for site, state in rows}

    def reserved(self, site: str, *, after: str, most: int) -> tuple[str, ...]:
        """The plans that were opened for a site and that it did not refuse, in the order of their ids."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT plan_id FROM tasks WHERE site = ? AND state <> 'refused' AND plan_id > ?"
                " ORDER BY plan_id LIMIT ?",
                (site, after, most),
            )
            return tuple(plan_id for (plan_id,) in rows)

    @contextmanager
    def opening(self, plan: Plan) -> Iterator[OpeningRound]:
        """Looking where a round stands and opening its tasks, in one transaction."""
        with self._database.transaction() as connection:
            left_out = frozenset(self._trainings.left_out(plan.plan_id))
            yield OpeningRound(self._rounds.standing(plan.plan_id), plan, left_out, connection, self._identity)

    @contextmanager
    def settling(self, plan_id: str) -> Iterator[SettlingRound]:
        """Looking who answered and fixing it, in one transaction."""
        with self._database.transaction() as connection:
            codes = connection.execute(
                "SELECT site, code FROM submissions WHERE plan_id = ? AND code <> '' ORDER BY site", (plan_id,)
            ).fetchall()
            refusals = {**self._trainings.left_out(plan_id), **dict(codes)}
            before, states = self._rounds.standing(plan_id), self.states(plan_id)
            yield SettlingRound(plan_id, before, states, refusals, connection, self._identity)
