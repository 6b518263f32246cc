"""The events an accountant knows, and a schedule of them.

An event is one release about one unit, reduced to the pair of worlds that is hardest to hide.
A schedule only counts events: their order never matters to what is fixed beforehand.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from wardround.privacy.accounting.cost import MU_UNIT, SLACK_UNIT, Fact, gaussian_mu_squared
from wardround.privacy.budget.facts import AnyFact
from wardround.privacy.budget.training_charge import BlockFact, StageFact, StepFact, fold_cost, tables_slack
from wardround.privacy.mechanisms.partition_selection import SelectionFact
from wardround.privacy.mechanisms.private_selection import ChoiceFact
from wardround.privacy.noise.distribution import Mechanism

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

    @classmethod
    def from_facts(cls, facts: Iterable[AnyFact]) -> "Schedule":
        """What a ledger's facts are worth to an accountant, slack of the tables included."""
        counts: Counter[Event] = Counter()
        for fact, times in Counter(facts).items():
            for event, count in _events(fact):
                counts[event] += times * count
        return cls.of(counts)

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


def _events(fact: AnyFact) -> Iterable[tuple[Event, int]]:
    """One fact as events; a release that nobody can move is none."""
    match fact:
        case Fact():
            yield from _noised(fact)
        case SelectionFact():
            yield from _selected(fact)
        case ChoiceFact():
            yield Pure(_up(fact.epsilon)), 1
        case BlockFact():
            yield from _block(fact)
        case StepFact():  # pragma: no branch
            # Its block has counted every sum already.
            return


def _noised(fact: Fact) -> Iterable[tuple[Event, int]]:
    match fact.law.mechanism:
        case Mechanism.DISCRETE_GAUSSIAN:
            mu_squared = gaussian_mu_squared(scale=fact.law.scale, l2_sensitivity_squared=fact.l2_sensitivity_squared)
            if mu_squared > 0:
                yield Gaussian(_down(1 / math.sqrt(mu_squared))), 1
            # A table is within a known distance of its law, paid as delta (PROOFS.md#gaussian-price).
            yield Approximate(0.0, 1 / SLACK_UNIT), fact.cost().slack
        case Mechanism.DISCRETE_LAPLACE:  # pragma: no branch
            if fact.l1_sensitivity > 0:
                epsilon = _up(Fraction(fact.l1_sensitivity) / fact.law.scale)
                # Only a move by one step is known to be worst on one coordinate.
                yield (DiscreteLaplace(epsilon) if fact.l1_sensitivity == 1 else Pure(epsilon)), 1


def _selected(fact: SelectionFact) -> Iterable[tuple[Event, int]]:
    """The good part of a selection, and the chance of the bad one (PROOFS.md#unknown-keys)."""
    match fact.law.mechanism:
        case Mechanism.DISCRETE_GAUSSIAN:
            mu_squared = gaussian_mu_squared(scale=fact.law.scale, l2_sensitivity_squared=fact.l2_sensitivity_squared)
            yield Gaussian(_down(1 / math.sqrt(mu_squared))), 1
        case Mechanism.DISCRETE_LAPLACE:  # pragma: no branch
            yield Pure(_up(fact.max_keys / fact.law.scale)), 1
    yield Approximate(0.0, _up(Fraction(fact.cost().slack, SLACK_UNIT))), 1


def _block(fact: BlockFact) -> Iterable[tuple[Event, int]]:
    """A training's sums as the fold has them that loses more; one Gaussian where that is not certain.

    A patient is in one of the folds, so what is told must be no less than either loses (PROOFS.md#blocks).
    """
    slack = max(tables_slack(fact.trained), tables_slack(fact.held_out))
    for stages, others in ((fact.trained, fact.held_out), (fact.held_out, fact.trained)):
        if _most(others, fact.slack) <= _least(stages):
            if any(stage.rate < 1 for stage in others):
                slack += fact.slack
            for stage in stages:
                yield _summed(stage), stage.count
            break
    else:
        cost = fact.cost()
        slack = cost.slack
        yield Gaussian(_down(math.sqrt(MU_UNIT / cost.mu_squared))), 1
    yield Approximate(0.0, _up(Fraction(slack, SLACK_UNIT))), 1


def _least(stages: tuple[StageFact, ...]) -> Fraction:
    """A squared mu that the fold has at least: that of its sums over everybody."""
    return sum((stage.count * stage.mu_squared for stage in stages if stage.rate == 1), start=Fraction(0))


def _most(stages: tuple[StageFact, ...], slack: int) -> Fraction:
    """A squared mu that the fold has at most, but for slack where it has samples."""
    if all(stage.rate == 1 for stage in stages):
        return _least(stages)
    return Fraction(fold_cost(stages, slack).mu_squared, MU_UNIT)


def _summed(stage: StageFact) -> Gaussian | SubsampledGaussian:
    rate, multiplier = stage.sampled
    return Gaussian(multiplier) if stage.rate == 1 else SubsampledGaussian(rate, multiplier)


def _up(value: Fraction) -> float:
    nearest = float(value)
    return nearest if nearest >= value else math.nextafter(nearest, math.inf)


def _down(z: float) -> float:
    """A few last places less than `z`: more than a square root and a quotient can be off."""
    return z * (1.0 - 2.0**-50)


def _require(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise ValueError(f"{name} must be a number from {least:g} to {most:g}, not {value!r}")
