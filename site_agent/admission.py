"""Whether this hospital will run this plan: decided from public things, before anything is spent or read.

The coordinator is not believed. What it sends must be signed by the key the site enrolled with, be about
the study the site signed, and cost no more than the hospital's own policy allows.
"""

from __future__ import annotations

from site_agent.policy import Policy
from wardround.federation.errors import NotAuthorized, PlanRefused
from wardround.federation.identity import PublicIdentity
from wardround.federation.plan import Plan, price, shape_of
from wardround.federation.shape import Shape
from wardround.federation.study import Study
from wardround.federation.task import SignedTask, Task
from wardround.privacy.filter import epsilon_charged


def authentic(signed: SignedTask, *, site: str, coordinator: PublicIdentity) -> Task:
    """The task, if our coordinator signed it for us.

    A task that fails here gets no signed refusal: refusals are kept under the plan's id, and a forged
    copy must not be able to refuse the true plan.
    """
    if not signed.signed_by(coordinator):
        msg = "a task is not signed by the coordinator this site enrolled with."
        raise NotAuthorized(msg)
    if signed.task.site != site:
        msg = "a task is addressed to another site."
        raise NotAuthorized(msg)
    return signed.task


def admit(plan: Plan, *, site: str, study: Study, policy: Policy) -> Shape:
    """The form of the answer this site will give; `Refused` or `Mistaken` when it will not."""
    form = shape_of(plan, study)
    if site not in plan.participants or tuple(sorted(set(plan.participants))) != plan.participants:
        msg = "the plan does not name this site among its participants, each once and in order."
        raise PlanRefused(msg)
    for aggregate in plan.query.aggregates:
        if aggregate.statistic not in policy.statistics:
            msg = (
                f"this site's policy does not allow {aggregate.statistic.value!r}; see policy.statistics in site.toml."
            )
            raise PlanRefused(msg)
    asked = epsilon_charged(price(plan, study).cost, delta=policy.cap.delta)
    if asked > policy.max_epsilon_per_plan * (1 + 1e-9):
        msg = (
            f"the plan costs ε = {asked:.4g} but this site allows ε = {policy.max_epsilon_per_plan:.4g} a plan, "
            f"{asked - policy.max_epsilon_per_plan:.4g} too little; nothing was charged."
        )
        raise PlanRefused(msg)
    return form
