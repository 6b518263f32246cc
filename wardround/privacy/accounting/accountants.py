"""Seven answers to one question: what is the epsilon of this schedule at this delta?

Each is an upper bound for a schedule that was fixed beforehand, and infinite where it has none.
They differ in how much they give away; the last, by loss distributions, gives away next to nothing.

Rényi divergences add up over a schedule, order by order, on one fine grid of orders. Where one is interpolated, it is
along a chord of a convex function, so never too small.
"""

import math
from functools import lru_cache

import numpy as np

from wardround.privacy.accounting.composition import RunningLoss
from wardround.privacy.accounting.cost import MU_UNIT, SLACK_UNIT
from wardround.privacy.accounting.domination import dominating_cost, pure_mu
from wardround.privacy.accounting.events import (
    Approximate,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    Gaussian,
    Laplace,
    Pure,
    Schedule,
    SubsampledGaussian,
)
from wardround.privacy.accounting.gaussian_dp import epsilon_of
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

# The textbook's Gaussian bound is proved up to here only (mission C3).
LARGEST_CLASSIC_EPSILON = 1.0
# The share of delta that is given to the domination of sampled blocks.
_BLOCK_SHARE = 1e-3
_LEAST_BLOCK_SLACK = 1e-12
# A larger loss is not worth a grid, and nobody would grant it.
_LARGEST_EPSILON = 1e6
_LARGEST_DELTA = 1.0 - 1e-9


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


def basic(schedule: Schedule, delta: float) -> float:
    """The sum of the epsilons, delta split evenly; the textbook's Gaussian where it is valid."""
    return _summed(schedule, delta, classic=True)


def basic_analytic(schedule: Schedule, delta: float) -> float:
    """The sum of the epsilons, delta split evenly, each the event's exact one."""
    return _summed(schedule, delta, classic=False)


def advanced(schedule: Schedule, delta: float) -> float:
    """Kairouz, Oh and Viswanath (2017) for unequal events, half of delta for the deviation."""
    left = delta - schedule.certain_delta
    plain = basic_analytic(schedule, delta)
    if left <= 0.0:
        return plain
    needing = _needing(schedule)
    each = 0.5 * left / needing if needing else 0.0
    singles = [(_single(event, each, classic=False), count) for event, count in schedule.counts]
    mean = math.fsum(count * epsilon * math.tanh(0.5 * epsilon) for epsilon, count in singles)
    squares = math.fsum(count * epsilon * epsilon for epsilon, count in singles)
    return min(plain, mean + math.sqrt(2.0 * math.log(2.0 / left) * squares))


def zcdp(schedule: Schedule, delta: float) -> float:
    """The textbook's rho + 2 sqrt(rho ln 1/delta) (Bun and Steinke, 2016)."""
    left = delta - schedule.certain_delta
    if left <= 0.0:
        return math.inf
    rho = _rho(schedule)
    return rho + 2.0 * math.sqrt(-rho * math.log(left))


def zcdp_tight(schedule: Schedule, delta: float) -> float:
    """The same rho, converted as Rényi divergences are (Canonne, Kamath and Steinke, 2020)."""
    return _converted(_rho(schedule) * ORDERS, delta - schedule.certain_delta)


def rdp(schedule: Schedule, delta: float) -> float:
    """Rényi divergences added order by order, then converted at the best one."""
    total = np.zeros(ORDERS.size)
    for event, count in schedule.counts:
        total += count * renyi(event)
    return _converted(total, delta - schedule.certain_delta)


def gdp(schedule: Schedule, delta: float) -> float:
    """One Gaussian that is at least as bad: exact for Gaussian events, certified for the others."""
    mu_squared = schedule.mu_squared
    left = delta - schedule.certain_delta
    if left <= 0.0:
        return math.inf
    blocks: dict[Event, int] = {}
    for event, count in schedule.counts:
        match event:
            case Laplace(epsilon) | DiscreteLaplace(epsilon) | Pure(epsilon) | Approximate(epsilon):
                mu_squared += count * pure_mu(epsilon) ** 2
            case SubsampledGaussian() | DiscreteGaussian():
                blocks[event] = count
            case Gaussian():  # pragma: no branch
                pass
    if blocks:
        if _is_hopeless(Schedule.of(blocks), left):
            return math.inf
        try:
            cost = dominating_cost(Schedule.of(blocks), slack=max(_BLOCK_SHARE * left, _LEAST_BLOCK_SLACK))
        except ValueError:
            return math.inf
        mu_squared += cost.mu_squared / MU_UNIT
        left -= cost.slack / SLACK_UNIT
        if left <= 0.0:
            return math.inf
    mu = math.sqrt(mu_squared) * (1.0 + 2.0**-50)
    return epsilon_of(left, mu) if math.isfinite(mu) else math.inf


