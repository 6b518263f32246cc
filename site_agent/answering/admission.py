"""Whether this hospital will run this plan: decided from public things, before anything is spent or read.

The coordinator is not believed. What it sends must be signed by the key the site enrolled with, be about
the study the site signed, hold no text that could forge the line by which a steward approves, and cost no more than
the hospital's own policy allows, which no coordinator can change. Nor can it say who asks: an analyst's signature is
checked against the plan itself, and against what the analyst agreed to pay.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction

from site_agent.answering.memory_check import Room
from wardround.federation import canonical
from wardround.federation.errors import NotAuthorized, PlanRefused
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.models.step_layout import StepLayout
from wardround.federation.models.training import Step
from wardround.federation.plain_text import fault_in
from wardround.federation.plan.allowance import affordable, not_allowed
from wardround.federation.plan.plan import Plan, Planned, form_of, planned, privacy_target
from wardround.federation.plan.task import SignedTask, Task
from wardround.federation.question.query import Statistic
from wardround.federation.refusal import RefusalReason
from wardround.federation.study.study import Study
from wardround.federation.trust.asked_by import AskedBy
from wardround.federation.trust.identity import PublicIdentity
from wardround.federation.trust.public_limits import TRAINING, PublicLimits
from wardround.privacy.accounting.cost import SLACK_UNIT
from wardround.privacy.budget.calibration import SLACK_SHARE
from wardround.privacy.budget.filter import Cap, epsilon_charged, is_within
from wardround.privacy.budget.parallel import in_parallel

_MACHINE_DIFFERENCE = 1e-9


class Approval(StrEnum):
    """Whether a data steward sees every plan before anything is spent."""

    AUTOMATIC = "automatic"
    MANUAL = "manual"


@dataclass(frozen=True, slots=True)
class Policy:
    """What this hospital allows, per dataset and across studies.

    `min_sites` is the least number of participants that a plan must name for this site to be one of them. `analysts`
    are those who may ask; everybody may where there are none.
    """

    cap: Cap
    max_epsilon_per_plan: float
    statistics: tuple[Statistic, ...]
    approval: Approval
    training: bool = True
    min_sites: int = 1
    analysts: tuple[str, ...] = ()
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


def check_asked(
    asked_by: AskedBy | None, admitted: Planned[AnswerLayout | StepLayout], *, study: Study, policy: Policy
) -> None:
    """Refuse a plan that its analyst did not sign, or not at this price, or who may not ask here.

    Nothing is refused for want of a signature: nobody is known to have asked then, which is for a steward to decide.
    """
    if asked_by is None:
        return
    plan, query = admitted.plan, canonical.encode(admitted.plan.query)
    if not asked_by.covers(study_hash=plan.study_hash, query=query, nonce=plan.nonce):
        raise PlanRefused(
            f"the signature of {asked_by.analyst} is not on this question.", reason=RefusalReason.SIGNATURE
        )
    if not agreed(asked_by, admitted, study):
        raise PlanRefused(
            f"the plan costs more than {asked_by.analyst} signed for; nothing was charged.",
            reason=RefusalReason.SIGNATURE,
        )
    if policy.analysts and asked_by.analyst not in policy.analysts:
        raise PlanRefused(
            f"{asked_by.analyst} is not among those who may ask here; see policy.analysts in site.toml.",
            reason=RefusalReason.ANALYST,
        )


def agreed(asked_by: AskedBy, admitted: Planned[AnswerLayout | StepLayout], study: Study) -> bool:
    """Whether a plan costs a unit at all its sites no more than the analyst signed for, or left to the study.

    A step names its own noise, and whoever asks by error alone names no ε.
    """
    if isinstance(admitted.plan.query, Step) or (asked_by.errors and asked_by.epsilon is None):
        return True
    target = privacy_target(asked_by.epsilon, asked_by.delta, study)
    overlap = study.overlap_among(admitted.plan.participants)
    whole = in_parallel([admitted.charge.cost] * overlap, overlap=overlap)
    slack = math.floor(Fraction(target.delta) * SLACK_SHARE * SLACK_UNIT)
    # The last places of an ε differ between machines.
    within = is_within(whole, epsilon=target.epsilon * (1 + _MACHINE_DIFFERENCE), delta=target.delta)
    return within and whole.slack <= slack
