"""Noise meets a total: the right amount, once per coordinate, and never past the end of the integers."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wardround.privacy.mechanisms.additive import LARGEST_TOTAL, apply
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution
from wardround.privacy.noise.sampler import SecureNoise
from wardround.privacy.noise.vectors import Bounded, IntVector, Noised

LAW = NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, Fraction(10))
INT64 = np.iinfo(np.int64)


class Fixed:
    """Noise that is always these values."""

    def __init__(self, *values: int) -> None:
        self.values = values

    def draw(self, law: NoiseDistribution, size: int) -> IntVector:
        return np.array(self.values, np.int64)


def bounded(*total: int) -> Bounded:
    return Bounded(np.array(total, np.int64), 1, 1, Fraction(1, 64))


def test_each_coordinate_gets_its_own_noise_and_keeps_its_grid() -> None:
    noised = apply(bounded(1, 10, 100), LAW, Fixed(5, -20, 0))
    assert noised.total.tolist() == [6, -10, 100]
    assert noised.grid == Fraction(1, 64)


def test_the_secret_total_is_left_as_it_was() -> None:
    secret = bounded(1, 10, 100)
    apply(secret, LAW, Fixed(5, -20, 0))
    assert secret.total.tolist() == [1, 10, 100]


@given(
    total=st.integers(-LARGEST_TOTAL, LARGEST_TOTAL),
    noise=st.integers(-(2**70), 2**70)
    | st.sampled_from([sign * 2**62 + step for sign in (-1, 1) for step in (-1, 0, 1)]),
)
def test_saturation_is_post_processing_of_the_unlimited_sum(total: int, noise: int) -> None:
    drawn = max(INT64.min, min(noise, INT64.max))
    released = int(apply(bounded(total), LAW, Fixed(drawn)).total[0])
    assert released == max(-LARGEST_TOTAL, min(total + noise, LARGEST_TOTAL))


@given(total=st.integers(INT64.min, INT64.max), noise=st.integers(INT64.min, INT64.max))
def test_no_total_and_no_noise_wraps_around(total: int, noise: int) -> None:
    released = int(apply(bounded(total), LAW, Fixed(noise)).total[0])
    inside = max(-LARGEST_TOTAL, min(total, LARGEST_TOTAL))
    assert released == max(-LARGEST_TOTAL, min(inside + noise, LARGEST_TOTAL))


@given(total=st.integers(INT64.min, INT64.max - 9), step=st.integers(0, 9), noise=st.integers(-99, 99))
def test_saturation_never_widens_the_gap_between_neighbours(total: int, step: int, noise: int) -> None:
    one, other = (int(apply(bounded(value), LAW, Fixed(noise)).total[0]) for value in (total, total + step))
    assert 0 <= other - one <= step


def test_an_empty_total_is_an_empty_release() -> None:
    assert apply(bounded(), LAW, SecureNoise()).total.shape == (0,)


def test_noise_of_the_wrong_size_is_refused() -> None:
    with pytest.raises(ValueError, match="one value per coordinate"):
        apply(bounded(1, 10, 100), LAW, Fixed(1))


@pytest.mark.parametrize(
    "law",
    [
        NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, Fraction(4)),
        NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, Fraction(270)),
        NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, Fraction(2**40 + 7, 1024)),
        NoiseDistribution(Mechanism.DISCRETE_LAPLACE, Fraction(5, 4)),
        NoiseDistribution(Mechanism.DISCRETE_LAPLACE, Fraction(2**40 + 7, 1024)),
    ],
    ids=str,
)
def test_the_spread_of_100_000_releases_is_the_one_the_law_reports(law: NoiseDistribution) -> None:
    noised = apply(bounded(*[12_345] * 100_000), law, SecureNoise())
    assert (noised.total - 12_345).std() == pytest.approx(math.sqrt(law.variance), rel=0.03)


def test_a_bounded_value_never_shows_its_total() -> None:
    assert "987654321" not in repr(bounded(987654321))
    assert "l1_sensitivity=1" in repr(bounded(987654321))


@pytest.mark.parametrize("total", [np.zeros(3), np.zeros((2, 2), np.int64), np.zeros(3, np.int32)])
def test_only_a_vector_of_64_bit_integers_can_be_bounded_or_noised(total: IntVector) -> None:
    with pytest.raises(ValueError, match="a vector of int64"):
        Bounded(total, 1, 1, Fraction(1))
    with pytest.raises(ValueError, match="a vector of int64"):
        Noised(total, Fraction(1))


def test_a_bound_must_be_a_bound() -> None:
    with pytest.raises(ValueError, match="sensitivity"):
        Bounded(np.zeros(1, np.int64), -1, 1, Fraction(1))
    with pytest.raises(ValueError, match="grid"):
        Bounded(np.zeros(1, np.int64), 1, 1, Fraction(0))
