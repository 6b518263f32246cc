"""Exact divergences of the noise laws, over every shift up to the sensitivity."""

import math
from fractions import Fraction

import numpy as np
import pytest
from opendp import prelude as dp
from scipy import stats

from wardround.privacy.accounting.cost import gaussian_mu_squared
from wardround.privacy.accounting.gaussian_dp import delta_of
from wardround.privacy.inference.exact_loss import hockey_stick, largest_loss, pmf
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution
from wardround.privacy.noise.sampler import SecureNoise

RARE = 1e-10
LAPLACE, GAUSSIAN = Mechanism.DISCRETE_LAPLACE, Mechanism.DISCRETE_GAUSSIAN


@pytest.mark.parametrize(("scale", "sensitivity"), [(Fraction(5, 4), 1), (Fraction(7, 2), 8), (Fraction(1, 4), 3)])
def test_laplace_noise_is_within_its_price_for_every_shift_and_not_within_less(
    scale: Fraction, sensitivity: int
) -> None:
    law = NoiseDistribution(LAPLACE, scale)
    price = float(sensitivity / scale)
    for shift in range(-sensitivity, sensitivity + 1):
        assert hockey_stick(law, shift, price) == 0.0
        assert largest_loss(law, shift) <= Fraction(sensitivity) / scale
    assert largest_loss(law, sensitivity) == Fraction(sensitivity) / scale
    assert hockey_stick(law, sensitivity, 0.99 * price) > 0.0


@pytest.mark.parametrize(("sigma", "sensitivity"), [(Fraction(4), 5), (Fraction(25, 2), 8), (Fraction(64), 64)])
def test_gaussian_noise_is_within_its_price_for_every_shift(sigma: Fraction, sensitivity: int) -> None:
    law = NoiseDistribution(GAUSSIAN, sigma)
    mu = math.sqrt(gaussian_mu_squared(scale=sigma, l2_sensitivity_squared=sensitivity**2))
    for shift in range(-sensitivity, sensitivity + 1):
        for epsilon in (0.0, 0.1, 0.5, 1.0, 2.0, 4.0):
            assert hockey_stick(law, shift, epsilon) <= delta_of(epsilon, mu)
    assert hockey_stick(law, sensitivity, 0.5) > 0.9 * delta_of(0.5, mu)


def test_a_hockey_stick_is_the_plain_sum() -> None:
    for law in (NoiseDistribution(LAPLACE, Fraction(3)), NoiseDistribution(GAUSSIAN, Fraction(4))):
        noise = pmf(law)
        at = dict(enumerate(noise.probabilities.tolist(), start=noise.first))
        for shift in (1, 3, -2):
            for epsilon in (-0.5, 0.0, 0.3):
                plain = math.fsum(
                    max(at.get(x, 0.0) - math.exp(epsilon) * at.get(x - shift, 0.0), 0.0) for x in range(-2200, 2200)
                )
                assert hockey_stick(law, shift, epsilon) == pytest.approx(plain, abs=1e-12)
    assert hockey_stick(NoiseDistribution(LAPLACE, Fraction(3)), 0, 0.0) == 0.0
    assert hockey_stick(NoiseDistribution(LAPLACE, Fraction(3)), 0, -1.0) == pytest.approx(1 - math.exp(-1))


def test_only_pure_noise_has_a_largest_loss() -> None:
    with pytest.raises(ValueError, match="largest loss"):
        largest_loss(NoiseDistribution(GAUSSIAN, Fraction(4)), 1)


def against(draws: list[int], law: NoiseDistribution) -> float:
    """The χ² p-value of draws against a law; tails are pooled."""
    noise = pmf(law)
    spread = math.ceil(2 * math.sqrt(law.variance))
    observed = np.bincount(np.clip(draws, -spread, spread) + spread, minlength=2 * spread + 1)
    middle = -noise.first
    expected = noise.probabilities[middle - spread : middle + spread + 1].copy()
    expected[0] += noise.probabilities[: middle - spread].sum()
    expected[-1] += noise.probabilities[middle + spread + 1 :].sum()
    return float(stats.chisquare(observed, expected * len(draws), sum_check=False).pvalue)


@pytest.mark.parametrize(
    "law", [NoiseDistribution(LAPLACE, Fraction(5, 4)), NoiseDistribution(GAUSSIAN, Fraction(4))], ids=str
)
def test_opendp_draws_from_the_same_laws(law: NoiseDistribution) -> None:
    """Another library's samplers, as an oracle for what the words "discrete Laplace of scale b" mean."""
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
    make = dp.m.make_laplace
    if law.mechanism is GAUSSIAN:
        space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
        make = dp.m.make_gaussian
    theirs = make(*space, scale=float(law.scale))([0] * 20_000)
    ours = SecureNoise().draw(law, 20_000).tolist()
    assert against(theirs, law) > RARE
    assert against(ours, law) > RARE
    assert stats.ks_2samp(theirs, ours).pvalue > RARE
    wrong = NoiseDistribution(law.mechanism, law.scale * Fraction(9, 8))
    assert against(theirs, wrong) < RARE
