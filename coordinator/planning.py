"""From a question to the exact plans that could answer it. Pure: no ledger, no clock, no entropy.

The same question of the same participants under the same study is always the same plan, and so the same
plan id; that is what makes a repeated question free.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from coordinator.expecting import log_size
from coordinator.selecting import merit, planned_threshold
from wardround.federation.answer import AskRequest, Loss
from wardround.federation.errors import PlanRefused, QueryMistaken
from wardround.federation.plan import Plan, price
from wardround.federation.query import Query, Statistic
from wardround.federation.shape import Part, shape
from wardround.federation.sharing import shares
from wardround.federation.study import Study, delta_fault
from wardround.privacy.calibration import SLACK_SHARE, gaussian_scale, laplace_scale
from wardround.privacy.facts import AnyMechanism
from wardround.privacy.filter import LEAST_DELTA, epsilon_charged
from wardround.privacy.law import Mechanism, NoiseLaw
from wardround.privacy.loss import SLACK_UNIT
from wardround.privacy.parallel import in_parallel
from wardround.privacy.selection import Choosing

# A question that does not say takes this share of the study's ε.
DEFAULT_SHARE = 10
_NONCE = re.compile(r"[0-9a-fA-F]{0,64}")


@dataclass(frozen=True, slots=True)
class Sharpness:
    """The loss a question asks for, over all sites of one unit; it fixes the noise."""

    epsilon: float
    delta: float


def sharpness(request: AskRequest, study: Study, participants: Mapping[str, int]) -> Sharpness:
    """What the question asks for, with the study's defaults; `QueryMistaken` when it makes no sense."""
    epsilon = study.cap.epsilon / DEFAULT_SHARE if request.epsilon is None else request.epsilon
    delta = study.cap.delta if request.delta is None else request.delta
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
    return Sharpness(epsilon, delta)


def plans_for(request: AskRequest, study: Study, participants: Mapping[str, int]) -> tuple[Plan, ...]:
    """The plans that could answer the question, best first.

    There is more than one when the study has a budget for each kind of noise: the second is tried when the
    first does not fit what is left.
    """
    sharp = sharpness(request, study, participants)
    if not _NONCE.fullmatch(request.nonce):
        raise QueryMistaken("the nonce of a fresh question must be at most 64 hexadecimal digits.")
    known: tuple[AnyMechanism, ...] = (*Mechanism, Choosing.PERMUTE_AND_FLIP)
    possible = [mechanism for mechanism in known if _possible(mechanism, request.query, sharp, study)]
    # δ = 0 leaves nothing but pure noise, even where its budget is too small: the ledger then says by how much.
    plans = [
        _plan(mechanism, request, sharp, study, tuple(sorted(participants)))
        for mechanism in possible or [Mechanism.DISCRETE_LAPLACE]
    ]
    return tuple(sorted(plans, key=lambda plan: _expected_badness(plan, study)))


def charged(plan: Plan, study: Study, *, delta: float) -> Loss:
    """What the plan costs one unit over all of its sites, as ε at `delta`; pure noise needs no δ."""
    overlap = study.overlap_among(plan.participants)
    whole = in_parallel([price(plan, study).cost] * overlap, overlap=overlap)
    # Only what takes no slack has no δ: a selection of keys takes some, whatever its noise.
    spent_delta = 0.0 if whole.slack == 0 else delta
    return Loss(epsilon_charged(whole, delta=spent_delta), spent_delta)


def _pure_lane(study: Study) -> float:
    return study.cap.epsilon if study.cap.delta == 0.0 else study.cap.pure_epsilon


def _expected_badness(plan: Plan, study: Study) -> float:
    special = merit(plan, study)
    return log_size(plan, study) if special is None else special


def _possible(mechanism: AnyMechanism, query: Query, sharp: Sharpness, study: Study) -> bool:
    match mechanism:
        case Mechanism.DISCRETE_GAUSSIAN:
            return sharp.delta > 0.0 and study.cap.allowance().mu_squared > 0
        case Mechanism.DISCRETE_LAPLACE:
            return _pure_lane(study) >= sharp.epsilon
        case _:
            chosen = any(aggregate.statistic is Statistic.CHOICE for aggregate in query.aggregates)
            return chosen and _pure_lane(study) >= sharp.epsilon


def _plan(
    mechanism: AnyMechanism, request: AskRequest, sharp: Sharpness, study: Study, participants: tuple[str, ...]
) -> Plan:
    form = shape(request.query, study, mechanism)
    overlap = study.overlap_among(participants)
    too_fine = QueryMistaken(f"ε = {sharp.epsilon:g} is too small for this question; ask with a larger ε.")
    try:
        scales = tuple(
            _scale(mechanism, part, sharp, share=share, overlap=overlap)
            for part, share in zip(form.parts, shares(form, mechanism), strict=True)
        )
        threshold = 0
        if form.query.aggregates[0].statistic is Statistic.KEYS and isinstance(mechanism, Mechanism):
            slack = _slack_of(sharp.delta) // overlap
            threshold = planned_threshold(NoiseLaw(mechanism, scales[0]), form.parts[0], study, slack=slack)
        plan = Plan(study.study_hash, form.query, mechanism, scales, participants, request.nonce.lower(), threshold)
        cost = price(plan, study).cost
    except (ValueError, PlanRefused):
        raise too_fine from None
    if cost.slack * overlap > _slack_of(sharp.delta):
        raise QueryMistaken(f"δ = {sharp.delta:g} is too small for so many numbers; ask with a larger δ.")
    return plan


def _scale(mechanism: AnyMechanism, part: Part, sharp: Sharpness, *, share: Fraction, overlap: int) -> Fraction:
    match mechanism:
        case Mechanism.DISCRETE_GAUSSIAN:
            return gaussian_scale(
                epsilon=sharp.epsilon,
                delta=sharp.delta,
                l2_sensitivity_squared=part.l2_sensitivity_squared,
                shares=share,
                overlap=overlap,
            )
        case Mechanism.DISCRETE_LAPLACE:
            return laplace_scale(
                epsilon=sharp.epsilon, l1_sensitivity=part.l1_sensitivity, shares=share, overlap=overlap
            )
        case _:
            # One unit moves each candidate's count by 1, and all of them the same way.
            return laplace_scale(epsilon=sharp.epsilon, l1_sensitivity=1, shares=share, overlap=overlap)


def _slack_of(delta: float) -> int:
    return math.floor(Fraction(delta) * SLACK_SHARE * SLACK_UNIT)
