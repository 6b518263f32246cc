"""Whether this hospital will run this plan: decided from public things, before anything is spent or read.

The coordinator is not believed. What it sends must be signed by the key the site enrolled with, be about
the study the site signed, hold no text that could forge the line by which a steward approves, and cost no more than
the hospital's own policy allows, which no coordinator can change.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from site_agent.answering.memory_check import Room
from wardround.federation.errors import NotAuthorized, PlanRefused
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.models.step_layout import StepLayout
from wardround.federation.plain_text import fault_in
from wardround.federation.plan.allowance import affordable, not_allowed
from wardround.federation.plan.plan import Plan, Planned, form_of, planned
from wardround.federation.plan.task import SignedTask, Task
from wardround.federation.question.query import Statistic
from wardround.federation.refusal import RefusalReason
from wardround.federation.study.study import Study
from wardround.federation.trust.identity import PublicIdentity
from wardround.federation.trust.public_limits import TRAINING, PublicLimits
from wardround.privacy.budget.filter import Cap, epsilon_charged


class Approval(StrEnum):
    """Whether a data steward sees every plan before anything is spent."""

    AUTOMATIC = "automatic"
    MANUAL = "manual"


@dataclass(frozen=True, slots=True)
class Policy:
    """What this hospital allows, per dataset and across studies.

    `min_sites` is the least number of participants that a plan must name for this site to be one of them.
    """

    cap: Cap
    max_epsilon_per_plan: float
    statistics: tuple[Statistic, ...]
    approval: Approval
    training: bool = True
    min_sites: int = 1
    room: Room = field(default_factory=Room)

    def public(self) -> PublicLimits:
        """The part that everybody may know, so that nobody asks in vain: words of site.toml and nothing else."""
        words = (*(statistic.value for statistic in self.statistics), *((TRAINING,) if self.training else ()))
        return PublicLimits(
            tuple(dict.fromkeys(words)),
            self.max_epsilon_per_plan,
            self.cap.delta,
            by_person=self.approval is Approval.MANUAL,
        )

    def text(self) -> str:
        """What one plan is held to, in a few words."""
        per_plan = f"{self.max_epsilon_per_plan:g} a question"
        return f"{per_plan}, only with {self.min_sites} or more sites, approval {self.approval.value}"


def authentic(signed: SignedTask, *, site: str, coordinator: PublicIdentity) -> Task:
    """The task, if our coordinator signed it for us.

    A task that fails here gets no signed refusal: refusals are kept under the plan's id, and a forged
    copy must not be able to refuse the true plan.
    """
    if not signed.signed_by(coordinator):
        raise NotAuthorized("a task is not signed by the coordinator this site enrolled with.")
    if signed.task.site != site:
        raise NotAuthorized("a task is addressed to another site.")
    return signed.task


def admit(plan: Plan, *, site: str, study: Study, policy: Policy) -> Planned[AnswerLayout | StepLayout]:
    """The plan with the form of the answer this site will give, and its price, both found out here and only here.

    `Refused` or `Mistaken` when it will not.
    """
    form = form_of(plan, study)
    if site not in plan.addressed or not plan.lists_its_participants_once:
        raise PlanRefused("the plan does not name this site among its participants, each once and in order.")
    if len(plan.participants) < policy.min_sites:
        raise PlanRefused(
            f"the plan names {len(plan.participants)} participants and this site takes part with {policy.min_sites} or "
            "more; see policy.min_sites in site.toml.",
            reason=RefusalReason.COMPANY,
        )
    limits = policy.public()
    for word in not_allowed(plan.query, limits):
        reason = RefusalReason.TRAINING if word == TRAINING else RefusalReason.STATISTIC
        raise PlanRefused(
            f"this site's policy does not allow {word!r}; see policy.statistics in site.toml.", reason=reason
        )
    if (fault := fault_in(plan.query)) is not None:
        raise PlanRefused(f"a text in the plan {fault}.")
    policy.room.require(form)
    admitted = planned(plan, form, study)
    charge = admitted.charge
    if not affordable(charge.cost, limits):
        asked = epsilon_charged(charge.cost, delta=policy.cap.delta)
        raise PlanRefused(
            f"the plan costs ε = {asked:.4g} but this site allows ε = {policy.max_epsilon_per_plan:.4g} a plan, "
            f"{asked - policy.max_epsilon_per_plan:.4g} too little; nothing was charged.",
            reason=RefusalReason.EPSILON,
        )
    return admitted
