"""Answers as a person, a data frame and a script read them."""

from __future__ import annotations

import dataclasses
import datetime
import json
import math

import pytest

from wardround.analyst.showing.documents import error_document
from wardround.analyst.showing.result import PreviewResult, Result
from wardround.analyst.tables.text_tables import MAX_LINES, decimals_for, interval_text, number_text, with_error
from wardround.federation.errors import BudgetExceeded, QueryMistaken
from wardround.federation.question.answer import (
    Answer,
    Estimate,
    ExpectedError,
    Loss,
    Preview,
    PrivacyStatement,
    Remaining,
    Shortfall,
)

PRIVACY = PrivacyStatement(
    mechanism="discrete_gaussian",
    charged=Loss(0.5, 1e-7),
    spent=Loss(0.9, 1e-6),
    remaining=Remaining(2.0, 0.7),
    overlap=1,
    composition="parallel",
)
ANSWER = Answer(
    plan_id="ab" * 32,
    unit="patient",
    replayed=False,
    noiseless=False,
    answered=("north", "st-mary"),
    refused=(("west", "BudgetExceeded"),),
    missing=("east",),
    estimates=(
        Estimate("count", None, (("diagnosis", "E11"),), 1234.567, 5.23, (1224.3, 1244.8), 0.95),
        Estimate("count", "patient_id", (("diagnosis", "I10"),), 12.0, 5.23, (1.7, 22.3), 0.95),
        Estimate("mean", "sbp", (("diagnosis", "E11"),), 131.2345, 0.0423, (131.15, 131.32), 0.95),
    ),
    privacy=PRIVACY,
)
PARAGRAPH = (
    "Protected: one patient, with all of the patient's rows, at up to 1 site, by discrete Gaussian noise added "
    "inside each site (parallel composition). This question cost ε = 0.5 at δ = 1e-07. The study has spent "
    "ε = 0.9 at δ = 1e-06; the largest next question has ε = 2 (70 % of the Gaussian budget is left)."
)
MEANING = (
    "What this can tell about whether one patient's rows are there: a belief of 1 % becomes at most 1.64 %, "
    "one of 50 % at most 62.2 % (ignoring a remainder of δ = 0.0000001)."
)
PREVIEW = Preview(
    plan_id="cd" * 32,
    unit="patient",
    replayed=False,
    sites=("north", "st-mary"),
    expected=(ExpectedError("mean", "sbp", 4, 0.1234, "for 40000 declared patients"),),
    privacy=PRIVACY,
)


def grouped(*groups: tuple[str, object]) -> Result:
    """One estimate for each value of one column."""
    estimates = tuple(
        Estimate("count", None, ((name, value),), 1.0, 0.5, (0.0, 2.0), 0.95)  # type: ignore[arg-type]
        for name, value in groups
    )
    return Result(dataclasses.replace(ANSWER, estimates=estimates))


WITHOUT = (
    "Without east (no answer) and west (refused): 2 of 4 hospitals answered, "
    "and the numbers are about their patients alone."
)


def test_the_first_line_the_document_and_the_picture_say_how_many_patients_are_missing() -> None:
    lacking = Result(dataclasses.replace(ANSWER, asked_patients=5000, lacking_patients=2100))
    words = "2100 of 5000 declared patients are missing"
    assert str(lacking).splitlines()[0] == f"{WITHOUT.removesuffix('.')}: {words}."
    sites = lacking.document()["sites"]
    assert isinstance(sites, dict)
    assert (sites["lacking_patients"], sites["asked_patients"]) == (2100, 5000)
    assert words in lacking.plot().get_title(loc="left").replace("\n", " ")
    # A coordinator of an earlier version does not tell.
    before = Result(ANSWER).document()["sites"]
    assert isinstance(before, dict)
    assert "lacking_patients" not in before


