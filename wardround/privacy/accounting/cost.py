"""What a release costs a patient, in whole units.

The ledger stores facts (the law of the noise and the norms it covers); a cost is derived from
them. Costs are integers, computed in exact rational arithmetic and rounded up, so a sum of a
million of them is still a bound.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Protocol, Self

from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution

MU_UNIT = 2**40
PURE_UNIT = 2**40
SLACK_UNIT = 2**60

# Below this the discrete Gaussian is too coarse for the correction in PROOFS.md#gaussian-price.
LEAST_GAUSSIAN_SCALE = Fraction(4)
# One unit of slack pays for this many coordinates, each within 2**-100 of its law
# (PROOFS.md#gaussian-price).
COORDINATES_PER_SLACK = 2**20


@dataclass(frozen=True, slots=True)
class Cost:
    """Whole units of loss that add up: squared mu, pure epsilon, and delta slack."""

    mu_squared: int
    pure: int
    slack: int

    def __post_init__(self) -> None:
        # A negative cost would be a refund.
        if min(self.mu_squared, self.pure, self.slack) < 0:
            raise ValueError("a cost must not be negative")

    @classmethod
    def zero(cls) -> Self:
        return cls(mu_squared=0, pure=0, slack=0)

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            mu_squared=self.mu_squared + other.mu_squared, pure=self.pure + other.pure, slack=self.slack + other.slack
        )

    def fits(self, allowance: "Cost") -> bool:
        """Whether no component is above the allowance's."""
        return self.mu_squared <= allowance.mu_squared and self.pure <= allowance.pure and self.slack <= allowance.slack


@dataclass(frozen=True, slots=True)
class Fact:
    """One noised vector: the law of its noise, and how far one unit can move it."""

    law: NoiseDistribution
    l1_sensitivity: int
    l2_sensitivity_squared: int
    dimension: int

    def __post_init__(self) -> None:
        if min(self.l1_sensitivity, self.l2_sensitivity_squared) < 0 or self.dimension < 1:
            raise ValueError("a fact needs sensitivities of at least 0 and a dimension of at least 1")

    def cost(self) -> Cost:
        """What this release costs, rounded up (PROOFS.md#gaussian-price, #laplace-price)."""
        match self.law.mechanism:
            case Mechanism.DISCRETE_GAUSSIAN:
                mu_squared = gaussian_mu_squared(
                    scale=self.law.scale, l2_sensitivity_squared=self.l2_sensitivity_squared
                )
                slack = Fraction(self.dimension, COORDINATES_PER_SLACK)
                return Cost(mu_squared=_up(mu_squared * MU_UNIT), pure=0, slack=_up(slack))
            case Mechanism.DISCRETE_LAPLACE:  # pragma: no branch
                epsilon = Fraction(self.l1_sensitivity) / self.law.scale
                return Cost(mu_squared=0, pure=_up(epsilon * PURE_UNIT), slack=0)


@lru_cache(maxsize=1024)
def gaussian_mu_squared(*, scale: Fraction, l2_sensitivity_squared: int) -> Fraction:
    """The squared mu of discrete Gaussian noise, its coarseness included, exactly."""
    if scale < LEAST_GAUSSIAN_SCALE:
        raise ValueError("discrete Gaussian noise needs a scale of at least 4 grid units")
    variance = scale * scale
    return l2_sensitivity_squared / variance * (1 + 1 / (20 * variance)) ** 2


class Priced(Protocol):
    """Whatever a ledger stores as the reason of a cost, and derives the cost from again."""

    def cost(self) -> Cost:
        """What it costs, rounded up."""
        ...


def total(facts: Iterable[Priced]) -> Cost:
    """What several releases about the same rows cost together."""
    return sum((fact.cost() for fact in facts), start=Cost.zero())


def _up(value: Fraction) -> int:
    return -((-value.numerator) // value.denominator)
