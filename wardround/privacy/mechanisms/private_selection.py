"""Choosing one of several candidates by secret scores, without showing the scores.

Both mechanisms rest on one coin: a candidate that is g below the best is accepted with probability
exp(-rate·g), exactly. No logarithm, no Gumbel noise, no floating point: the law of the choice is the law
that is charged for (PROOFS.md#choice).
"""

import math
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction

import numpy as np

from wardround.privacy.accounting.cost import PURE_UNIT, Cost
from wardround.privacy.noise.bernoulli import Coins, uniform_below
from wardround.privacy.noise.keystream import BitSource
from wardround.privacy.noise.vectors import IntVector

_LANES = 1 << 15


class Choosing(StrEnum):
    """How a candidate is found; both cost the same pure ε."""

    # P(i) ∝ exp(rate·score): the exponential mechanism of McSherry and Talwar.
    EXPONENTIAL = "exponential"
    # Of McKenna and Sheldon: report-noisy-max with exponential noise. Its expected score is never lower.
    PERMUTE_AND_FLIP = "permute_and_flip"


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """A score for every candidate, and how far one unit can move any of them. Secret.

    `monotone` promises more: that a unit's arrival moves no score down (or none up), as with counts.
    """

    # Never in a repr: a traceback or a log line must show no truth.
    values: IntVector = field(repr=False)
    sensitivity: int
    monotone: bool

    def __post_init__(self) -> None:
        if self.values.ndim != 1 or self.values.dtype != np.int64 or self.values.size == 0:
            raise ValueError("scores must be a vector of int64 with at least one of them")
        if self.sensitivity < 1:
            raise ValueError(f"the sensitivity of scores must be a whole number of at least 1, not {self.sensitivity}")

    def gaps(self) -> list[int]:
        """How far each candidate is below the best."""
        scores = self.values.tolist()
        best = max(scores)
        return [best - score for score in scores]


@dataclass(frozen=True, slots=True)
class ChoiceFact:
    """One choice among `dimension` candidates: its mechanism and its exact ε, which no candidate changes."""

    choosing: Choosing
    epsilon: Fraction
    dimension: int = 1

    def __post_init__(self) -> None:
        require_epsilon(self.epsilon)
        if self.dimension < 1:
            raise ValueError(f"a choice needs at least 1 candidate, not {self.dimension}")

    def cost(self) -> Cost:
        """Pure ε, in whole units (PROOFS.md#choice)."""
        return Cost(mu_squared=0, pure=int(self.epsilon * PURE_UNIT), slack=0)

    def rate(self, scores: Scores) -> Fraction:
        """The exponent per unit of score: ε/Δ for monotone scores, ε/2Δ for others."""
        return self.epsilon / (scores.sensitivity if scores.monotone else 2 * scores.sensitivity)


def choose(scores: Scores, fact: ChoiceFact, source: BitSource) -> int:
    """The index of one candidate, drawn exactly from the mechanism's law."""
    return int(independent_choices(scores, fact, 1, source)[0])


def independent_choices(scores: Scores, fact: ChoiceFact, size: int, source: BitSource) -> IntVector:
    """`size` independent choices; each one costs the whole fact."""
    gaps, rate = scores.gaps(), fact.rate(scores)
    coins = Coins([gap * rate.numerator for gap in gaps], rate.denominator)
    match fact.choosing:
        case Choosing.EXPONENTIAL:
            return _accepted(coins, len(gaps), size, source)
        case Choosing.PERMUTE_AND_FLIP:  # pragma: no branch
            return _among_the_true(coins, len(gaps), size, source)


def _accepted(coins: Coins, candidates: int, size: int, source: BitSource) -> IntVector:
    """Uniform proposals, each kept by its own coin; the best is always kept."""
    chosen = np.empty(size, np.int64)
    filled = 0
    while filled < size:
        proposed = uniform_below(candidates, min(_LANES, candidates * (size - filled)), source)
        kept = proposed[coins.flip(proposed, source)][: size - filled]
        chosen[filled : filled + kept.size] = kept
        filled += kept.size
    return chosen


def _among_the_true(coins: Coins, candidates: int, size: int, source: BitSource) -> IntVector:
    """The first true coin in a random order is any of the true coins, each as likely as another."""
    chosen = np.empty(size, np.int64)
    rows = max(1, _LANES // candidates)
    for start in range(0, size, rows):
        block = chosen[start : start + rows]
        is_true = coins.flip(np.tile(np.arange(candidates), block.size), source).reshape(-1, candidates)
        rank = is_true.cumsum(axis=1)
        for heads in set(rank[:, -1].tolist()):
            same = np.flatnonzero(rank[:, -1] == heads)
            wanted = 1 + uniform_below(heads, same.size, source)
            # The first place where the rank is reached is the wanted true coin itself.
            block[same] = (rank[same] == wanted[:, np.newaxis]).argmax(axis=1)
    return chosen


def require_epsilon(epsilon: Fraction) -> None:
    """Refuse an ε that the ledger's whole units cannot hold exactly."""
    if epsilon <= 0 or PURE_UNIT % epsilon.denominator:
        raise ValueError(f"an ε must be above 0 and a whole number of 2^-40, not {epsilon}")


def exact_epsilon(epsilon: float | Fraction) -> Fraction:
    """The largest ε that is a whole number of 2^-40 and at most `epsilon`."""
    if not (math.isfinite(epsilon) and epsilon >= 1 / PURE_UNIT):
        raise ValueError(f"an ε must be a finite number of at least 2^-40, not {epsilon!r}")
    return Fraction(math.floor(Fraction(epsilon) * PURE_UNIT), PURE_UNIT)
