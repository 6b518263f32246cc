"""The privacy loss of a whole schedule, by Fourier transform, one event more at a time.

Every approximation errs towards more loss: distributions come from `dots`, what lies beyond the
window and what arithmetic may have lost is bounded and added to delta. All Gaussian events are
one Gaussian, exactly. Nothing is stored but the schedule; the rest is derived and can be dropped.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from wardround.privacy.accounting.events import (
    Approximate,
    DiscreteLaplace,
    Event,
    Gaussian,
    Laplace,
    Pure,
    Schedule,
    SubsampledGaussian,
)
from wardround.privacy.accounting.loss_distribution import (
    MOST_POINTS,
    NO_TILT,
    TILTS,
    LossDistribution,
    connected,
    loss_distributions,
)
from wardround.privacy.accounting.profiles import FloatVector, Profile, gaussian_profile, profiles, spread

# Joining dots adds at most step²/4 to the variance of an event: this much of the whole in all.
_FINENESS = 1e-4
_LARGEST_SHARE = 1 / 500
_LARGEST_STEP = 0.02
_LEAST_STEP = 1e-12
_SMALLEST_WINDOW, _LARGEST_WINDOW = 1 << 12, 1 << 20
_NEARLY_BEST = 1.02
# Room for events to come before the window must be placed anew.
_HEADROOM = 1.25
# A transform of doubles errs by a few last places; each factor adds one.
_ROUNDING = 2.0**-50
_LARGEST_EXPONENT = 600.0


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """Delta at 0, 1, 2, … steps of epsilon; an upper bound, and exact lines in e^epsilon between."""

    step: float
    first: int
    delta: FloatVector

    def epsilon_at(self, delta: float) -> float:
        """The least epsilon at which the bound is within `delta`; infinite if there is none."""
        held = np.flatnonzero(self.delta <= delta)
        if held.size == 0:
            return math.inf
        index = int(held[0])
        right = (self.first + index) * self.step
        if index == 0:
            return right
        above, below = float(self.delta[index - 1]), float(self.delta[index])
        share = (above - delta) / (above - below)
        return right - self.step + math.log1p(share * math.expm1(self.step))


@dataclass(slots=True, eq=False)
class _Direction:
    """The product of the events' transforms, tilted so that the interesting tail is the middle."""

    spectrum: NDArray[np.complex128]
    cumulants: FloatVector
    log_finite: float = 0.0


