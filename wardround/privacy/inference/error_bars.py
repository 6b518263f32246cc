"""How far the noise can have moved an answer, and how far a choice may fall short of the best candidate.

The laws of noise and choice are public, so both are computed, not estimated, and hold whatever the counts are; an
interval is rounded so that it covers at least as often as it claims (PROOFS.md#intervals, PROOFS.md#regret).
"""

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution

# Tails are computed to about 1e-15; a confidence closer to 1 than this would be rounding error.
LARGEST_CONFIDENCE = 1.0 - 1e-9
_ARITHMETIC_ERROR = 1e-12
_SMALL_CHANCE = 1 / 16

# Up to this scale the sum of discrete Laplace draws is convolved; above it, the continuous law.
_CONVOLVED_SCALE = 4096

_STEPS = 200


def sum_variance(law: NoiseDistribution, terms: int) -> float:
    """The variance of a sum of `terms` independent draws, in squared grid units."""
    _check_terms(terms)
    return terms * law.variance


def critical_value(law: NoiseDistribution, *, terms: int, confidence: float) -> float:
    """How many standard deviations hold a sum of `terms` draws with at least `confidence`."""
    _check_terms(terms)
    if not 0.0 < confidence <= LARGEST_CONFIDENCE:
        raise ValueError(f"a confidence must be above 0 and at most 1 - 1e-9, not {confidence!r}")
    return _critical_value(law, terms, confidence)


def passed_with_chance(law: NoiseDistribution, chance: float) -> int:
    """A whole number that one draw passes upwards with at most this chance, below 1/16; downwards with the same.

    A Gaussian weight beyond σ is below its own integral over ±1/2, and the weights of all integers add up to at least
    σ√2π: so P(N ≥ t) ≤ Q((t − 1/2)/σ). A Laplace tail is q^t/(1 + q) with q = e^(−1/b) (PROOFS.md#intervals).
    """
    if not 0.0 < chance < _SMALL_CHANCE:
        raise ValueError(f"a chance must be above 0 and below 1/16, not {chance!r}")
    scale = float(law.scale)
    match law.mechanism:
        case Mechanism.DISCRETE_GAUSSIAN:
            return math.ceil(max(-NormalDist().inv_cdf(chance), 1.0) * scale + 1.5)
        case Mechanism.DISCRETE_LAPLACE:  # pragma: no branch
            return math.ceil(-scale * (math.log(chance) + math.log1p(math.exp(-1.0 / scale)))) + 1


def mean_interval(a: float, b: float, *, sd: float, critical: float) -> tuple[float, float]:
    """Where p = A/(A + B) can be, given A and B of at least 0, each seen through noise of `sd`.

    Fieller's set: every p for which (1 - p)a - p b is within `critical` of its own standard
    deviation. Its part in [0, 1]; all of [0, 1] when the noise leaves the denominator open.
    """
    if not all(math.isfinite(value) for value in (a, b, sd, critical)) or min(sd, critical) < 0.0:
        raise ValueError("an interval needs finite sums, and a noise and critical value of at least 0")
    reach = critical * sd
    n = a + b
    # The set is {p: curve p² - 2 middle p + (a² - reach²) <= 0}.
    curve = n * n - 2.0 * reach * reach
    if n <= 0.0 or curve <= 0.0:
        return 0.0, 1.0
    middle = a * n - reach * reach
    spread = reach * math.sqrt(a * a + b * b - reach * reach)
    lower, upper = (middle - spread) / curve, (middle + spread) / curve
    if upper < 0.0 or lower > 1.0:
        # One sum is below zero by more than the noise explains. Either way the set would be
        # empty: start from the nearest possible sums rather than claim certainty.
        return mean_interval(max(a, 0.0), max(b, 0.0), sd=sd, critical=critical)
    return max(0.0, lower), min(1.0, upper)


