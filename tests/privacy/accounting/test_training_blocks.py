"""A whole training as one charge: exact for sums over everybody, dominated for samples, the dearer of two folds."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as oracle
from hypothesis import given, settings
from hypothesis import strategies as st

from wardround.privacy.accounting.accountants import pld
from wardround.privacy.accounting.composition import RunningLoss
from wardround.privacy.accounting.cost import MU_UNIT, SLACK_UNIT, Cost, Fact, gaussian_mu_squared, total
from wardround.privacy.accounting.domination import charged_mu, hidden_share, least_mu
from wardround.privacy.accounting.events import LARGEST_DELTA, Approximate, Gaussian, Schedule, SubsampledGaussian
from wardround.privacy.accounting.gaussian_dp import delta_of
from wardround.privacy.accounting.loss_distribution import TILTS, loss_distributions
from wardround.privacy.accounting.profiles import profiles
from wardround.privacy.budget.facts import BlockFact, StageFact, StepFact, fold_cost
from wardround.privacy.budget.filter import epsilon_charged
from wardround.privacy.budget.parallel import Group
from wardround.privacy.noise.distribution import LARGEST_SCALE, Mechanism, NoiseDistribution
from wardround.privacy.report.compare import compare
from wardround.privacy.report.dearest_patient import dearest_patients
from wardround.privacy.report.schedules import schedule_of

LENGTH = 2**20
SLACK = round(1e-9 * SLACK_UNIT)
DELTA = 1e-6
HUNDREDTH = Fraction(round(0.01 * 2**32), 2**32)


def sums(multiplier: float, count: int = 1, *, rate: Fraction = Fraction(1), dimension: int = 10) -> StageFact:
    law = NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, Fraction(round(multiplier * LENGTH * 1024), 1024))
    return StageFact(law, LENGTH**2, dimension, count, rate)


def block(*trained: StageFact, held_out: tuple[StageFact, ...] = (), slack: int = 0) -> BlockFact:
    return BlockFact("b", 0, 100, 10, trained, held_out, slack)


# --- Sums over everybody ----------------------------------------------------------------------------------


@given(
    stages=st.lists(
        st.builds(
            lambda multiple, count, dimension: StageFact(
                NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, Fraction(multiple, 1024)), LENGTH**2, dimension, count
            ),
            st.integers(4096, 2**50),
            st.integers(1, 10**5),
            st.integers(1, 10**5),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_sums_over_everybody_cost_as_much_as_if_each_were_asked_alone_and_never_more(stages: list[StageFact]) -> None:
    cost = block(*stages).cost()
    exact = sum(
        stage.count * gaussian_mu_squared(scale=stage.law.scale, l2_sensitivity_squared=LENGTH**2) for stage in stages
    )
    assert 0 <= cost.mu_squared - exact * MU_UNIT < 1
    assert cost.slack == math.ceil(Fraction(sum(stage.count * stage.dimension for stage in stages), 2**20))
    alone = sum(
        (Fact(stage.law, 0, LENGTH**2, stage.dimension).cost().mu_squared * stage.count for stage in stages), start=0
    )
    assert cost.mu_squared <= alone


def test_a_patient_is_in_one_fold_and_pays_for_that_alone() -> None:
    learnt, tried = (sums(5.0, 8), sums(3.0)), (sums(2.0, dimension=2**21),)
    both = block(*learnt, held_out=tried).cost()
    first, second = block(*learnt).cost(), block(*tried).cost()
    assert both == Cost(max(first.mu_squared, second.mu_squared), 0, max(first.slack, second.slack))
    # Here one fold has the larger loss and the other the larger slack: no patient pays more than both largest.
    assert first.mu_squared > second.mu_squared
    assert first.slack < second.slack


def test_a_further_round_costs_nothing_and_tells_the_accountants_nothing() -> None:
    whole, further = block(sums(5.0, 8)), StepFact("b", 1, 10)
    assert total([whole, further, further]) == whole.cost()
    assert schedule_of((whole, further)) == schedule_of((whole,))
    assert schedule_of((further,)) == Schedule(())


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: sums(5.0, 0),
        lambda: sums(5.0, rate=Fraction(0)),
        lambda: sums(5.0, rate=Fraction(5, 4)),
        lambda: dataclasses.replace(sums(5.0), dimension=0),
        lambda: dataclasses.replace(sums(5.0), l2_sensitivity_squared=0),
        lambda: dataclasses.replace(sums(5.0), law=NoiseDistribution(Mechanism.DISCRETE_LAPLACE, Fraction(5))),
        block,
        lambda: block(sums(5.0), slack=-1),
        lambda: BlockFact("b", 3, 3, 10, (sums(5.0),)),
        lambda: BlockFact("b", -1, 3, 10, (sums(5.0),)),
        lambda: BlockFact("b", 0, 3, 0, (sums(5.0),)),
        lambda: StepFact("b", -1, 1),
        lambda: StepFact("b", 0, 0),
        lambda: block(sums(5.0, rate=HUNDREDTH)).cost(),
        lambda: block(sums(5.0, rate=HUNDREDTH), slack=SLACK_UNIT).cost(),
        lambda: block(sums(0.0005, rate=HUNDREDTH), slack=SLACK).cost(),
        lambda: block(sums(0.00000001)).cost(),
    ],
)
def test_a_block_that_nobody_could_account_for_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        wrong()  # type: ignore[operator]


# --- Sums over samples ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rate", "multiplier", "count"), [(0.01, 1.0, 300), (0.25, 12.0, 60), (0.00256, 0.8, 150)])
def test_the_gaussian_that_is_charged_for_samples_hides_no_more_than_they_do(
    rate: float, multiplier: float, count: int
) -> None:
    stage = sums(multiplier, count, rate=Fraction(round(rate * 2**32), 2**32))
    cost = block(stage, slack=SLACK).cost()
    assert cost.slack == SLACK + 1
    mu = math.sqrt(cost.mu_squared / MU_UNIT)
    # Another program's distribution of the same sums, both ways, rounded down so that it is no bound itself.
    reference = oracle.from_gaussian_mechanism(
        multiplier, sampling_prob=rate, value_discretization_interval=1e-4, pessimistic_estimate=False
    ).self_compose(count)
    for epsilon in np.linspace(0.0, 6.0, 41).tolist():
        allowed = delta_of(epsilon, mu) + SLACK / SLACK_UNIT * (1.0 - delta_of(0.0, mu))
        assert reference.get_delta_for_epsilon(epsilon) <= allowed * (1.0 + 1e-6) + 1e-14
    # And somewhere it is needed: with 3 % less it would not hold.
    assert any(
        reference.get_delta_for_epsilon(epsilon) > delta_of(epsilon, 0.97 * mu) + SLACK / SLACK_UNIT
        for epsilon in np.linspace(0.0, 6.0, 121).tolist()
    )


def test_what_a_chance_to_tell_everything_covers_is_what_it_is_charged_for() -> None:
    steps = Schedule.of({SubsampledGaussian(0.01, 0.6): 100})
    mu = charged_mu(steps, charged=1e-8)
    # The same, the other way round: the slack that the chance covers needs no larger mu.
    assert least_mu(steps, slack=1e-8 * hidden_share(mu)) <= mu * (1.0 + 1e-6)
    assert least_mu(steps, slack=1e-8) < mu
    assert least_mu(steps, slack=0.9e-8 * hidden_share(mu)) > mu * (1.0 - 1e-3)


@pytest.mark.parametrize(
    ("event", "count", "slack"),
    [
        (SubsampledGaussian(0.01, 1.0), 10_000, 1e-11),
        (SubsampledGaussian(0.01, 1.0), 10_000, 2e-13),
        # So large a loss that the tilted curve does not begin at 0.
        (SubsampledGaussian(0.2, 5.0), 20_000, 1e-12),
    ],
)
def test_many_sums_can_be_charged_with_less_slack_than_one_transform_can_see(
    event: SubsampledGaussian, count: int, slack: float
) -> None:
    steps = Schedule.of({event: count})
    # Without a tilt rounding alone is more than the slack, so the tail comes from another transform.
    assert any(curve.delta[-1] > slack for curve in RunningLoss(steps, slack, even=True).curves())
    mu, with_more = least_mu(steps, slack=slack), least_mu(steps, slack=1e-9)
    assert with_more <= mu <= with_more * 1.05
    for curve in RunningLoss(steps, slack).curves():
        for index in range(0, curve.delta.size, 997):
            epsilon, delta = (curve.first + index) * curve.step, float(curve.delta[index])
            # It is exact in the tail only.
            if delta < DELTA:
                assert delta <= delta_of(epsilon, mu) + slack + 2e-3 * delta


def test_cumulants_of_very_many_losses_are_gathered_and_never_below() -> None:
    for law in loss_distributions(SubsampledGaussian(1e-3, 0.6), step=5e-5, tail=1e-14):
        assert law.mass.size > 2**16
        kept = np.flatnonzero(law.mass)
        exponents = np.log(law.mass[kept]) + TILTS[:, np.newaxis] * 5e-5 * (law.lowest + kept)
        exact = np.logaddexp.reduce(exponents, axis=1)
        assert (law.cumulants >= exact - 1e-12 * (1.0 + np.abs(exact))).all()
        # Sharing mass out over cells of so many steps adds at most (tilt·cell)²/8.
        cell = 5e-5 * -(-law.mass.size // 2**15)
        assert (law.cumulants <= exact + (TILTS * cell) ** 2 / 8.0 + 1e-12 * (1.0 + np.abs(exact))).all()


def test_samples_are_cheaper_than_everybody_and_more_of_anything_costs_more() -> None:
    def loss(multiplier: float = 1.0, count: int = 500, rate: Fraction = HUNDREDTH, slack: int = SLACK) -> int:
        return block(sums(multiplier, count, rate=rate), slack=slack).cost().mu_squared

    assert loss() < block(sums(1.0, 500)).cost().mu_squared / 100
    assert loss(1.1) < loss() < loss(count=700)
    assert loss(rate=HUNDREDTH / 2) < loss() < loss(slack=SLACK // 100)


def test_whole_and_sampled_stages_of_a_fold_add_up_and_equal_noise_is_composed_together() -> None:
    whole, sampled = sums(10.0), sums(1.0, 500, rate=HUNDREDTH)
    together = block(whole, sampled, slack=SLACK).cost()
    apart = block(whole).cost() + block(sampled, slack=SLACK).cost()
    assert together.mu_squared == apart.mu_squared
    assert together.slack == SLACK + 1
    halves = dataclasses.replace(sampled, count=200), dataclasses.replace(sampled, count=300)
    assert block(whole, *halves, slack=SLACK).cost() == together


def test_prices_have_so_few_digits_that_machines_agree() -> None:
    mu_squared = block(sums(1.0, 500, rate=HUNDREDTH), slack=SLACK).cost().mu_squared
    exact = charged_mu(Schedule.of({SubsampledGaussian(float(HUNDREDTH), 1.0): 500}), charged=SLACK / SLACK_UNIT) ** 2
    # The last of seventeen digits, or one more by carrying; never rounded down.
    assert mu_squared % (1 << (mu_squared.bit_length() - 18)) == 0
    assert 1.0 - 1e-9 <= mu_squared / MU_UNIT / exact <= 1.0 + 2.0**-15


def test_the_rarest_and_the_most_noised_samples_have_a_price() -> None:
    rare = block(sums(1.0, 3, rate=Fraction(1, 2**32)), slack=SLACK).cost()
    assert 0 < rare.mu_squared < MU_UNIT // 10**6
    law = NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, Fraction(LARGEST_SCALE))
    quiet = block(StageFact(law, LENGTH**2, 1, 3, Fraction(1, 2)), slack=SLACK).cost()
    assert 0 < quiet.mu_squared < MU_UNIT // 10**6


@pytest.mark.parametrize(("sigma", "shift"), [(4, 1), (4, 7), (6, 30)])
@pytest.mark.parametrize("rate", [0.01, 0.5])
def test_a_sample_with_discrete_noise_tells_no_more_than_its_corrected_gaussian(
    sigma: int, shift: int, rate: float
) -> None:
    places = np.arange(-60 * sigma, 60 * sigma + shift + 1, dtype=np.float64)
    absent = np.exp(-0.5 * (places / sigma) ** 2)
    present = np.exp(-0.5 * ((places - shift) / sigma) ** 2)
    absent, present = absent / absent.sum(), present / present.sum()
    mixed = (1.0 - rate) * absent + rate * present
    law = NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, Fraction(sigma))
    q, z = StageFact(law, shift**2, 1, 1, Fraction(rate).limit_denominator(100)).sampled
    removed, added = profiles(SubsampledGaussian(q, z), tail=1e-250)
    epsilons = np.linspace(0.0, 0.98 * removed.reach, 400)
    for one, other, profile in ((mixed, absent, removed), (absent, mixed, added)):
        exact = np.array([np.maximum(one - math.exp(epsilon) * other, 0.0).sum() for epsilon in epsilons])
        told = profile.delta(epsilons)
        assert (exact <= told * (1.0 + 1e-9) + 1e-15).all()


# --- What the accountants are told ------------------------------------------------------------------------


def test_sums_are_told_one_by_one() -> None:
    told = dict(schedule_of((block(sums(10.0, 7), sums(1.0, 500, rate=HUNDREDTH), slack=SLACK),)).counts)
    (gaussian,) = (event for event in told if isinstance(event, Gaussian))
    (sampled,) = (event for event in told if isinstance(event, SubsampledGaussian))
    assert (told[gaussian], told[sampled]) == (7, 500)
    assert gaussian.z == pytest.approx(10.0, rel=1e-9)
    assert sampled.z == pytest.approx(1.0, rel=1e-9)
    assert sampled.q >= HUNDREDTH
    # What is exact needs no slack for domination, only that of the tables.
    assert told[Approximate(0.0, 1 / SLACK_UNIT)] == 1


FOLDS = [
    # Everybody on both sides: the one with the larger loss.
    ((sums(10.0, 7), sums(4.0)), (sums(3.5),)),
    ((sums(10.0, 7),), (sums(3.0),)),
    # Samples, and a fold that the whole sums beside them are enough for.
    ((sums(3.0), sums(1.0, 500, rate=HUNDREDTH)), (sums(3.1),)),
    # Samples that a whole sum on the other side is enough for.
    ((sums(1.0, 100, rate=HUNDREDTH),), (sums(1.0),)),
    # Neither is certainly the larger.
    ((sums(20.0), sums(1.0, 500, rate=HUNDREDTH)), (sums(2.8),)),
]


@pytest.mark.parametrize(("learnt", "tried"), FOLDS)
def test_no_patient_of_either_fold_loses_more_than_is_told(
    learnt: tuple[StageFact, ...], tried: tuple[StageFact, ...]
) -> None:
    whole = block(*learnt, held_out=tried, slack=SLACK)
    told = schedule_of((whole,))
    for delta in (1e-4, DELTA, 1e-8):
        found = pld(told, delta)
        assert found >= pld(schedule_of((block(*learnt, slack=SLACK),)), delta) * (1.0 - 1e-4)
        assert found >= pld(schedule_of((block(*tried, slack=SLACK),)), delta) * (1.0 - 1e-4)
        if delta / 1000 >= SLACK / SLACK_UNIT:
            assert found <= epsilon_charged(whole.cost(), delta=delta) * (1.0 + 1e-3)
    # Whichever fold is called which.
    assert schedule_of((block(*tried, held_out=learnt, slack=SLACK),)) == told


def test_a_whole_sum_that_stands_for_samples_pays_their_slack_too() -> None:
    learnt, tried = (sums(1.0, 100, rate=HUNDREDTH),), (sums(1.0),)
    told = dict(schedule_of((block(*learnt, held_out=tried, slack=SLACK),)).counts)
    assert {type(event) for event in told} == {Gaussian, Approximate}
    assert schedule_of((block(*learnt, held_out=tried, slack=SLACK),)).certain_delta >= SLACK / SLACK_UNIT


def test_every_accountant_has_a_figure_for_a_sampled_training_and_none_is_below_the_exact_one() -> None:
    told = schedule_of((block(sums(10.0), sums(1.0, 500, rate=HUNDREDTH), slack=SLACK),))
    found = {line.accountant: line.epsilon for line in compare(told, delta=DELTA, overlap=2)}
    assert all(math.isfinite(epsilon) for epsilon in found.values())
    assert all(epsilon >= found["pld"] * (1 - 1e-6) for epsilon in found.values())


def test_a_patient_at_two_sites_meets_the_training_twice() -> None:
    told = schedule_of((block(sums(1.0, 500, rate=HUNDREDTH), slack=SLACK),))
    (patient,) = dearest_patients({"a": told, "b": told, "c": told}, [Group(("a", "b", "c"), 2)])
    assert patient == told.seen(2)
    # Coins are fresh at every site: the filter adds squared mu and slack, and is above the exact loss.
    cost = block(sums(1.0, 500, rate=HUNDREDTH), slack=SLACK).cost()
    assert pld(patient, DELTA) <= epsilon_charged(cost + cost, delta=DELTA)


@pytest.mark.parametrize(
    "beyond",
    [
        block(sums(0.0005)),
        block(sums(0.1, 10**5)),
        block(sums(5.0), held_out=(sums(0.0005),)),
        block(sums(5.0, dimension=2**80)),
    ],
)
def test_a_training_beyond_all_accountants_has_no_figure(beyond: BlockFact) -> None:
    assert schedule_of((beyond,)) == Schedule(((Approximate(0.0, LARGEST_DELTA), 1),))


def test_noise_finer_than_accountants_know_counts_as_the_finest_they_do() -> None:
    quiet = StageFact(NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, Fraction(LARGEST_SCALE)), LENGTH**2, 1, 3)
    assert pld(schedule_of((block(quiet),)), DELTA) < 1e-3


@given(
    learnt=st.lists(st.tuples(st.floats(0.5, 50.0), st.integers(1, 20)), min_size=1, max_size=3),
    tried=st.lists(st.tuples(st.floats(0.5, 50.0), st.integers(1, 20)), max_size=2),
)
@settings(max_examples=50, deadline=None)
def test_what_is_told_of_sums_over_everybody_is_the_dearer_fold_exactly(
    learnt: list[tuple[float, int]], tried: list[tuple[float, int]]
) -> None:
    first, second = (tuple(sums(z, count) for z, count in fold) for fold in (learnt, tried))
    told = schedule_of((block(*first, held_out=second),))
    exact = max(fold_cost(first, 0).mu_squared, fold_cost(second, 0).mu_squared) / MU_UNIT
    assert told.mu_squared == pytest.approx(exact, rel=1e-8)
    # A price is rounded up to a whole unit.
    assert told.mu_squared >= exact - 1.0 / MU_UNIT