@dataclass(slots=True, eq=False)
class RunningLoss:
    """A schedule's loss at one delta, cheap to read again after one more event."""

    schedule: Schedule
    delta: float
    even: bool = False
    """Whether every part of the curve is equally exact, rather than the part near `delta` most."""
    _step: float = field(init=False)
    _tail: float = field(init=False)
    _tilt: int = field(init=False)
    _base: int = field(init=False)
    _points: int = field(init=False)
    _known: dict[Event, tuple[LossDistribution, LossDistribution]] = field(init=False)
    _directions: tuple[_Direction, ...] = field(init=False)
    _merged: tuple[float, LossDistribution, NDArray[np.complex128]] | None = field(init=False)

    def __post_init__(self) -> None:
        if not 0.0 < self.delta < 1.0:
            raise ValueError(f"delta must be a number between 0 and 1, both excluded, not {self.delta!r}")
        self._rebuild()

    def add(self, event: Event, count: int = 1) -> None:
        """Let `event` happen `count` times more."""
        self.schedule = self.schedule + Schedule.of({event: count})
        match event:
            case Gaussian():
                pass
            case SubsampledGaussian() if len(self._directions) == 1:
                self._rebuild()
            case _ if self._reach(event) > MOST_POINTS * self._step:
                self._rebuild()
            case _:
                self._multiply(event, count)

    def epsilon(self) -> float:
        """The least epsilon at which the schedule is certainly (epsilon, delta)."""
        return max(curve.epsilon_at(self.delta) for curve in self.curves())

    def curves(self) -> tuple[Curve, ...]:
        """The whole profile in each direction."""
        whole = self._with_gaussians()
        if not all(self._holds(cumulants) for _, cumulants, _ in whole):
            self._rebuild()
            whole = self._with_gaussians()
        return tuple(self._curve(*parts) for parts in whole)

    def _rebuild(self) -> None:
        others = self.schedule.without_gaussians()
        mu_squared = self.schedule.mu_squared
        variance = mu_squared + math.fsum(count * spread(event) for event, count in others.counts)
        factors = others.events + 1
        self._tail = max(self.delta * 1e-4 / factors, 1e-300)
        reaches = [self._reach(event) for event, _ in others.counts]
        if mu_squared > 0.0:
            reaches.append(self._merged_profile(mu_squared).reach)
        coarsest = max(reaches, default=0.0) / MOST_POINTS
        self._step = max(self._chosen_step(variance, factors), coarsest)
        cumulants = self._laws_and_cumulants()
        while (wanted := self._place(cumulants)) > _LARGEST_WINDOW:
            # Coarser is still a bound; more memory than this is not worth the digits.
            self._step *= 1.01 * wanted / _LARGEST_WINDOW
            cumulants = self._laws_and_cumulants()
        self._merged = None
        self._directions = tuple(
            _Direction(np.ones(self._points // 2 + 1, dtype=np.complex128), np.zeros(TILTS.size)) for _ in cumulants
        )
        for event, count in others.counts:
            self._multiply(event, count)

    def _laws_and_cumulants(self) -> list[FloatVector]:
        """Every event's law on the grid, and the cumulants of the whole in each direction."""
        counts = self.schedule.without_gaussians().counts
        self._known = {event: self._distribution(event) for event, _ in counts}
        asymmetric = any(removed is not added for removed, added in self._known.values())
        mu_squared = self.schedule.mu_squared
        whole = self._gaussian(mu_squared).cumulants if mu_squared > 0.0 else np.zeros(TILTS.size)
        cumulants = [whole.copy() for _ in range(2 if asymmetric else 1)]
        for event, count in counts:
            for total, one in zip(cumulants, self._known[event], strict=False):
                np.add(total, count * one.cumulants, out=total)
        return cumulants

    def _chosen_step(self, variance: float, factors: int) -> float:
        """Fine enough for the whole, and a whole part of the epsilon that matters most."""
        fine = min(math.sqrt(4.0 * _FINENESS / factors), _LARGEST_SHARE) * math.sqrt(variance)
        step = min(max(fine, _LEAST_STEP), _LARGEST_STEP)
        bounded = [
            (count * event.epsilon**2, event.epsilon)
            for event, count in self.schedule.counts
            if isinstance(event, Laplace | DiscreteLaplace | Pure | Approximate)
        ]
        _, epsilon = max(bounded, default=(0.0, 0.0))
        # A loss of epsilon that lies on the grid is not rounded up at all.
        return epsilon / math.ceil(epsilon / step) if epsilon > 0.0 else step

    def _place(self, totals: list[FloatVector]) -> int:
        """Choose the tilt by Chernoff's bound at delta, and a window that holds the tilted law.

        Returns how many points that takes.
        """
        if self.even:
            self._tilt = NO_TILT
        else:
            bounds = (totals[0][NO_TILT + 1 : -6] - math.log(self.delta)) / TILTS[NO_TILT + 1 : -6]
            # The least tilt that is almost as good: a steeper one would magnify rounding.
            self._tilt = NO_TILT + 1 + int(np.flatnonzero(bounds <= _NEARLY_BEST * bounds.min())[0])
        ends = [self._ends(total) for total in totals]
        low, high = min(low for low, _ in ends), max(high for _, high in ends)
        if self.even:
            low = min(low, 0.0)
        middle, half = 0.5 * (low + high), 0.5 * _HEADROOM * (high - low)
        wanted = max(2.0 * half / self._step, 1.0)
        self._points = max(1 << math.ceil(math.log2(wanted)), _SMALLEST_WINDOW)
        self._base = math.floor(middle / self._step) - self._points // 2
        return self._points

    def _ends(self, total: FloatVector) -> tuple[float, float]:
        """Where the tilted law has hardly anything below and above."""
        log_outside = math.log(1e-4 * self.delta) if self.even else math.log(1e-7)
        tilt = self._tilt
        lower = (total[tilt] - total[:tilt] + log_outside) / (TILTS[tilt] - TILTS[:tilt])
        upper = (total[tilt + 1 :] - total[tilt] - log_outside) / (TILTS[tilt + 1 :] - TILTS[tilt])
        return float(lower.max()), float(upper.min())

    def _holds(self, total: FloatVector) -> bool:
        low, high = self._ends(total)
        return self._base * self._step <= low and high <= (self._base + self._points) * self._step

    def _distribution(self, event: Event) -> tuple[LossDistribution, LossDistribution]:
        return loss_distributions(event, step=self._step, tail=self._tail)

    def _gaussian(self, mu_squared: float) -> LossDistribution:
        profile = self._merged_profile(mu_squared)
        return connected(profile, profile, step=self._step)

    def _merged_profile(self, mu_squared: float) -> Profile:
        # A few last places more keep the sum of squares a bound.
        return gaussian_profile(math.sqrt(mu_squared) * (1.0 + 2.0**-50), tail=self._tail)

    def _reach(self, event: Event) -> float:
        return max(profile.reach for profile in profiles(event, tail=self._tail))

    def _multiply(self, event: Event, count: int) -> None:
        if event not in self._known:
            self._known[event] = self._distribution(event)
        for direction, one in zip(self._directions, self._known[event], strict=False):
            direction.spectrum *= self._transform(one) ** count
            direction.cumulants += count * one.cumulants
            direction.log_finite += count * math.log1p(-one.infinite)

    def _transform(self, one: LossDistribution) -> NDArray[np.complex128]:
        """The transform of the tilted law, wound around the window as often as it must."""
        losses = np.arange(one.lowest, one.lowest + one.mass.size)
        with np.errstate(divide="ignore"):
            logs = np.log(one.mass)
        tilted = np.exp(logs + TILTS[self._tilt] * self._step * losses - one.cumulants[self._tilt])
        wound = np.bincount(losses % self._points, weights=tilted, minlength=self._points)
        return np.fft.rfft(wound)

    def _with_gaussians(self) -> list[tuple[NDArray[np.complex128], FloatVector, float]]:
        mu_squared = self.schedule.mu_squared
        if mu_squared == 0.0:
            return [(side.spectrum, side.cumulants, side.log_finite) for side in self._directions]
        if self._merged is None or self._merged[0] != mu_squared:
            one = self._gaussian(mu_squared)
            self._merged = (mu_squared, one, self._transform(one))
        _, one, transform = self._merged
        return [
            (side.spectrum * transform, side.cumulants + one.cumulants, side.log_finite + math.log1p(-one.infinite))
            for side in self._directions
        ]

    def _curve(self, spectrum: NDArray[np.complex128], cumulants: FloatVector, log_finite: float) -> Curve:
        tilted = np.roll(np.maximum(np.fft.irfft(spectrum, self._points), 0.0), -(self._base % self._points))
        tilt, height = float(TILTS[self._tilt]), float(cumulants[self._tilt])
        # Where untilting would overflow, delta is far above anything asked.
        lowest = (height - _LARGEST_EXPONENT) / tilt if tilt > 0.0 else 0.0
        first = max(self._base, 0, math.ceil(lowest / self._step))
        # One point beyond the window, so that there always is one.
        tilted = np.append(tilted[first - self._base :], 0.0)
        losses = self._step * np.arange(first, first + tilted.size)
        weight = np.exp(height - tilt * losses)
        mass = tilted * weight
        # delta(e) is the sum over larger losses l of mass (1 - e^(e - l)).
        delta = _after(mass, 0.0) - _after(mass, self._step)
        return Curve(self._step, first, np.maximum(delta, 0.0) + self._unseen(spectrum, cumulants, log_finite, weight))

    def _unseen(
        self, spectrum: NDArray[np.complex128], cumulants: FloatVector, log_finite: float, weight: FloatVector
    ) -> FloatVector:
        """What is beyond the window, at an infinite loss, or lost to rounding."""
        end = (self._base + self._points) * self._step
        positive = slice(NO_TILT + 1, None)
        beyond = math.exp(min(float((cumulants[positive] - TILTS[positive] * end).min()), 0.0))
        infinite = -math.expm1(log_finite)
        # Rounding is bounded in L2 (Parseval), so its weighted sum is too (Cauchy and Schwarz).
        error = _ROUNDING * (self.schedule.events + 64) * math.sqrt(float((np.abs(spectrum) ** 2).mean()))
        tilt = float(TILTS[self._tilt])
        terms = 1.0 / -math.expm1(-2.0 * tilt * self._step) if tilt > 0.0 else math.inf
        found: FloatVector = beyond + infinite + error * math.sqrt(min(terms, weight.size)) * weight
        return found


def _after(mass: FloatVector, rate: float) -> FloatVector:
    """At each point the sum of all to its right, each times e^(-rate) per step, by doubling."""
    found = np.append(mass[1:], 0.0) * math.exp(-rate)
    reach = 1
    while reach < found.size:
        found[:-reach] += math.exp(-rate * reach) * found[reach:]
        reach *= 2
    return found
