"""The loss of every discrete mechanism, from its probabilities: no sampling, no accountant.

What is pure is compared in fractions. The laws of choices, responses and cut-off noise are rational
functions of b = exp(-rate), and their guarantees hold for every b in (0, 1): with a rational b nothing is
rounded. Gaussian divergences are sums in double precision with every term positive.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from wardround.privacy.mechanisms.private_selection import Choosing
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution

Outcome = TypeVar("Outcome")
Law = Mapping[Outcome, Fraction]

# Beyond so many scales there is less than 1e-300 of either law.
_LAPLACE_REACH = 700
_GAUSSIAN_REACH = 38


@dataclass(frozen=True, slots=True, eq=False)
class Pmf:
    """The probabilities of whole numbers: that of first + i is probabilities[i]."""

    first: int
    probabilities: NDArray[np.float64]


def pmf(law: NoiseDistribution) -> Pmf:
    """The probabilities of a noise law, as far out as doubles can tell them from zero."""
    scale = float(law.scale)
    match law.mechanism:
        case Mechanism.DISCRETE_LAPLACE:
            reach = math.ceil(_LAPLACE_REACH * scale)
            return _normalised(reach, np.exp(-np.abs(np.arange(-reach, reach + 1)) / scale))
        case Mechanism.DISCRETE_GAUSSIAN:  # pragma: no branch
            reach = math.ceil(_GAUSSIAN_REACH * scale)
            return _normalised(reach, np.exp(-0.5 * (np.arange(-reach, reach + 1) / scale) ** 2))


def _normalised(reach: int, weights: NDArray[np.float64]) -> Pmf:
    return Pmf(-reach, weights / weights.sum())


def largest_loss(law: NoiseDistribution, shift: int) -> Fraction:
    """The largest log-ratio of discrete Laplace noise around two totals `shift` apart, exactly."""
    if law.mechanism is not Mechanism.DISCRETE_LAPLACE:
        raise ValueError("only Laplace noise has a largest loss")
    # |x - s| - |x| is largest at x = 0 and everywhere beyond it.
    return abs(shift) / law.scale


def hockey_stick(law: NoiseDistribution, shift: int, epsilon: float) -> float:
    """The least δ at which noise around two totals `shift` apart is (`epsilon`, δ)-indistinguishable.

    Σ (p(x) - e^ε p(x - shift))⁺ = Σ p(x)(1 - e^(ε - loss(x)))⁺; both laws are symmetric, so this serves
    either direction. Where the loss passes ε is decided in fractions.
    """
    distance = abs(shift)
    limit = Fraction(epsilon)
    if distance == 0:
        return 0.0 if limit >= 0 else -math.expm1(epsilon)
    noise = pmf(law)
    x = np.arange(noise.first, noise.first + noise.probabilities.size, dtype=np.float64)
    match law.mechanism:
        case Mechanism.DISCRETE_LAPLACE:
            # (|x - s| - |x|)/b > ε, whole numbers on the left of a fraction.
            nearer = np.abs(x - distance) - np.abs(x)
            return _excess(noise, nearer > math.floor(limit * law.scale), nearer / float(law.scale), epsilon)
        case Mechanism.DISCRETE_GAUSSIAN:  # pragma: no branch
            # (s² - 2sx)/2σ² > ε where x < s/2 - εσ²/s.
            edge = math.ceil(Fraction(distance, 2) - limit * law.scale**2 / distance)
            return _excess(noise, x < edge, distance * (0.5 * distance - x) / float(law.scale) ** 2, epsilon)


def _excess(noise: Pmf, beyond: NDArray[np.bool_], loss: NDArray[np.float64], epsilon: float) -> float:
    """Σ p(1 - e^(ε - loss)) over the outcomes beyond ε, whose exponents no rounding may make positive."""
    return float(np.sum(noise.probabilities[beyond] * -np.expm1(np.minimum(epsilon - loss[beyond], 0.0))))


def divergence(first: Law[Outcome], second: Law[Outcome], *, factor: Fraction) -> Fraction:
    """Σ (P - factor·Q)⁺, exactly: the δ of telling P from Q when `factor` stands for e^ε."""
    nothing = Fraction(0)
    return sum((max(p - factor * second.get(outcome, nothing), nothing) for outcome, p in first.items()), start=nothing)


def choice_law(gaps: list[int], *, choosing: Choosing, base: Fraction) -> dict[int, Fraction]:
    """The probability of each candidate; `base` is exp(-rate)."""
    weights = [base**gap for gap in gaps]
    match choosing:
        case Choosing.EXPONENTIAL:
            whole = sum(weights)
            return {i: weight / whole for i, weight in enumerate(weights)}
        case Choosing.PERMUTE_AND_FLIP:  # pragma: no branch
            others = (weights[:i] + weights[i + 1 :] for i in range(len(weights)))
            return {i: weight * _refused(rest) for (i, weight), rest in zip(enumerate(weights), others, strict=True)}


def _refused(others: list[Fraction]) -> Fraction:
    """∫₀¹ Π(1 - t·w) dt: the chance that whoever comes before a uniform place t was refused."""
    polynomial = [Fraction(1)]
    for weight in others:
        raised = [Fraction(0), *(-weight * coefficient for coefficient in polynomial)]
        polynomial = [a + b for a, b in zip([*polynomial, Fraction(0)], raised, strict=True)]
    return sum((coefficient / power for power, coefficient in enumerate(polynomial, start=1)), start=Fraction(0))


def response_law(truth: int, *, categories: int, base: Fraction) -> dict[int, Fraction]:
    """The probability of each answer of one entry; `base` is exp(-ε)."""
    whole = 1 + (categories - 1) * base
    return {answer: (1 if answer == truth else base) / whole for answer in range(categories)}


def cut_off_law(count: int, *, threshold: int, base: Fraction) -> dict[int | None, Fraction]:
    """What a selection shows of a key that `count` units hold: a noised count, or None; `base` is exp(-1/b).

    A key that nobody holds is never shown.
    """
    if count == 0:
        return {None: Fraction(1)}
    whole = sum(base ** abs(x) for x in range(-threshold, threshold + 1))
    shown: dict[int | None, Fraction] = {
        count + x: base ** abs(x) / whole for x in range(-threshold, threshold + 1) if count + x > threshold
    }
    shown[None] = 1 - sum(shown.values(), start=Fraction(0))
    return shown
