"""From ε and δ to a training that is exact: the least noise of every stage that stays within them.

A stage has a share of its fold's squared mu. Sums over everybody add up exactly; sums over samples are priced
together, so their one noise is searched for. What comes out is priced once more, as every site will price it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from wardround.federation.errors import InvariantBroken, QueryMistaken
from wardround.federation.models.step_layout import LENGTH, inputs_of, width_of
from wardround.federation.models.training import Model, Stage, StageKind, Training
from wardround.federation.plan.plan import FEWEST_SUMS, SLACK_OF_ONE_SUM, folds_of
from wardround.federation.study.study import Study
from wardround.privacy.accounting.cost import COORDINATES_PER_SLACK, LEAST_GAUSSIAN_SCALE, MU_UNIT, SLACK_UNIT, Cost
from wardround.privacy.accounting.gaussian_dp import LARGEST_EPSILON
from wardround.privacy.budget.calibration import SLACK_SHARE, gaussian_scale, mu_squared_units
from wardround.privacy.budget.facts import BlockFact, StageFact, fold_cost
from wardround.privacy.budget.filter import LEAST_DELTA
from wardround.privacy.noise.distribution import LARGEST_SCALE, SCALE_UNIT, Mechanism, NoiseDistribution

# Scales of sampled sums are sought among numbers of so many leading bits, so that the last places of a machine's
# arithmetic do not choose them: the same request is the same training, and 1 part in 2048 is not worth another.
_LEADING = 1 << 11


@dataclass(frozen=True, slots=True)
class StagePlan:
    """A stage before its noise is known: `share` is its part of the squared mu of its fold."""

    kind: StageKind
    share: Fraction
    rounds: int = 1
    steps: int = 1
    rate: Fraction = Fraction(1)

    @property
    def count(self) -> int:
        return self.rounds * self.steps


def exact_training(  # noqa: PLR0913  (what a training fixes)
    model: Model,
    study: Study,
    *,
    epsilon: float,
    delta: float,
    overlap: int,
    plan: Sequence[StagePlan],
    held_out: Fraction,
    clip: float,
    by_site: bool,
) -> Training:
    """The training of these stages that costs a patient at `overlap` sites at most ε = `epsilon` at δ = `delta`.

    Sampled stages have one noise together. `QueryMistaken` when there is no noise that keeps within ε and δ.
    """
    _require_plan(plan, held_out)
    if not (0.0 < epsilon <= LARGEST_EPSILON and LEAST_DELTA <= delta < 1.0 and overlap >= 1):
        raise QueryMistaken(f"a training needs an ε above 0 and a δ of at least {LEAST_DELTA:g}, below 1.")
    inputs = len(inputs_of(model, study)[0])
    sampled = [one for one in plan if one.rate < 1]
    try:
        asked = mu_squared_units(epsilon=epsilon, delta=delta)
        lane = math.floor(Fraction(delta) * SLACK_SHARE * SLACK_UNIT) // overlap
        slack = _slack(sampled, _tables(plan, model, inputs), study, asked=asked, lane=lane) if sampled else 0
        limit = math.floor(sum(one.share for one in sampled) * asked) // overlap
        noise = _sampled_scale(sampled, limit, slack) if sampled else LEAST_GAUSSIAN_SCALE
        stages = tuple(
            Stage(
                one.kind,
                noise if one.rate < 1 else _scale(one, epsilon=epsilon, delta=delta, overlap=overlap),
                one.rounds,
                one.steps,
                one.rate,
            )
            for one in plan
        )
        training = Training(model, stages, held_out, clip, slack, by_site)
        cost = cost_of(training, inputs)
    except ValueError:
        raise QueryMistaken(
            f"ε = {epsilon:g} is too small for so many noised sums; ask with a larger ε, or for fewer rounds."
        ) from None
    if cost.slack > lane:
        raise QueryMistaken(
            f"δ = {delta:g} is too small for so many numbers; ask with a larger δ, or for fewer rounds."
        )
    if cost.mu_squared * overlap > asked:
        raise InvariantBroken(private="a training costs more than was asked")
    return training


def cost_of(training: Training, inputs: int) -> Cost:
    """What a training costs at one site; `ValueError` where its noise cannot be accounted for."""
    learnt, tried = folds_of(training, inputs)
    return BlockFact("", 0, training.rounds, 1, learnt, tried, training.slack).cost()


def _scale(one: StagePlan, *, epsilon: float, delta: float, overlap: int) -> Fraction:
    """The least noise of each of a stage's sums over everybody."""
    return gaussian_scale(
        epsilon=epsilon, delta=delta, l2_sensitivity_squared=LENGTH**2, shares=one.share / one.count, overlap=overlap
    )


