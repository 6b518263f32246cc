"""How well a model does on patients it has not seen, from one noised table of scores and outcomes.

Every metric has an error by the delta method: what the noise of each cell does to it, and what the draw of patients
does. Where scores are cut is public: from the weights and the released products alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np

from wardround.analyst.estimation.fitted import Metric, RoundSums, ScoreTable, Standardisation
from wardround.federation.models.model_definition import SPREADS_OF_TARGET
from wardround.federation.models.step_layout import SCORE_BINS
from wardround.federation.models.training import Input, Vector
from wardround.federation.question.answer import NoEstimate

_NARROWEST = 1e-6
_HALVINGS = 50
_SURE = NormalDist().inv_cdf(0.975)


def edges_of(middle: float, wide: float) -> tuple[float, ...]:
    """Where scores of this mean and standard deviation are cut: equally full bins, and always at chance one half."""
    wide = max(wide, _NARROWEST * max(1.0, abs(middle)))
    normal = NormalDist(middle, wide)
    found = [normal.inv_cdf(place / SCORE_BINS) for place in range(1, SCORE_BINS)]
    found[min(range(len(found)), key=lambda place: abs(found[place]))] = 0.0
    return tuple(found)


def binary_metrics(
    sums: RoundSums, edges: tuple[float, ...], expected: Callable[[Vector, float], Vector]
) -> tuple[Metric, ...]:
    """Area under the curve, accuracy, Brier's score and calibration at large, from cells by score and outcome.

    `expected` is the chance at a score.
    """
    cells = sums.totals[0].reshape(SCORE_BINS, 2)
    no, yes = cells[:, 0], cells[:, 1]
    predicted = expected(_representatives(edges), 1.0)
    above = (_places(edges) >= 0.0).astype(np.float64)
    right = np.column_stack((1.0 - above, above))
    squares = np.column_stack((np.square(predicted), np.square(1.0 - predicted)))
    excess = np.column_stack((predicted, predicted - 1.0))
    return (
        _area(no, yes, sums.noise_sd),
        _mean("accuracy", cells, right, sums.noise_sd, within=(0.0, 1.0)),
        _mean("brier", cells, squares, sums.noise_sd, within=(0.0, 1.0)),
        _mean("calibration", cells, excess, sums.noise_sd, within=(-1.0, 1.0)),
    )


def score_table(sums: RoundSums, edges: tuple[float, ...], expected: Callable[[Vector, float], Vector]) -> ScoreTable:
    """The same cells as they were released, for curves."""
    cells = sums.totals[0].reshape(SCORE_BINS, 2)
    return ScoreTable(expected(_representatives(edges), 1.0), cells[:, 0], cells[:, 1], sums.noise_sd)


def reach_of(target: Input, scaling: Standardisation) -> float:
    """How far an error, or an outcome from the released mean, is followed, in the target's units."""
    return SPREADS_OF_TARGET * float(scaling.spread[-1]) * (target.high / 2.0 - target.low / 2.0)


def numeric_metrics(sums: RoundSums, reach: float) -> tuple[Metric, ...]:
    """Root mean squared error in the target's units, and the share of variance explained.

    Sums are of errors and outcomes over `reach`, which counts for all that is farther; what that takes from normal
    errors is given back.
    """
    patients, squares, first, second = (2.0 * sums.totals[0]).tolist()
    noise = 2.0 * sums.noise_sd
    if patients <= _least(noise, 1):
        return _unknown("rmse"), _unknown("r2")
    seen = min(max(squares / patients, 0.0), 1.0)
    error, slope = _uncut(seen)
    # Errors are taken as normal: the square of one then varies by √2 of its mean.
    noise_of_error = slope * noise / patients
    spread_of_error = math.sqrt(2.0 * error**2 / patients + noise_of_error**2 * (1.0 + seen**2))
    floor = max(math.sqrt(error), math.sqrt(spread_of_error) / 2.0, _NARROWEST)
    root = Metric("rmse", reach * math.sqrt(error), reach * spread_of_error / (2.0 * floor))
    mean = min(max(first / patients, -1.0), 1.0)
    whole, slope = _uncut(second / patients)
    # Of the outcomes' squares about their mean; the number of patients hardly matters, as it divides errors too.
    blur = slope * noise * math.sqrt(1.0 + 4.0 * mean**2 + mean**4) / patients
    variance = whole - mean**2
    if variance <= max(_SURE * blur, _NARROWEST**2):
        return root, _unknown("r2", NoEstimate.NO_SPREAD)
    left = error / variance
    shown = min(max(1.0 - left, 0.0), 1.0)
    sampling = 4.0 * shown * (1.0 - shown) ** 2 / patients
    noisy = (noise_of_error**2 + (left * blur) ** 2) / variance**2
    return root, Metric("r2", 1.0 - left, math.sqrt(sampling + noisy))


