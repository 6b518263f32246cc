"""Is the noise the noise we claim? A right program fails here by chance less than once in a thousand million runs.

Every law two per cent away would still be seen: in a million draws it is seven deviations off such limits and more.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from wardround.privacy.noise import discrete as exact
from wardround.privacy.noise.alias_table import gaussian_table
from wardround.privacy.noise.distribution import LARGEST_SCALE, Mechanism, NoiseDistribution
from wardround.privacy.noise.keystream import KeyStream
from wardround.privacy.noise.sampler import SecureNoise, prefers_table
from wardround.privacy.noise.vectors import IntVector

GAUSSIAN, LAPLACE = Mechanism.DISCRETE_GAUSSIAN, Mechanism.DISCRETE_LAPLACE
DRAWS = 1_000_000
FALSE_ALARM = 1e-10
FAR = 6.5  # deviations: two-sided 1e-10 of a normal

Sampler: TypeAlias = Callable[[NoiseDistribution, int], IntVector]


def by_rejection(law: NoiseDistribution, size: int) -> IntVector:
    return exact.draw(law, size, KeyStream())


def in_integers_only(law: NoiseDistribution, size: int) -> IntVector:
    return exact.draw(law, size, KeyStream(), band=2.0)


def by_table(law: NoiseDistribution, size: int) -> IntVector:
    return gaussian_table(law.scale).draw(size, KeyStream())


def chances(law: NoiseDistribution) -> NDArray[np.float64]:
    """P(0), P(±1), P(±2), … one by one, as far as doubles reach."""
    n = np.arange(math.ceil(40 * law.scale) + 40, dtype=np.float64)
    scale = float(law.scale)
    weights = np.exp(-n / scale if law.mechanism is LAPLACE else -0.5 * (n / scale) ** 2)
    weights /= 2 * weights.sum() - 1
    return weights


def follows(values: IntVector, law: NoiseDistribution) -> bool:
    """χ² over the single integers (fine structure) and over some 64 ranges (scale), tails pooled."""
    half = chances(law)
    reach = int(np.flatnonzero(half * values.size >= 20)[-1])
    inner = np.concatenate([half[reach:0:-1], half[: reach + 1]])
    inner[[0, -1]] += half[reach + 1 :].sum()
    expected = inner * values.size
    observed = np.bincount(np.clip(values, -reach, reach) + reach, minlength=expected.size)
    ranges = np.arange(0, expected.size, -(-expected.size // 64))
    return fits(observed, expected) and fits(np.add.reduceat(observed, ranges), np.add.reduceat(expected, ranges))


def fits(observed: IntVector, expected: NDArray[np.float64]) -> bool:
    statistic = float(((observed - expected) ** 2 / expected).sum())
    # Two such verdicts share the false-alarm rate.
    return statistic < float(stats.chi2.isf(FALSE_ALARM / 2, expected.size - 1))


def scaled(law: NoiseDistribution, factor: float) -> NoiseDistribution:
    return NoiseDistribution(law.mechanism, Fraction(round(law.scale * 1024 * Fraction(factor)), 1024))


CASES = [
    pytest.param(by_rejection, NoiseDistribution(GAUSSIAN, Fraction(4)), id="gaussian-4-rejection"),
    pytest.param(by_rejection, NoiseDistribution(GAUSSIAN, Fraction(10)), id="gaussian-10-rejection"),
    pytest.param(by_rejection, NoiseDistribution(GAUSSIAN, Fraction(276_837, 1024)), id="gaussian-270-rejection"),
    pytest.param(by_table, NoiseDistribution(GAUSSIAN, Fraction(4)), id="gaussian-4-table"),
    pytest.param(by_table, NoiseDistribution(GAUSSIAN, Fraction(10)), id="gaussian-10-table"),
    pytest.param(by_table, NoiseDistribution(GAUSSIAN, Fraction(1000)), id="gaussian-1000-table"),
    pytest.param(by_rejection, NoiseDistribution(LAPLACE, Fraction(5, 4)), id="laplace-1.25-rejection"),
    pytest.param(by_rejection, NoiseDistribution(LAPLACE, Fraction(10)), id="laplace-10-rejection"),
    pytest.param(by_rejection, NoiseDistribution(LAPLACE, Fraction(100_001, 1024)), id="laplace-98-rejection"),
]


@pytest.mark.parametrize(("sampler", "law"), CASES)
def test_draws_follow_their_law_and_no_law_two_per_cent_away(sampler: Sampler, law: NoiseDistribution) -> None:
    assert follows(sampler(law, DRAWS), law)
    assert not follows(sampler(scaled(law, 0.98), DRAWS), law)
    assert not follows(sampler(scaled(law, 1.02), DRAWS), law)


@pytest.mark.parametrize("mechanism", list(Mechanism))
def test_the_path_through_integers_follows_the_law_too(mechanism: Mechanism) -> None:
    law = NoiseDistribution(mechanism, Fraction(5, 2))
    values = in_integers_only(law, 20_000)
    assert follows(values, law)
    assert not follows(values, scaled(law, 1.2))


@pytest.mark.parametrize("size", [1_000, 2_000_000])
def test_secure_noise_follows_the_law_whichever_sampler_it_picks(size: int) -> None:
    law = NoiseDistribution(GAUSSIAN, Fraction(10))
    assert prefers_table(law, size) == (size > 1_000)
    values = np.concatenate([SecureNoise().draw(law, size) for _ in range(max(1, 200_000 // size))])
    assert follows(values, law)


@pytest.mark.parametrize("scale", [2**33, 2**40, 2**45 + 3, LARGEST_SCALE])
@pytest.mark.parametrize("mechanism", list(Mechanism))
def test_noise_of_enormous_scale_follows_the_smooth_law(mechanism: Mechanism, scale: int) -> None:
    smooth = stats.norm if mechanism is GAUSSIAN else stats.laplace
    values = by_rejection(NoiseDistribution(mechanism, Fraction(scale)), DRAWS)

    def statistic(sigma: float) -> float:
        places = np.minimum((smooth.cdf(values / sigma) * 32).astype(np.int64), 31)
        observed = np.bincount(places, minlength=32)
        return float(((observed - values.size / 32) ** 2).sum() / (values.size / 32))

    alarm = stats.chi2.isf(FALSE_ALARM, 31)
    assert statistic(scale) < alarm
    assert statistic(scale * 0.98) > alarm
    assert statistic(scale * 1.02) > alarm
    # The low bits are as good as coins: nothing is rounded away at the fine end.
    for bit in (0, 1, 7):
        ones = np.count_nonzero(values >> bit & 1)
        assert abs(ones - values.size / 2) < FAR * math.sqrt(values.size) / 2


@pytest.mark.parametrize(
    "law",
    [
        NoiseDistribution(GAUSSIAN, Fraction(5)),
        NoiseDistribution(GAUSSIAN, Fraction(2**40)),
        NoiseDistribution(LAPLACE, Fraction(1)),
        NoiseDistribution(LAPLACE, Fraction(2**40)),
    ],
    ids=str,
)
def test_mean_and_variance_are_those_the_law_states(law: NoiseDistribution) -> None:
    unit = math.sqrt(law.variance)
    values = by_rejection(law, DRAWS) / unit
    excess = 2.0 if law.mechanism is GAUSSIAN else 5.5
    assert abs(values.mean()) < FAR / math.sqrt(DRAWS)
    assert abs((values**2).mean() - 1) < FAR * math.sqrt(excess / DRAWS)


@pytest.mark.parametrize("sampler", [by_rejection, by_table])
def test_draws_do_not_repeat_from_block_to_block(sampler: Sampler) -> None:
    values = sampler(NoiseDistribution(GAUSSIAN, Fraction(50)), DRAWS) / 50
    for lag in (1, 2, 1 << 12, 1 << 13, 1 << 14, 1 << 15):
        products = values[lag:] * values[:-lag]
        assert abs(products.mean()) < FAR / math.sqrt(products.size)


def test_the_smallest_scales_are_almost_always_silent() -> None:
    for mechanism in Mechanism:
        assert not by_rejection(NoiseDistribution(mechanism, Fraction(1, 1024)), 50_000).any()


def test_a_pure_claim_never_meets_a_table() -> None:
    assert not prefers_table(NoiseDistribution(LAPLACE, Fraction(10)), 10**9)
    assert prefers_table(NoiseDistribution(GAUSSIAN, Fraction(10)), 10**7)
    assert prefers_table(NoiseDistribution(GAUSSIAN, Fraction(1000)), 10**7)
    assert not prefers_table(NoiseDistribution(GAUSSIAN, Fraction(1000)), 10**5)
    assert not prefers_table(NoiseDistribution(GAUSSIAN, Fraction(2**33)), 10**9)
    assert not prefers_table(NoiseDistribution(GAUSSIAN, Fraction(1, 2)), 10**9)


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(5, 4), Fraction(3), Fraction(4), Fraction(20)])
@pytest.mark.parametrize("mechanism", list(Mechanism))
def test_the_stated_variance_is_that_of_the_probabilities(mechanism: Mechanism, scale: Fraction) -> None:
    law = NoiseDistribution(mechanism, scale)
    half = chances(law)
    n = np.arange(half.size)
    assert law.variance == pytest.approx(2 * (half * n * n).sum(), rel=1e-12)


@pytest.mark.parametrize("scale", [Fraction(0), Fraction(-1), Fraction(1, 3), Fraction(1, 2048), Fraction(2**50 + 1)])
def test_a_scale_that_cannot_be_drawn_or_sent_is_refused(scale: Fraction) -> None:
    with pytest.raises(ValueError, match="a noise scale must be"):
        NoiseDistribution(GAUSSIAN, scale)
