"""From a question, or a step of a training, to the exact plans that could answer it.

Pure: no ledger, no clock, no entropy. The same question of the same participants under the same study is always
the same plan, and so the same plan id; that is what makes a repeated question free.

A threshold of keys is as low as the question's own share of the study's δ allows, so that as many questions for keys
fit a study as its ε admits. A choice is made by votes or from a noised table, whichever has the smaller regret.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction

from coordinator.accounts.accounting import PlannedQuestion
from coordinator.store.rounds import Question
from wardround.federation.errors import PlanRefused, QueryMistaken
from wardround.federation.forms.parts import AnswerLayout, Part
from wardround.federation.models.step_layout import StepLayout, largest_round, step_form
from wardround.federation.models.training import Step
from wardround.federation.plan.layout import layout, shares
from wardround.federation.plan.plan import (
    Plan,
    Planned,
    PrivacyTarget,
    facts_of,
    form_of,
    planned,
    privacy_target,
    selection,
    selection_slack,
)
from wardround.federation.plan.task import AskRequest
from wardround.federation.plan.typed import Typed, type_query
from wardround.federation.question.answer import MAX_UPDATE_BYTES, Loss
from wardround.federation.question.query import Query
from wardround.federation.statistics import find, own_definition
from wardround.federation.study.study import Study, delta_fault
from wardround.privacy.accounting.cost import SLACK_UNIT, Cost
from wardround.privacy.budget.calibration import SLACK_SHARE, gaussian_scale, laplace_scale
from wardround.privacy.budget.facts import AnyMechanism
from wardround.privacy.budget.filter import LEAST_DELTA, epsilon_charged
from wardround.privacy.budget.parallel import in_parallel
from wardround.privacy.mechanisms.partition_selection import LARGEST_THRESHOLD, least_threshold
from wardround.privacy.mechanisms.private_selection import Choosing
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution

_NONCE = re.compile(r"[0-9a-fA-F]{0,64}")
# An allowance comes from floating point, whose last places differ between machines; a site must not refuse for them.
_KEPT = (999, 1000)


def planned_again(question: Question, study: Study) -> PlannedQuestion:
    """A question that was read back from the ledger; `PlanRefused` where its plan no longer fits the study."""
    plan = question.plan
    return PlannedQuestion(question, planned(plan, form_of(plan, study), study))


def target_of(request: AskRequest, study: Study, participants: Mapping[str, int]) -> PrivacyTarget:
    """What the question asks for, with the study's defaults; `QueryMistaken` when it makes no sense."""
    target = privacy_target(request.epsilon, request.delta, study)
    epsilon, delta = target.epsilon, target.delta
    if not (math.isfinite(epsilon) and epsilon > 0.0):
        raise QueryMistaken(f"ε must be a finite number above 0, not {epsilon:g}.")
    if not (math.isfinite(delta) and delta >= 0.0):
        raise QueryMistaken(f"δ must be a finite number of at least 0, not {delta:g}.")
    if delta > study.cap.delta:
        raise QueryMistaken(f"δ = {delta:g} is above the study's δ = {study.cap.delta:g}; choose it at most that.")
    if delta == 0.0 and _pure_lane(study) == 0.0:
        raise QueryMistaken(f"δ must be above 0: this study has no pure budget; choose δ up to {study.cap.delta:g}.")
    if 0.0 < delta < LEAST_DELTA:
        raise QueryMistaken(f"δ = {delta:g} is too small to account for; choose 0, or at least {LEAST_DELTA:g}.")
    if (fault := delta_fault(delta, participants)) is not None:
        raise QueryMistaken(fault)
    return target


def plans_for(request: AskRequest, study: Study, participants: Mapping[str, int]) -> tuple[Plan, ...]:
    """The plans that could answer the question, best first, without what was found out about them."""
    if isinstance(request.query, Step):
        return (step_plan(request, step_form(request.query, study), study, tuple(sorted(participants))),)
    target = target_of(request, study, participants)
    return tuple(found.plan for found in planned_for(request, request.query, target, study, tuple(participants)))