def ratio_interval(top: float, bottom: float, *, sd: float, critical: float, bound: float) -> tuple[float, float]:
    """Where T/B can be within ±`bound`, given T and B of at least 0, each seen through noise of `sd`.

    Fieller's set again: every p for which t - p b is within `critical` of its own standard
    deviation; all of ±`bound` when the noise leaves the denominator open.
    """
    if not all(math.isfinite(value) for value in (top, bottom, sd, critical, bound)) or min(sd, critical, bound) < 0.0:
        raise ValueError("an interval needs finite sums, and a noise, critical value and bound of at least 0")
    reach = critical * sd
    # The set is {p: curve p² - 2 top bottom p + (top² - reach²) <= 0}.
    curve = bottom * bottom - reach * reach
    if bottom <= 0.0 or curve <= 0.0:
        return -bound, bound
    lower, upper = _fieller_ends(top, bottom, curve=curve, reach=reach)
    if upper < -bound or lower > bound:
        # The noise has pushed the ratio out of its bounds: start from the nearest possible sum.
        lower, upper = _fieller_ends(math.copysign(bound * bottom, top), bottom, curve=curve, reach=reach)
    return min(max(lower, -bound), bound), max(min(upper, bound), -bound)


def _fieller_ends(top: float, bottom: float, *, curve: float, reach: float) -> tuple[float, float]:
    spread = reach * math.sqrt(max(top * top + curve, 0.0))
    return (top * bottom - spread) / curve, (top * bottom + spread) / curve


@lru_cache(maxsize=1024)
def _critical_value(law: NoiseDistribution, terms: int, confidence: float) -> float:
    deviation = math.sqrt(sum_variance(law, terms))
    match law.mechanism:
        case Mechanism.DISCRETE_GAUSSIAN:
            normal = NormalDist().inv_cdf(0.5 * (1.0 + confidence + _ARITHMETIC_ERROR))
            # On whole numbers, |X| <= t covers what the normal law has below t + 1/2. Never
            # less than the normal value itself, which serves combinations of coordinates.
            reach = math.ceil(normal * deviation - 0.5)
            return max(normal, _ratio_up(reach, deviation))
        case Mechanism.DISCRETE_LAPLACE if law.scale <= _CONVOLVED_SCALE:
            return _ratio_up(_convolved_reach(law, terms, confidence), deviation)
        case Mechanism.DISCRETE_LAPLACE:  # pragma: no branch
            # A geometric draw is b times an exponential one, rounded down: each of the terms is
            # less than one grid unit away from b times a Laplace draw.
            reach = math.ceil(float(law.scale) * _laplace_reach(terms, confidence)) + terms
            return _ratio_up(reach, deviation)


