"""Every accountant's numbers, to the digits of the design."""

from __future__ import annotations

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import rdp_privacy_accountant

from wardround.privacy.accounting import accountants
from wardround.privacy.accounting.accountants import ORDERS, renyi
from wardround.privacy.accounting.events import (
    Approximate,
    DiscreteGaussian,
    Event,
    Gaussian,
    Laplace,
    Pure,
    Schedule,
    SubsampledGaussian,
)
from wardround.privacy.accounting.gaussian_dp import epsilon_of
from wardround.privacy.report.compare import compare


def costs(counts: dict[Event, int], delta: float, overlap: int = 1) -> dict[str, float]:
    return {line.accountant: line.epsilon for line in compare(Schedule.of(counts), delta=delta, overlap=overlap)}


def test_eight_hundred_gaussian_answers() -> None:
    found = costs({Gaussian(25.0): 800}, 1e-7)
    assert round(found["basic"], 2) == 217.16
    assert round(found["zcdp"], 3) == 7.064
    assert round(found["gdp"], 3) == round(found["pld"], 3) == 6.149
    assert found["pld"] == pytest.approx(epsilon_of(1e-7, math.sqrt(800) / 25.0), rel=1e-12)
    assert found["rdp"] == pytest.approx(found["zcdp_tight"], rel=1e-12)
    assert found["pld"] < found["rdp"] < found["zcdp"] < found["advanced"] < found["basic"]


def test_a_thousand_sampled_steps() -> None:
    found = costs({SubsampledGaussian(0.01, 1.0): 1000}, 1e-5)
    assert round(found["pld"], 3) == 1.828
    assert round(found["rdp"], 2) == 2.10
    assert round(found["basic"]) == 839
    assert found["pld"] < found["gdp"] < found["rdp"]


@pytest.mark.parametrize(
    ("rounds", "by_rdp", "exact"),
    [(10, "0.264", "0.243"), (100, "0.900", "0.834"), (1000, "3.131", "2.92"), (10_000, "11.69", "11.0")],
)
def test_the_loss_grows_like_the_root_of_the_rounds(rounds: int, by_rdp: str, exact: str) -> None:
    found = costs({Gaussian(50.0): rounds}, 1e-6)
    assert f"{found['rdp']:.{len(by_rdp.partition('.')[2])}f}" == by_rdp
    assert f"{found['pld']:.{len(exact.partition('.')[2])}f}" == exact


def test_sums_split_delta_over_the_events_that_need_it() -> None:
    schedule = Schedule.of({Gaussian(25.0): 4, Pure(0.5): 3, Approximate(0.25, 1e-8): 2})
    exact = 4 * epsilon_of((1e-6 - 2e-8) / 4, 1 / 25.0) + 3 * 0.5 + 2 * 0.25
    assert accountants.basic_analytic(schedule, 1e-6) == pytest.approx(exact, rel=1e-12)
    assert accountants.basic(schedule, 1e-6) > exact


def test_advanced_composition_is_its_formula() -> None:
    found = accountants.advanced(Schedule.of({Gaussian(25.0): 800}), 1e-7)
    each = epsilon_of(0.5e-7 / 800, 1 / 25.0)
    assert found == pytest.approx(
        800 * each * math.expm1(each) / (1.0 + math.exp(each)) + each * math.sqrt(1600 * math.log(2e7)), rel=1e-9
    )
    # For few events the plain sum is the smaller.
    assert accountants.advanced(Schedule.of({Pure(0.5): 2}), 1e-6) == 1.0


def test_the_textbook_gaussian_is_not_used_where_it_is_not_valid() -> None:
    schedule = Schedule.of({Gaussian(1.0): 1})
    assert accountants.basic(schedule, 1e-6) == accountants.basic_analytic(schedule, 1e-6) == epsilon_of(1e-6, 1.0)


def test_a_wider_overlap_is_the_schedule_again() -> None:
    # Fifty answers of z = 40 at each of k sites.
    found = [costs({Gaussian(40.0): 50}, 1e-6, overlap)["pld"] for overlap in (1, 2, 3)]
    assert [round(epsilon, 3) for epsilon in found] == [0.731, 1.061, 1.321]
    # A secure sum meets the patient once, moved k times as far.
    secure = [costs({Gaussian(40.0 / sites): 50}, 1e-6)["pld"] for sites in (1, 2, 3)]
    assert [round(epsilon, 3) for epsilon in secure] == [0.731, 1.544, 2.405]


@pytest.mark.parametrize(
    ("q", "z", "delta"), [(0.01, 1.0, 1e-5), (0.001, 0.6, 1e-7), (0.2, 4.0, 1e-6), (0.1, 5.0, 1e-9)]
)
def test_dp_accounting_converts_sampled_divergences_to_the_same(q: float, z: float, delta: float) -> None:
    reference = rdp_privacy_accountant.RdpAccountant(orders=[*np.arange(1.5, 64.0, 0.1), *range(64, 256)])
    reference.compose(dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(z)), 300)
    found = accountants.rdp(Schedule.of({SubsampledGaussian(q, z): 300}), delta)
    assert found == pytest.approx(reference.get_epsilon(delta), rel=3e-3)


