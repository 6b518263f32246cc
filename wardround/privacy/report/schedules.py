"""What the facts of a ledger are worth to an accountant: the schedule of their events."""

import math
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache

from wardround.privacy.accounting.cost import MU_UNIT, SLACK_UNIT, Fact, gaussian_mu_squared
from wardround.privacy.accounting.events import (
    LARGEST_DELTA,
    LARGEST_EPSILON,
    LARGEST_Z,
    LEAST_EPSILON,
    LEAST_Z,
    Approximate,
    DiscreteLaplace,
    Event,
    Gaussian,
    Pure,
    Schedule,
    SubsampledGaussian,
)
from wardround.privacy.budget.facts import AnyFact, BlockFact, StageFact, StepFact, fold_cost, tables_slack
from wardround.privacy.mechanisms.partition_selection import SelectionFact
from wardround.privacy.mechanisms.private_selection import ChoiceFact
from wardround.privacy.noise.distribution import Mechanism

_NOTHING = Schedule(())
# A loss so large that no accountant has a figure for it at any delta of use.
_BEYOND = Schedule(((Approximate(0.0, LARGEST_DELTA), 1),))


@lru_cache(maxsize=4096)
def schedule_of(facts: tuple[AnyFact, ...]) -> Schedule:
    """What a charge's facts are worth to an accountant, also where a loss is finer or larger than it knows."""
    inside: list[AnyFact] = []
    schedule = _NOTHING
    for fact in facts:
        if (stands_for := _outside(fact)) is None:
            inside.append(fact)
        else:
            schedule += stands_for
    return schedule + from_facts(inside)


def from_facts(facts: Iterable[AnyFact]) -> Schedule:
    """The events of facts whose losses an accountant has a place for, slack of the tables included."""
    counts: Counter[Event] = Counter()
    for fact, times in Counter(facts).items():
        for event, count in _events(fact):
            counts[event] += times * count
    return Schedule.of(counts)


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


def _outside(fact: AnyFact) -> Schedule | None:
    """What stands for a loss that accountants have no place for: at least as much, and None for any other."""
    instead = _lane_outside(fact)
    chance = Fraction(fact.cost().slack, SLACK_UNIT)
    if instead is _BEYOND or chance > Fraction(LARGEST_DELTA):
        return _BEYOND
    if instead is None or chance == 0:
        return instead
    return instead + Schedule.of({Approximate(0.0, math.nextafter(float(chance), 1.0)): 1})


def _lane_outside(fact: AnyFact) -> Schedule | None:
    match fact:
        case ChoiceFact():
            return _pure_outside(fact.epsilon)
        case SelectionFact() if fact.law.mechanism is Mechanism.DISCRETE_LAPLACE:
            return _pure_outside(fact.max_keys / fact.law.scale)
        case Fact() if fact.law.mechanism is Mechanism.DISCRETE_LAPLACE:
            return _pure_outside(fact.l1_sensitivity / fact.law.scale)
        case Fact() | SelectionFact():
            return _gaussian_outside(fact.l2_sensitivity_squared / fact.law.scale**2)
        case BlockFact():
            # Noise finer than accountants know is told as the finest they do; only what is too coarse is beyond.
            whole = Fraction(fact.cost().mu_squared, MU_UNIT)
            return _BEYOND if _gaussian_outside(whole) is _BEYOND else None
        case StepFact():  # pragma: no branch
            return None


def _gaussian_outside(mu_squared: Fraction) -> Schedule | None:
    if 0 < mu_squared < 2 / LARGEST_Z**2:
        # Half the largest z covers twice that squared mu, and the coarseness of the noise.
        return Schedule.of({Gaussian(LARGEST_Z / 2): 1})
    return _BEYOND if mu_squared > 1 / (2 * LEAST_Z) ** 2 else None


def _pure_outside(epsilon: Fraction) -> Schedule | None:
    if 0 < epsilon < LEAST_EPSILON:
        return Schedule.of({Pure(LEAST_EPSILON): 1})
    return _BEYOND if epsilon > LARGEST_EPSILON else None
