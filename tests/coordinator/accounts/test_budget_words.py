"""The privacy report as a person, a script and a picture have it."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from protos import words
from tests.coordinator.hospitals import study
from wardround.analyst.showing.budget import BudgetResult
from wardround.analyst.showing.documents import answer_document
from wardround.analyst.showing.interpretation import answer_meaning, date_text
from wardround.federation.errors import MalformedMessage
from wardround.federation.question.answer import Answer, Loss, PrivacyStatement, Remaining
from wardround.federation.question.study_budget import BudgetReport, ByOverlap, SiteBudget, Spending, Statement
from wardround.federation.study.study import Study

STUDY = study(overlap='1\ngroups = [{ sites = ["north", "west"], overlap = 2 }]')
DAY = 86_400.0
REPORT = BudgetReport(
    study="cardio",
    unit="patient",
    overlap=2,
    cap=Loss(3.0, 1e-6),
    spent=Loss(0.8, 1e-6),
    remaining=Remaining(2.0, 0.7),
    accountants=(("basic", 1.5), ("zcdp", math.inf), ("pld", 0.75)),
    sites=(SiteBudget("north", Loss(0.8, 1e-6), frozen=False), SiteBudget("west", Loss(0.1, 1e-6), frozen=True)),
    events=12,
    by_overlap=ByOverlap(0.5, 0.8, 1.25),
    statements=(
        Statement("cap", 3.0, guarantee=True),
        Statement("filter", 0.8, guarantee=True),
        Statement("basic", 1.5, guarantee=False),
        Statement("zcdp", math.inf, guarantee=False),
        Statement("pld", 0.75, guarantee=False),
    ),
    history=(Spending(1.7e9, 4, 0.4), Spending(1.7e9 + DAY, 8, 0.6), Spending(1.7e9 + 10 * DAY, 12, 0.8)),
)
EVENTS = dataclasses.replace(REPORT, unit="event")
PRIVACY = PrivacyStatement("discrete_gaussian", Loss(0.8, 1e-6), Loss(0.9, 1e-6), Remaining(2.0, 0.7), 1, "parallel")


def event_study(**changes: object) -> Study:
    return study(overlap='1\nunit = "event"', **changes)


WORDS = (
    "Study cardio. Spent so far: ε = 0.8 of 3 (at δ = 1e-06), in 12 charges; the largest next question "
    "has ε = 2 (70 % of the Gaussian budget is left).\n"
    "Protected: one patient, with all of the patient's rows, at up to 2 sites; declared to share "
    "patients: north, west (at up to 2).\n"
    "Adjacency (the change that answers must hide): add or remove all rows of one patient, at "
    "all of the patient's sites.\n"
    "If no patient were at two sites, ε = 0.5 would be spent; as declared, 0.8; if any patient could be "
    "at every site, 1.25.\n"
    "The cap holds even if each question was chosen after reading earlier answers. So does the ε that is "
    "spent, for any questions that together charge no more.\n"
    "If all questions had been fixed before the first answer, the accountants would say: ε = 1.5 (basic), "
    "none (zcdp), 0.75 (pld). They never decide whether a question may run.\n"
    "\n"
    "belief that a patient's rows are there, before  after what is spent  after the whole cap\n"
    "────────────────────────────────────────────────────────────────────────────────────────\n"
    "1 %                                                           2.2 %               16.9 %\n"
    "10 %                                                         19.8 %               69.1 %\n"
    "50 %                                                           69 %               95.3 %\n"
    "bits learnt, at worst                                          1.15                 4.33\n"
    "The bounds ignore a remainder of δ = 0.000001: the answers are within that distance of ones for "
    "which they always hold. It is not a chance of failure: the loss exceeds ε more often than δ, mostly by little. "
    "To tell apart what the rows say, rather than whether they are there, ε counts twice.\n"
    "\n"
    "site   state   spent ε   at δ\n"
    "─────────────────────────────\n"
    "north  active      0.8  1e-06\n"
    "west   frozen      0.1  1e-06"
)


def test_the_report_in_plain_words() -> None:
    assert str(BudgetResult(REPORT, STUDY)) == WORDS
    assert repr(BudgetResult(REPORT, STUDY)) == str(BudgetResult(REPORT, STUDY))


def test_the_document_is_the_contract_and_says_what_it_means() -> None:
    document = json.loads(json.dumps(BudgetResult(REPORT, STUDY).document(), allow_nan=False))
    meaning = document.pop("meaning")
    assert meaning["posterior"] == [
        {"prior": 0.01, "at_most": pytest.approx(0.0220, abs=5e-5)},
        {"prior": 0.1, "at_most": pytest.approx(0.1983, abs=5e-5)},
        {"prior": 0.5, "at_most": pytest.approx(0.6900, abs=5e-5)},
    ]
    assert meaning["bits"] == pytest.approx(0.8 / math.log(2))
    assert meaning["at_cap"]["posterior"][2] == {"prior": 0.5, "at_most": pytest.approx(0.9526, abs=5e-5)}
    assert document == {
        "study": "cardio",
        "unit": "patient",
        "overlap": 2,
        "cap": {"epsilon": 3.0, "delta": 1e-6},
        "spent": {"epsilon": 0.8, "delta": 1e-6},
        "remaining": {"epsilon": 2.0, "fraction": 0.7},
        "accountants": {"basic": 1.5, "zcdp": None, "pld": 0.75},
        "sites": {
            "north": {"spent": {"epsilon": 0.8, "delta": 1e-6}, "frozen": False, "state": "active"},
            "west": {"spent": {"epsilon": 0.1, "delta": 1e-6}, "frozen": True, "state": "frozen"},
        },
        "events": 12,
        "adjacency": "add or remove all rows of one patient, at all of the patient's sites",
        "groups": [{"sites": ["north", "west"], "overlap": 2}],
        "overlaps": {"1": 0.5, "declared": 0.8, "all": 1.25},
        "statements": [
            {"name": "cap", "epsilon": 3.0, "kind": "guarantee"},
            {"name": "filter", "epsilon": 0.8, "kind": "guarantee"},
            {"name": "basic", "epsilon": 1.5, "kind": "descriptive"},
            {"name": "zcdp", "epsilon": None, "kind": "descriptive"},
            {"name": "pld", "epsilon": 0.75, "kind": "descriptive"},
        ],
        "history": [
            {"date": "2023-11-14T22:13:20Z", "charges": 4, "epsilon": 0.4},
            {"date": "2023-11-15T22:13:20Z", "charges": 8, "epsilon": 0.6},
            {"date": "2023-11-24T22:13:20Z", "charges": 12, "epsilon": 0.8},
        ],
    }


def test_a_tenth_of_epsilon_is_a_seventh_of_a_bit() -> None:
    small = dataclasses.replace(REPORT, spent=Loss(0.1, 0.0), cap=Loss(3.0, 0.0))
    assert BudgetResult(small, STUDY).document()["meaning"]["bits"] == pytest.approx(0.144, abs=5e-4)  # type: ignore[index,call-overload]
    text = str(BudgetResult(small, STUDY))
    assert ["bits", "learnt,", "at", "worst", "0.144", "4.33"] in [line.split() for line in text.splitlines()]
    assert "The bounds hold for every outcome (pure ε). To tell apart what the rows say" in text
    assert "remainder" not in text


def test_no_sentence_calls_delta_a_probability() -> None:
    text = str(BudgetResult(REPORT, STUDY)) + answer_meaning("patient", PRIVACY)
    assert "probab" not in text
    assert "not a chance of failure" in text
    assert text.count("chance") == 1


def test_an_event_level_study_says_what_is_left_for_a_patient() -> None:
    result = BudgetResult(EVENTS, event_study())
    text, document = str(result), result.document()
    grown = 1e-6 * math.expm1(3.2) / math.expm1(0.8)
    assert f"For a patient with 4 events that is ε = 3.2 at δ = {grown:.3g} so far, and ε = 12 at δ = 0.00853" in text
    assert "belief that an event is there, before" in text
    assert "add or remove one event (one row)." in text
    assert "If no unit were at two sites" in text
    assert document["patient_level"] == {
        "events": 4,
        "spent": {"epsilon": pytest.approx(3.2), "delta": pytest.approx(grown)},
        "cap": {"epsilon": 12.0, "delta": pytest.approx(1e-6 * math.expm1(12) / math.expm1(3))},
    }
    assert "patient_level" not in BudgetResult(REPORT, STUDY).document()


def test_a_pure_event_level_study_multiplies_epsilon() -> None:
    pure = dataclasses.replace(EVENTS, spent=Loss(0.25, 0.0), cap=Loss(3.0, 0.0))
    assert "ε = 1 at δ = 0 so far, and ε = 12 at δ = 0 at the cap" in str(BudgetResult(pure, event_study()))


def test_a_patient_with_many_events_is_promised_nothing_and_told_so() -> None:
    many = str(BudgetResult(EVENTS, event_study(max_rows_per_unit=100)))
    assert "ε = 80 at δ = 1 (no promise at all)" in many
    unnamed = str(BudgetResult(EVENTS, event_study(max_rows_per_unit=None)))
    assert "For a patient with m events it is mε at δ(e^(mε) − 1)/(e^ε − 1); the study names no m." in unnamed


def test_an_answer_gets_one_line_of_meaning() -> None:
    assert answer_meaning("patient", PRIVACY) == (
        "What this can tell about whether one patient's rows are there: a belief of 1 % becomes at most 2.2 %, "
        "one of 50 % at most 69 % (ignoring a remainder of δ = 0.000001)."
    )
    pure = dataclasses.replace(PRIVACY, charged=Loss(0.8, 0.0))
    assert answer_meaning("event", pure).startswith("What this can tell about whether one event is there: ")
    assert answer_meaning("event", pure).endswith("at most 69 %.")


def test_an_answers_document_has_its_meaning_beside_its_price() -> None:
    answer = Answer("ab" * 32, "event", False, False, ("north",), (), (), (), PRIVACY)
    privacy = answer_document(answer)["privacy"]
    assert isinstance(privacy, dict)
    assert privacy["adjacency"] == "add or remove one event (one row)"
    assert privacy["meaning"]["posterior"][0]["at_most"] == pytest.approx(0.0220, abs=5e-5)  # type: ignore[index,call-overload]


def test_html_escapes_everything_that_others_wrote() -> None:
    evil = "<script>alert('x')</script>&\""
    report = dataclasses.replace(
        REPORT,
        study=evil,
        unit=evil,
        statements=(Statement(evil, 1.0, guarantee=True), Statement(evil, 1.0, guarantee=False)),
        sites=(SiteBudget(evil, Loss(1, 0), frozen=False),),
    )
    html = BudgetResult(report, STUDY)._repr_html_()
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    assert html.count("<table") == 2


def test_a_report_without_statements_still_prints() -> None:
    bare = dataclasses.replace(REPORT, statements=(), history=())
    text = str(BudgetResult(bare, STUDY))
    assert "holds even if" not in text
    assert "accountants" not in text


def test_the_picture_has_a_step_for_each_charge_under_the_cap() -> None:
    line, cap = BudgetResult(REPORT, STUDY).plot().lines
    assert line.get_drawstyle() == "steps-post"
    assert list(line.get_xdata()) == [point.date for point in REPORT.history]
    assert list(line.get_ydata()) == [point.epsilon for point in REPORT.history]
    assert list(cap.get_ydata()) == [3.0, 3.0]


def test_a_history_shows_its_first_and_last_date_and_an_empty_one_none() -> None:
    def dates(report: BudgetReport) -> list[str]:
        return [label.get_text() for label in BudgetResult(report, STUDY).plot().get_xticklabels()]

    found = dates(REPORT)
    assert (found[0], found[-1]) == ("2023-11-14\n22:13", "2023-11-24\n22:13")
    assert dates(dataclasses.replace(REPORT, history=REPORT.history[:1])) == ["2023-11-14\n22:13:20"]
    assert dates(dataclasses.replace(REPORT, history=(), events=0)) == []


def test_a_date_is_written_in_utc() -> None:
    assert date_text(0.0) == "1970-01-01T00:00:00Z"
    assert date_text(253_402_300_799.0) == "9999-12-31T23:59:59Z"


def test_a_report_travels_whole() -> None:
    assert words.REPORT.read(words.REPORT.write(REPORT)) == REPORT


@pytest.mark.parametrize(
    "report",
    [
        dataclasses.replace(REPORT, by_overlap=ByOverlap(1.0, 0.5, 2.0)),
        dataclasses.replace(REPORT, by_overlap=ByOverlap(1.0, 1.5, math.inf)),
        dataclasses.replace(REPORT, statements=REPORT.statements * 10),
        dataclasses.replace(REPORT, accountants=REPORT.accountants * 20),
        dataclasses.replace(REPORT, statements=(Statement("two words", 1.0, guarantee=True),)),
        dataclasses.replace(REPORT, statements=(Statement("cap", -1.0, guarantee=True),)),
        dataclasses.replace(REPORT, history=(Spending(1e300, 1, 1.0),)),
        dataclasses.replace(REPORT, history=(Spending(0.0, 1, math.nan),)),
        dataclasses.replace(REPORT, history=(Spending(0.0, 1, 1.0),) * 10_001),
    ],
)
def test_a_report_that_cannot_be_is_refused(report: BudgetReport) -> None:
    with pytest.raises(MalformedMessage):
        words.REPORT.read(words.REPORT.write(report))


@pytest.mark.parametrize("missing", ["cap", "spent", "remaining"])
def test_a_report_that_leaves_a_loss_out_is_not_read_as_none(missing: str) -> None:
    message = words.REPORT.write(REPORT)
    message.report.ClearField(missing)
    with pytest.raises(MalformedMessage, match="a report"):
        words.REPORT.read(message)


def test_a_site_is_in_a_report_once() -> None:
    message = words.REPORT.write(REPORT)
    message.report.sites.append(message.report.sites[0])
    with pytest.raises(MalformedMessage, match="the sites names a site twice"):
        words.REPORT.read(message)


def test_a_report_without_its_overlaps_is_refused() -> None:
    message = words.REPORT.write(REPORT)
    message.report.ClearField("by_overlap")
    with pytest.raises(MalformedMessage):
        words.REPORT.read(message)
