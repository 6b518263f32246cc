"""A plan: a query made exact, so that its price and its answer are determined.

`plan_id` is the hash of the canonical encoding. The same plan is charged once and answered with the same
stored bytes forever; anything that differs is another plan and another charge.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from wardround.federation import canonical
from wardround.federation.errors import PlanRefused
from wardround.federation.query import Query
from wardround.federation.shape import Shape, shape
from wardround.federation.study import Study
from wardround.privacy.law import Mechanism, NoiseLaw
from wardround.privacy.loss import Cost, Fact, total


# Without slots, so that the id is computed once. It is kept on the very object and not looked up by equality:
# 40 equals 40.0, but they are two encodings.
@dataclass(frozen=True)
class Plan:
    """What every participant is asked: study, query, mechanism, one noise scale per part, participants."""

    study_hash: str
    query: Query
    mechanism: Mechanism
    scales: tuple[Fraction, ...]
    participants: tuple[str, ...]
    nonce: str = ""

    @cached_property
    def plan_id(self) -> str:
        """The key of everything that happens to this plan."""
        return canonical.digest(self)

    def laws(self) -> tuple[NoiseLaw, ...]:
        """The noise of each part."""
        return tuple(NoiseLaw(self.mechanism, scale) for scale in self.scales)


@dataclass(frozen=True, slots=True)
class Charge:
    """What one plan costs one site: facts that never change, and the integers derived from them."""

    plan_id: str
    facts: tuple[Fact, ...]

    @property
    def cost(self) -> Cost:
        """The amounts the ledger adds up, rounded against us."""
        return total(self.facts)


def shape_of(plan: Plan, study: Study) -> Shape:
    """The form of this plan's answer; `PlanRefused` when the plan does not fit the study."""
    if plan.study_hash != study.study_hash:
        msg = "the plan names a study that this site did not sign."
        raise PlanRefused(msg)
    form = shape(plan.query, study, plan.mechanism)
    # Compared as bytes: 40 and 40.0 are equal numbers but two encodings, and so two plan ids.
    if canonical.encode(form.query) != canonical.encode(plan.query) or len(plan.scales) != len(form.parts):
        msg = "the plan is not in canonical form."
        raise PlanRefused(msg)
    return form


def price(plan: Plan, study: Study) -> Charge:
    """What this plan costs at one site. Both sides call this; nobody sends it."""
    form = shape_of(plan, study)
    try:
        facts = tuple(
            Fact(law, part.l1_sensitivity, part.l2_sensitivity_squared, part.dimension)
            for law, part in zip(plan.laws(), form.parts, strict=True)
        )
        charge = Charge(plan.plan_id, facts)
        _ = charge.cost
    except ValueError as error:
        raise PlanRefused(f"the plan's noise is outside what can be accounted: {error}") from None
    return charge
