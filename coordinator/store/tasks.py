"""Tasks in the ledger: one row for each participant of a plan that is asked, from opening to settling its round."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from coordinator.store.rounds import Outcome, RoundStanding, RoundStore
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

    def open(self, *, at: float) -> None:
        """One task for each participant that is asked; whoever was missing is asked again."""
        plan_id = self._plan.plan_id
        # An answer must come after what the site had signed before it could know the plan.
        known = self._connection.execute("SELECT name, head_sequence FROM sites")
        heads = {site: sequence for site, sequence in known if site not in self._left_out}
        (number,) = self._connection.execute("SELECT number FROM rounds WHERE plan_id = ?", (plan_id,)).fetchone()
        self._connection.executemany(
            "INSERT INTO tasks (plan_id, site, number, state, opened_after) VALUES (?, ?, ?, 'open', ?)"
            " ON CONFLICT (plan_id, site) DO UPDATE SET state = 'open' WHERE state = 'missing'",
            [(plan_id, site, number, heads[site]) for site in self._plan.participants if site in heads],
        )
        self._connection.execute("UPDATE rounds SET state = 'open', opened_at = ? WHERE plan_id = ?", (at, plan_id))


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

    def waiting(self, site: str) -> tuple[str, ...]:
        """The plans that a site has neither answered nor put before its steward, oldest first."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT plan_id FROM tasks WHERE site = ? AND state IN ('open', 'failed') ORDER BY number", (site,)
            )
            return tuple(plan_id for (plan_id,) in rows)

    @contextmanager
    def opening(self, plan: Plan) -> Iterator[OpeningRound]:
        """Looking where a round stands and opening its tasks, in one transaction."""
        with self._database.transaction() as connection:
            left_out = frozenset(self._trainings.left_out(plan.plan_id))
            yield OpeningRound(self._rounds.standing(plan.plan_id), plan, left_out, connection)

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
