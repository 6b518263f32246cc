"""request.toml: everything that is wrong with one is one sentence, before anybody is asked."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from tests.analyst.learning.clinics import request, request_text, study
from wardround.analyst.learning.request import (
    Standardise,
    StepSchedule,
    TrainingRequest,
    model_of,
    parse_request,
    read_request,
    sharper,
    sound,
)
from wardround.federation.errors import ConfigurationMistaken, QueryMistaken
from wardround.federation.models.training import ModelKind
from wardround.federation.question.cohort import And, Comparison


def test_a_short_request_has_the_documented_defaults() -> None:
    found = request()
    assert found == TrainingRequest(
        ModelKind.LOGISTIC, "visits", "readmitted", ("age", "sbp", "sex", "smoker"), epsilon=1.0
    )
    assert (found.schedule, found.rounds, found.strategy, found.validation_fraction) == (None, None, "fedavg", 0.2)
    assert found.standardise is Standardise.RELEASED
    assert not found.shows_sites
    assert found.held_out == Fraction(round(0.2 * 2**32), 2**32)


def test_every_key_is_read() -> None:
    found = request(
        kind="perceptron",
        delta=1e-7,
        cohort="age >= 40",
        schedule="local_steps",
        rounds=5,
        strategy="fedadam",
        validation_fraction=0,
        standardise="bounds",
        hidden=4,
        batch_size=64,
        local_steps=3,
        patients=1000,
        clip=0.5,
        by_site=True,
    )
    assert found == TrainingRequest(
        ModelKind.PERCEPTRON,
        "visits",
        "readmitted",
        ("age", "sbp", "sex", "smoker"),
        1.0,
        1e-7,
        "age >= 40",
        StepSchedule.LOCAL_STEPS,
        5,
        "fedadam",
        0.0,
        Standardise.BOUNDS,
        4,
        64,
        3,
        1000,
        0.5,
        by_site=True,
    )


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"kind": "logit"}, "kind is 'logit'; did you mean 'logistic'?"),
        ({"kind": None}, "kind must be one of linear, logistic, poisson, perceptron."),
        ({"kind": 3}, "kind must be one of linear, logistic, poisson, perceptron."),
        ({"standardise": 3}, "standardise must be one of released, bounds."),
        ({"tabel": "visits", "table": None}, "unknown key 'tabel'; did you mean 'table'?"),
        ({"feature": ["age"]}, "unknown key 'feature'; did you mean 'features'?"),
        ({"learning_rate": 0.1}, "unknown key 'learning_rate'; known keys: "),
        ({"target": None}, "target must be a non-empty text."),
        ({"features": "age"}, "features must be a list of texts."),
        ({"features": []}, "features must name at least one column."),
        ({"epsilon": None}, "epsilon must be a number from 1e-06 to 1000."),
        ({"epsilon": 0}, "epsilon must be a number from 1e-06 to 1000."),
        ({"epsilon": True}, "epsilon must be a number from 1e-06 to 1000."),
        (
            {"delta": 0},
            "delta must be a number between 0 and 1: a training uses Gaussian noise, which needs one.",
        ),
        ({"rounds": 0}, "rounds must be a whole number from 1 to 1000."),
        ({"rounds": 2.5}, "rounds must be a whole number from 1 to 1000."),
        ({"schedule": "local"}, "schedule is 'local'; did you mean 'local_steps'?"),
        ({"standardise": "bound"}, "standardise is 'bound'; did you mean 'bounds'?"),
        ({"validation_fraction": 0.95}, "validation_fraction must be a number from 0 to 0.9."),
        ({"hidden": 4}, "hidden is for a perceptron; leave it out for a logistic model."),
        ({"kind": "perceptron", "hidden": 0}, "hidden must be a whole number from 1 to 256."),
        (
            {"schedule": "local_steps", "rounds": 1000, "local_steps": 1000},
            "rounds = 1000 times local_steps = 1000 is more than 100000 noised sums; take fewer of one.",
        ),
        ({"local_steps": 4}, 'local_steps needs schedule = "local_steps".'),
        ({"batch_size": 64}, "batch_size needs patients, a public guess"),
        ({"batch_size": 64, "patients": 10}, "batch_size = 64 is above patients = 10."),
        ({"by_site": 1}, "by_site must be true or false."),
        ({"cohort": ""}, "cohort must be a non-empty text."),
        ({"kind": "linear", "rounds": 7}, "a linear model is fitted from one round of sums; leave out rounds"),
        (
            {"kind": "linear", "schedule": "local_steps"},
            "a linear model is fitted from one round of sums; leave out sch",
        ),
        ({"kind": "linear", "strategy": "fedadam"}, "a linear model is fitted from the sum itself; leave out strategy"),
        ({"kind": "linear", "batch_size": 9, "patients": 99}, "a linear model is fitted to all patients at once"),
    ],
    ids=str,
)
def test_a_mistake_is_one_sentence_that_names_the_file(changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigurationMistaken) as found:
        request(**changes)
    assert found.value.message.startswith(f"request.toml: {sentence}")
    assert "\n" not in found.value.message
    assert found.value.exit_code == 2


@pytest.mark.parametrize("cohort", ["age >", "SELECT 1", "age > 'x", "age > 40; DROP TABLE visits"])
def test_a_cohort_that_cannot_be_read_is_told_as_a_condition(cohort: str) -> None:
    with pytest.raises(QueryMistaken) as found:
        model_of(request(cohort=cohort), study())
    assert found.value.message == (
        f"cohort = {cohort!r} cannot be read; write a condition as in WHERE, such as age >= 40 AND sex = 'F'."
    )


def test_a_file_that_is_not_there_or_is_no_toml_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationMistaken, match=r"nowhere\.toml does not exist"):
        read_request(tmp_path / "nowhere.toml")
    with pytest.raises(ConfigurationMistaken, match=r"request\.toml is not valid TOML"):
        parse_request("kind = logistic")


def test_a_request_made_in_python_meets_the_same_rules() -> None:
    with pytest.raises(QueryMistaken, match="epsilon must be a finite number above 0"):
        sharper(request(), epsilon=float("nan"), delta=None)
    with pytest.raises(QueryMistaken, match="hidden is for a perceptron"):
        sound(TrainingRequest(ModelKind.LOGISTIC, "visits", "readmitted", ("age",), 1.0, hidden=3))


def test_another_loss_changes_nothing_else() -> None:
    assert sharper(request(), epsilon=2.0, delta=1e-8) == request(epsilon=2.0, delta=1e-8)
    assert sharper(request(), epsilon=None, delta=None) == request()


def test_a_cohort_is_the_condition_of_a_question() -> None:
    model = model_of(request(cohort="age >= 40 AND sex = 'M'"), study())
    match model.cohort:
        case And((Comparison("age"), Comparison("sex"))):
            pass
        case other:
            pytest.fail(f"{other}")
    # Equal cohorts are one cohort, and so one training.
    assert model == model_of(request(cohort="40 <= age AND 'M' = sex"), study())


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"table": "visit"}, "unknown table 'visit'; did you mean 'visits'?"),
        ({"cohort": "agee > 3"}, "unknown column 'agee' in table 'visits'; did you mean 'age'?"),
        ({"cohort": "age >= 'old'"}, "age"),
        ({"cohort": "age >= (SELECT 1)"}, ""),
        ({"cohort": "age >="}, "cannot be read; write a condition as in WHERE"),
    ],
    ids=str,
)
def test_what_the_study_does_not_know_is_one_sentence(changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(QueryMistaken) as found:
        model_of(request(**changes), study())
    assert sentence in found.value.message


def test_the_text_of_a_request_is_what_these_tests_say() -> None:
    assert 'kind = "linear"' in request_text(kind="linear")
    assert "target" not in request_text(target=None)
