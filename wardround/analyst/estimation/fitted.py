"""The words of fitting: the sums a round gives, and what a model is when the last of them has come.

All of it is made of released numbers and public ones, so that nothing here can cost or reveal more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from wardround.federation.models.training import ModelKind, Vector
from wardround.federation.question.answer import NoEstimate

KEPT_BITS = 32


@dataclass(frozen=True, slots=True)
class RoundSums:
    """The noised sums of one round, in contributions of one patient: steps by width.

    `sites` is empty unless each site's sums are shown. `noise_sd` is the noise in one number of `totals`.
    """

    totals: Vector
    sites: Mapping[str, Vector]
    answered: int
    noise_sd: float


class Combine(Protocol):
    """How the sites' models become one: by name, each with the noised number of patients behind it."""

    def __call__(self, weights: Vector, updates: Mapping[str, Vector], examples: Mapping[str, float]) -> Vector:
        """The new model, from where it stood and where each site would have it."""


@dataclass(frozen=True, slots=True)
class Standardisation:
    """How inputs, and a numeric target after them, are scaled: (y − centre)/spread, with y from −1 to 1."""

    centre: Vector
    spread: Vector


@dataclass(frozen=True, slots=True)
class Coefficient:
    """What one more unit of a column adds to the score, with the error of sampling and noise; 95 % interval."""

    name: str
    value: float
    standard_error: float
    interval: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Metric:
    """How well the model does on patients it has not seen, with its whole error, or why there is no number."""

    name: str
    value: float | None
    standard_error: float | None
    reason: NoEstimate | None = None


@dataclass(frozen=True, slots=True)
class ScoreTable:
    """Held-out patients by score, from below: the chance that stands for each, and noised counts by outcome."""

    predicted: Vector
    no: Vector
    yes: Vector
    noise_sd: float


@dataclass(frozen=True, slots=True)
class Fitted:
    """A model. `weights` are in the coordinates of its steps; coefficients are in the columns' own units."""

    kind: ModelKind
    weights: Vector
    coefficients: tuple[Coefficient, ...]
    metrics: tuple[Metric, ...]
    standardisation: Standardisation
    notes: tuple[str, ...] = ()
    scores: ScoreTable | None = None


def settled(values: Vector) -> Vector:
    """The same numbers to 32 significant bits.

    A training that is asked again must come to the very same steps, or they would be other plans. Linear algebra may
    differ in the last bits from one processor to another; what is kept here almost never does.
    """
    mantissa, exponent = np.frexp(values)
    kept: Vector = np.ldexp(np.rint(np.ldexp(mantissa, KEPT_BITS)), exponent - KEPT_BITS)
    return kept
