"""The events an accountant knows, and a schedule of them.

An event is one release about one unit, reduced to the pair of worlds that is hardest to hide.
A schedule only counts events: their order never matters to what is fixed beforehand.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

# Outside these an answer would be arithmetic noise, and no study is near.
LEAST_Z, LARGEST_Z = 1e-3, 1e9
LEAST_EPSILON, LARGEST_EPSILON = 1e-9, 1e3
LEAST_RATE = 1e-9
LARGEST_SIGMA = 1e4
LARGEST_DELTA = 0.999999
LARGEST_COUNT = 10**9


@dataclass(frozen=True, slots=True, order=True)
class Gaussian:
    """Gaussian noise of `z` times the L2 sensitivity."""

    z: float

    def __post_init__(self) -> None:
        _require("z", self.z, LEAST_Z, LARGEST_Z)


@dataclass(frozen=True, slots=True, order=True)
class DiscreteGaussian:
    """Discrete Gaussian noise of `sigma` grid units on one coordinate that moves by `shift`."""

    sigma: float
    shift: int = 1

    def __post_init__(self) -> None:
        _require("sigma", self.sigma, 0.1, LARGEST_SIGMA)
        _require("shift", self.shift, 1, self.sigma / LEAST_Z)


@dataclass(frozen=True, slots=True, order=True)
class Laplace:
    """Laplace noise of scale Δ₁/`epsilon` on the real line."""

    epsilon: float

    def __post_init__(self) -> None:
        _require("epsilon", self.epsilon, LEAST_EPSILON, LARGEST_EPSILON)


@dataclass(frozen=True, slots=True, order=True)
class DiscreteLaplace:
    """Discrete Laplace noise on one coordinate that moves by `shift` steps, `epsilon` in all."""

    epsilon: float
    shift: int = 1

    def __post_init__(self) -> None:
        _require("epsilon", self.epsilon, LEAST_EPSILON, LARGEST_EPSILON)
        _require("shift", self.shift, 1, LARGEST_SIGMA)


@dataclass(frozen=True, slots=True, order=True)
class Pure:
    """Anything that is `epsilon`-private, at its worst."""

    epsilon: float

    def __post_init__(self) -> None:
        _require("epsilon", self.epsilon, LEAST_EPSILON, LARGEST_EPSILON)


@dataclass(frozen=True, slots=True, order=True)
class Approximate:
    """Anything that is (`epsilon`, `delta`)-private, at its worst."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        _require("epsilon", self.epsilon, 0.0, LARGEST_EPSILON)
        _require("delta", self.delta, 0.0, LARGEST_DELTA)


@dataclass(frozen=True, slots=True, order=True)
class SubsampledGaussian:
    """Gaussian noise of `z` on a secret Poisson sample, each unit with probability `q`."""

    q: float
    z: float

    def __post_init__(self) -> None:
        _require("q", self.q, LEAST_RATE, 1.0)
        _require("z", self.z, LEAST_Z, LARGEST_Z)


Event: TypeAlias = Gaussian | DiscreteGaussian | Laplace | DiscreteLaplace | Pure | Approximate | SubsampledGaussian


@dataclass(frozen=True, slots=True)
class Schedule:
    """How often each event happens. Equal schedules are equal whatever the order of their events."""

    counts: tuple[tuple[Event, int], ...]

    def __post_init__(self) -> None:
        for event, count in self.counts:
            if not 1 <= count <= LARGEST_COUNT:
                raise ValueError(f"a count must be a whole number from 1 to {LARGEST_COUNT}, not {count} ({event})")

    @classmethod
    def of(cls, counts: Mapping[Event, int]) -> "Schedule":
        """The schedule of these counts; an event that happens never is left out."""
        kept = ((event, count) for event, count in counts.items() if count != 0)
        return cls(tuple(sorted(kept, key=lambda pair: (type(pair[0]).__name__, pair[0]))))

    def __add__(self, other: "Schedule") -> "Schedule":
        return Schedule.of(Counter(dict(self.counts)) + Counter(dict(other.counts)))

    def seen(self, times: int) -> "Schedule":
        """The schedule of a unit that meets this one at `times` sites."""
        if times < 1:
            raise ValueError(f"overlap must be at least 1, not {times}")
        return Schedule.of({event: times * count for event, count in self.counts})

    @property
    def events(self) -> int:
        return sum(count for _, count in self.counts)

    @property
    def mu_squared(self) -> float:
        """The summed squared mu of the Gaussian events: they are one Gaussian together."""
        return math.fsum(count / event.z**2 for event, count in self.counts if isinstance(event, Gaussian))

    @property
    def certain_delta(self) -> float:
        """The delta that the approximate events claim on their own."""
        return math.fsum(count * event.delta for event, count in self.counts if isinstance(event, Approximate))

    def without_gaussians(self) -> "Schedule":
        return Schedule(tuple(pair for pair in self.counts if not isinstance(pair[0], Gaussian)))


def _require(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise ValueError(f"{name} must be a number from {least:g} to {most:g}, not {value!r}")
