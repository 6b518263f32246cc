"""How far a choice may fall short of the best candidate: in the mean, and but for a small chance.

The laws are public, so both are computed before a row is read and hold whatever the counts are
(PROOFS.md#regret).
"""

import math

from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution

_STEPS = 200


def expected_regret_of_choice(*, epsilon: float, candidates: int) -> float:
    """The most that permute-and-flip over counts falls short of the best, in the mean: (H_n - 1)/ε."""
    return math.fsum(1.0 / rank for rank in range(2, candidates + 1)) / epsilon


def regret_of_choice(*, epsilon: float, candidates: int, chance: float) -> float:
    """What permute-and-flip over counts falls short of the best by, but for `chance`: ln((n - 1)/2β)/ε."""
    if not 0.0 < chance < 1.0:
        raise ValueError(f"a chance must be between 0 and 1, both excluded, not {chance!r}")
    if candidates == 1:
        return 0.0
    return max(0.0, math.log((candidates - 1) / (2.0 * chance)) / epsilon)


def expected_regret_of_noise(law: NoiseDistribution, *, terms: int, candidates: int) -> float:
    """The most that the largest of sums with `terms` draws each falls short of the best, in the mean, in grid units."""
    if terms < 1:
        raise ValueError(f"a sum has at least 1 draw, not {terms}")
    if candidates == 1:
        return 0.0
    scale, choices = float(law.scale), math.log(candidates)
    match law.mechanism:
        case Mechanism.DISCRETE_GAUSSIAN:
            return scale * math.sqrt(2.0 * terms * choices)
        case Mechanism.DISCRETE_LAPLACE:  # pragma: no branch
            return _least_bound(scale, terms=terms, choices=choices)


def _least_bound(scale: float, *, terms: int, choices: float) -> float:
    """The least of (ln n + terms·K(t))/t over 0 < t < 1/b, K the logarithm of E[e^(tX)]; any t gives a bound."""

    def bound(share: float) -> float:
        t = share / scale
        # 1 - q and 1 - q·e^(±t) with q = e^(-1/b), without cancellation.
        logarithm = 2.0 * math.log(-math.expm1(-1.0 / scale))
        logarithm -= math.log(-math.expm1(t - 1.0 / scale)) + math.log(-math.expm1(-t - 1.0 / scale))
        return (choices + terms * logarithm) / t

    return min(bound(step / _STEPS) for step in range(1, _STEPS))
