"""What the study may still lose, and what each question takes of it.

A charge is durable before any site is asked. It is given back only for a site that signed a refusal, which
it can do only before it read anything; whatever was released, or is unknown, stays spent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from coordinator.clock import Clock
from coordinator.store.ledger import Ledger
from coordinator.store.rounds import Outcome, Question
from coordinator.store.submissions import AcceptingTask
from coordinator.store.tasks import SettlingRound
from coordinator.store.trainings import Begun, Due
from wardround.federation.errors import BudgetExceeded, InvariantBroken, PlanRefused, QueryMistaken, TooFewSites
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.models.step_layout import StepLayout
from wardround.federation.plan.plan import Charge, Plan, Planned
from wardround.federation.question.answer import Loss, Remaining, Shortfall, SiteState
from wardround.federation.refusal import refusal_texts
from wardround.federation.study.study import Study
from wardround.privacy.accounting.cost import Cost
from wardround.privacy.budget.filter import epsilon_remaining, epsilon_spent, fraction_remaining
from wardround.privacy.budget.parallel import over_groups

TAKEN = (
    "this round of the training was already asked with other numbers; continue with the program and "
    "the settings that started the training, or start it again with --fresh, which is charged again."
)


@dataclass(frozen=True, slots=True)
class PlannedQuestion:
    """A question with the layout and the price of its plan, so that nobody after the planner finds them out again."""

    question: Question
    planned: Planned[AnswerLayout | StepLayout]

    @property
    def plan(self) -> Plan:
        """What is asked of every participant."""
        return self.planned.plan


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

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock

    def reserve(self, asked: PlannedQuestion, *, require: int = 0) -> None:
        """Charge the plan at every participant and open its tasks, once; `BudgetExceeded` does neither.

        The first round of a training charges all of it, and each further one nothing. How many hospitals the answer
        must have is written down with it.
        """
        plan, charge, study = asked.plan, asked.planned.charge, self._ledger.study
        if self._ledger.rounds.charged(plan.plan_id) is not None:
            return
        with self._ledger.rounds.reserving(plan.plan_id, charge) as round_:
            if round_.reserved:
                return
            due = _due(plan, charge, study, round_.begun)
            if (excess := _excess(Balances(study, round_.spent), asked.question, due)) is not None:
                raise BudgetExceeded(asked=excess.asked, remaining=excess.remaining)
            now = self._clock.now()
            round_.charge(asked.question, due, require=require, at=self._clock.date(), now=now)

    def excess(self, asked: PlannedQuestion) -> Shortfall | None:
        """What the question would be refused with now; nothing is charged."""
        charge = asked.planned.charge
        with self._ledger.one_moment():
            before, begun = self.balances(), self._ledger.trainings.begun(charge)
        return _excess(before, asked.question, _due(asked.plan, charge, self._ledger.study, begun))

    def tried(self, questions: Sequence[PlannedQuestion]) -> tuple[PlannedQuestion, Shortfall | None]:
        """The first of the questions that the budget would admit; else the best, and what the last is refused with."""
        excess = None
        for asked in questions:
            if (excess := self.excess(asked)) is None:
                return asked, None
        return questions[0], excess

    def share_of_rest(self, asked: PlannedQuestion) -> float | None:
        """The share that a question would take of what is left for its kind of noise; None where nothing is."""
        plan, cost = asked.plan, asked.planned.charge.cost
        with self._ledger.one_moment():
            if self._ledger.rounds.charged(plan.plan_id) is not None:
                return 0.0
            before = self.balances()
        after = _after(before, plan.addressed, cost)
        allowance, spent, then = before.study.cap.allowance(), before.whole, after.whole
        if cost.mu_squared:
            left, taken = allowance.mu_squared - spent.mu_squared, then.mu_squared - spent.mu_squared
        else:
            left, taken = allowance.pure - spent.pure, then.pure - spent.pure
        return taken / left if left > 0 else None

    def charged(self, planned: Planned[AnswerLayout | StepLayout]) -> Cost:
        """What the plan was charged at each site that was asked, or would be now."""
        plan, charge = planned.plan, planned.charge
        with self._ledger.one_moment():
            cost = self._ledger.rounds.charged(plan.plan_id)
            if cost is not None:
                return cost
            return _due(plan, charge, self._ledger.study, self._ledger.trainings.begun(charge)).charge.cost

    def void(self, task: AcceptingTask) -> None:
        """Give back what the plan was charged at a site that signed a refusal; the caller sees to it once.

        What pays for other rounds of a training too is not given back.
        """
        if task.charged and not self._ledger.trainings.keeps_its_charge(task.plan_id, task.site):
            task.give_back()

    def settle(self, round_: SettlingRound) -> Outcome:
        """Fix who answered, refused or is missing; what is not refused stays spent."""
        if round_.before.outcome is not None:
            return round_.before.outcome
        outcome = _outcome(round_.states, round_.refusals)
        round_.settle(outcome)
        return outcome

    def balances(self) -> Balances:
        """Every account at one moment."""
        return Balances(self._ledger.study, self._ledger.rounds.spent())


def question_of(ledger: Ledger, plan_id: str) -> Question:
    """The question under this plan id; `QueryMistaken` when nobody asked it."""
    found = ledger.rounds.question(plan_id)
    if found is None:
        raise QueryMistaken("no question with this plan id was asked; ask it first.")
    return found


def _due(plan: Plan, charge: Charge, study: Study, begun: Begun | None) -> Due:
    """The whole training at its first round, and nothing at a further one.

    Whoever took part in the first round is asked in every other, so that a hospital that comes or goes later makes no
    second training of it; one that declined a round is not asked again.

    Raises:
        PlanRefused: the round was asked with other numbers.
        TooFewSites: too many participants have declined an earlier round.
    """
    if begun is None:
        return Due(charge, plan.participants)
    if begun.taken_by not in (None, plan.plan_id):
        raise PlanRefused(TAKEN)
    declined = dict(begun.declined)
    sites = tuple(site for site in plan.participants if site not in declined)
    if len(sites) < study.min_sites:
        names = ", ".join(refusal_texts(begun.declined))
        raise TooFewSites(
            f"{len(sites)} sites still take part in the training and the study needs {study.min_sites}; "
            f"refused: {names}. When the hospitals have changed their policy, begin it afresh (--fresh)."
        )
    return Due(charge.continued(), sites, begun.declined)


def _excess(before: Balances, question: Question, due: Due) -> Shortfall | None:
    if _fits(before, due):
        return None
    left = before.remaining(delta=question.delta)
    if due.charge.block:
        # A training is paid from one lane only; what the other has left does not help it.
        left = before.without_pure().remaining(delta=question.delta)
    return Shortfall(question.epsilon, left.epsilon)


def _fits(before: Balances, due: Due) -> bool:
    """Whether the study can pay; a further round of a training always, because it costs nothing."""
    asked, cost = set(due.sites), due.charge.cost
    if unknown := asked - set(before.sites):
        raise InvariantBroken(private=f"participants without an account: {sorted(unknown)}")
    if cost == Cost.zero():
        return True
    return _after(before, asked, cost).whole.fits(before.study.cap.allowance())


def _after(before: Balances, sites: Collection[str], cost: Cost) -> Balances:
    """The balances once these sites are charged."""
    after = {name: spent + cost if name in sites else spent for name, spent in before.sites.items()}
    return Balances(before.study, after)


def _outcome(states: Mapping[str, SiteState], refusals: Mapping[str, str]) -> Outcome:
    final = (SiteState.RELEASED, SiteState.REFUSED)
    return Outcome(
        answered=tuple(site for site, state in states.items() if state is SiteState.RELEASED),
        refused=tuple(sorted(refusals.items())),
        missing=tuple(site for site, state in states.items() if state not in final),
    )
