"""The trade-off of Gaussian noise, exactly: delta, epsilon and mu, each from the other two.

Every answer is rounded against us: a delta or an epsilon is never too small, a mu never too
large. Only `math` is used, because a hospital's agent prices plans with this module.

The usual formula, Phi(mu/2 - e/mu) - exp(e) Phi(-mu/2 - e/mu), subtracts two nearly equal
numbers when mu is small. With x = e/mu - mu/2 it equals phi(x) (R(x) - R(x + mu)), where R is
the Mills ratio, and the difference is computed without cancellation (PROOFS.md#gaussian-price).
"""

import math
from collections.abc import Callable
from functools import lru_cache

# Beyond these, double precision can no longer tell neighbouring answers apart; no study is near.
LARGEST_MU = 1e5
LARGEST_EPSILON = 1e8

_LOG_ROOT_TWO_PI = 0.5 * math.log(2.0 * math.pi)
_ROOT_HALF_PI = math.sqrt(0.5 * math.pi)
_ROOT_HALF = math.sqrt(0.5)

# Below this argument the complementary error function serves; above it the continued fraction.
_FRACTION_FROM = 3.0
# Below this mu the difference of Mills ratios is integrated instead of subtracted.
_INTEGRATE_BELOW = 0.5
# Gauss-Legendre on [-1, 1], eight points: (abscissa, weight), used with both signs.
_LEGENDRE = (
    (0.18343464249564980494, 0.36268378337836198297),
    (0.52553240991632898582, 0.31370664587788728734),
    (0.79666647741362673959, 0.22238103445337447054),
    (0.96028985649753623168, 0.10122853629037625915),
)
# One question asks for the same few answers again and again, and each is a search of some fifty steps.
_REMEMBERED = 1024
# From here ln delta < -x**2/2 is far below any double, and x itself is no longer exact.
_HOPELESSLY_FAR = 1e7


def delta_of(epsilon: float, mu: float) -> float:
    """The least delta at which `mu`-GDP implies (`epsilon`, delta), rounded up."""
    _check_epsilon(epsilon)
    _check_mu(mu)
    if mu == 0.0:
        return 0.0
    return min(1.0, max(math.exp(_log_delta_above(epsilon, mu)), math.ulp(0.0)))


@lru_cache(maxsize=_REMEMBERED)
def epsilon_of(delta: float, mu: float) -> float:
    """The least epsilon at which `mu`-GDP implies (epsilon, `delta`), rounded up.

    Every finite mu has an answer, because a hostile plan's price must still be told; beyond
    LARGEST_MU it is the looser bound of zero-concentrated privacy.
    """
    _check_delta(delta)
    log_delta = math.log(delta)
    if LARGEST_MU < mu < math.inf:
        return (0.5 * mu * mu + mu * math.sqrt(-2.0 * log_delta)) * (1.0 + 1e-12)
    _check_mu(mu)

    def holds(epsilon: float) -> bool:
        return mu == 0.0 or _log_delta_above(epsilon, mu) <= log_delta

    if holds(0.0):
        return 0.0
    broken, held = 0.0, mu
    while not holds(held):
        broken, held = held, 2.0 * held
    return _boundary(broken, held, holds)


@lru_cache(maxsize=_REMEMBERED)
def mu_of(epsilon: float, delta: float) -> float:
    """The largest mu at which mu-GDP implies (`epsilon`, `delta`), rounded down."""
    _check_epsilon(epsilon)
    _check_delta(delta)
    log_delta = math.log(delta)

    def holds(mu: float) -> bool:
        return _log_delta_above(epsilon, mu) <= log_delta

    held = broken = 1.0
    while not holds(held):
        broken, held = held, 0.5 * held
    while holds(broken):
        held, broken = broken, 2.0 * broken
    return _boundary(broken, held, holds)


def _boundary(broken: float, held: float, holds: Callable[[float], bool]) -> float:
    """Close in on where `holds` turns true, and stay on its true side."""
    middle = broken + 0.5 * (held - broken)
    while middle not in (broken, held):
        if holds(middle):
            held = middle
        else:
            broken = middle
        middle = broken + 0.5 * (held - broken)
    return held


def _log_delta_above(epsilon: float, mu: float) -> float:
    """The log of delta(epsilon) of mu-GDP, plus more than its rounding error."""
    ratio = epsilon / mu
    x = ratio - 0.5 * mu
    if x > _HOPELESSLY_FAR:
        return -0.4 * min(x, 1e150) ** 2
    y = ratio + 0.5 * mu
    # e**(-x*x/2) carries the rounding of `ratio` and of x, each x or `ratio` times 2**-53.
    error = 2.0**-50 * (128.0 + y * y)
    if mu < _INTEGRATE_BELOW:
        return _log_density(x) + math.log(_mills_drop(x, mu)) + error
    if x > 0.0:
        return _log_density(x) + math.log(_mills(x) - _mills(y)) + error
    below = math.exp(_log_density(x)) * _mills(y)
    return math.log(0.5 * math.erfc(x * _ROOT_HALF) - below) + error


def _log_density(x: float) -> float:
    return -0.5 * x * x - _LOG_ROOT_TWO_PI


def _mills(t: float) -> float:
    """R(t) = Phi(-t)/phi(t)."""
    if t < _FRACTION_FROM:
        return _ROOT_HALF_PI * math.exp(0.5 * t * t) * math.erfc(t * _ROOT_HALF)
    return 1.0 / (t + _tail(t))


def _mills_slope(t: float) -> float:
    """-R'(t) = 1 - t R(t), a positive number that falls like 1/t**2."""
    if t < _FRACTION_FROM:
        return 1.0 - t * _mills(t)
    tail = _tail(t)
    return tail / (t + tail)


def _tail(t: float) -> float:
    """Laplace's continued fraction 1/(t + 2/(t + 3/(t + ...))), so that R(t) = 1/(t + tail)."""
    # So many terms leave a relative error below 1e-17 from t = 3 on.
    terms = 16 + int(500.0 / (t * t))
    value = t
    for numerator in range(terms, 1, -1):
        value = t + numerator / value
    return 1.0 / value


def _mills_drop(x: float, mu: float) -> float:
    """R(x) - R(x + mu) as the integral of -R': every term is positive."""
    half = 0.5 * mu
    centre = x + half
    return half * math.fsum(
        weight * (_mills_slope(centre - half * node) + _mills_slope(centre + half * node)) for node, weight in _LEGENDRE
    )


def _check_epsilon(epsilon: float) -> None:
    if not 0.0 <= epsilon <= LARGEST_EPSILON:
        raise ValueError(f"epsilon must be a number from 0 to {LARGEST_EPSILON:g}, not {epsilon!r}")


def _check_delta(delta: float) -> None:
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta must be a number between 0 and 1, both excluded, not {delta!r}")


def _check_mu(mu: float) -> None:
    if not 0.0 <= mu <= LARGEST_MU:
        raise ValueError(f"mu must be a number from 0 to {LARGEST_MU:g}, not {mu!r}")
