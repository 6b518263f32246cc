"""Costs: exact, in whole units, rounded against us; and the discrete Gaussian under its price."""

import math
import random
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wardround.privacy
from wardround.privacy.accounting.cost import MU_UNIT, PURE_UNIT, SLACK_UNIT, Cost, Fact, gaussian_mu_squared, total
from wardround.privacy.accounting.gaussian_dp import delta_of
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution

SCALES = st.integers(min_value=4 * 1024, max_value=2**40).map(lambda k: Fraction(k, 1024))
SENSITIVITIES = st.integers(min_value=0, max_value=2**40)


def gaussian(scale: Fraction | int, l2_squared: int = 1, dimension: int = 1) -> Fact:
    law = NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, Fraction(scale))
    return Fact(law=law, l1_sensitivity=l2_squared, l2_sensitivity_squared=l2_squared, dimension=dimension)


def laplace(scale: Fraction | int, l1: int = 1) -> Fact:
    law = NoiseDistribution(Mechanism.DISCRETE_LAPLACE, Fraction(scale))
    return Fact(law=law, l1_sensitivity=l1, l2_sensitivity_squared=l1 * l1, dimension=1)


FACTS = st.one_of(st.builds(gaussian, SCALES, SENSITIVITIES), st.builds(laplace, SCALES, SENSITIVITIES))


def test_units_are_binary_fractions_of_one() -> None:
    assert (MU_UNIT, PURE_UNIT, SLACK_UNIT) == (2**40, 2**40, 2**60)


@given(scale=SCALES, l2_squared=SENSITIVITIES)
def test_a_gaussian_price_is_the_exact_rational_rounded_up(scale: Fraction, l2_squared: int) -> None:
    exact = Fraction(l2_squared) / scale**2 * (1 + 1 / (20 * scale**2)) ** 2
    assert gaussian_mu_squared(scale=scale, l2_sensitivity_squared=l2_squared) == exact
    cost = gaussian(scale, l2_squared).cost()
    assert cost.mu_squared == math.ceil(exact * MU_UNIT)
    assert (cost.pure, cost.slack) == (0, 1)


@given(scale=SCALES, l1=SENSITIVITIES)
def test_a_laplace_price_is_the_exact_rational_rounded_up(scale: Fraction, l1: int) -> None:
    assert laplace(scale, l1).cost() == Cost(0, math.ceil(Fraction(l1) / scale * PURE_UNIT), 0)


def test_a_smaller_laplace_scale_has_no_lower_limit() -> None:
    assert laplace(Fraction(5, 4)).cost().pure == math.ceil(Fraction(4, 5) * PURE_UNIT)
    assert laplace(Fraction(1, 1024)).cost().pure == 1024 * PURE_UNIT


def test_gaussian_noise_of_less_than_four_grid_units_has_no_price() -> None:
    with pytest.raises(ValueError, match="at least 4 grid units"):
        gaussian(Fraction(4095, 1024)).cost()


def test_slack_grows_with_the_dimension_only_beyond_a_million() -> None:
    assert gaussian(4, dimension=2**20).cost().slack == 1
    assert gaussian(4, dimension=2**20 + 1).cost().slack == 2


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 13.8])
def test_one_unit_of_slack_pays_for_a_table_at_every_sensible_epsilon(epsilon: float) -> None:
    assert (1 + math.exp(epsilon)) * 2**20 * 2.0**-100 <= 1 / SLACK_UNIT


@given(facts=st.lists(FACTS, max_size=6), more=FACTS)
def test_one_more_event_never_costs_less(facts: list[Fact], more: Fact) -> None:
    assert total(facts).fits(total([*facts, more]))


@given(facts=st.lists(FACTS, max_size=6), order=st.randoms(use_true_random=False))
def test_order_never_matters(facts: list[Fact], order: random.Random) -> None:
    shuffled = list(facts)
    order.shuffle(shuffled)
    assert total(shuffled) == total(facts)


def test_nothing_costs_nothing() -> None:
    assert total([]) == Cost.zero() == Cost(mu_squared=0, pure=0, slack=0)


@pytest.mark.parametrize("over", [Cost(6, 5, 5), Cost(5, 6, 5), Cost(5, 5, 6)])
def test_a_cost_fits_only_when_every_component_does(over: Cost) -> None:
    allowance = Cost(5, 5, 5)
    assert allowance.fits(allowance)
    assert not over.fits(allowance)


@pytest.mark.parametrize("parts", [(-1, 0, 0), (0, -1, 0), (0, 0, -1)])
def test_a_negative_cost_is_refused_so_that_nothing_is_refunded(parts: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        Cost(*parts)


@pytest.mark.parametrize(("l1", "l2_squared", "dimension"), [(-1, 1, 1), (1, -1, 1), (1, 1, 0)])
def test_an_impossible_fact_is_refused(l1: int, l2_squared: int, dimension: int) -> None:
    law = NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, Fraction(8))
    with pytest.raises(ValueError, match="a fact needs"):
        Fact(law=law, l1_sensitivity=l1, l2_sensitivity_squared=l2_squared, dimension=dimension)


# --- The discrete Gaussian against its price ------------------------------------------------------------


