"""What a ledger stores as the reason of a charge: a closed list, each with its own price.

A cost is derived from a fact whenever it is needed, so a better price later tightens old entries, and an
entry that claims another cost than its facts is noticed.

A training is every noised sum agreed on before the first, charged as one. Its patients are in two folds that nobody can
move between, those it learns from and those it is tried on, so it costs a patient what its own fold costs, never both
(PROOFS.md#blocks). Sums over a secret sample are charged together, as one Gaussian that is at least as revealing, but
for a slack that is named here.
"""

import math
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

from wardround.privacy.accounting.cost import (
    COORDINATES_PER_SLACK,
    MU_UNIT,
    SLACK_UNIT,
    Cost,
    Fact,
    gaussian_mu_squared,
)
from wardround.privacy.mechanisms.partition_selection import SelectionFact
from wardround.privacy.mechanisms.private_selection import ChoiceFact, Choosing
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution

# Outside these the accountant has no events; a rate is raised and noise is lowered to them, which costs more.
_LEAST_RATE = 1e-9
_LARGEST_MULTIPLIER = 1e9
# Two machines' transforms agree in far more than these; rounding up to them costs a part in 65,000.
_KEPT_BITS = 17


@dataclass(frozen=True, slots=True)
class StageFact:
    """Some noised sums of the same kind: the law of their noise, their norm, and the chance of being in each."""

    law: NoiseDistribution
    l2_sensitivity_squared: int
    dimension: int
    count: int
    rate: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        if self.l2_sensitivity_squared < 1 or min(self.dimension, self.count) < 1 or not 0 < self.rate <= 1:
            raise ValueError("a stage needs a norm, a dimension and a count of at least 1, and a rate up to 1")
        if self.law.mechanism is not Mechanism.DISCRETE_GAUSSIAN:
            raise ValueError("a training is noised by discrete Gaussian noise")

    @property
    def mu_squared(self) -> Fraction:
        """The squared mu of one sum over everybody."""
        return gaussian_mu_squared(scale=self.law.scale, l2_sensitivity_squared=self.l2_sensitivity_squared)

    @property
    def sampled(self) -> tuple[float, float]:
        """The rate, and the noise in lengths of one contribution, as an accountant of samples takes them: no kinder."""
        rate = float(self.rate)
        if rate < self.rate:
            rate = math.nextafter(rate, 1.0)
        # A few last places less than a square root and a quotient can be off.
        multiplier = 1.0 / math.sqrt(self.mu_squared) * (1.0 - 2.0**-50)
        return max(rate, _LEAST_RATE), min(multiplier, _LARGEST_MULTIPLIER)


@dataclass(frozen=True, slots=True)
class BlockFact:
    """A whole training, paid by the round at `place` that came first, whose release holds `dimension` integers.

    `slack` is what the sampled sums of a fold take of δ together, in units of 2^-60; the tables' slack is beside it.
    """

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
        first, second = fold_cost(self.trained, self.slack), fold_cost(self.held_out, self.slack)
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
def fold_cost(stages: tuple[StageFact, ...], slack: int) -> Cost:
    """What one fold of a block costs: its whole sums exactly, its sampled ones as one Gaussian and all of `slack`."""
    whole = Fraction(0)
    sampled: Counter[tuple[float, float]] = Counter()
    for stage in stages:
        if stage.rate == 1:
            whole += stage.count * stage.mu_squared
        else:
            sampled[stage.sampled] += stage.count
    cost = Cost(mu_squared=math.ceil(whole * MU_UNIT), pure=0, slack=tables_slack(stages))
    return cost + _sampled_cost(sampled, slack) if sampled else cost


def tables_slack(stages: tuple[StageFact, ...]) -> int:
    """What the tables of a fold's noise take of δ, whether its sums are over samples or over everybody."""
    coordinates = sum(stage.dimension * stage.count for stage in stages)
    return -(-coordinates // COORDINATES_PER_SLACK)


def _sampled_cost(sampled: Counter[tuple[float, float]], slack: int) -> Cost:
    # Only here, because most ledgers hold no training and the accountant is large.
    from wardround.privacy.accounting.domination import charged_mu  # noqa: PLC0415
    from wardround.privacy.accounting.events import Event, Schedule, SubsampledGaussian  # noqa: PLC0415

    if not 0 < slack < SLACK_UNIT:
        raise ValueError("sums over a sample need slack to be charged")
    events: Counter[Event] = Counter()
    for (rate, multiplier), count in sampled.items():
        events[SubsampledGaussian(rate, multiplier)] += count
    mu = charged_mu(Schedule.of(events), charged=slack / SLACK_UNIT)
    return Cost(mu_squared=_few_digits(Fraction(mu) ** 2 * MU_UNIT), pure=0, slack=slack)


def _few_digits(units: Fraction) -> int:
    """Rounded up to so few digits that no two machines' arithmetic finds different ones: a ledger compares prices."""
    exact = math.ceil(units)
    unit = 1 << max(exact.bit_length() - _KEPT_BITS, 0)
    return -(-exact // unit) * unit


AnyFact: TypeAlias = Fact | SelectionFact | ChoiceFact | BlockFact | StepFact
"""A noised vector, the keys that pass a threshold, one choice, a whole training, or a further round of one."""

AnyMechanism: TypeAlias = Mechanism | Choosing
"""What a plan may name: a noise, or a way of choosing."""
