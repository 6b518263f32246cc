"""Which keys exist, when the keys themselves come from the data.

A key is shown only if its count with noise passes a threshold that hardly any single unit can pass alone.
Keys that nobody holds are never drawn, so no list of all possible keys is needed; what a lone unit
still risks is δ, computed here exactly or bounded by a theorem, and charged (PROOFS.md#unknown-keys).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from wardround.privacy.accounting.cost import MU_UNIT, PURE_UNIT, SLACK_UNIT, Cost, gaussian_mu_squared
from wardround.privacy.mechanisms.additive import LARGEST_TOTAL
from wardround.privacy.noise import discrete as exact
from wardround.privacy.noise.bernoulli import exp_enclosure
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution
from wardround.privacy.noise.keystream import BitSource
from wardround.privacy.noise.vectors import IntVector

# So far out a lone unit is shown with a probability that no ledger could hold.
LARGEST_THRESHOLD = 1 << 60
LARGEST_COUNT = 1 << 60
_DELTA_BITS = 256
# Beyond it the exact power is not worth its digits, and the union bound is charged.
_FEW_KEYS = 64
# Above the error of `math.erfc` and of its argument by a factor of a thousand.
_TAIL_MARGIN = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class KeyCounts:
    """How many units hold each key, no unit more than `max_keys` of them. Secret, keys included."""

    # Never in a repr: even a key's name may be somebody's.
    counts: Mapping[str, int] = field(repr=False)
    max_keys: int

    def __post_init__(self) -> None:
        if self.max_keys < 1:
            raise ValueError(f"a unit must be allowed at least 1 key, not {self.max_keys}")
        if any(not 1 <= count <= LARGEST_COUNT for count in self.counts.values()):
            raise ValueError("a key is counted only when somebody holds it, and by at most 2^60 units")


@dataclass(frozen=True, slots=True)
class SelectionFact:
    """One selection of keys: the noise of a count, in steps of 1/steps, and the threshold to pass.

    Laplace noise is cut off at ± the threshold, which makes it the optimal selection of Desfontaines,
    Voss, Gipson and Mandayam for one key a unit; Gaussian noise is not cut off and suits many keys a unit.
    """

    law: NoiseDistribution
    threshold: int
    max_keys: int
    steps: int = 1

    def __post_init__(self) -> None:
        if self.max_keys < 1 or self.steps < 1:
            raise ValueError("a selection needs at least 1 key a unit and 1 step a count")
        if not self.steps <= self.threshold <= LARGEST_THRESHOLD:
            raise ValueError("a threshold must be at least one count and at most 2^60 steps")
        if self.law.mechanism is Mechanism.DISCRETE_LAPLACE and self.steps != 1:
            raise ValueError("Laplace noise counts in whole units")

    def cost(self) -> Cost:
        """The noise in its own lane, and the chance of showing a lone unit's key as slack."""
        slack = _up(self.delta() * SLACK_UNIT)
        match self.law.mechanism:
            case Mechanism.DISCRETE_LAPLACE:
                return Cost(mu_squared=0, pure=_up(self.max_keys / self.law.scale * PURE_UNIT), slack=slack)
            case Mechanism.DISCRETE_GAUSSIAN:  # pragma: no branch
                mu_squared = gaussian_mu_squared(
                    scale=self.law.scale, l2_sensitivity_squared=self.l2_sensitivity_squared
                )
                return Cost(mu_squared=_up(mu_squared * MU_UNIT), pure=0, slack=slack)

    @property
    def l2_sensitivity_squared(self) -> int:
        """How far one unit can move the counts of its keys, in squared steps."""
        return self.max_keys * self.steps**2

    def delta(self) -> Fraction:
        """The chance that any key of a unit that holds `max_keys` of them alone is shown; rounded up."""
        alone = self._one_alone()
        if self.max_keys > _FEW_KEYS:
            return min(self.max_keys * alone, Fraction(1))
        return 1 - (1 - alone) ** self.max_keys

    def _one_alone(self) -> Fraction:
        match self.law.mechanism:
            case Mechanism.DISCRETE_LAPLACE:
                return _edge(self.law.scale, self.threshold)
            case Mechanism.DISCRETE_GAUSSIAN:  # pragma: no branch
                return _gaussian_tail(self.law.scale, self.threshold - self.steps + 1)