@pytest.mark.parametrize(("q", "z"), [(0.01, 1.0), (0.3, 2.0), (0.02, 0.2), (0.02, 0.05)])
def test_sampled_divergences_are_never_below_their_integral(q: float, z: float) -> None:
    found = renyi(SubsampledGaussian(q, z))
    x = np.linspace(-14.0, 6.0 / z + 14.0, 400_001)
    ratio = np.logaddexp(math.log1p(-q), math.log(q) + x / z - 0.5 / z**2)
    for index in (600, 950, 1100, 1200):
        order = float(ORDERS[index])
        terms = order * ratio - 0.5 * x * x
        integral = float(np.exp(terms - terms.max()).sum()) * (x[1] - x[0]) / math.sqrt(2.0 * math.pi)
        exact = (math.log(integral) + float(terms.max())) / (order - 1.0)
        assert exact * (1.0 - 1e-9) <= found[index]
    assert np.all(found <= renyi(Gaussian(z)) * (1.0 + 1e-12))


def test_sampling_everyone_is_no_sampling() -> None:
    assert np.array_equal(renyi(SubsampledGaussian(1.0, 2.0)), renyi(Gaussian(2.0)))
    sampled, plain = costs({SubsampledGaussian(1.0, 2.0): 3}, 1e-6), costs({Gaussian(2.0): 3}, 1e-6)
    assert sampled["basic"] == pytest.approx(accountants.basic_analytic(Schedule.of({Gaussian(2.0): 3}), 1e-6))
    assert sampled["pld"] == pytest.approx(plain["pld"], rel=2e-4)


def test_the_laplace_divergence_is_its_integral() -> None:
    epsilon, index = 0.8, 1500
    order = float(ORDERS[index])
    x = np.linspace(-60.0, 60.0, 2_000_001)
    p, q = -epsilon * np.abs(x), -epsilon * np.abs(x - 1.0)
    integral = float(np.exp(order * p + (1.0 - order) * q).sum()) * (x[1] - x[0]) * epsilon / 2.0
    assert renyi(Laplace(epsilon))[index] == pytest.approx(math.log(integral) / (order - 1.0), rel=1e-5)


def test_the_discrete_gaussian_is_accounted_by_every_accountant() -> None:
    found = costs({DiscreteGaussian(25.0): 800}, 1e-7)
    plain = costs({Gaussian(25.0): 800}, 1e-7)
    for name, epsilon in found.items():
        # Basic takes the discrete law's exact epsilon, not the textbook's.
        assert epsilon == pytest.approx(plain[name], rel=0.2 if name == "basic" else 0.02)


def test_a_delta_that_is_used_up_leaves_no_epsilon() -> None:
    lines = compare(Schedule.of({Approximate(0.1, 1e-6): 2, Gaussian(9.0): 1}), delta=1e-6)
    assert all(math.isinf(line.epsilon) and "larger delta" in line.note for line in lines)
    lines = compare(Schedule.of({Approximate(0.1, 1e-6): 1, Gaussian(9.0): 1}), delta=1e-6)
    assert all(math.isinf(line.epsilon) for line in lines)


def test_a_pure_schedule_needs_no_delta() -> None:
    found = costs({Pure(0.5): 2, Laplace(0.25): 2}, 0.0)
    assert found["basic"] == found["advanced"] == found["pld"] == 1.5
    assert math.isinf(found["zcdp"])
    with pytest.raises(ValueError, match="delta"):
        compare(Schedule.of({Pure(0.5): 2}), delta=1.0)


def test_nothing_costs_nothing() -> None:
    assert set(costs({}, 1e-6).values()) == {0.0}
    assert costs({Approximate(0.0, 1e-9): 5}, 1e-6)["pld"] == 0.0


def test_an_enormous_pure_event_has_no_gaussian() -> None:
    lines = {line.accountant: line for line in compare(Schedule.of({Pure(800.0): 1}), delta=1e-6)}
    assert math.isinf(lines["gdp"].epsilon)
    assert lines["gdp"].note == "none found at this delta"
    assert lines["pld"].epsilon <= 800.0


@pytest.mark.parametrize(
    "counts",
    [
        {SubsampledGaussian(1e-9, 1.0): 10**9},
        {Pure(1e-9): 10**9},
        {Gaussian(1e9): 10**9, Laplace(1e-9): 1},
        {Gaussian(1e-3): 10**9, Pure(0.1): 10**9},
        {SubsampledGaussian(0.5, 1e-3): 1000},
        {DiscreteGaussian(0.1, 100): 5},
        {Gaussian(50.0): 10**7, Pure(0.1): 2},
    ],
    ids=str,
)
def test_extreme_schedules_have_an_answer(counts: dict[Event, int]) -> None:
    found = costs(counts, 1e-6)
    assert 0.0 <= found["pld"] <= found["basic"] * (1.0 + 1e-9) < math.inf


@pytest.mark.parametrize("delta", [1e-12, 1e-16])
def test_a_tiny_delta_has_no_certified_block(delta: float) -> None:
    assert math.isinf(costs({SubsampledGaussian(0.1, 2.0): 3}, delta)["gdp"])


def test_zero_concentration_says_that_it_ignores_sampling() -> None:
    notes = {line.accountant: line.note for line in compare(Schedule.of({SubsampledGaussian(0.1, 1.0): 9}), delta=1e-6)}
    assert notes["zcdp"] == notes["zcdp_tight"] == "gives no credit for sampling"
    assert notes["pld"] == ""
