"""From a request to an exact training: shares, folds, schedules, and nothing that is not public."""

from __future__ import annotations

from fractions import Fraction

import pytest

from tests.analyst.learning.clinics import request, study
from wardround.analyst.learning.planner import Outline, outline
from wardround.analyst.learning.request import StepSchedule
from wardround.federation.errors import QueryMistaken
from wardround.federation.models.training import StageKind, Step
from wardround.federation.plan.plan import Plan, price
from wardround.privacy.budget.filter import epsilon_charged
from wardround.privacy.noise.distribution import Mechanism

SITES = ("east", "north", "south", "west")
MOMENTS, PRODUCTS, GRADIENT, SCORES = StageKind.MOMENTS, StageKind.PRODUCTS, StageKind.GRADIENT, StageKind.SCORES
KINDS = (("logistic", "readmitted"), ("poisson", "stay"), ("linear", "stay"))


def outlined(*, sites: tuple[str, ...] = SITES, **changes: object) -> Outline:
    return outline(request(**changes), study(), sites=sites)


def stages(found: Outline) -> list[tuple[StageKind, int, int]]:
    return [(stage.kind, stage.rounds, stage.steps) for stage in found.training.stages]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [(MOMENTS, 1, 1), (PRODUCTS, 1, 1), (GRADIENT, 6, 1), (SCORES, 1, 1)]),
        ({"rounds": 4}, [(MOMENTS, 1, 1), (PRODUCTS, 1, 1), (GRADIENT, 3, 1), (SCORES, 1, 1)]),
        ({"validation_fraction": 0}, [(MOMENTS, 1, 1), (PRODUCTS, 1, 1), (GRADIENT, 6, 1)]),
        ({"standardise": "bounds"}, [(PRODUCTS, 1, 1), (GRADIENT, 6, 1), (SCORES, 1, 1)]),
        ({"kind": "linear", "target": "stay"}, [(MOMENTS, 1, 1), (PRODUCTS, 1, 1), (SCORES, 1, 1)]),
        (
            {"kind": "poisson", "target": "stay"},
            [(MOMENTS, 1, 1), (PRODUCTS, 1, 1), (GRADIENT, 6, 1), (SCORES, 1, 1)],
        ),
        (
            {"schedule": "local_steps", "rounds": 3, "local_steps": 4},
            [(MOMENTS, 1, 1), (GRADIENT, 3, 4), (SCORES, 1, 1)],
        ),
        ({"kind": "perceptron", "rounds": 5}, [(MOMENTS, 1, 1), (GRADIENT, 5, 1), (SCORES, 1, 1)]),
    ],
    ids=str,
)
def test_the_stages_of_each_kind(changes: dict[str, object], expected: list[tuple[StageKind, int, int]]) -> None:
    found = outlined(**changes)
    assert stages(found) == expected
    assert found.learning_rounds == sum(rounds for kind, rounds, _ in expected if kind in (PRODUCTS, GRADIENT))


@pytest.mark.parametrize("changes", [{}, {"standardise": "bounds"}, {"kind": "linear", "target": "stay"}], ids=str)
def test_the_shares_of_each_fold_are_the_whole(changes: dict[str, object]) -> None:
    plans = outlined(**changes).plans
    assert sum(plan.share for plan in plans if plan.kind is not SCORES) == 1
    assert [plan.share for plan in plans if plan.kind is SCORES] == [Fraction(1)]


@pytest.mark.parametrize(
    "changes",
    [{}, {"epsilon": 0.3, "delta": 1e-7}, {"kind": "linear", "target": "stay"}, {"kind": "perceptron", "rounds": 5}],
    ids=str,
)
def test_the_price_is_what_was_asked_and_not_much_less(changes: dict[str, object]) -> None:
    found = outlined(**changes)
    plan = Plan(
        study().study_hash,
        Step(found.training, 0, 0),
        Mechanism.DISCRETE_GAUSSIAN,
        (found.training.stages[0].scale,),
        SITES,
    )
    spent = epsilon_charged(price(plan, study()).cost, delta=found.loss.delta)
    assert 0.98 * found.loss.epsilon < spent <= found.loss.epsilon


