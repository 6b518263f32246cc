"""From ε and δ to the noise of a training: never above what was asked, and hardly below."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction

import dp_accounting
import pytest
from dp_accounting.pld import pld_privacy_accountant
from hypothesis import given, settings
from hypothesis import strategies as st

from wardround.federation.errors import QueryMistaken
from wardround.federation.models.step_layout import LENGTH, step_form
from wardround.federation.models.training import Model, ModelKind, StageKind, Step, Training
from wardround.federation.plan.plan import Plan, folds_of, price
from wardround.federation.plan.training_budget import StagePlan, cost_of, exact_training
from wardround.federation.study.study import Column, ColumnType, Study, Table, Unit
from wardround.privacy.accounting.cost import SLACK_UNIT, Cost
from wardround.privacy.budget.calibration import mu_squared_units
from wardround.privacy.budget.facts import fold_cost
from wardround.privacy.budget.filter import Cap, admits, epsilon_charged
from wardround.privacy.budget.parallel import in_parallel
from wardround.privacy.noise.distribution import Mechanism

MOMENTS, PRODUCTS, GRADIENT, SCORES = StageKind.MOMENTS, StageKind.PRODUCTS, StageKind.GRADIENT, StageKind.SCORES
COLUMNS = (
    Column("age", ColumnType.INTEGER, Fraction(0), Fraction(120)),
    Column("female", ColumnType.BOOLEAN),
    Column("died", ColumnType.BOOLEAN),
)
LOGISTIC = Model(ModelKind.LOGISTIC, "stays", "died", ("age", "female"))
PERCEPTRON = Model(ModelKind.PERCEPTRON, "stays", "died", ("age", "female"), hidden=8)
WHOLE = (
    StagePlan(MOMENTS, Fraction(1, 10)),
    StagePlan(PRODUCTS, Fraction(2, 10)),
    StagePlan(GRADIENT, Fraction(7, 10), rounds=6),
    StagePlan(SCORES, Fraction(1)),
)


def share_of(rate: float) -> Fraction:
    return Fraction(round(rate * 2**32), 2**32)


SAMPLED = (
    StagePlan(MOMENTS, Fraction(1, 10)),
    StagePlan(GRADIENT, Fraction(9, 10), rounds=60, rate=share_of(0.25)),
    StagePlan(SCORES, Fraction(1)),
)


def study(epsilon: float = 3.0, delta: float = 1e-6, pure: float = 0.0) -> Study:
    table = Table("stays", "patient", 4, 3, COLUMNS)
    return Study("s", Unit.PATIENT, 3, Cap(epsilon, delta, pure), (table,), 1, 60.0, 60.0)


def made(
    plan: Sequence[StagePlan],
    *,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    overlap: int = 1,
    agreed: Study | None = None,
    model: Model = PERCEPTRON,
) -> Training:
    tried = any(one.kind is SCORES for one in plan)
    return exact_training(
        model,
        study() if agreed is None else agreed,
        epsilon=epsilon,
        delta=delta,
        overlap=overlap,
        plan=plan,
        held_out=Fraction(1, 4) if tried else Fraction(0),
        clip=1.0,
        by_site=False,
    )


def multiplier(training: Training, kind: StageKind) -> float:
    (stage,) = (stage for stage in training.stages if stage.kind is kind)
    return float(stage.scale / LENGTH)


def whole_loss(training: Training, overlap: int, delta: float) -> float:
    cost = cost_of(training, 2)
    return epsilon_charged(in_parallel([cost] * 5, overlap=overlap), delta=delta)


@pytest.mark.parametrize("overlap", [1, 3])
@pytest.mark.parametrize(("plan", "model"), [(WHOLE, LOGISTIC), (SAMPLED, PERCEPTRON)])
def test_the_price_of_every_round_is_what_was_asked_over_all_sites_of_a_patient(
    plan: Sequence[StagePlan], model: Model, overlap: int
) -> None:
    agreed, training = study(), made(plan, overlap=overlap, model=model)
    step = Step(training, 0, 0)
    plans = Plan(
        agreed.study_hash, step, Mechanism.DISCRETE_GAUSSIAN, (training.stages[0].scale,), ("a", "b", "c", "d")
    )
    cost = price(plans, agreed).cost
    assert cost == cost_of(training, 2)
    told = in_parallel([cost] * 4, overlap=overlap)
    assert told.mu_squared <= mu_squared_units(epsilon=1.0, delta=1e-6)
    assert told.slack <= 1e-9 * SLACK_UNIT
    assert 0.9999 <= epsilon_charged(told, delta=1e-6) <= 1.0
    # A site would take it: every stage and the rounds of each are ones that a step can have.
    assert step_form(step, agreed).dimension == 5


@pytest.mark.parametrize("overlap", [1, 3])
def test_each_fold_spends_its_share_and_hardly_less(overlap: int) -> None:
    training = made(SAMPLED, overlap=overlap)
    asked = mu_squared_units(epsilon=1.0, delta=1e-6) // overlap
    learnt, tried = folds_of(training, 2)
    assert 0.998 * asked < fold_cost(learnt, training.slack).mu_squared <= asked
    assert 0.999999 * asked < fold_cost(tried, training.slack).mu_squared <= asked
    moments, gradient = (fold_cost((stage,), training.slack).mu_squared for stage in learnt)
    assert moments == pytest.approx(0.1 * asked, rel=1e-6)
    assert 0.998 * 0.9 * asked < gradient <= 0.9 * asked
    # One number of few digits less would be too little noise.
    narrower = tuple(dataclasses.replace(stage, scale=stage.scale * Fraction(2047, 2048)) for stage in training.stages)
    rounded = tuple(dataclasses.replace(stage, scale=Fraction(int(stage.scale * 1024), 1024)) for stage in narrower)
    learnt, _ = folds_of(dataclasses.replace(training, stages=rounded), 2)
    assert fold_cost(learnt[1:], training.slack).mu_squared > 0.9 * asked


def test_a_thousand_sampled_steps_have_the_noise_that_the_world_knows() -> None:
    # By its exact loss distribution z = 1 costs ε = 1.828 (mission D6); the filter asks for a Gaussian that hides
    # no more anywhere, which takes 3 % more noise.
    plan = (StagePlan(GRADIENT, Fraction(1), rounds=1000, rate=share_of(0.01)),)
    training = made(plan, epsilon=1.828, delta=1e-5, agreed=study(1.828, 1e-5))
    z = multiplier(training, GRADIENT)
    assert 1.0 < z < 1.04
    reference = pld_privacy_accountant.PLDAccountant(value_discretization_interval=1e-3)
    reference.compose(dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(z)), 1000)
    assert 1.65 < reference.get_epsilon(1e-5) < 1.828


@given(
    weights=st.lists(st.tuples(st.integers(1, 100), st.integers(1, 2000)), min_size=1, max_size=5),
    kept=st.integers(1, 10),
    # Below it, thousands of sums are so quiet that the ledger's whole units are coarse, or there is no such noise.
    epsilon=st.floats(0.2, 20.0),
    delta=st.floats(1e-9, 1e-3),
    overlap=st.integers(1, 5),
)
@settings(max_examples=60, deadline=None)
def test_whatever_the_shares_a_training_is_within_what_was_asked(
    weights: list[tuple[int, int]], kept: int, epsilon: float, delta: float, overlap: int
) -> None:
    whole = sum(weight for weight, _ in weights)
    plan = [StagePlan(GRADIENT, Fraction(weight * kept, whole * 10), rounds=rounds) for weight, rounds in weights]
    training = made(plan, epsilon=epsilon, delta=delta, overlap=overlap, model=LOGISTIC)
    cost = cost_of(training, 2)
    asked = mu_squared_units(epsilon=epsilon, delta=delta)
    assert cost.mu_squared * overlap <= asked
    assert cost.mu_squared * overlap >= 0.99 * asked * kept / 10
    assert whole_loss(training, overlap, delta) <= epsilon
    assert training.slack == 0


@given(
    rate=st.floats(0.05, 0.9),
    rounds=st.integers(1, 100),
    moments=st.integers(1, 9),
    epsilon=st.floats(0.2, 5.0),
    overlap=st.integers(1, 4),
)
@settings(max_examples=12, deadline=None)
def test_whatever_the_samples_a_training_is_within_what_was_asked(
    rate: float, rounds: int, moments: int, epsilon: float, overlap: int
) -> None:
    plan = (
        StagePlan(MOMENTS, Fraction(moments, 10)),
        StagePlan(GRADIENT, 1 - Fraction(moments, 10), rounds, 1, share_of(rate)),
    )
    training = made(plan, epsilon=epsilon, overlap=overlap, agreed=study(5.0))
    assert 0.999 * epsilon < whole_loss(training, overlap, 1e-6) <= epsilon


def test_sampled_stages_have_one_noise_and_the_same_request_is_the_same_training() -> None:
    plan = (
        StagePlan(GRADIENT, Fraction(1, 3), rounds=5, steps=10, rate=share_of(0.1)),
        StagePlan(GRADIENT, Fraction(2, 3), rounds=20, rate=share_of(0.2)),
    )
    training = made(plan)
    assert training.stages[0].scale == training.stages[1].scale
    fold_cost.cache_clear()
    assert made(plan) == training
    # Few leading digits: the last places of a machine's arithmetic do not choose the training.
    multiple = int(training.stages[0].scale * 1024)
    assert multiple % (1 << (multiple.bit_length() - 12)) == 0


def test_as_many_trainings_fit_a_study_as_its_loss_admits() -> None:
    agreed = study(2.0, 1e-6)
    allowance, spent, times = agreed.cap.allowance(), Cost.zero(), 0
    cost = cost_of(made(SAMPLED, epsilon=0.5, agreed=agreed), 2)
    while admits(allowance, spent, cost):
        spent, times = spent + cost, times + 1
    # The slack runs out after the loss, never before.
    assert times == allowance.mu_squared // cost.mu_squared > 5
    assert spent.slack <= allowance.slack
    # With a lane for pure losses the other lane has its part of the slack.
    half = cost_of(made(SAMPLED, epsilon=0.5, agreed=study(2.0, 1e-6, pure=1.0)), 2)
    assert (
        half.slack * (study(2.0, 1e-6, pure=1.0).cap.allowance().mu_squared // half.mu_squared) <= allowance.slack / 2
    )


@pytest.mark.parametrize(
    ("plan", "epsilon", "delta", "sentence"),
    [
        ((StagePlan(GRADIENT, Fraction(1), rounds=100_000),), 1e-7, 1e-6, "ε = 1e-07 is too small"),
        ((StagePlan(GRADIENT, Fraction(1), rounds=100),), 1e-10, 1e-6, "ε = 1e-10 is too small"),
        ((StagePlan(GRADIENT, Fraction(1), rounds=100, rate=share_of(0.9)),), 1e-6, 1e-6, "ε = 1e-06 is too small"),
        ((StagePlan(GRADIENT, Fraction(1), rounds=100, rate=share_of(0.5)),), 1.0, 1e-11, "δ is too small"),
        ((StagePlan(GRADIENT, Fraction(1), rounds=100_000),), 1.0, 1e-15, "needs an ε above 0 and a δ"),
        (WHOLE, 0.0, 1e-6, "needs an ε above 0"),
        (WHOLE, math.nan, 1e-6, "needs an ε above 0"),
        (WHOLE, math.inf, 1e-6, "needs an ε above 0"),
        (WHOLE, 1.0, 0.0, "needs an ε above 0"),
        ((), 1.0, 1e-6, "needs a stage"),
        ((StagePlan(GRADIENT, Fraction(1), rounds=0),), 1.0, 1e-6, "a round, a step and a rate"),
        ((StagePlan(GRADIENT, Fraction(1), rate=Fraction(0)),), 1.0, 1e-6, "a rate above 0"),
        ((StagePlan(GRADIENT, Fraction(0)),), 1.0, 1e-6, "shares"),
        ((StagePlan(GRADIENT, Fraction(2, 3)), StagePlan(PRODUCTS, Fraction(1, 2))), 1.0, 1e-6, "shares"),
    ],
)
def test_a_training_that_no_noise_can_make_is_refused_in_one_sentence(
    plan: Sequence[StagePlan], epsilon: float, delta: float, sentence: str
) -> None:
    with pytest.raises(QueryMistaken, match=sentence):
        made(plan, epsilon=epsilon, delta=delta)


def test_numbers_that_need_more_slack_than_there_is_are_refused() -> None:
    wide = dataclasses.replace(PERCEPTRON, hidden=256)
    plan = (StagePlan(GRADIENT, Fraction(1), rounds=100_000),)
    with pytest.raises(QueryMistaken, match="too small for so many numbers"):
        made(plan, epsilon=100.0, delta=1e-12, overlap=20, model=wide)


def test_a_model_cannot_be_tried_on_nobody() -> None:
    with pytest.raises(QueryMistaken, match="hold some out"):
        exact_training(
            LOGISTIC,
            study(),
            epsilon=1.0,
            delta=1e-6,
            overlap=1,
            plan=WHOLE,
            held_out=Fraction(0),
            clip=1.0,
            by_site=False,
        )
