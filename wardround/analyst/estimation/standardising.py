"""How inputs are scaled: from released, charged moments, or from the study's bounds alone.

A spread that noise made too small would let one column crowd out all others, because a row's inputs together are no
longer than 1. So spreads are drawn towards one another as strongly as noise explains their differences, and never go
below what noise could have hidden.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wardround.analyst.estimation.fitted import RoundSums, Standardisation, settled
from wardround.federation.models.step_layout import LENGTH
from wardround.federation.models.training import Input, Matrix, StageKind, Training, Vector
from wardround.federation.study.study import ColumnType, Table

BOUNDS_SPREAD = 0.5
TYPICAL_INFORMATION = 0.12
"""What one patient of a logistic model knows about its score, as a rule."""
LEAST_SPREAD = 0.05
LEAST_SPREAD_OF_TWO = 0.15
LEAST_COUNT_IN_NOISE = 2.0
_EASY = 0.005
_HARD = 0.05
_ROOM = (2.3, 0.3)
"""Standard deviations of a row's squared length that fit, where noise is small and where it is large."""


@dataclass(frozen=True, slots=True)
class StandardisedMoments:
    """What MOMENTS said: patients in all and by site, and each column's mean and variance in [−1, 1], with noise."""

    patients: float
    by_site: Mapping[str, float]
    mean: Vector
    variance: Vector
    noise_sd: float


def two_valued(inputs: Sequence[Input], table: Table, *, columns: int) -> NDArray[np.bool_]:
    """Which columns have two values only, their bounds: the mean of such a column says how it spreads."""
    found = np.zeros(columns, dtype=np.bool_)
    for place, each in enumerate(inputs):
        column = table.column(each.column)
        whole = column.type is ColumnType.INTEGER and each.high - each.low == 1.0
        found[place] = whole or column.type in (ColumnType.BOOLEAN, ColumnType.CATEGORY)
    return found


def moments_of(sums: RoundSums, of_two: NDArray[np.bool_]) -> StandardisedMoments:
    """Counts, means and variances; a column of two values has the variance that its mean gives it."""
    columns = len(of_two)
    unit = math.sqrt(1.0 + 1.25 * columns)
    noise = sums.noise_sd * unit
    whole = sums.totals[0] * unit
    patients = _count(float(whole[0]), noise)
    alone = noise / math.sqrt(max(sums.answered, 1))
    by_site = {site: _count(float(each[0, 0]) * unit, alone) for site, each in sorted(sums.sites.items())}
    mean = np.clip(whole[1 : columns + 1] / patients, -1.0, 1.0)
    square = np.clip(whole[columns + 1 :] / patients + 0.5, 0.0, 1.0)
    # That of the square, and as much again from the mean's where the mean is far out.
    blur = noise / patients * np.sqrt(1.0 + 4.0 * np.square(mean))
    numeric = ~of_two
    variance = np.where(of_two, 1.0 - np.square(mean), square - np.square(mean))
    if numeric.any():
        variance[numeric] = drawn_in(variance[numeric], float(variance[numeric].mean()), float(blur[numeric].mean()))
    least = np.where(of_two, LEAST_SPREAD_OF_TWO**2, np.maximum(LEAST_SPREAD**2, 0.5 * blur))
    return StandardisedMoments(patients, by_site, mean, np.clip(variance, least, 1.0), noise)


def standardised(moments: StandardisedMoments, *, inputs: int, noise: float) -> Standardisation:
    """Centres and spreads, those of inputs with room for the longer rows.

    `noise` is about the error that noise gives a standardised coefficient. Where it is small, rows that are shortened
    would be what errs most, so they get room; where it is large, room would only make the signal smaller.
    """
    spread = np.sqrt(moments.variance)
    spread[:inputs] *= room(inputs, noise)
    return Standardisation(settled(moments.mean), settled(spread))


def coefficient_noise(training: Training, sums: RoundSums, *, inputs: int, patients: float) -> float:
    """About the error that noise will give a coefficient of a standardised input; `sums` are those of MOMENTS."""
    stages = {stage.kind: stage for stage in training.stages}
    several = sums.noise_sd * LENGTH / float(stages[StageKind.MOMENTS].scale)
    if (gradients := stages.get(StageKind.GRADIENT)) is not None:
        whole = float(gradients.rate) * math.sqrt(gradients.rounds * gradients.steps) * TYPICAL_INFORMATION
        one = training.clip * float(gradients.scale) / LENGTH / whole
    else:
        one = 3.0 * math.sqrt(2.0) * float(stages[StageKind.PRODUCTS].scale) / LENGTH
    return several * one * math.sqrt(inputs + 1) / patients


def room(inputs: int, noise: float) -> float:
    """What spreads are multiplied by, so that most rows of so many inputs are no longer than 1."""
    hardness = (math.log(max(noise, _EASY)) - math.log(_EASY)) / (math.log(_HARD) - math.log(_EASY))
    easy, hard = _ROOM
    deviations = easy + (hard - easy) * min(1.0, hardness)
    # The squared length of standardised inputs is about χ² of `inputs`; Wilson and Hilferty's quantile of it.
    part = 2.0 / (9.0 * inputs)
    return math.sqrt(max(1.0, (1.0 - part + deviations * math.sqrt(part)) ** 3))


def from_bounds(columns: int) -> Standardisation:
    """Scaling without a release: bounds are taken to be two spreads away from the middle."""
    return Standardisation(np.zeros(columns), np.full(columns, BOUNDS_SPREAD))


def restandardised(
    scaling: Standardisation, products: Matrix, noise_sd: float, *, patients: float, inputs: int, spare: float
) -> tuple[Standardisation, Matrix]:
    """A better scaling from the noised products, which know spreads more exactly, and the products in it.

    `spare` is the room that spreads have; inputs get as much again.
    """
    width = inputs + 1
    first = max(float(products[0, 0]), 2.0 * noise_sd, 0.5 * patients / width)
    blur = noise_sd / first
    shift = drawn_in(products[0, 1:] / first, 0.0, blur / math.sqrt(2.0))
    rough = np.diag(products)[1:] / first - np.square(shift)
    stretch = np.sqrt(np.clip(drawn_in(rough, 1.0 / spare**2, 1.2 * blur), 0.1, 10.0)) * spare
    turn = np.eye(width)
    turn[1:, 0] = -shift / stretch
    turn[1:, 1:] /= stretch[:, np.newaxis]
    centre, spread = scaling.centre.copy(), scaling.spread.copy()
    centre[:inputs] += spread[:inputs] * shift
    spread[:inputs] *= stretch
    return Standardisation(settled(centre), settled(spread)), turn @ products @ turn.T


def drawn_in(values: Vector, towards: float, noise_sd: float) -> Vector:
    """Values drawn towards a common one, as strongly as noise explains that they differ from it."""
    apart = values - towards
    square = float(np.square(apart).mean())
    signal = max(0.0, square - noise_sd**2 * (1.0 + math.sqrt(2.0 / len(values))))
    whole = signal + noise_sd**2
    return towards + apart * (signal / whole if whole > 0.0 else 1.0)


def _count(value: float, noise: float) -> float:
    """How many patients there are: never so few that noise alone could say so."""
    return max(value, LEAST_COUNT_IN_NOISE * noise, 1.0)