def planned_for(
    request: AskRequest, query: Query, target: PrivacyTarget, study: Study, participants: tuple[str, ...]
) -> tuple[Planned[AnswerLayout], ...]:
    """The plans that could answer the question, best first.

    There is more than one when the study has a budget for each kind of noise: the second is tried when the
    first does not fit what is left.
    """
    require_nonce(request)
    known: tuple[AnyMechanism, ...] = (*Mechanism, Choosing.PERMUTE_AND_FLIP)
    possible = [mechanism for mechanism in known if _possible(mechanism, query, target, study)]
    typed, names, nonce = type_query(query, study), tuple(sorted(participants)), request.nonce.lower()
    # δ = 0 leaves nothing but pure noise, even where its budget is too small: the ledger then says by how much.
    plans = [
        planned_with(typed, target, study, mechanism, participants=names, nonce=nonce)
        for mechanism in possible or [Mechanism.DISCRETE_LAPLACE]
    ]
    return tuple(sorted(plans, key=_expected_badness))


def step_plan(request: AskRequest, form: StepLayout, study: Study, participants: tuple[str, ...]) -> Plan:
    """The one plan of a step: its training fixed the noise."""
    require_nonce(request)
    if request.epsilon is not None or request.delta is not None or request.errors:
        raise QueryMistaken("a training says how sharp it is by itself; leave ε, δ and errors out of its steps.")
    step = form.step
    shown = 8 * largest_round(step.training, len(form.inputs)) * (len(participants) if step.training.by_site else 1)
    if shown > MAX_UPDATE_BYTES:
        raise QueryMistaken(
            f"a round's answer would take {shown} bytes; at most {MAX_UPDATE_BYTES} are possible; take fewer steps, "
            "or do without each site's sums."
        )
    scale = step.training.stages[step.stage].scale
    mechanism = Mechanism.DISCRETE_GAUSSIAN
    return Plan(study.study_hash, step, mechanism, (scale,), participants, request.nonce.lower())


def step_target(step: Planned[StepLayout], study: Study, participants: Mapping[str, int]) -> PrivacyTarget:
    """What a whole training takes of the study, at the study's δ; `QueryMistaken` where it cannot be paid at all."""
    delta = study.cap.delta
    if delta == 0.0 or study.cap.pure_epsilon >= study.cap.epsilon:
        raise QueryMistaken(
            "a training needs a δ above 0 and a budget for Gaussian noise, which this study does not have."
        )
    if (fault := delta_fault(delta, participants)) is not None:
        raise QueryMistaken(fault)
    overlap = study.overlap_among(step.plan.participants)
    return PrivacyTarget(loss_of(step.charge.cost, overlap=overlap, delta=delta).epsilon, delta)


def require_nonce(request: AskRequest) -> None:
    """What tells a fresh question from the same one before it is hexadecimal, whatever a link lets through."""
    if not _NONCE.fullmatch(request.nonce):
        raise QueryMistaken("the nonce of a fresh question must be at most 64 hexadecimal digits.")


def loss_of(cost: Cost, *, overlap: int, delta: float) -> Loss:
    """What one site's cost is for a unit at `overlap` sites, as ε at `delta`."""
    whole = whole_cost(cost, overlap=overlap)
    # Only what takes no slack has no δ: a selection of keys takes some, whatever its noise.
    spent_delta = 0.0 if whole.slack == 0 else delta
    return Loss(epsilon_charged(whole, delta=spent_delta), spent_delta)


def whole_cost(cost: Cost, *, overlap: int) -> Cost:
    """What one site's cost is for a unit at `overlap` sites."""
    return in_parallel([cost] * overlap, overlap=overlap)


def _pure_lane(study: Study) -> float:
    return study.cap.epsilon if study.cap.delta == 0.0 else study.cap.pure_epsilon


def _expected_badness(found: Planned[AnswerLayout]) -> float:
    special = merit(found.plan, found.layout)
    return log_size(found.plan, found.layout) if special is None else special


def _possible(mechanism: AnyMechanism, query: Query, target: PrivacyTarget, study: Study) -> bool:
    match mechanism:
        case Mechanism.DISCRETE_GAUSSIAN:
            return target.delta > 0.0 and study.cap.allowance().mu_squared > 0
        case Mechanism.DISCRETE_LAPLACE:
            return _pure_lane(study) >= target.epsilon
        case _:
            voted = any(find(aggregate.statistic).votes for aggregate in query.aggregates)
            return voted and _pure_lane(study) >= target.epsilon