def _convolved_reach(law: NoiseDistribution, terms: int, confidence: float) -> int:
    """The least t such that a sum of discrete Laplace draws is within t often enough.

    The sum's law is inverted from its characteristic function, which is known exactly.
    """
    scale = float(law.scale)
    deviation = math.sqrt(sum_variance(law, terms))
    # Beyond this there is less than 1e-16: the transform wraps nothing that matters.
    width = 40.0 * (scale + 1.0) + 12.0 * deviation
    size = 1 << math.ceil(math.log2(2.0 * width))
    angle = np.arange(size // 2 + 1) * (math.pi / size)
    # (1-q)²/(1 - 2q cos θ + q²) with 1 - cos θ = 2 sin²(θ/2), so that nothing cancels.
    gap = math.expm1(-1.0 / scale) ** 2
    transform = 1.0 / (1.0 + (4.0 * math.exp(-1.0 / scale) / gap) * np.sin(angle) ** 2)
    probability = np.fft.irfft(transform**terms, size)
    covered = probability[0] + 2.0 * np.cumsum(probability[1 : size // 2])
    if probability[0] >= confidence + _ARITHMETIC_ERROR:
        return 0
    return 1 + int(np.searchsorted(covered, confidence + _ARITHMETIC_ERROR))


def _laplace_reach(terms: int, confidence: float) -> float:
    """The quantile of |sum of `terms` Laplace draws of scale 1|, rounded up."""
    outside = 1.0 - confidence - _ARITHMETIC_ERROR
    low, high = 0.0, 1.0
    while 2.0 * _laplace_tail(terms, high) > outside:
        low, high = high, 2.0 * high
    while high - low > 1e-12 * high:
        middle = 0.5 * (low + high)
        if 2.0 * _laplace_tail(terms, middle) > outside:
            low = middle
        else:
            high = middle
    return high


def _laplace_tail(terms: int, x: float) -> float:
    """P(sum of `terms` Laplace draws of scale 1 > x), for x of at least 0.

    The sum is the difference of two waits for `terms` events of unit rate. Whichever stream is
    done first, memorylessness leaves the other with a gamma wait for what it still lacks.
    """
    beyond = [0.0]
    poisson = math.exp(-x)
    for lacking in range(1, terms + 1):
        beyond.append(beyond[-1] + poisson)
        poisson *= x / lacking
    # won: one stream is done when the other has had `had` events, C(terms-1+had, had)/2**(terms+had).
    # From the last one down, where it is largest, so that nothing underflows.
    won = 0.5 * math.prod((2 * k - 1) / (2 * k) for k in range(1, terms))
    tail = 0.0
    for had in range(terms - 1, -1, -1):
        tail += won * beyond[terms - had]
        won *= 2.0 * had / (terms + had - 1) if had else 0.0
    return tail


def _ratio_up(reach: int, deviation: float) -> float:
    """`reach`/`deviation`, such that multiplying back never falls short of `reach`."""
    ratio = reach / deviation
    while ratio * deviation < reach:
        ratio = math.nextafter(ratio, math.inf)
    return ratio


def _check_terms(terms: int) -> None:
    if terms < 1:
        raise ValueError(f"a sum has at least 1 term, not {terms}")


def expected_regret_of_choice(*, epsilon: float, candidates: int) -> float:
    """The most that permute-and-flip over counts falls short of the best, in the mean: (H_n - 1)/ε."""
    return math.fsum(1.0 / rank for rank in range(2, candidates + 1)) / epsilon


def regret_of_choice(*, epsilon: float, candidates: int, chance: float) -> float:
    """What permute-and-flip over counts falls short of the best by, but for `chance`: ln((n - 1)/2β)/ε."""
    if not 0.0 < chance < 1.0:
        raise ValueError(f"a chance must be between 0 and 1, both excluded, not {chance!r}")
    if candidates == 1:
        return 0.0
    return max(0.0, math.log((candidates - 1) / (2.0 * chance)) / epsilon)


def expected_regret_of_noise(law: NoiseDistribution, *, terms: int, candidates: int) -> float:
    """The most that the largest of sums with `terms` draws each falls short of the best, in the mean, in grid units."""
    if terms < 1:
        raise ValueError(f"a sum has at least 1 draw, not {terms}")
    if candidates == 1:
        return 0.0
    scale, choices = float(law.scale), math.log(candidates)
    match law.mechanism:
        case Mechanism.DISCRETE_GAUSSIAN:
            return scale * math.sqrt(2.0 * terms * choices)
        case Mechanism.DISCRETE_LAPLACE:  # pragma: no branch
            return _least_bound(scale, terms=terms, choices=choices)


def _least_bound(scale: float, *, terms: int, choices: float) -> float:
    """The least of (ln n + terms·K(t))/t over 0 < t < 1/b, K the logarithm of E[e^(tX)]; any t gives a bound."""

    def bound(share: float) -> float:
        t = share / scale
        # 1 - q and 1 - q·e^(±t) with q = e^(-1/b), without cancellation.
        logarithm = 2.0 * math.log(-math.expm1(-1.0 / scale))
        logarithm -= math.log(-math.expm1(t - 1.0 / scale)) + math.log(-math.expm1(-t - 1.0 / scale))
        return (choices + terms * logarithm) / t

    return min(bound(step / _STEPS) for step in range(1, _STEPS))