def _least(noise_sd: float, cells: int) -> float:
    """How many patients may be no more than the noise of so many cells, or than nobody."""
    return max(_SURE * noise_sd * math.sqrt(cells), 1.0)


def _unknown(name: str, reason: NoEstimate = NoEstimate.TOO_FEW) -> Metric:
    return Metric(name, None, None, reason)


def cut_note(target: Input, reach: float) -> str:
    """What a reader must know of metrics whose errors were cut."""
    return (
        f"rmse and r2 are computed from errors of {target.name}, and from distances to its mean, up to "
        f"{reach:.3g}; larger ones are estimated as if they were normally distributed"
    )


def _uncut(square: float) -> tuple[float, float]:
    """The variance of normal numbers whose square, where it is above 1 taken as 1, has this mean; and its slope."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _cut(middle)[0] < square else (low, middle)
    return high, 1.0 / _cut(high)[1]


def _cut(variance: float) -> tuple[float, float]:
    """The mean of min(x², 1) for normal x of this variance, and how it grows with it."""
    end = 1.0 / math.sqrt(variance)
    beyond = math.erfc(end / math.sqrt(2.0))
    inside = 1.0 - beyond - 2.0 * end * math.exp(-end * end / 2.0) / math.sqrt(2.0 * math.pi)
    return variance * inside + beyond, inside


# A fifth of all there is between the worst and the best: whatever is found may be chance or perfection.
_USELESS = 0.2


def doubts(metrics: tuple[Metric, ...]) -> tuple[str, ...]:
    """What a reader must know before believing them: a value of 0 or 1 looks like a result also where it is noise."""
    drowned = [
        each.name
        for each in metrics
        if each.value is not None
        and each.standard_error is not None
        and (
            (each.name in ("rmse", "r2") and each.standard_error > abs(each.value) / 2)
            or (each.name in ("auc", "accuracy") and each.standard_error > _USELESS)
        )
    ]
    unknown = {each.reason: [other.name for other in metrics if other.reason is each.reason] for each in metrics}
    told = [
        f"no estimate of {' and '.join(names)} on held-out patients: {reason.sentence.rstrip('.')}"
        for reason, names in unknown.items()
        if reason is not None
    ]
    if drowned:
        says = "say" if len(drowned) > 1 else "says"
        few = f"too few held-out patients for the noise: {' and '.join(drowned)} {says} little"
        told.append(f"{few}; see the standard error")
    return tuple(told)


def _area(no: Vector, yes: Vector, noise_sd: float) -> Metric:
    """The chance that a patient with the outcome scores above one without; half for those in the same bin."""
    without, with_outcome = float(no.sum()), float(yes.sum())
    if min(without, with_outcome) <= _least(noise_sd, SCORE_BINS):
        return _unknown("auc")
    below = (np.cumsum(no) - no / 2.0) / without
    over = (np.cumsum(yes[::-1])[::-1] - yes / 2.0) / with_outcome
    area = min(max(float(yes @ below) / with_outcome, 0.0), 1.0)
    # How the area moves with one more patient in a cell.
    pull_yes, pull_no = (below - area) / with_outcome, (over - area) / without
    noise = noise_sd**2 * float(pull_yes @ pull_yes + pull_no @ pull_no)
    return Metric("auc", area, math.sqrt(noise + _area_sampling(area, without, with_outcome)))


def _area_sampling(area: float, without: float, with_outcome: float) -> float:
    """The variance of an area over another draw of patients, by Hanley and McNeil's formula."""
    both_above, both_below = area / (2.0 - area), 2.0 * area**2 / (1.0 + area)
    own = area * (1.0 - area)
    pairs = (with_outcome - 1.0) * (both_above - area**2) + (without - 1.0) * (both_below - area**2)
    return max(0.0, own + pairs) / (with_outcome * without)


def _mean(name: str, cells: Vector, values: Vector, noise_sd: float, *, within: tuple[float, float]) -> Metric:
    """The mean over patients of a value that their cell determines."""
    patients = float(cells.sum())
    if patients <= _least(noise_sd, cells.size):
        return _unknown(name)
    mean = min(max(float((cells * values).sum()) / patients, within[0]), within[1])
    apart = values - mean
    noise = (noise_sd / patients) ** 2 * float(np.square(apart).sum())
    sampling = max(float((cells * np.square(apart)).sum()), 0.0) / patients**2
    return Metric(name, mean, math.sqrt(noise + sampling))


def _places(edges: tuple[float, ...]) -> Vector:
    """The lower end of each bin; that of the first is below everything."""
    return np.array([-math.inf, *edges])


def _representatives(edges: tuple[float, ...]) -> Vector:
    """A score that stands for each bin: its middle, and for the outer two as far out as their neighbours are wide."""
    ends = np.array(edges)
    first, last = ends[0] - (ends[1] - ends[0]) / 2.0, ends[-1] + (ends[-1] - ends[-2]) / 2.0
    return np.concatenate(([first], (ends[1:] + ends[:-1]) / 2.0, [last]))
