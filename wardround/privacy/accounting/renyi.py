"""Rényi divergences of the events, on one fine grid of orders.

They add up over a schedule, order by order. Where a divergence is interpolated, it is along a
chord of a convex function, so never too small.
"""

import math
from functools import lru_cache

import numpy as np

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
from wardround.privacy.accounting.profiles import FloatVector

# Fine enough for six digits of the converted epsilon.
ORDERS: FloatVector = 1.0 + np.geomspace(1e-3, 1e6, 3000)
# Up to this order the sampled Gaussian's moments are summed; beyond it sampling earns nothing.
LARGEST_SAMPLED_ORDER = 256
# Up to this one they are also integrated between whole orders, where the noise is wide enough.
_LARGEST_SPLIT_ORDER = 32
_LARGEST_SPLIT_MU = 10.0
_SPLIT = 10
# More than rounding can take from the logarithm of a moment.
_ROUNDING = 1e-14


def renyi(event: Event) -> FloatVector:
    """The event's Rényi divergence, or a bound on it, at each of ORDERS."""
    match event:
        case Gaussian(z):
            return ORDERS / (2.0 * z * z)
        case DiscreteGaussian(sigma, shift):
            return (0.5 * (shift / sigma) ** 2) * ORDERS
        case Laplace(epsilon):
            likely = np.log(ORDERS / (2.0 * ORDERS - 1.0)) + (ORDERS - 1.0) * epsilon
            unlikely = np.log((ORDERS - 1.0) / (2.0 * ORDERS - 1.0)) - ORDERS * epsilon
            return np.logaddexp(likely, unlikely) / (ORDERS - 1.0)
        case DiscreteLaplace(epsilon) | Pure(epsilon) | Approximate(epsilon):
            both = np.logaddexp(ORDERS * epsilon, (1.0 - ORDERS) * epsilon) - np.logaddexp(0.0, epsilon)
            bounded: FloatVector = np.maximum(both / (ORDERS - 1.0), 0.0)
            return bounded
        case SubsampledGaussian(q, z):  # pragma: no branch
            return sampled_renyi(q, z)


@lru_cache(maxsize=256)
def sampled_renyi(q: float, z: float) -> FloatVector:
    """The sampled Gaussian's divergence at each of ORDERS (Mironov, Talwar and Zhang, 2019)."""
    if q == 1.0:
        return renyi(Gaussian(z))
    orders = [float(order) for order in range(2, LARGEST_SAMPLED_ORDER + 1)]
    moments = [_whole_moment(q, z, int(order)) for order in orders]
    if z * _LARGEST_SPLIT_MU >= 1.0:
        split = [k / _SPLIT for k in range(_SPLIT + 1, _SPLIT * _LARGEST_SPLIT_ORDER) if k % _SPLIT]
        orders += split
        moments += _integrated_moments(q, z, split)
    order = np.argsort(orders)
    places, heights = np.array(orders)[order], np.array(moments)[order] + _ROUNDING
    # The logarithm of a moment is convex in its order, and 0 at order 1: a chord is above it.
    joined = np.interp(ORDERS, np.append(1.0, places), np.append(0.0, heights)) / (ORDERS - 1.0)
    plain = renyi(Gaussian(z))
    return np.where(ORDERS <= LARGEST_SAMPLED_ORDER, np.minimum(joined, plain), plain)


def _whole_moment(q: float, z: float, order: int) -> float:
    """The logarithm of E[(P/Q)^order] as a binomial sum."""
    k = np.arange(order + 1)
    log_factorial = np.array([math.lgamma(n + 1.0) for n in range(order + 1)])
    chosen = log_factorial[order] - log_factorial[k] - log_factorial[order - k]
    terms = chosen + (order - k) * math.log1p(-q) + k * math.log(q) + k * (k - 1) / (2.0 * z * z)
    return _log_sum(terms)


def _integrated_moments(q: float, z: float, orders: list[float]) -> list[float]:
    """The same at any order, by the trapezoidal rule, which is exact here to double precision."""
    mu = 1.0 / z
    step = 0.1 / max(1.0, mu)
    x = np.arange(-12.0, max(orders) * mu + 12.0, step)
    log_ratio = np.logaddexp(math.log1p(-q), math.log(q) + mu * x - 0.5 * mu * mu)
    density = math.log(step) - 0.5 * math.log(2.0 * math.pi) - 0.5 * x * x
    return [_log_sum(order * log_ratio + density) for order in orders]


def _log_sum(terms: FloatVector) -> float:
    most = float(terms.max())
    return most + math.log(float(np.exp(terms - most).sum()))
