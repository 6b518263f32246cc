"""What samples of two worlds prove about a loss: lower bounds that hold with a stated confidence.

An audit can only ever show that a mechanism leaks at least so much. The event that is tested is chosen on one
part of the samples and measured on the rest, so that choosing it proves nothing by itself (PROOFS.md#audit).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution
from wardround.privacy.noise.vectors import IntVector

Statistic: TypeAlias = NDArray[np.float64]

CHOOSING_SHARE = 0.2
"""The part of the samples on which the event is chosen."""

FEWEST_SAMPLES = 20

_CANDIDATES = 400
_FRACTION_ERROR = 1e-15
_SMALLEST = 1e-300
# Bounds are moved outwards by this much of themselves, far above the error of the continued fraction.
_OUTWARDS = 1e-9


def beta_tail(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b), by its continued fraction."""
    if not 0.0 <= x <= 1.0 or min(a, b) <= 0.0:
        raise ValueError("the incomplete beta function needs 0 ≤ x ≤ 1 and positive a and b")
    if x in (0.0, 1.0):
        return x
    # The fraction converges quickly on this side of the mean; on the other the symmetry serves.
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - beta_tail(1.0 - x, b, a)
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(front) * _beta_fraction(x, a, b) / a


def _beta_fraction(x: float, a: float, b: float) -> float:
    """Lentz's method for 1/(1 + d₁/(1 + d₂/(1 + …)))."""
    c, d = 1.0, 1.0 / _away_from_zero(1.0 - (a + b) * x / (a + 1.0))
    value, m, step = d, 0, 0.0
    while abs(step - 1.0) > _FRACTION_ERROR:
        m += 1
        step = 1.0
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / _away_from_zero(1.0 + term * d)
            c = _away_from_zero(1.0 + term / c)
            step = c * d
            value *= step
    return value


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _SMALLEST else _SMALLEST


def clopper_pearson(successes: int, trials: int, *, alpha: float) -> tuple[float, float]:
    """Bounds of a probability, each wrong with probability at most `alpha` (Clopper and Pearson)."""
    if not 0 <= successes <= trials or trials < 1 or not 0.0 < alpha < 1.0:
        raise ValueError("a bound needs 0 ≤ successes ≤ trials, at least 1 trial and an alpha between 0 and 1")
    failures = trials - successes
    low, high = 0.0, 1.0
    if successes:
        low = _first(lambda p: beta_tail(p, successes, failures + 1) >= alpha) * (1.0 - _OUTWARDS)
    if failures:
        high = 1.0 - _first(lambda p: beta_tail(p, failures, successes + 1) >= alpha) * (1.0 - _OUTWARDS)
    return low, high


def _first(holds: Callable[[float], bool]) -> float:
    """The largest number found below the place in [0, 1] where `holds` turns true."""
    low, high = 0.0, 1.0
    while high - low > 1e-13 * high:
        middle = 0.5 * (low + high)
        if holds(middle):
            high = middle
        else:
            low = middle
    return low


@dataclass(frozen=True, slots=True)
class Event:
    """A set of outcomes of a statistic: at least, or at most, a threshold."""

    threshold: float
    at_least: bool

    def count(self, samples: Statistic) -> int:
        """How many samples fall into it."""
        inside = samples >= self.threshold if self.at_least else samples <= self.threshold
        return int(np.count_nonzero(inside))


def epsilon_bound(with_unit: Statistic, without: Statistic, *, alpha: float, delta: float = 0.0) -> float:
    """An ε that is proved to be exceeded, at this δ, by what tells the two worlds apart.

    Wrong with probability at most `alpha`; 0 when the samples prove nothing.
    """
    best, certified = 0.0, 0.0
    for first, second in ((with_unit, without), (without, with_unit)):
        chosen, rest = _split(first), _split(second)
        event, promise = _most_telling(chosen[0], rest[0], alpha=alpha, delta=delta)
        if promise > best:
            best = promise
            certified = _ratio(event, chosen[1], rest[1], alpha=alpha, delta=delta)
    return certified


def _most_telling(first: Statistic, second: Statistic, *, alpha: float, delta: float) -> tuple[Event, float]:
    """The event that promises the largest bound, judged roughly on the choosing part."""
    z = NormalDist().inv_cdf(1.0 - alpha / 2.0)
    # The certifying part is larger than the choosing part by this factor.
    trials = first.size * (1.0 - CHOOSING_SHARE) / CHOOSING_SHARE
    best = Event(0.0, at_least=True), -math.inf
    for event in _events(first, second):
        p, q = event.count(first) / first.size, event.count(second) / second.size
        least = p - z * math.sqrt(p * (1.0 - p) / trials) - z * z / trials - delta
        most = q + z * math.sqrt(q * (1.0 - q) / trials) + z * z / trials
        if least > 0.0 and (promise := math.log(least / most)) > best[1]:
            best = event, promise
    return best


