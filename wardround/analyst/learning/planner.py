"""From a request to the exact training: its stages, what each may cost, and which schedule fits.

Everything here is computed from public numbers: the request, the study, and how many sites there are. So the same
request asked of the same sites is always the same training, and continues instead of being paid again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from wardround.analyst.learning.request import Standardise, StepSchedule, TrainingRequest, model_of, sound
from wardround.federation.errors import QueryMistaken
from wardround.federation.models import definition_of
from wardround.federation.models.step_layout import LENGTH, inputs_of, width_of
from wardround.federation.models.training import RATE_UNIT, Model, Stage, StageKind, Training
from wardround.federation.plan.training_budget import StagePlan, exact_training
from wardround.federation.question.answer import Loss
from wardround.federation.study.study import Study
from wardround.privacy.accounting.gaussian_dp import mu_of
from wardround.privacy.budget.calibration import without_slack
from wardround.privacy.budget.filter import LEAST_DELTA

PRODUCTS_SHARE = Fraction(1, 5)
"""Of μ² within the fold that learns; what is left goes to the rounds that follow."""

ROUNDS = 7
SAMPLED_ROUNDS = 60
LOCAL_ROUNDS = 8
LOCAL_STEPS = 10
SAMPLED_RATE = Fraction(1, 4)
BATCH = 256
FEWEST_ROUNDS = 2
_QUIET = 0.1


@dataclass(frozen=True, slots=True)
class NoiseToSignal:
    """How much noise one step of a schedule has: as much as so many patients can pull, at the most.

    `over_signal` compares it with the patients there are, where the request says about how many.
    """

    schedule: StepSchedule
    patients: float
    over_signal: float | None


@dataclass(frozen=True, slots=True)
class Advice:
    """The schedule that fits, and why."""

    fits: StepSchedule
    pulls: tuple[NoiseToSignal, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Outline:
    """A request made exact."""

    request: TrainingRequest
    training: Training
    plans: tuple[StagePlan, ...]
    loss: Loss
    sites: tuple[str, ...]
    schedule: StepSchedule
    advice: Advice | None

    @property
    def learning_rounds(self) -> int:
        """How many rounds the model itself takes: those of `rounds` in a request, without scaling and evaluating."""
        return sum(stage.rounds for stage in self.training.stages if learns(stage))


def learns(stage: Stage) -> bool:
    """Whether the model is found by this stage; MOMENTS scales its inputs, SCORES tries it."""
    return stage.kind in (StageKind.PRODUCTS, StageKind.GRADIENT)


def outline(request: TrainingRequest, study: Study, *, sites: Sequence[str]) -> Outline:
    """The training that a request asks of these sites; `QueryMistaken` in one sentence when it cannot be."""
    request = sound(request)
    model = model_of(request, study)
    inputs, _ = inputs_of(model, study)
    loss = Loss(request.epsilon, study.cap.delta if request.delta is None else request.delta)
    _require_delta(loss.delta, study)
    found = _advice(request, model, loss, inputs=len(inputs), sites=len(sites))
    schedule = request.schedule or (StepSchedule.SUM_PER_ROUND if found is None else found.fits)
    plans = stage_plans(request, model, loss, inputs=len(inputs), sites=len(sites), schedule=schedule)
    training = exact_training(
        model,
        study,
        epsilon=loss.epsilon,
        delta=loss.delta,
        overlap=study.overlap_among(sites),
        plan=plans,
        held_out=request.held_out,
        clip=definition_of(model.kind).clip if request.clip is None else request.clip,
        by_site=request.shows_sites or schedule is StepSchedule.LOCAL_STEPS,
    )
    return Outline(request, training, plans, loss, tuple(sites), schedule, found)


def stage_plans(
    request: TrainingRequest, model: Model, loss: Loss, *, inputs: int, sites: int, schedule: StepSchedule
) -> tuple[StagePlan, ...]:
    """The stages of a request, with the shares of μ² that they have within their fold."""
    definition = definition_of(model.kind)
    first = definition.moments_share
    plans: list[StagePlan] = []
    if request.standardise is Standardise.RELEASED:
        plans.append(StagePlan(StageKind.MOMENTS, first, 1, 1, Fraction(1)))
    rest = 1 - sum((plan.share for plan in plans), Fraction(0))
    if definition.least_squares:
        plans.append(StagePlan(StageKind.PRODUCTS, rest, 1, 1, Fraction(1)))
    elif _preconditioned(request, model, loss, inputs=inputs, sites=sites, schedule=schedule):
        rounds = _rounds(request, ROUNDS)
        products = rest * PRODUCTS_SHARE / (1 - first)
        plans.append(StagePlan(StageKind.PRODUCTS, products, 1, 1, Fraction(1)))
        plans.append(StagePlan(StageKind.GRADIENT, rest - products, rounds - 1, 1, Fraction(1)))
    else:
        if request.standardise is Standardise.BOUNDS:
            raise QueryMistaken(
                'with standardise = "bounds" nothing counts the patients, and a step is divided by their number; '
                'use standardise = "released" here.'
            )
        local = schedule is StepSchedule.LOCAL_STEPS
        rounds = request.rounds or (LOCAL_ROUNDS if local else SAMPLED_ROUNDS)
        steps = (request.local_steps or LOCAL_STEPS) if local else 1
        plans.append(StagePlan(StageKind.GRADIENT, rest, rounds, steps, _rate(request)))
    if request.held_out > 0:
        plans.append(StagePlan(StageKind.SCORES, Fraction(1), 1, 1, Fraction(1)))
    return tuple(plans)


def noise_of(stage: Stage, training: Training, *, inputs: int, sites: int) -> float:
    """The length of the noise in the total of one sum, in contributions of one patient."""
    width = width_of(stage.kind, training.model, inputs)
    return float(stage.scale) / LENGTH * math.sqrt(sites * width)


def _preconditioned(
    request: TrainingRequest, model: Model, loss: Loss, *, inputs: int, sites: int, schedule: StepSchedule
) -> bool:
    """Whether the products of inputs are worth their share: else gradients over samples find the way by many steps."""
    is_layered = definition_of(model.kind).layer is not None
    if is_layered or schedule is StepSchedule.LOCAL_STEPS or request.batch_size is not None:
        return False
    if request.patients is None:
        return True
    return _products_noise(loss, inputs=inputs, sites=sites) < _learnt_from(request) / (inputs + 1)


def _products_noise(loss: Loss, *, inputs: int, sites: int) -> float:
    """The largest eigenvalue that noise alone gives the matrix of products; that of patients is about n/(d + 1)."""
    mu = mu_of(loss.epsilon, without_slack(loss.delta)) * math.sqrt(PRODUCTS_SHARE)
    return math.sqrt(sites * 2.0 * (inputs + 1)) / mu


def _advice(request: TrainingRequest, model: Model, loss: Loss, *, inputs: int, sites: int) -> Advice | None:
    """Both schedules side by side; nothing for least squares, which take one round of sums."""
    definition = definition_of(model.kind)
    if definition.least_squares:
        return None
    width = width_of(StageKind.GRADIENT, model, inputs)
    learning = 1 - definition.moments_share
    mu = mu_of(loss.epsilon, without_slack(loss.delta)) * math.sqrt(learning)
    preconditioned = _preconditioned(
        request, model, loss, inputs=inputs, sites=sites, schedule=StepSchedule.SUM_PER_ROUND
    )
    rate = float(_rate(request))
    if preconditioned:
        rounds = _rounds(request, ROUNDS) - 1
        share = 1 - PRODUCTS_SHARE / learning
        once = math.sqrt(rounds / share) / mu * math.sqrt(sites * width)
    else:
        once = _sampled_noise(mu, rate, request.rounds or SAMPLED_ROUNDS) * math.sqrt(sites * width) / rate
    steps = (request.rounds or LOCAL_ROUNDS) * (request.local_steps or LOCAL_STEPS)
    # A site that moves by itself has its own noise in every step, and only its own patients against it.
    alone = _sampled_noise(mu, rate, steps) * sites * math.sqrt(width) / rate
    people = None if request.patients is None else _learnt_from(request)
    pulls = tuple(
        NoiseToSignal(schedule, noise, None if people is None else noise / people)
        for schedule, noise in ((StepSchedule.SUM_PER_ROUND, once), (StepSchedule.LOCAL_STEPS, alone))
    )
    # What a site adds by moving alone is worth it only where noise is small anyway and many steps are needed.
    quiet = people is not None and alone / people <= _QUIET
    fits = StepSchedule.LOCAL_STEPS if quiet and not preconditioned else StepSchedule.SUM_PER_ROUND
    return Advice(fits, pulls, _why(fits, pulls, preconditioned=preconditioned))


def _why(fits: StepSchedule, pulls: tuple[NoiseToSignal, ...], *, preconditioned: bool) -> str:
    ours, other = sorted(pulls, key=lambda pull: pull.schedule is not fits)
    told = (
        f"the noise of one step weighs as much as {ours.patients:,.0f} patients, with {other.schedule} as "
        f"much as {other.patients:,.0f}"
    )
    if ours.over_signal is not None and other.over_signal is not None:
        told += f" ({ours.over_signal:.2g} and {other.over_signal:.2g} of all patients that the model learns from)"
    if fits is StepSchedule.LOCAL_STEPS:
        told += ", and many steps take few rounds"
    return f"{fits} fits: {told}{'' if preconditioned else '; each step uses a secret random sample of patients'}."


def _sampled_noise(mu: float, rate: float, steps: int) -> float:
    """About the noise of each of so many sums over samples; the exact one is calibrated, this one only compares."""
    if rate >= 1.0:
        return math.sqrt(steps) / mu
    return 1.0 / math.sqrt(math.log1p(mu * mu / (rate * rate * steps)))


def _rate(request: TrainingRequest) -> Fraction:
    """How likely a patient is to be in a batch: whole parts of 2^-32, because coins are exact."""
    if request.patients is None:
        return SAMPLED_RATE
    batch = request.batch_size or max(BATCH, math.ceil(request.patients * SAMPLED_RATE))
    parts = max(1, round(Fraction(batch, request.patients) * RATE_UNIT))
    return Fraction(min(parts, RATE_UNIT), RATE_UNIT)


def _rounds(request: TrainingRequest, default: int) -> int:
    rounds = request.rounds or default
    if rounds < FEWEST_ROUNDS:
        raise QueryMistaken(
            f"a {request.kind.value} model takes at least {FEWEST_ROUNDS} rounds: "
            "the products of inputs, then gradients."
        )
    return rounds


def _learnt_from(request: TrainingRequest) -> float:
    return (request.patients or 1) * (1.0 - float(request.held_out))


def _require_delta(delta: float, study: Study) -> None:
    if delta > study.cap.delta:
        raise QueryMistaken(f"δ = {delta:g} is above the study's δ = {study.cap.delta:g}; choose it at most that.")
    if delta == 0.0:
        raise QueryMistaken("the study has no δ, and a training uses Gaussian noise, which needs one.")
    if delta < LEAST_DELTA:
        raise QueryMistaken(f"δ = {delta:g} is too small to account for; choose at least {LEAST_DELTA:g}.")
