"""Every first-order error is what numerical differentiation says of the same function of the noised sums."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

from wardround.federation.forms.totals import NORMAL, TotalNoise
from wardround.federation.statistics.correlation import _correlations
from wardround.federation.statistics.products import Products
from wardround.federation.statistics.quantile import Scale
from wardround.federation.statistics.regression import Fit, fitted
from wardround.federation.statistics.spread import Moments
from wardround.federation.statistics.survival import curve_of

STEP = 1e-3


def noise_of(function: Callable[[np.ndarray], float], at: np.ndarray, sd: np.ndarray) -> float:
    """√Σ(∂f/∂xᵢ·sdᵢ)², by central differences."""
    found = 0.0
    for place in range(at.size):
        moved = np.zeros(at.size)
        moved[place] = STEP
        found += ((function(at + moved) - function(at - moved)) / (2 * STEP) * sd[place]) ** 2
    return math.sqrt(found)


def test_the_variance_and_its_root() -> None:
    at, noise = np.array([800.0, -430.0, -90.0]), TotalNoise(3.0, NORMAL)

    def variance(sums: np.ndarray) -> float:
        return float(sums[2] / sums[0] + 0.5 - (sums[1] / sums[0]) ** 2)

    found = Moments(*at.tolist(), noise).variance()
    assert found.value == pytest.approx(variance(at))
    assert found.error == pytest.approx(noise_of(variance, at, np.full(3, 3.0)), rel=1e-6)
    found = Moments(*at.tolist(), noise).mean()
    assert found.error == pytest.approx(noise_of(lambda sums: float(sums[1] / sums[0]), at, np.full(3, 3.0)), rel=1e-6)


def products() -> Products:
    """Sums of 3,000 records of four columns that are far from their centres and related."""
    draw = np.random.default_rng(3)
    base = draw.normal(0.0, 0.15, (3000, 4))
    base[:, 0] += 0.8 * base[:, 1] - 0.5 * base[:, 2]
    records = np.column_stack([np.ones(3000), base + np.array([0.5, -0.4, 0.3, 0.0])])
    noise = np.abs(draw.normal(2.0, 0.7, (5, 5)))
    return Products(records.T @ records, (noise + noise.T) / 2)


PAIRS = list(itertools.combinations_with_replacement(range(5), 2))


def unfolded(entries: np.ndarray) -> np.ndarray:
    matrix = np.zeros((5, 5))
    for (i, j), entry in zip(PAIRS, entries, strict=True):
        matrix[i, j] = matrix[j, i] = entry
    return matrix


def folded(matrix: np.ndarray) -> np.ndarray:
    return np.array([matrix[i, j] for i, j in PAIRS])


def test_correlations() -> None:
    known = products()
    _, errors, _ = _correlations(known, NORMAL)
    for a, b in itertools.combinations(range(4), 2):

        def correlation(entries: np.ndarray, a: int = a, b: int = b) -> float:
            sums = unfolded(entries)
            means = sums[0, 1:] / sums[0, 0]
            spread = sums[1:, 1:] / sums[0, 0] - np.outer(means, means)
            return float(spread[a, b] / math.sqrt(spread[a, a] * spread[b, b]))

        exact = noise_of(correlation, folded(known.sums), folded(known.noise))
        assert errors[a, b] == pytest.approx(exact, rel=1e-5)


def test_coefficients_the_residual_and_the_explained_share() -> None:
    known = products()
    fit = fitted(known, NORMAL)
    chosen = [0, 2, 3, 4]

    def solved(entries: np.ndarray) -> tuple[np.ndarray, float, float]:
        sums = unfolded(entries)
        solution = np.linalg.solve(sums[np.ix_(chosen, chosen)], sums[chosen, 1])
        left = float(sums[1, 1] - sums[chosen, 1] @ solution)
        return solution, left, 1 - left / float(sums[1, 1] - sums[0, 1] ** 2 / sums[0, 0])

    at, sd, free = folded(known.sums), folded(known.noise), 3000 - 4
    solution, left, explained = solved(at)
    inverse = np.linalg.inv(known.sums[np.ix_(chosen, chosen)])
    assert isinstance(fit, Fit)
    assert fit.coefficients == pytest.approx(solution)
    for place in range(4):
        noise = noise_of(lambda entries, place=place: float(solved(entries)[0][place]), at, sd)
        whole = noise**2 + left / free * inverse[place, place]
        assert fit.covariance[place, place] == pytest.approx(whole, rel=1e-5)
    # A sum of two coefficients needs what they have in common.
    noise = noise_of(lambda entries: float(solved(entries)[0][1:3].sum()), at, sd)
    both = fit.covariance[1:3, 1:3].sum()
    assert both == pytest.approx(noise**2 + left / free * inverse[1:3, 1:3].sum(), rel=1e-5)
    noise = noise_of(lambda entries: solved(entries)[2], at, sd)
    sampled = 2 * math.sqrt(explained) * (1 - explained) / math.sqrt(3000)
    assert fit.explained == pytest.approx((explained, math.hypot(noise, sampled), sampled), rel=1e-5)
    noise = noise_of(lambda entries: solved(entries)[1] / (entries[0] - 4), at, sd)
    sampled = left / free * math.sqrt(2 / free)
    assert fit.residual == pytest.approx((left / free, math.hypot(noise, sampled), sampled), rel=1e-5)


def test_the_whole_survival_curve() -> None:
    draw = np.random.default_rng(4)
    counts = draw.integers(20, 90, 24).astype(float)
    sd = 2.5

    def curve(cells: np.ndarray) -> np.ndarray:
        risk = np.cumsum((cells[:12] + cells[12:])[::-1])[::-1]
        return np.cumprod(1 - cells[12:] / risk)

    found = curve_of(counts[:12], counts[12:], TotalNoise(sd, NORMAL))
    risk = np.cumsum((counts[:12] + counts[12:])[::-1])[::-1]
    greenwood = np.cumsum(counts[12:] / (risk * (risk - counts[12:])))
    assert found.share == pytest.approx(curve(counts))
    for place in range(11):
        noise = noise_of(lambda cells, place=place: float(curve(cells)[place]), counts, np.full(24, sd))
        sampled = float(curve(counts)[place]) * math.sqrt(greenwood[place])
        assert found.error[place] == pytest.approx(math.hypot(noise, sampled), rel=1e-5)


def test_the_interval_of_a_quantile_holds_every_leaf_that_may_be_the_one() -> None:
    """Ten leaves of ten records and a reach of twelve: the level 50 may lie in any of the middle four."""
    scale = Scale(np.linspace(0.0, 10.0, 11), on_edge=False, sure=False)
    excess = np.arange(10.0, 101.0, 10.0) - 55.0
    found = scale.found(excess, np.full(10, 12.0), 100.0, 0.55, 2.0)
    assert found.value == pytest.approx(5.5)
    # 55 ± 12 is passed in leaves 4 and 6.
    assert found.ends == (4.0, 7.0)
    assert found.error == pytest.approx(math.hypot(24.0 / 10.0 / 4.0, 1 / math.sqrt(12)))
    found = Scale(np.linspace(0.0, 10.0, 11), on_edge=True, sure=True).found(
        excess, np.full(10, 12.0), 100.0, 0.55, 2.0
    )
    assert (found.value, found.ends) == (5.0, (4.0, 6.0))
