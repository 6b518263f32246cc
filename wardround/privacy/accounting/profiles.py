"""The privacy profile of each event: delta as a function of epsilon, on whole arrays.

A profile says everything about an event: its privacy loss distribution is the second derivative
(PROOFS.md#loss-distribution). Both directions are here, a unit removed and a unit added.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from wardround.privacy.accounting.events import (
    Approximate,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    Gaussian,
    Laplace,
    Pure,
    SubsampledGaussian,
)
from wardround.privacy.accounting.gaussian_dp import epsilon_of

FloatVector: TypeAlias = NDArray[np.float64]
_Symmetric: TypeAlias = Gaussian | DiscreteGaussian | Laplace | DiscreteLaplace | Pure | Approximate
_ROOT_HALF = math.sqrt(0.5)
# The discrete Gaussian has less than 1e-340 beyond so many sigma.
_FAR = 40.0


@dataclass(frozen=True, slots=True)
class Profile:
    """Delta at each epsilon of at least 0, and where it is below `tail` for good."""

    delta: Callable[[FloatVector], FloatVector]
    reach: float


def profiles(event: Event, *, tail: float) -> tuple[Profile, Profile]:
    """The event's profiles when a unit is removed and when one is added; the same object if equal."""
    if isinstance(event, SubsampledGaussian):
        return _subsampled(event.q, event.z, tail)
    both = _symmetric(event, tail)
    return both, both


def _symmetric(event: _Symmetric, tail: float) -> Profile:
    match event:
        case Gaussian(z):
            return gaussian_profile(1.0 / z, tail=tail)
        case DiscreteGaussian(sigma, shift):
            return _discrete_gaussian(sigma, shift, tail)
        case Laplace(most):
            return Profile(lambda epsilon: -np.expm1(0.5 * np.minimum(epsilon - most, 0.0)), most)
        case DiscreteLaplace(most, shift):
            return Profile(lambda epsilon: _discrete_laplace(epsilon, most, shift), most)
        case Pure(most):
            return Profile(lambda epsilon: _pure(epsilon, most), most)
        case Approximate(most, delta):  # pragma: no branch
            return Profile(lambda epsilon: delta + (1.0 - delta) * _pure(epsilon, most), most)


def spread(event: Event) -> float:
    """About the variance of one event's loss; it only chooses how fine a grid is."""
    match event:
        case Gaussian(z):
            return 1.0 / z**2
        case DiscreteGaussian(sigma, shift):
            return (shift / sigma) ** 2
        case Laplace(epsilon) | DiscreteLaplace(epsilon) | Pure(epsilon) | Approximate(epsilon):
            return epsilon**2
        case SubsampledGaussian(q, z):  # pragma: no branch
            return min(q * q * math.expm1(min(z**-2, 300.0)), z**-2)


def gaussian_profile(mu: float, *, tail: float) -> Profile:
    """The profile of one Gaussian, or of many together."""
    return Profile(lambda epsilon: gaussian_delta(epsilon, mu), epsilon_of(tail, mu))


def gaussian_delta(epsilon: FloatVector, mu: float) -> FloatVector:
    """Phi(mu/2 - e/mu) - exp(e) Phi(-mu/2 - e/mu), to about 1e-13 of the larger term."""
    x = epsilon / mu - 0.5 * mu
    above = _upper_normal(x)
    below = np.exp(np.minimum(epsilon, 700.0)) * _upper_normal(x + mu)
    found: FloatVector = np.maximum(above - below, 0.0)
    return found


def _upper_normal(x: FloatVector) -> FloatVector:
    """Phi(-x). numpy has no error function, and the standard library's is exact and quick enough."""
    return 0.5 * np.fromiter(map(math.erfc, (x * _ROOT_HALF).tolist()), dtype=np.float64, count=x.size)


def _pure(epsilon: FloatVector, most: float) -> FloatVector:
    """Randomised response: (e^most - e^epsilon)/(e^most + 1)."""
    return -np.expm1(np.minimum(epsilon - most, 0.0)) / (1.0 + math.exp(-most))


def _discrete_laplace(epsilon: FloatVector, most: float, shift: int) -> FloatVector:
    """The loss is `most` on half the line, -`most` on the other, and falls by 2a between them."""
    a = most / shift
    q = math.exp(-a)
    ends = -np.expm1(np.minimum(epsilon - most, 0.0)) / (1.0 + q)
    # n = 1 … m have a loss of (shift - 2n)a above epsilon.
    m = np.clip(np.ceil(0.5 * (shift - epsilon / a)) - 1.0, 0.0, shift - 1.0)
    first = q * -np.expm1(-a * m)
    second = np.exp(np.minimum(epsilon, most) - a * (shift - m)) * -np.expm1(-a * m)
    found: FloatVector = ends + np.maximum(first - second, 0.0) / (1.0 + q)
    return found


def _discrete_gaussian(sigma: float, shift: int, tail: float) -> Profile:
    """P(n <= m) - e^epsilon P(n <= m - shift), where m is the last n with a loss above epsilon."""
    width = math.ceil(_FAR * sigma) + shift
    n = np.arange(-width, width + 1)
    weight = np.exp(-0.5 * (n / sigma) ** 2)
    below = np.concatenate([[0.0], np.cumsum(weight) / math.fsum(weight)])

    def delta(epsilon: FloatVector) -> FloatVector:
        last = np.ceil((0.5 * shift * shift - epsilon * sigma * sigma) / shift).astype(np.int64) - 1
        upto = np.clip(last + width + 1, 0, below.size - 1)
        moved = np.clip(last - shift + width + 1, 0, below.size - 1)
        found: FloatVector = np.maximum(below[upto] - np.exp(np.minimum(epsilon, 700.0)) * below[moved], 0.0)
        return found

    # The discrete Gaussian is sub-Gaussian with its own sigma (Canonne, Kamath and Steinke, 2020).
    ratio = shift / sigma
    return Profile(delta, 0.5 * ratio * ratio + ratio * math.sqrt(-2.0 * math.log(tail)))


def _subsampled(q: float, z: float, tail: float) -> tuple[Profile, Profile]:
    """Both directions are the Gaussian's profile, seen at a stretched epsilon (PROOFS.md#subsampled-gaussian)."""
    mu = 1.0 / z
    kept = 1.0 - q

    def removed(epsilon: FloatVector) -> FloatVector:
        near = np.log1p(np.expm1(np.minimum(epsilon, 1.0)) / q)
        far = epsilon + np.log1p(-kept * np.exp(-epsilon)) - math.log(q) if kept > 0.0 else epsilon
        return q * gaussian_delta(np.where(epsilon < 1.0, near, far), mu)

    def added(epsilon: FloatVector) -> FloatVector:
        left = q - kept * np.expm1(np.minimum(epsilon, 700.0))
        possible = left > 0.0
        safe = np.where(possible, left, 1.0)
        stretched = np.where(possible, epsilon + math.log(q) - np.log(safe), 0.0)
        found: FloatVector = np.where(possible, safe * gaussian_delta(stretched, mu), 0.0)
        return found

    stretched = epsilon_of(min(tail / q, 0.5), mu)
    growth = np.logaddexp(stretched + math.log(q), math.log(kept) if kept > 0.0 else -math.inf)
    shrink = np.logaddexp(math.log(q), stretched + math.log(kept) if kept > 0.0 else -math.inf)
    return Profile(removed, float(growth)), Profile(added, max(float(stretched - shrink), 0.0))
