"""The table of errors in a dry run, and the sentence about a dearer noise, as text and as JSON."""

from __future__ import annotations

import dataclasses
import json

from wardround.analyst.showing.result import PreviewResult, Result
from wardround.analyst.tables.presentation import BoundQuestion
from wardround.federation.question.answer import (
    Answer,
    DearerNoise,
    ErrorCost,
    Estimate,
    ExpectedError,
    Loss,
    Preview,
    PrivacyStatement,
    Remaining,
    WhyDearer,
)
from wardround.federation.question.query import Aggregate, Query, Statistic

PLAN = "ab" * 32
PRIVACY = PrivacyStatement("discrete_gaussian", Loss(0.3, 1e-6), Loss(0.9, 1e-6), Remaining(2.0, 0.7), 1, "parallel")
QUERY = Query("encounters", (Aggregate(Statistic.COUNT), Aggregate(Statistic.MEAN, "sbp")))
USED_UP = DearerNoise("discrete_laplace", WhyDearer.USED_UP, 16.04, 45.2, 0)
COSTS = (
    ErrorCost((25.0, 0.25)),
    ErrorCost((50.0, 0.5), Loss(0.42, 0.0), "discrete_laplace", 0.14),
    ErrorCost((100.0, 1.0), Loss(0.2, 1e-6), "discrete_gaussian", 1.5),
)


def dry_run(dearer: DearerNoise | None = None) -> PreviewResult:
    expected = (ExpectedError("count", None, 1, 25.0, "", 0.5, 49.0), ExpectedError("mean", "sbp", 1, 0.2, "", 0.5))
    preview = Preview(PLAN, "patient", False, ("north",), expected, PRIVACY, dearer=dearer, by_error=COSTS)
    return PreviewResult(preview, QUERY)


def answered(dearer: DearerNoise | None) -> Result:
    estimate = Estimate("count", None, (), 1234.0, 23.0, (1189.0, 1279.0), 0.95, place=0)
    answer = Answer(PLAN, "patient", False, False, ("north",), (), (), (estimate,), PRIVACY, dearer=dearer)
    return Result(answer, BoundQuestion(QUERY))


def test_a_dry_run_shows_error_epsilon_and_share_of_what_is_left() -> None:
    lines = str(dry_run()).splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("error at 95 %"))
    assert [line.split("  ")[0] for line in lines[start + 2 : start + 5]] == [
        "COUNT(*) ± 25, AVG(sbp) ± 0.25",
        "COUNT(*) ± 50, AVG(sbp) ± 0.5",
        "COUNT(*) ± 100, AVG(sbp) ± 1",
    ]
    assert [line.split("  ")[-1].strip() for line in lines[start + 3 : start + 5]] == ["14 %", "more than is left"]
    assert lines[start + 2].endswith("cannot be had"), "no blanks at the end"
    tiny = dataclasses.replace(dry_run().preview.by_error[1], share=3e-8)
    shown = str(PreviewResult(dataclasses.replace(dry_run().preview, by_error=(tiny,)), QUERY))
    assert "  hardly any\n" in shown


def test_json_has_the_table_under_a_key_of_its_own() -> None:
    document = json.loads(json.dumps(dry_run().document(), allow_nan=False))
    assert document["by_error"][0] == {
        "errors": [25.0, 0.25],
        "epsilon": None,
        "delta": None,
        "mechanism": None,
        "share_of_remaining": None,
    }
    assert document["by_error"][1]["epsilon"] == 0.42
    assert [each["half_width"] for each in document["expected"]] == [49.0, None]
    assert "by_error" not in PreviewResult(dataclasses.replace(dry_run().preview, by_error=()), QUERY).document()


def test_a_dearer_noise_is_one_sentence_in_the_answer_and_the_dry_run() -> None:
    sentence = (
        "Laplace noise would have given COUNT(*) an error 2.82 times smaller, but its part of the budget was used up."
    )
    assert sentence in str(answered(USED_UP)).splitlines()
    assert sentence in str(dry_run(USED_UP)).splitlines()
    assert "would have" not in str(answered(None))
    document = answered(USED_UP).document()["dearer_noise"]
    assert document == {
        "mechanism": "discrete_laplace",
        "reason": "used_up",
        "of": "half_width",
        "aggregate": 0,
        "instead": 16.04,
        "actual": 45.2,
        "message": sentence,
    }
    assert "dearer_noise" not in answered(None).document()


def test_a_kind_that_the_question_does_not_fit_and_epsilons_have_their_own_words() -> None:
    too_large = DearerNoise("discrete_laplace", WhyDearer.DOES_NOT_FIT, 1.0, 2.0, 1)
    assert (
        "Laplace noise would have given AVG(sbp) an error 2 times smaller, "
        "but this question does not fit its part of the budget."
    ) in str(answered(too_large))
    without = DearerNoise("discrete_laplace", WhyDearer.USED_UP, 0.0, 2.0, 0)
    assert "Laplace noise would have given COUNT(*) no error, but " in str(answered(without))
    by_error = DearerNoise("discrete_gaussian", WhyDearer.USED_UP, 0.1, 0.25)
    assert "Gaussian noise would have cost ε = 0.1 instead of 0.25, but its part of the budget was used up." in str(
        answered(by_error)
    )