def _events(first: Statistic, second: Statistic) -> Iterator[Event]:
    pooled = np.sort(np.concatenate((first, second)))
    places = np.linspace(0, pooled.size - 1, min(_CANDIDATES, pooled.size)).astype(np.int64)
    for threshold in np.unique(pooled[places]).tolist():
        yield Event(threshold, at_least=True)
        yield Event(threshold, at_least=False)


def _ratio(event: Event, first: Statistic, second: Statistic, *, alpha: float, delta: float) -> float:
    least = clopper_pearson(event.count(first), first.size, alpha=alpha / 2.0)[0] - delta
    most = clopper_pearson(event.count(second), second.size, alpha=alpha / 2.0)[1]
    return max(0.0, math.log(least / most)) if least > 0.0 else 0.0


def delta_bound(event_with: int, event_without: int, *, trials: int, epsilon: float, alpha: float) -> float:
    """A δ that is proved to be needed at `epsilon`, from how often one fixed event happened in each world."""
    least = clopper_pearson(event_with, trials, alpha=alpha / 2.0)[0]
    most = clopper_pearson(event_without, trials, alpha=alpha / 2.0)[1]
    return max(0.0, least - math.exp(epsilon) * most)


def mu_bound(with_unit: Statistic, without: Statistic, *, alpha: float, delta: float = 0.0) -> float:
    """A μ that is proved to be needed: no μ-GDP mechanism lets a test err so rarely on both sides.

    The statistic must be larger when the unit is there. A mechanism that is μ-GDP but for a slack of `delta` may miss
    the unit that much more rarely.
    """
    normal = NormalDist()
    chosen, rest = _split(with_unit), _split(without)

    def separation(
        threshold: float, inside: Statistic, outside: Statistic, bound: Callable[[int, int], float]
    ) -> float:
        missed = min(1.0, bound(int(np.count_nonzero(inside < threshold)), inside.size) + delta)
        alarmed = bound(int(np.count_nonzero(outside >= threshold)), outside.size)
        return -normal.inv_cdf(missed) - normal.inv_cdf(alarmed) if max(missed, alarmed) < 1.0 else 0.0

    def roughly(errors: int, trials: int) -> float:
        return (errors + 4.0) / (trials + 8.0)

    def surely(errors: int, trials: int) -> float:
        return clopper_pearson(errors, trials, alpha=alpha / 2.0)[1]

    pooled = np.concatenate((chosen[0], rest[0]))
    # Far out an estimate from the choosing part is mostly luck; the middle loses little.
    thresholds = np.unique(np.quantile(pooled, np.linspace(0.3, 0.7, 41))).tolist()
    best = max(thresholds, key=lambda threshold: separation(threshold, chosen[0], rest[0], roughly))
    return max(0.0, separation(best, chosen[1], rest[1], surely))


def _split(samples: Statistic) -> tuple[Statistic, Statistic]:
    if samples.size < FEWEST_SAMPLES:
        raise ValueError(f"an audit needs at least {FEWEST_SAMPLES} samples of each world, not {samples.size}")
    place = int(samples.size * CHOOSING_SHARE)
    return samples[:place], samples[place:]


def likelihood_ratio(
    released: IntVector, law: NoiseDistribution, *, with_unit: IntVector, without: IntVector
) -> Statistic:
    """The log-likelihood ratio of each released row between two totals, the best statistic there is."""
    near, far = (released - with_unit).astype(np.float64), (released - without).astype(np.float64)
    scale = float(law.scale)
    match law.mechanism:
        case Mechanism.DISCRETE_LAPLACE:
            return np.asarray((np.abs(far) - np.abs(near)).sum(axis=1) / scale, np.float64)
        case Mechanism.DISCRETE_GAUSSIAN:  # pragma: no branch
            return np.asarray(((far / scale) ** 2 - (near / scale) ** 2).sum(axis=1) / 2.0, np.float64)


def variance_score(noise: IntVector, law: NoiseDistribution) -> float:
    """By how many of its standard deviations the mean square of `noise` is off the law's variance."""
    if noise.size < FEWEST_SAMPLES:
        raise ValueError(f"a variance needs at least {FEWEST_SAMPLES} draws, not {noise.size}")
    variance = law.variance
    ratio = float(np.mean(noise.astype(np.float64) ** 2)) / variance
    return (ratio - 1.0) / math.sqrt((kurtosis(law) - 1.0) / noise.size)


def kurtosis(law: NoiseDistribution) -> float:
    """The fourth moment of a noise law over its squared variance."""
    match law.mechanism:
        case Mechanism.DISCRETE_LAPLACE:
            q = math.exp(-1.0 / law.scale)
            # E X⁴ = 2q(1 + 11q + 11q² + q³)/((1 + q)(1 - q)⁴), E X² = 2q/(1 - q)².
            return (1.0 + 11.0 * q + 11.0 * q * q + q**3) / (2.0 * q * (1.0 + q))
        case Mechanism.DISCRETE_GAUSSIAN:  # pragma: no branch
            # To double precision for the scales that are ever charged for, 4 and above.
            return 3.0