def test_an_answer_prints_as_a_table_with_errors_and_its_price() -> None:
    assert str(Result(ANSWER, cap=3.0)).splitlines() == [
        WITHOUT,
        "",
        "diagnosis      COUNT(*)  COUNT(DISTINCT patient_id)         AVG(sbp)",
        "────────────────────────────────────────────────────────────────────",
        "E11        1234.6 ± 5.2                           –  131.234 ± 0.042",
        "I10                   –                  12.0 ± 5.2                –",
        "",
        "Answered: north, st-mary. Refused: west (its own budget does not allow the question). Missing: east.",
        "± is one standard error: it covers the noise, not sampling error.",
        (
            "this question: ε = 0.5 (δ = 10⁻⁷); in all 0.9 of 3 (δ = 10⁻⁶, per patient, not a plain sum); "
            "noise: Gaussian, at each hospital"
        ),
    ]
    assert repr(Result(ANSWER)) == str(Result(ANSWER))


def test_the_long_form_has_an_estimate_a_line_and_everything_about_it() -> None:
    assert Result(ANSWER).text(long=True).splitlines() == [
        WITHOUT,
        "",
        "diagnosis  statistic                          estimate       95 % interval",
        "──────────────────────────────────────────────────────────────────────────",
        "E11        COUNT(*)                       1234.6 ± 5.2    [1224.3, 1244.8]",
        "I10        COUNT(DISTINCT patient_id)       12.0 ± 5.2         [1.7, 22.3]",
        "E11        AVG(sbp)                    131.234 ± 0.042  [131.150, 131.320]",
        "",
        "Answered: north, st-mary. Refused: west (its own budget does not allow the question). Missing: east.",
        PARAGRAPH,
        MEANING,
        "The error and the interval cover the noise, not sampling error.",
    ]


def test_all_about_privacy_is_told_when_asked() -> None:
    result = Result(ANSWER)
    assert result.explain().splitlines() == [PARAGRAPH, MEANING]
    assert result.text(explain=True) == f"{result}\n{result.explain()}"


def test_a_replayed_answer_says_that_it_cost_nothing_again() -> None:
    text = str(Result(dataclasses.replace(ANSWER, replayed=True)))
    assert "this question: ε = 0.5 (δ = 10⁻⁷), paid before (this is the stored answer and costs nothing now);" in text
    assert "asking again cost nothing" in Result(dataclasses.replace(ANSWER, replayed=True)).explain()


def test_a_noiseless_answer_says_that_it_is_not_private() -> None:
    text = str(Result(dataclasses.replace(ANSWER, noiseless=True)))
    assert "NO NOISE" in text
    assert "this question" not in text
    assert Result(dataclasses.replace(ANSWER, noiseless=True)).explain().startswith("NO NOISE")


def test_an_event_level_answer_does_not_claim_to_protect_a_patient() -> None:
    result = Result(dataclasses.replace(ANSWER, unit="event"))
    assert "(δ = 10⁻⁶, per event, not per patient, not a plain sum)" in str(result)
    assert "one event (one row), not one patient" in result.explain()


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (1234.567, 5.23, "1234.6 ± 5.2"),
        (131.2345, 0.0423, "131.234 ± 0.042"),
        (1234567.8, 52.3, "1234568 ± 52"),
        (1234567.8, 4321.0, "1234568 ± 4321"),
        (0.5, 0.00012345, "0.50000 ± 0.00012"),
        (-3.0, 1.0, "-3.0 ± 1.0"),
        (7.0, 0.0, "7"),
        (131.25, 0.0, "131.25"),
        (1.0, math.inf, "1 ± inf"),
        (1.0, 1e-30, "1.000000000000 ± 0.000000000000"),
    ],
)
def test_digits_follow_the_error(value: float, error: float, text: str) -> None:
    assert with_error(value, error) == text


def test_an_exact_interval_is_its_value() -> None:
    assert interval_text((7.0, 7.0), 0.0) == "[7, 7]"
    assert [number_text(number, digits=3) for number in (50999.0, -1234.5, 0.01234, 5e307)] == [
        "51000",
        "-1230",
        "0.0123",
        "5e+307",
    ]
    assert decimals_for(math.nan) == 0


def test_an_answer_without_estimates_still_prints() -> None:
    empty = Result(dataclasses.replace(ANSWER, estimates=(), answered=()))
    assert len(empty) == 0
    assert "Answered: no site." in str(empty)
    assert "<table " in empty._repr_html_()
    assert empty.to_pandas().empty
    assert empty.to_arrow().num_rows == 0