def pld(schedule: Schedule, delta: float) -> float:
    """The privacy loss distribution: exact up to a grid that only errs upwards."""
    # A sure loss of delta and nothing else is not worth a place on the grid.
    sure = Schedule(
        tuple((event, n) for event, n in schedule.counts if isinstance(event, Approximate) and not event.epsilon)
    )
    kept = Schedule(tuple(pair for pair in schedule.counts if pair not in sure.counts))
    left = delta - sure.certain_delta
    plain = basic_analytic(kept, left)
    if left <= 0.0 or not kept.counts:
        return plain
    if not kept.without_gaussians().counts:
        return epsilon_of(left, math.sqrt(kept.mu_squared) * (1.0 + 2.0**-50))
    if _is_hopeless(kept, left):
        return min(plain, rdp(kept, left))
    return min(plain, RunningLoss(kept, left).epsilon())


def _is_hopeless(schedule: Schedule, delta: float) -> bool:
    """Whether the loss is too large for any grid of losses."""
    return basic_analytic(schedule, delta) > _LARGEST_EPSILON and rdp(schedule, delta) > _LARGEST_EPSILON


def _converted(divergence: FloatVector, delta: float) -> float:
    """The least epsilon over all orders (Canonne, Kamath and Steinke, 2020, proposition 12)."""
    if delta <= 0.0:
        return math.inf
    found = divergence + np.log1p(-1.0 / ORDERS) - (math.log(delta) + np.log(ORDERS)) / (ORDERS - 1.0)
    return max(0.0, float(found.min()))


def _rho(schedule: Schedule) -> float:
    """The summed zero-concentrated loss. It gives no credit for sampling."""

    def one(event: Event) -> float:
        match event:
            case Gaussian(z) | SubsampledGaussian(_, z):
                return 0.5 / z**2
            case DiscreteGaussian(sigma, shift):
                return 0.5 * (shift / sigma) ** 2
            case (
                Laplace(epsilon) | DiscreteLaplace(epsilon) | Pure(epsilon) | Approximate(epsilon)
            ):  # pragma: no branch
                return 0.5 * epsilon**2

    return math.fsum(count * one(event) for event, count in schedule.counts)


def _needing(schedule: Schedule) -> int:
    """How many events have no epsilon without a delta."""
    kinds = (Gaussian, DiscreteGaussian, SubsampledGaussian)
    return sum(count for event, count in schedule.counts if isinstance(event, kinds))


def _summed(schedule: Schedule, delta: float, *, classic: bool) -> float:
    left = delta - schedule.certain_delta
    needing = _needing(schedule)
    if left < 0.0 or (needing and left <= 0.0):
        return math.inf
    each = left / needing if needing else 0.0
    return math.fsum(count * _single(event, each, classic=classic) for event, count in schedule.counts)


def _single(event: Event, delta: float, *, classic: bool) -> float:
    """The epsilon of one event at its share of delta."""
    match event:
        case Gaussian(z):
            textbook = math.sqrt(2.0 * math.log(1.25 / delta)) / z
            return textbook if classic and textbook <= LARGEST_CLASSIC_EPSILON else epsilon_of(delta, 1.0 / z)
        case SubsampledGaussian(q, z):
            # Removing a unit is the worse direction for every epsilon of at least 0.
            stretched = epsilon_of(min(delta / q, _LARGEST_DELTA), 1.0 / z)
            return float(np.logaddexp(math.log1p(-q), math.log(q) + stretched)) if q < 1.0 else stretched
        case DiscreteGaussian():
            return _discrete_single(event, delta)
        case Laplace(epsilon) | DiscreteLaplace(epsilon) | Pure(epsilon) | Approximate(epsilon):  # pragma: no branch
            return epsilon


@lru_cache(maxsize=256)
def _discrete_single(event: DiscreteGaussian, delta: float) -> float:
    return RunningLoss(Schedule.of({event: 1}), delta).epsilon()
