"""What a plan costs, as tests look at it."""

from __future__ import annotations

from coordinator.planning.plans import loss_of
from wardround.federation.plan.plan import Plan, price
from wardround.federation.question.answer import Loss
from wardround.federation.study.study import Study


def charged(plan: Plan, study: Study, *, delta: float) -> Loss:
    """What the plan costs one unit over all of its sites, as ε at `delta`."""
    return loss_of(price(plan, study).cost, overlap=study.overlap_among(plan.participants), delta=delta)