def _tables(plan: Sequence[StagePlan], model: Model, inputs: int) -> int:
    """At least what the tables of noise take of the slack."""
    coordinates = sum(width_of(one.kind, model, inputs) * one.count for one in plan)
    return -(-coordinates // COORDINATES_PER_SLACK)


def _slack(sampled: Sequence[StagePlan], tables: int, study: Study, *, asked: int, lane: int) -> int:
    """What the sampled sums may take of the slack: as large a share as the training has of the study's loss.

    So the trainings that fit a study's ε fit its δ, as with selections of keys. Very small shares are raised to what
    the arithmetic takes.
    """
    cap, allowance = study.cap, study.cap.allowance()
    part = 1 - Fraction(cap.pure_epsilon) / Fraction(cap.epsilon)
    share = min(part * Fraction(asked, max(allowance.mu_squared, 1)), Fraction(1))
    least = SLACK_OF_ONE_SUM * max(sum(one.count for one in sampled), FEWEST_SUMS)
    if lane - tables < least:
        raise QueryMistaken("δ is too small for so many sums over samples; ask with a larger δ, or for fewer rounds.")
    return min(max(math.floor(lane * share) - tables, least), lane - tables)


def _sampled_scale(sampled: Sequence[StagePlan], limit: int, slack: int) -> Fraction:
    """The least noise, in few digits, with which the sampled sums cost at most `limit`; `ValueError` without any."""

    def excess(place: int) -> float:
        """How far the price is above the limit, in logarithms; not above 0 where it fits."""
        law = NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, Fraction(_at(place), SCALE_UNIT))
        # The width of a sum does not change its squared mu.
        try:
            cost = fold_cost(tuple(StageFact(law, LENGTH**2, 1, one.count, one.rate) for one in sampled), slack)
        except ValueError:
            return math.inf
        return math.log(cost.mu_squared / limit)

    if limit < 1:
        raise ValueError("the sampled sums are below one unit of loss")
    # Where there are many small samples squared mu is nearly (e^(1/z²) - 1)·Σq² (Bu, Dong, Long and Su, 2020).
    about = limit / MU_UNIT / float(sum(one.count * one.rate**2 for one in sampled))
    guess = min(math.ceil(LENGTH * SCALE_UNIT / math.sqrt(math.log1p(about))), LARGEST_SCALE * SCALE_UNIT)
    return Fraction(_at(_least_place(excess, _place(guess))), SCALE_UNIT)


def _least_place(excess: Callable[[int], float], guess: int) -> int:
    """The least place at which a falling `excess` is not above 0, found from a guess nearby."""
    last = _place(LARGEST_SCALE * SCALE_UNIT)
    low = high = min(guess, last)
    above = below = excess(high)
    # Squared mu falls at least like 1/z²; a little further than that should be on the other side.
    step = math.ceil(0.55 * _LEADING * abs(below)) + 1 if math.isfinite(below) else _LEADING
    while below > 0.0:
        if high == last:
            raise ValueError("no noise is enough")
        low, above = high, below
        high, step = min(high + step, last), 2 * step
        below = excess(high)
    while above <= 0.0:
        high, below = low, above
        # The first place is below the least scale, which fits nothing.
        low, step = max(low - step, 0), 2 * step
        above = excess(low)
    fitted = False
    while high - low > 1:
        # On a line through the two, or in the middle where one of them has no price.
        share = above / (above - below) if math.isfinite(above) else 0.5
        middle = min(max(low + math.ceil(share * (high - low)), low + 1), high - 1)
        found = excess(middle)
        # An end that stays twice counts half (the Illinois rule), so that it does not stay for ever.
        if found > 0.0:
            low, above, below = middle, found, below if fitted else 0.5 * below
        else:
            high, below, above = middle, found, 0.5 * above if fitted else above
        fitted = found <= 0.0
    return high


def _at(place: int) -> int:
    """The numbers of few leading bits in their order: the one at this place."""
    exponent, leading = divmod(place, _LEADING)
    return (_LEADING + leading) << exponent


def _place(number: int) -> int:
    """The place of the last of them that is not above a number."""
    exponent = max(number.bit_length() - _LEADING.bit_length(), 0)
    return max((number >> exponent) - _LEADING, 0) + exponent * _LEADING


def _require_plan(plan: Sequence[StagePlan], held_out: Fraction) -> None:
    for is_tried in (False, True):
        shares = [one.share for one in plan if (one.kind is StageKind.SCORES) is is_tried]
        if any(share <= 0 for share in shares) or sum(shares) > 1:
            raise QueryMistaken("the shares of a training's stages must be above 0 and add up to at most 1.")
    if not plan or any(one.count < 1 or not 0 < one.rate <= 1 for one in plan):
        raise QueryMistaken("a training needs a stage, and every stage a round, a step and a rate above 0 and up to 1.")
    if held_out == 0 and any(one.kind is StageKind.SCORES for one in plan):
        raise QueryMistaken("a model is evaluated on patients it did not learn from: hold some out.")
