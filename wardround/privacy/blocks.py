"""A training as the accountant sees it: every noised sum agreed on before the first, charged as one.

Its patients are in two folds that nobody can move between, those it learns from and those it is tried on, so it
costs a patient what its own fold costs, never both (PROOFS.md#blocks). Sums over a secret sample are charged
together, as one Gaussian that is at least as revealing, but for a slack that is named here.
"""

import math
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from wardround.privacy.law import Mechanism, NoiseLaw
from wardround.privacy.loss import MU_UNIT, SLACK_UNIT, Cost, Fact


@dataclass(frozen=True, slots=True)
class StageFact:
    """Some noised sums of the same kind: the law of their noise, their norm, and the chance of being in each."""

    law: NoiseLaw
    l2_sensitivity_squared: int
    dimension: int
    count: int
    rate: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        if self.l2_sensitivity_squared < 1 or min(self.dimension, self.count) < 1 or not 0 < self.rate <= 1:
            raise ValueError("a stage needs a norm, a dimension and a count of at least 1, and a rate up to 1")
        if self.law.mechanism is not Mechanism.DISCRETE_GAUSSIAN:
            raise ValueError("a training is noised by discrete Gaussian noise")


@dataclass(frozen=True, slots=True)
class BlockFact:
    """A whole training, paid by the round at `place` that came first, whose release holds `dimension` integers."""

    block: str
    place: int
    rounds: int
    dimension: int
    trained: tuple[StageFact, ...]
    held_out: tuple[StageFact, ...] = ()
    slack: int = 0

    def __post_init__(self) -> None:
        if (
            not (self.trained or self.held_out)
            or not 0 <= self.place < self.rounds
            or min(self.slack, self.dimension - 1) < 0
        ):
            raise ValueError("a block needs a stage, a dimension, and a place among its rounds")

    def cost(self) -> Cost:
        """What the dearer of the two folds costs, each amount for itself, rounded up."""
        first, second = _fold_cost(self.trained, self.slack), _fold_cost(self.held_out, self.slack)
        return Cost(
            mu_squared=max(first.mu_squared, second.mu_squared),
            pure=max(first.pure, second.pure),
            slack=max(first.slack, second.slack),
        )


@dataclass(frozen=True, slots=True)
class StepFact:
    """A further round of a block that is paid already; each place of a block once."""

    block: str
    place: int
    dimension: int

    def __post_init__(self) -> None:
        if self.place < 0 or self.dimension < 1:
            raise ValueError("a round has a place from 0 and a dimension of at least 1")

    def cost(self) -> Cost:
        """Nothing: the block was charged whole."""
        return Cost.zero()


@lru_cache(maxsize=1024)
def _fold_cost(stages: tuple[StageFact, ...], slack: int) -> Cost:
    whole, sampled = Cost.zero(), Counter[tuple[float, float]]()
    for stage in stages:
        one = Fact(stage.law, 0, stage.l2_sensitivity_squared, stage.dimension).cost()
        if stage.rate == 1:
            whole += Cost(mu_squared=one.mu_squared * stage.count, pure=0, slack=one.slack * stage.count)
        else:
            whole += Cost(mu_squared=0, pure=0, slack=one.slack * stage.count)
            sampled[_rate_up(stage.rate), _multiplier(stage)] += stage.count
    if sampled:
        whole += _sampled_cost(sampled, slack)
    return whole


def _sampled_cost(sampled: Counter[tuple[float, float]], slack: int) -> Cost:
    # Only here, because most ledgers hold no training and the accountant is large.
    from wardround.privacy.accounting.domination import dominating_cost  # noqa: PLC0415
    from wardround.privacy.accounting.events import Event, Schedule, SubsampledGaussian  # noqa: PLC0415

    if slack < 1:
        raise ValueError("sums over a sample need slack to be charged")
    events: Counter[Event] = Counter()
    for (rate, multiplier), count in sampled.items():
        events[SubsampledGaussian(rate, multiplier)] += count
    return dominating_cost(Schedule.of(events), slack=slack / SLACK_UNIT)


def _rate_up(rate: Fraction) -> float:
    nearest = float(rate)
    return nearest if nearest >= rate else math.nextafter(nearest, 1.0)


def _multiplier(stage: StageFact) -> float:
    """The noise in lengths of one contribution, less by what discreteness costs and a few last places."""
    mu_squared = Fact(stage.law, 0, stage.l2_sensitivity_squared, 1).cost().mu_squared
    return math.sqrt(MU_UNIT / mu_squared) * (1.0 - 2.0**-50)