def select(keys: KeyCounts, fact: SelectionFact, source: BitSource) -> dict[str, int]:
    """The keys that pass, with their noised counts in steps of 1/steps, in the order of the keys."""
    # Always the exact sampler: a table's slack grows with the number of keys, which is secret.
    return passing(keys, fact, _noise(fact, len(keys.counts), source))


def passing(keys: KeyCounts, fact: SelectionFact, drawn: IntVector) -> dict[str, int]:
    """The keys whose counts pass the threshold once `drawn` is added to them."""
    if keys.max_keys != fact.max_keys:
        raise ValueError("the keys are not those that are paid for")
    # The order of a mapping may be that of the rows; the order of the names is nobody's secret.
    names = sorted(keys.counts)
    noised = np.array([keys.counts[name] for name in names], np.int64)
    noised = np.minimum(noised, LARGEST_COUNT // fact.steps) * fact.steps + drawn
    # Noise saturates at 2^62; saturating below that makes it post-processing, as in `mechanisms.apply`.
    noised = np.clip(noised, -LARGEST_TOTAL, LARGEST_TOTAL)
    return {name: value for name, value in zip(names, noised.tolist(), strict=True) if value > fact.threshold}


def _noise(fact: SelectionFact, size: int, source: BitSource) -> IntVector:
    drawn = exact.draw(fact.law, size, source)
    if fact.law.mechanism is Mechanism.DISCRETE_LAPLACE:
        while (outside := np.flatnonzero(np.abs(drawn) > fact.threshold)).size:
            drawn[outside] = exact.draw(fact.law, outside.size, source)
    return drawn


def least_threshold(law: NoiseDistribution, *, delta: float, max_keys: int, steps: int) -> int:
    """The least threshold, in steps, at which a selection's δ is at most `delta`."""
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta must be a number between 0 and 1, both excluded, not {delta!r}")
    allowed = Fraction(delta)

    def suffices(threshold: int) -> bool:
        return SelectionFact(law, threshold, max_keys, steps).delta() <= allowed

    low = high = steps
    while not suffices(high):
        low, high = high + 1, 2 * high
    while low < high:
        middle = (low + high) // 2
        if suffices(middle):
            high = middle
        else:
            low = middle + 1
    return high


def laplace_threshold(*, scale: Fraction, delta: float, max_keys: int) -> int:
    """The least threshold of cut-off Laplace noise at which a selection's δ is at most `delta`."""
    law = NoiseDistribution(Mechanism.DISCRETE_LAPLACE, scale)
    return least_threshold(law, delta=delta, max_keys=max_keys, steps=1)


def gaussian_threshold(*, scale: Fraction, delta: float, max_keys: int, steps: int) -> int:
    """The least threshold of Gaussian noise, in steps, at which a selection's δ is at most `delta`."""
    law = NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, scale)
    return least_threshold(law, delta=delta, max_keys=max_keys, steps=steps)


def _edge(scale: Fraction, reach: int) -> Fraction:
    """P(X = reach) of Laplace noise cut off at ± reach: q^r(1 - q)/(1 + q - 2q^(r+1)), rounded up."""
    n, k = scale.denominator, scale.numerator
    one = 1 << _DELTA_BITS
    q_low, q_high = exp_enclosure(n, k, _DELTA_BITS)
    _, power_high = exp_enclosure(reach * n, k, _DELTA_BITS)
    below = one + q_low - 2 * -(-power_high * q_high >> _DELTA_BITS)
    return min(Fraction(power_high * (one - q_low), below * one), Fraction(1))


def _gaussian_tail(sigma: Fraction, least: int) -> Fraction:
    """A bound on P(N ≥ least): the continuous tail one step nearer (Canonne, Kamath and Steinke)."""
    tail = 0.5 * math.erfc((least - 1) / (float(sigma) * math.sqrt(2.0)))
    return min(Fraction(tail) * Fraction(1 + _TAIL_MARGIN) + Fraction(1, 1 << 1000), Fraction(1))


def _up(value: Fraction) -> int:
    return -((-value.numerator) // value.denominator)