def discrete_profile(sigma: float, shift: int) -> list[tuple[float, float]]:
    """(epsilon, ln delta) of the exact discrete Gaussian moved by `shift`, over its whole range.

    Delta is linear in e^epsilon between two losses, and the Gaussian's is convex, so the worst
    point lies between two losses: each gap is sampled inside as well as at its ends.
    """
    reach = int(39 * sigma)
    outcomes = np.arange(-reach, reach + shift + 1, dtype=np.float64)
    weights = -0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2
    normaliser = math.log(np.exp(weights).sum())
    log_shifted = -0.5 * ((outcomes - shift) / sigma) ** 2 - normaliser
    losses = shift * (2 * outcomes - shift) / (2 * sigma**2)
    near = np.arange(shift // 2, shift // 2 + 40)
    far = np.linspace(shift // 2, 34 * sigma, 80).astype(int)
    profile = []
    for first in sorted({*near.tolist(), *far.tolist()}):
        for step in (0.0, 0.25, 0.5, 0.75):
            epsilon = max(0.0, shift * (2 * (first + step) - shift) / (2 * sigma**2))
            above = losses > epsilon
            logs = log_shifted[above] + np.log(-np.expm1(epsilon - losses[above]))
            largest = logs.max()
            profile.append((epsilon, float(largest + math.log(np.exp(logs - largest).sum()))))
    return profile


def worst_excess(sigma: float, shift: int, correction: float) -> float:
    """How far ln delta of the discrete Gaussian is above that of the continuous one at `correction`."""
    mu = shift / sigma * correction
    return max(
        log_delta - math.log(delta_of(epsilon, mu))
        for epsilon, log_delta in discrete_profile(sigma, shift)
        if log_delta > math.log(1e-290)
    )


@pytest.mark.parametrize("sigma", [4.0, 4.1, 4.3, 4.5, 4.77, 5.0, 6.5, 8.0, 13.37, 30.0])
@pytest.mark.parametrize("widths", [0.0, 0.5, 1.0, 3.0, 10.0])
def test_the_discrete_gaussian_is_under_its_corrected_price(sigma: float, widths: float) -> None:
    for shift in sorted({max(1, int(widths * sigma)), int(widths * sigma) + 1, int(widths * sigma) + 2}):
        assert worst_excess(sigma, shift, 1 + 1 / (20 * sigma**2)) < 0.0


def test_a_fine_grid_is_under_its_corrected_price_too() -> None:
    # A count on a grid of 1/64 at (1, 1e-6): sigma is about 270 grid units and a patient moves 64.
    assert worst_excess(270.0, 64, 1 + 1 / (20 * 270.0**2)) < 0.0


@pytest.mark.parametrize("sigma", [4.0, 5.0, 8.0])
def test_without_the_correction_the_discrete_gaussian_would_be_underpriced(sigma: float) -> None:
    assert worst_excess(sigma, 1, 1.0) > 0.5
    # The leading term of the coarseness is 1/24: the price has a margin, though not a wide one.
    assert worst_excess(sigma, 1, 1 + 1 / (24.5 * sigma**2)) > 0.0


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(5, 4), Fraction(10)])
@pytest.mark.parametrize("shift", [1, 3])
def test_the_discrete_laplace_is_exactly_its_price(scale: Fraction, shift: int) -> None:
    # ln P(n) = -|n|/b up to a constant that is the same for both: exact in fractions.
    worst = max(abs((abs(n - shift) - abs(n)) / scale) for n in range(-50, 51))
    assert worst == Fraction(shift) / scale
    assert laplace(scale, shift).cost().pure == math.ceil(worst * PURE_UNIT)


# --- What one unit can move ------------------------------------------------------------------------------


@given(
    levels=st.integers(min_value=1, max_value=2**32),
    shares=st.lists(st.floats(min_value=0.0, max_value=1.0), min_size=1, max_size=6),
)
def test_two_sided_records_are_within_their_norms(levels: int, shares: list[float]) -> None:
    records = [(part := int(share * levels), levels - part) for share in shares]
    flat = [value for record in records for value in record]
    assert sum(flat) == len(shares) * levels
    assert sum(value * value for value in flat) <= len(shares) * levels**2


@given(
    rows=st.lists(
        st.tuples(st.integers(min_value=0, max_value=4), st.integers(min_value=-50, max_value=100)), max_size=8
    )
)
def test_rows_capped_in_total_need_no_factor_for_groups(rows: list[tuple[int, int]]) -> None:
    sums = [0] * 5
    for group, value in rows:
        sums[group] += value
    assert sum(abs(value) for value in sums) <= len(rows) * 100
    assert sum(value * value for value in sums) <= (len(rows) * 100) ** 2


# --- PROOFS.md and the code point at each other ----------------------------------------------------------

PRIVACY = Path(wardround.privacy.__file__).parent


def test_every_test_that_the_proofs_name_exists() -> None:
    proofs = (PRIVACY / "PROOFS.md").read_text()
    tests = "".join(path.read_text() for path in Path(__file__).parents[2].rglob("test_*.py"))
    named = set(re.findall(r"`(test_\w+)`", proofs))
    assert named
    assert {name for name in named if f"def {name}(" not in tests} == set()


def test_every_section_that_the_code_cites_exists() -> None:
    """In the proofs beside the code, or in those of the whole."""
    cited_at_all = 0
    for path in PRIVACY.rglob("*.py"):
        proofs = "\n".join(found.read_text() for folder in path.parents if (found := folder / "PROOFS.md").exists())
        headings = re.findall(r"^##+ (.+)$", proofs, flags=re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
        cited = re.findall(r"(?<![\w/])PROOFS\.md#([\w-]+)", path.read_text())
        cited_at_all += len(cited)
        assert set(cited) <= anchors, path.name
    assert cited_at_all > 20