def test_a_long_answer_is_cut_in_print_and_whole_elsewhere() -> None:
    result = grouped(*[("month", number) for number in range(MAX_LINES + 5)])
    assert "… and 5 more rows" in str(result)
    assert "… and 5 more rows" in result._repr_html_()
    assert len(result) == len(result.to_pandas()) == MAX_LINES + 5


def test_many_sites_are_listed_shortly() -> None:
    names = tuple(f"site-{number}" for number in range(100))
    assert "site-7 and 92 more." in str(Result(dataclasses.replace(ANSWER, answered=names)))


def test_a_result_is_a_sequence_of_estimates() -> None:
    result = Result(ANSWER)
    assert tuple(result) == result.estimates == ANSWER.estimates
    assert len(result) == 3
    assert result.privacy is PRIVACY


EVIL = "<script>alert('x')</script>&\"\x1b[31m"


def test_html_escapes_everything_that_others_wrote() -> None:
    evil = grouped((EVIL, EVIL)).answer
    evil = dataclasses.replace(evil, answered=(EVIL,), refused=((EVIL, EVIL),), missing=(EVIL,), unit=EVIL)
    evil = dataclasses.replace(evil, privacy=dataclasses.replace(PRIVACY, mechanism=EVIL, composition=EVIL))
    expected = (ExpectedError("count", EVIL, 1, 1.0, EVIL),)
    preview = Preview(EVIL, EVIL, replayed=False, sites=(EVIL,), expected=expected, privacy=evil.privacy)
    for shown in (Result(evil), PreviewResult(preview)):
        html = shown._repr_html_()
        assert "<script" not in html
        assert "&lt;script&gt;" in html


def test_a_cell_cannot_rewrite_the_terminal() -> None:
    table = str(grouped(("key", EVIL))).split("\n\n")[0]
    assert "\x1b" not in table


def test_the_document_of_an_answer_is_the_contract() -> None:
    document = json.loads(json.dumps(Result(ANSWER).document(), allow_nan=False))
    assert document == {
        "plan_id": "ab" * 32,
        "unit": "patient",
        "replayed": False,
        "noiseless": False,
        "sites": {
            "answered": ["north", "st-mary"],
            "refused": {"west": "BudgetExceeded"},
            "missing": ["east"],
            "left_out": [],
            "reasons": {"west": "its own budget does not allow the question"},
        },
        "estimates": [
            {
                "statistic": "count",
                "column": None,
                "group": {"diagnosis": "E11"},
                "value": 1234.567,
                "standard_error": 5.23,
                "interval": [1224.3, 1244.8],
                "confidence": 0.95,
                "term": None,
                "sampling": False,
                "reason": None,
            },
            {
                "statistic": "count",
                "column": "patient_id",
                "group": {"diagnosis": "I10"},
                "value": 12.0,
                "standard_error": 5.23,
                "interval": [1.7, 22.3],
                "confidence": 0.95,
                "term": None,
                "sampling": False,
                "reason": None,
            },
            {
                "statistic": "mean",
                "column": "sbp",
                "group": {"diagnosis": "E11"},
                "value": 131.2345,
                "standard_error": 0.0423,
                "interval": [131.15, 131.32],
                "confidence": 0.95,
                "term": None,
                "sampling": False,
                "reason": None,
            },
        ],
        "privacy": {
            "mechanism": "discrete_gaussian",
            "charged": {"epsilon": 0.5, "delta": 1e-7},
            "spent": {"epsilon": 0.9, "delta": 1e-6},
            "remaining": {"epsilon": 2.0, "fraction": 0.7},
            "overlap": 1,
            "composition": "parallel",
            "adjacency": "add or remove all rows of one patient, at all of the patient's sites",
            "meaning": {
                "posterior": [
                    {"prior": 0.01, "at_most": pytest.approx(0.016380, abs=1e-6)},
                    {"prior": 0.1, "at_most": pytest.approx(0.154828, abs=1e-6)},
                    {"prior": 0.5, "at_most": pytest.approx(0.622459, abs=1e-6)},
                ],
                "bits": pytest.approx(0.721348, abs=1e-6),
            },
        },
    }