def planned_with(
    typed: Typed,
    target: PrivacyTarget,
    study: Study,
    mechanism: AnyMechanism,
    *,
    participants: tuple[str, ...],
    nonce: str,
) -> Planned[AnswerLayout]:
    """The plan with this kind of noise that takes all of the target and no more."""
    form = layout(typed, study, mechanism)
    overlap = study.overlap_among(participants)
    try:
        scales = tuple(
            _scale(mechanism, part, target, share=share, overlap=overlap)
            for part, share in zip(form.parts, shares(form, mechanism), strict=True)
        )
        return with_scales(form, scales, study, mechanism, delta=target.delta, participants=participants, nonce=nonce)
    except (ValueError, PlanRefused):
        raise QueryMistaken(f"ε = {target.epsilon:g} is too small for this question; ask with a larger ε.") from None


def with_scales(
    form: AnswerLayout,
    scales: tuple[Fraction, ...],
    study: Study,
    mechanism: AnyMechanism,
    *,
    delta: float,
    participants: tuple[str, ...],
    nonce: str,
) -> Planned[AnswerLayout]:
    """The plan with this noise, and where keys are selected the least threshold that `delta` allows.

    Raises:
        PlanRefused: there is no price for this noise.
        QueryMistaken: `delta` is too small for the question.
    """
    overlap, threshold = study.overlap_among(participants), 0
    if own_definition(form.parts[0]).selects_keys and isinstance(mechanism, Mechanism):
        slack = _slack_of(delta) // overlap
        threshold = planned_threshold(NoiseDistribution(mechanism, scales[0]), form.parts[0], study, slack=slack)
    plan = Plan(study.study_hash, form.query, mechanism, scales, participants, nonce, threshold)
    found = planned(plan, form, study)
    if found.charge.cost.slack * overlap > _slack_of(delta):
        raise QueryMistaken(f"δ = {delta:g} is too small for so many numbers; ask with a larger δ.")
    return found


def _scale(mechanism: AnyMechanism, part: Part, target: PrivacyTarget, *, share: Fraction, overlap: int) -> Fraction:
    match mechanism:
        case Mechanism.DISCRETE_GAUSSIAN:
            return gaussian_scale(
                epsilon=target.epsilon,
                delta=target.delta,
                l2_sensitivity_squared=part.l2_sensitivity_squared,
                shares=share,
                overlap=overlap,
            )
        case Mechanism.DISCRETE_LAPLACE:
            return laplace_scale(
                epsilon=target.epsilon, l1_sensitivity=part.l1_sensitivity, shares=share, overlap=overlap
            )
        case _:
            # One unit moves each candidate's count by 1, and all of them the same way.
            return laplace_scale(epsilon=target.epsilon, l1_sensitivity=1, shares=share, overlap=overlap)


def _slack_of(delta: float) -> int:
    return math.floor(Fraction(delta) * SLACK_SHARE * SLACK_UNIT)


def planned_threshold(law: NoiseDistribution, part: Part, study: Study, *, slack: int) -> int:
    """The least threshold that the question's share of the study's slack pays for, within `slack` units a site."""
    share = selection_slack(selection(law, part, LARGEST_THRESHOLD).cost(), study)
    units = min(share, slack) * _KEPT[0] // _KEPT[1]
    if units < 1:
        raise QueryMistaken(
            "the values of an open category can only be shown with a δ above 0, in the study and in the "
            "question; list the values you are interested in instead."
        )
    return least_threshold(law, delta=units / SLACK_UNIT, max_keys=part.max_groups, steps=part.increment)


def merit(plan: Plan, form: AnswerLayout) -> float | None:
    """What makes one plan for keys or for a choice better than another, the less the better; None for any other."""
    part = form.parts[0]
    own = own_definition(part).merit
    return None if own is None else own(facts_of(plan, form)[0], part, len(plan.participants))


def log_size(plan: Plan, form: AnswerLayout) -> float:
    """The logarithm of the product of the parts' errors: the plan with the smaller one is the better answer."""
    return sum(
        math.log(law.variance) / 2 + math.log(part.grid) for part, law in zip(form.parts, plan.laws(), strict=True)
    )
