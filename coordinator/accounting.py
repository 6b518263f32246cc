"""What the study may still lose, and what each question takes of it.

A charge is durable before any site is asked. It is given back only for a site that signed a refusal, which
it can do only before it read anything; whatever was released, or is unknown, stays spent.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

from coordinator import blocks
from coordinator.ledger import Ledger
from coordinator.patience import Patience
from coordinator.stored_plan import decode_plan, encode_plan
from wardround.federation.answer import Excess, Loss, Remaining, SiteState
from wardround.federation.errors import BudgetExceeded, InvariantBroken, QueryMistaken
from wardround.federation.ledger import accounts, chain
from wardround.federation.ledger.body import Body, cost_body, facts_body
from wardround.federation.plan import Plan, price
from wardround.federation.study import Study
from wardround.federation.training import Step
from wardround.privacy.filter import epsilon_remaining, epsilon_spent, fraction_remaining
from wardround.privacy.loss import Cost
from wardround.privacy.parallel import over_groups


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


@dataclass(frozen=True, slots=True)
class Balances:
    """What every site, and through them the dearest unit, has lost so far."""

    study: Study
    sites: Mapping[str, Cost]

    @property
    def whole(self) -> Cost:
        """The loss of the unit that lost most: it is at the `overlap` dearest sites (PROOFS.md#parallel)."""
        return over_groups(self.sites, self.study.groups_among(self.sites))

    def spent(self) -> Loss:
        """The filter's ε at the study's δ."""
        return Loss(epsilon_spent(self.whole, self.study.cap), self.study.cap.delta)

    def remaining(self, *, delta: float) -> Remaining:
        """The largest next question at `delta` that would be admitted, and the share of the budget left."""
        overlap = self.study.overlap_among(self.sites)
        epsilon = epsilon_remaining(self.whole, self.study.cap, delta=delta, overlap=overlap)
        return Remaining(epsilon, fraction_remaining(self.whole, self.study.cap))

    def without_pure(self) -> Balances:
        """The same with nothing left of pure ε."""
        pure = self.study.cap.allowance().pure
        spent = {
            name: Cost(mu_squared=cost.mu_squared, pure=max(cost.pure, pure), slack=cost.slack)
            for name, cost in self.sites.items()
        }
        return Balances(self.study, spent)

    def site_spent(self, site: str) -> Loss:
        """One site's own part, as ε at the study's δ."""
        return Loss(epsilon_spent(self.sites[site], self.study.cap), self.study.cap.delta)


class Accounting:
    """Reserve, void, settle: each under the plan's key, each in one transaction."""

    def __init__(self, ledger: Ledger, patience: Patience) -> None:
        self._ledger = ledger
        self._patience = patience

    def reserve(self, question: Question) -> None:
        """Charge the plan at every participant, once; `BudgetExceeded` charges and opens nothing.

        The first round of a training charges all of it, and each further one nothing.
        """
        plan, study = question.plan, self._ledger.study
        charge = price(plan, study)
        with self._ledger.database.reading() as connection:
            if _exists(connection, plan.plan_id):
                return
        # Looking and charging are one transaction: of two questions for the last of the budget one comes second.
        with self._ledger.database.transaction() as connection:
            if _exists(connection, plan.plan_id):
                return
            due = blocks.due(connection, plan, charge, study)
            cost = due.charge.cost
            before = balances(connection, study)
            if (excess := _excess(before, question, due)) is not None:
                raise BudgetExceeded(asked=excess.asked, remaining=excess.remaining)
            if cost != Cost.zero():
                for site in due.sites:
                    accounts.debit(connection, site, cost)
            connection.execute(
                "INSERT INTO rounds"
                " (plan_id, plan, analyst, epsilon, delta, mu_squared, pure, slack, reserved_at, state)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'reserved')",
                (
                    plan.plan_id,
                    encode_plan(plan),
                    question.analyst,
                    question.epsilon,
                    question.delta,
                    cost.mu_squared,
                    cost.pure,
                    cost.slack,
                    self._patience.date(),
                ),
            )
            blocks.take(connection, plan, due)
            body: Body = {
                "plan_id": plan.plan_id,
                "sites": due.sites,
                "facts": facts_body(due.charge.facts),
                **cost_body(cost),
            }
            chain.append(connection, self._ledger.identity, kind="reserved", body=body)

    def excess(self, question: Question) -> Excess | None:
        """What the question would be refused with now; nothing is charged."""
        plan, study = question.plan, self._ledger.study
        charge = price(plan, study)
        with self._ledger.database.reading() as connection:
            before, due = balances(connection, study), blocks.due(connection, plan, charge, study)
        return _excess(before, question, due)

    def charged(self, plan: Plan) -> Cost:
        """What the plan was charged at each site that was asked, or would be now."""
        study = self._ledger.study
        with self._ledger.database.reading() as connection:
            row = connection.execute(
                "SELECT mu_squared, pure, slack FROM rounds WHERE plan_id = ?", (plan.plan_id,)
            ).fetchone()
            if row is not None:
                return Cost(*row)
            return blocks.due(connection, plan, price(plan, study), study).charge.cost

    def participants_of(self, step: Step, *, nonce: str) -> tuple[str, ...]:
        """Who takes part in this training, once it has begun; nobody before."""
        with self._ledger.database.reading() as connection:
            return blocks.participants_of(connection, step, study=self._ledger.study, nonce=nonce)

    def void(self, connection: sqlite3.Connection, plan_id: str, site: str) -> None:
        """Give back what the plan was charged at a site that signed a refusal; the caller sees to it once.

        What pays for other rounds of a training too is not given back.
        """
        if blocks.keeps_its_charge(connection, plan_id, site):
            return
        row = connection.execute("SELECT mu_squared, pure, slack FROM rounds WHERE plan_id = ?", (plan_id,)).fetchone()
        accounts.credit(connection, site, Cost(*row))
        chain.append(connection, self._ledger.identity, kind="voided", body={"plan_id": plan_id, "site": site})

    def settle(self, plan: Plan) -> Outcome:
        """Fix who answered, refused or is missing; what is not refused stays spent."""
        with self._ledger.database.transaction() as connection:
            state, text = connection.execute(
                "SELECT state, outcome FROM rounds WHERE plan_id = ?", (plan.plan_id,)
            ).fetchone()
            if state in ("settled", "answered"):
                return _outcome(text)
            outcome = _standing(connection, plan)
            connection.execute(
                "UPDATE tasks SET state = 'missing' WHERE plan_id = ? AND state NOT IN ('released', 'refused')",
                (plan.plan_id,),
            )
            connection.execute(
                "UPDATE rounds SET state = 'settled', outcome = ? WHERE plan_id = ?",
                (_outcome_text(outcome), plan.plan_id),
            )
            chain.append(
                connection,
                self._ledger.identity,
                kind="settled",
                body={
                    "plan_id": plan.plan_id,
                    "answered": outcome.answered,
                    "refused": dict(outcome.refused),
                    "missing": outcome.missing,
                },
            )
        return outcome

    def balances(self) -> Balances:
        """Every account at one moment."""
        with self._ledger.database.reading() as connection:
            return balances(connection, self._ledger.study)


def balances(connection: sqlite3.Connection, study: Study) -> Balances:
    """Every account as this transaction sees it."""
    return Balances(study, {name: balance.spent for name, balance in accounts.balances(connection).items()})


def find_question(connection: sqlite3.Connection, plan_id: str) -> Question | None:
    """The question under this plan id, if it was ever reserved."""
    row = connection.execute(
        "SELECT plan, analyst, epsilon, delta FROM rounds WHERE plan_id = ?", (plan_id,)
    ).fetchone()
    return None if row is None else Question(decode_plan(row[0], plan_id=plan_id), row[1], row[2], row[3])


def question_of(connection: sqlite3.Connection, plan_id: str) -> Question:
    """The question under this plan id; `QueryMistaken` when nobody asked it."""
    found = find_question(connection, plan_id)
    if found is None:
        raise QueryMistaken("no question with this plan id was asked; ask it first.")
    return found


def outcome_of(connection: sqlite3.Connection, plan_id: str) -> Outcome | None:
    """How the round was settled, or None while it is not."""
    row = connection.execute("SELECT state, outcome FROM rounds WHERE plan_id = ?", (plan_id,)).fetchone()
    return None if row is None or row[0] not in ("settled", "answered") else _outcome(row[1])


def _exists(connection: sqlite3.Connection, plan_id: str) -> bool:
    return connection.execute("SELECT 1 FROM rounds WHERE plan_id = ?", (plan_id,)).fetchone() is not None


def _excess(before: Balances, question: Question, due: blocks.Due) -> Excess | None:
    if _fits(before, due):
        return None
    left = before.remaining(delta=question.delta)
    if due.charge.block:
        # A training is paid from one lane only; what the other has left does not help it.
        left = before.without_pure().remaining(delta=question.delta)
    return Excess(question.epsilon, left.epsilon)


def _fits(before: Balances, due: blocks.Due) -> bool:
    """Whether the study can pay; a further round of a training always, because it costs nothing."""
    asked, cost = set(due.sites), due.charge.cost
    if unknown := asked - set(before.sites):
        raise InvariantBroken(private=f"participants without an account: {sorted(unknown)}")
    if cost == Cost.zero():
        return True
    after = {name: spent + cost if name in asked else spent for name, spent in before.sites.items()}
    return Balances(before.study, after).whole.fits(before.study.cap.allowance())


def _standing(connection: sqlite3.Connection, plan: Plan) -> Outcome:
    states = {
        site: SiteState(state)
        for site, state in connection.execute(
            "SELECT site, state FROM tasks WHERE plan_id = ? ORDER BY site", (plan.plan_id,)
        )
    }
    codes = connection.execute(
        "SELECT site, code FROM submissions WHERE plan_id = ? AND code <> '' ORDER BY site", (plan.plan_id,)
    ).fetchall()
    final = (SiteState.RELEASED, SiteState.REFUSED)
    return Outcome(
        answered=tuple(site for site, state in states.items() if state is SiteState.RELEASED),
        refused=tuple(sorted({**blocks.left_out(connection, plan.plan_id), **dict(codes)}.items())),
        missing=tuple(site for site, state in states.items() if state not in final),
    )


def _outcome_text(outcome: Outcome) -> str:
    return json.dumps([outcome.answered, outcome.refused, outcome.missing], separators=(",", ":"))


def _outcome(text: str) -> Outcome:
    answered, refused, missing = json.loads(text)
    return Outcome(tuple(answered), tuple((site, code) for site, code in refused), tuple(missing))