def test_a_document_holds_dates_as_text_and_no_infinity() -> None:
    endless = Estimate(
        "mean", "sbp", (("day", datetime.date(2026, 1, 31)),), 1.0, math.inf, (-math.inf, math.nan), 0.95
    )
    document = Result(dataclasses.replace(ANSWER, estimates=(endless,))).document()
    estimate = json.loads(json.dumps(document, allow_nan=False))["estimates"][0]
    assert estimate["group"] == {"day": "2026-01-31"}
    assert estimate["standard_error"] is None
    assert estimate["interval"] == [None, None]


@pytest.mark.parametrize(
    ("remaining", "sentence"),
    [
        (0.2, "It would be refused: ε = 0.2 remains, 0.3 too little."),
        (0.6, "It would be refused: ε = 0.6 remains, but not for noise of this kind."),
    ],
)
def test_a_preview_that_does_not_fit_says_by_how_much(remaining: float, sentence: str) -> None:
    preview = dataclasses.replace(PREVIEW, excess=Shortfall(0.5, remaining))
    assert sentence in str(PreviewResult(preview)).splitlines()
    refusal = PreviewResult(preview).document()["refusal"]
    assert refusal == error_document(BudgetExceeded(asked=0.5, remaining=remaining))["error"]
    assert (PreviewResult(PREVIEW).document()["refusal"], "refused" in str(PreviewResult(PREVIEW))) == (None, False)


def test_the_document_of_a_preview_says_what_it_would_cost() -> None:
    document = json.loads(json.dumps(PreviewResult(PREVIEW).document(), allow_nan=False))
    assert document["dry_run"] is True
    assert document["sites"] == {"asked": ["north", "st-mary"]}
    assert document["expected"] == [
        {
            "statistic": "mean",
            "column": "sbp",
            "groups": 4,
            "standard_error": 0.1234,
            "note": "for 40000 declared patients",
            "share": 1.0,
            "half_width": None,
        }
    ]
    assert document["privacy"]["charged"] == {"epsilon": 0.5, "delta": 1e-7}


def test_a_preview_prints_the_expected_error_and_that_nothing_was_spent() -> None:
    text = str(PreviewResult(PREVIEW))
    assert "± 0.123" in text
    assert "± is one standard error; half of a 95 % interval is about twice that." in text
    assert "\n± of AVG(sbp) is for 40000 declared patients.\n" in text, "below the table, which stays narrow"
    assert "this question would cost ε = 0.5 (δ = 10⁻⁷); so far 0.9 (δ = 10⁻⁶, per patient, not a plain sum); " in text
    assert "This question would cost ε = 0.5 at δ = 1e-07. The study has spent" in PreviewResult(PREVIEW).explain()
    assert text.endswith("nothing was asked of a site and nothing was spent.")
    again = str(PreviewResult(dataclasses.replace(PREVIEW, replayed=True)))
    assert "asking it again would cost nothing" in again


def test_an_error_document_has_the_numbers_of_a_short_budget_and_nothing_private() -> None:
    short = BudgetExceeded(asked=1.0, remaining=0.4, private="canary")
    document = error_document(short)
    assert document == {
        "error": {
            "code": "BudgetExceeded",
            "message": "The question asks for ε = 1 but ε = 0.4 remains, 0.6 too little; nothing was charged.",
            "asked": 1.0,
            "remaining": 0.4,
            "difference": 0.6,
            "charged": 0,
        }
    }
    assert "canary" not in json.dumps(document)
    mistaken = error_document(QueryMistaken("no such column.", private="canary"))
    assert mistaken == {"error": {"code": "QueryMistaken", "message": "no such column."}}


def test_an_error_document_of_an_endless_question_is_still_json() -> None:
    document = error_document(BudgetExceeded(asked=math.inf, remaining=0.4))
    assert json.loads(json.dumps(document, allow_nan=False))["error"]["asked"] is None