def test_the_same_request_is_the_same_training() -> None:
    assert outlined().training == outlined().training
    assert outlined().training != outlined(epsilon=1.1).training


def test_sites_are_shown_only_where_they_must_be() -> None:
    assert not outlined().training.by_site
    assert outlined(by_site=True).training.by_site
    assert outlined(strategy="fedadam").training.by_site
    assert outlined(schedule="local_steps", rounds=2).training.by_site


def test_the_longest_gradient_is_chosen_by_kind_unless_it_is_given() -> None:
    assert [outlined(kind=kind, target=target).training.clip for kind, target in KINDS] == [0.5, 0.25, 1.0]
    assert outlined(clip=0.3).training.clip == 0.3


def test_a_batch_says_how_likely_a_patient_is_to_be_in_it() -> None:
    (gradient,) = [
        stage for stage in outlined(batch_size=128, patients=1024, rounds=9).training.stages if stage.kind is GRADIENT
    ]
    assert (gradient.rate, gradient.rounds) == (Fraction(1, 8), 9)


def test_products_that_would_be_noise_are_not_paid_for() -> None:
    """With few patients for its inputs a logistic model descends by samples instead."""
    assert PRODUCTS in [kind for kind, _, _ in stages(outlined(patients=100_000))]
    assert PRODUCTS not in [kind for kind, _, _ in stages(outlined(patients=40, rounds=8))]
    # Nobody said how many there are: the usual way.
    assert PRODUCTS in [kind for kind, _, _ in stages(outlined())]


def test_the_planner_says_which_schedule_fits_and_why() -> None:
    found = outlined()
    assert found.advice is not None
    once, alone = found.advice.pulls
    assert (once.schedule, alone.schedule) == (StepSchedule.SUM_PER_ROUND, StepSchedule.LOCAL_STEPS)
    assert found.schedule is found.advice.fits is StepSchedule.SUM_PER_ROUND
    assert once.patients < alone.patients
    assert once.over_signal is None
    assert "sum_per_round fits: the noise of one step weighs as much as" in found.advice.why
    assert outlined(kind="linear", target="stay").advice is None


def test_local_steps_fit_where_noise_is_small_and_steps_are_many() -> None:
    assert outlined(kind="perceptron", patients=5_000_000, batch_size=50_000).schedule is StepSchedule.LOCAL_STEPS
    assert outlined(kind="perceptron", patients=5_000, rounds=5).schedule is StepSchedule.SUM_PER_ROUND
    # Whoever asks for a schedule gets it, and still hears what would fit.
    asked = outlined(kind="perceptron", patients=5_000, schedule="local_steps", rounds=2)
    assert asked.schedule is StepSchedule.LOCAL_STEPS
    assert asked.advice is not None
    assert asked.advice.fits is StepSchedule.SUM_PER_ROUND


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"target": "age"}, "the target 'age' cannot be one of the features."),
        ({"target": "stay"}, "the target of a logistic model must be yes or no"),
        ({"features": ["agee"]}, "unknown column 'agee' in table 'visits'; did you mean 'age'?"),
        ({"features": ["code"]}, "the column 'code' has no public bounds or values"),
        ({"features": ["age", "age"]}, "each once"),
        ({"kind": "linear"}, "the target of a linear model must be a number with bounds"),
        ({"rounds": 1}, "a logistic model takes at least 2 rounds"),
        ({"delta": 1e-3}, "δ = 0.001 is above the study's δ = 1e-06; choose it at most that."),
        ({"kind": "perceptron", "standardise": "bounds"}, 'use standardise = "released" here.'),
    ],
    ids=str,
)
def test_what_cannot_be_trained_is_one_sentence(changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(QueryMistaken) as found:
        outlined(**changes)
    assert sentence in found.value.message
    assert "\n" not in found.value.message
