"""What a schedule costs by every accountant, and how much noise a plan of many questions needs, before it is spent.

Gaussian noise composes exactly, so a whole plan is one number, mu. The textbook's figures stand
beside it for comparison; where they are not valid they are refused, not printed.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from wardround.privacy.accounting import accountants
from wardround.privacy.accounting.events import Schedule, SubsampledGaussian
from wardround.privacy.accounting.gaussian_dp import epsilon_of, mu_of
from wardround.privacy.noise.distribution import Mechanism

_ACCOUNTANTS: tuple[tuple[str, Callable[[Schedule, float], float]], ...] = (
    ("basic", accountants.basic),
    ("advanced", accountants.advanced),
    ("zcdp", accountants.zcdp),
    ("zcdp_tight", accountants.zcdp_tight),
    ("rdp", accountants.rdp),
    ("gdp", accountants.gdp),
    ("pld", accountants.pld),
)

# Beyond this the proof of the textbook's formula fails, and soon the claim does (mission C3).
LARGEST_CLASSIC_EPSILON = 1.0


@dataclass(frozen=True, slots=True)
class Line:
    """One accountant's epsilon; infinite where it has none, and a note where one is due."""

    accountant: str
    epsilon: float
    note: str = ""


def compare(schedule: Schedule, *, delta: float, overlap: int = 1) -> tuple[Line, ...]:
    """Every accountant's epsilon for a unit that meets the schedule at `overlap` sites."""
    if not 0.0 <= delta < 1.0:
        raise ValueError(f"delta must be a number from 0 to 1, 1 excluded, not {delta!r}")
    seen = schedule.seen(overlap)
    lines = []
    for name, accountant in _ACCOUNTANTS:
        epsilon = accountant(seen, delta)
        lines.append(Line(name, epsilon, _note(name, epsilon, seen, delta)))
    return tuple(lines)


def _note(name: str, epsilon: float, schedule: Schedule, delta: float) -> str:
    if math.isinf(epsilon):
        return "none without a larger delta" if delta <= schedule.certain_delta else "none found at this delta"
    sampled = any(isinstance(event, SubsampledGaussian) for event, _ in schedule.counts)
    return "gives no credit for sampling" if sampled and name.startswith("zcdp") else ""


@dataclass(frozen=True, slots=True)
class NoisePlan:
    """The noise of each answer, so that all answers together are (epsilon, delta)."""

    mu: float
    sigma: float
    """The standard deviation, by the exact Gaussian profile; rounded up."""
    zcdp: float
    """The same by the textbook's zero-concentrated conversion."""
    laplace: float
    """The scale b of Laplace noise with the same epsilon and no delta at all."""

    @property
    def laplace_deviation(self) -> float:
        return math.sqrt(2.0) * self.laplace

    @property
    def better(self) -> Mechanism:
        """Laplace for a number or a few, Gaussian for many."""
        return Mechanism.DISCRETE_LAPLACE if self.laplace_deviation <= self.sigma else Mechanism.DISCRETE_GAUSSIAN


def plan_noise(
    *, epsilon: float, delta: float, rounds: int = 1, queries: int = 1, sensitivity: float = 1.0
) -> NoisePlan:
    """The least noise for `rounds` rounds of `queries` answers that each move by `sensitivity`."""
    answers = _answers(rounds, queries)
    _positive("epsilon", epsilon)
    _positive("sensitivity", sensitivity)
    mu = mu_of(epsilon, delta)
    log_delta = -math.log(delta)
    # rho + 2 sqrt(rho ln 1/delta) = epsilon, solved without cancellation.
    root = epsilon / (math.sqrt(log_delta + epsilon) + math.sqrt(log_delta))
    return NoisePlan(
        mu=mu,
        sigma=math.nextafter(sensitivity * math.sqrt(answers) / mu, math.inf),
        zcdp=sensitivity * math.sqrt(answers / 2.0) / root,
        laplace=sensitivity * answers / epsilon,
    )


def classic_sigma(
    *, epsilon: float, delta: float, rounds: int = 1, queries: int = 1, sensitivity: float = 1.0
) -> float:
    """The textbook's sigma with epsilon and delta split evenly over the answers."""
    answers = _answers(rounds, queries)
    _positive("epsilon", epsilon)
    _positive("sensitivity", sensitivity)
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta must be a number between 0 and 1, both excluded, not {delta!r}")
    each = epsilon / answers
    if each > LARGEST_CLASSIC_EPSILON:
        raise ValueError(
            f"the classic Gaussian is not valid above epsilon = 1, and {each:g} was asked; use the analytic one"
        )
    return sensitivity * math.sqrt(2.0 * math.log(1.25 * answers / delta)) / each


def epsilon_for(
    *, standard_error: float, delta: float, rounds: int = 1, queries: int = 1, sensitivity: float = 1.0
) -> float:
    """The epsilon that answers with this much noise cost together; rounded up."""
    _positive("standard error", standard_error)
    _positive("sensitivity", sensitivity)
    mu = sensitivity * math.sqrt(_answers(rounds, queries)) / standard_error
    return epsilon_of(delta, mu * (1.0 + 2.0**-50))


def laplace_reach(*, epsilon: float, missed: float) -> int:
    """The least k with P(|noise| > k) <= `missed`, for discrete Laplace noise on a count; exact."""
    _positive("epsilon", epsilon)
    if not 0.0 < missed < 1.0:
        raise ValueError(f"the missed share must be a number between 0 and 1, both excluded, not {missed!r}")
    # P(|n| > k) = 2 e^(-epsilon (k + 1))/(1 + e^-epsilon).
    return max(0, math.ceil(math.log(2.0 / ((1.0 + math.exp(-epsilon)) * missed)) / epsilon) - 1)


def _answers(rounds: int, queries: int) -> int:
    if rounds < 1 or queries < 1:
        raise ValueError(f"rounds and queries must be at least 1, not {rounds} and {queries}")
    return rounds * queries


def _positive(name: str, value: float) -> None:
    if not 0.0 < value < math.inf:
        raise ValueError(f"{name} must be a finite number above 0, not {value!r}")
