"""Hospitals that allow four statistics, or a low ε a question, or ask a person: the analyst is told beforehand."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from site_agent.answering.admission import Approval, Policy
from tests.site_agent.lone_site import Rows
from wardround.analyst.asking.client import Client
from wardround.analyst.showing.interpretation import next_text
from wardround.federation.errors import AwaitingApproval, TooFewSites
from wardround.federation.question.query import Statistic
from wardround.federation.study.study_file import parse_study
from wardround.simulation.federation import SimulatedFederation
from wardround.simulation.noise import ZeroNoise
from wardround.simulation.sites import SimulatedSite, default_policy

STUDY = parse_study(
    """
    name = "cardio"
    overlap = 1
    min_sites = 2
    [budget]
    epsilon = 3.0
    delta = 1e-6
    [tables.encounters]
    unit_key = "patient_id"
    max_rows_per_unit = 4
    [tables.encounters.columns]
    age       = { type = "integer", lower = 0, upper = 110 }
    sbp       = { type = "number", lower = 80, upper = 200, step = 0.1, unit = "mmHg" }
    diagnosis = { type = "category", values = ["E11", "I10"] }
    seen      = { type = "date", lower = "2020-01-01", upper = "2020-12-31" }
    """
)
FOUR = (Statistic.COUNT, Statistic.SUM, Statistic.MEAN, Statistic.STD)
HISTOGRAM = "SELECT HISTOGRAM(age, 5) FROM encounters"
COUNT = "SELECT COUNT(*) FROM encounters"


def policies() -> dict[str, Policy]:
    whole = default_policy(STUDY)
    return {
        "hilltop": whole,
        "lakeside": dataclasses.replace(whole, approval=Approval.MANUAL),
        "river": dataclasses.replace(whole, max_epsilon_per_plan=0.1),
        "st-mary": dataclasses.replace(whole, statistics=FOUR, training=False),
    }


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[SimulatedFederation]:
    sites = {
        name: SimulatedSite(Rows(total=10), 1000, noise=ZeroNoise(), policy=policy)
        for name, policy in policies().items()
    }
    found = SimulatedFederation(STUDY, sites, folder=tmp_path)
    yield found
    found.close()


@pytest.fixture
def client(federation: SimulatedFederation) -> Client:
    return federation.client


def test_a_dry_run_says_who_would_refuse_why_and_how_many_are_left(client: Client) -> None:
    preview = client.preview(HISTOGRAM, epsilon=0.1)
    assert preview.preview.sites == ("hilltop", "lakeside", "river", "st-mary")
    lines = str(preview).split("\n")
    assert "st-mary does not allow HISTOGRAM; without it 3 of 4 hospitals would answer." in lines
    assert "lakeside: each question waits for a person." in lines
    assert preview.document()["foreseen"] == [
        {"site": "lakeside", "code": "AwaitingApproval", "message": "lakeside: each question waits for a person"},
        {"site": "st-mary", "code": "StatisticNotAllowed", "message": "st-mary does not allow HISTOGRAM"},
    ]
    assert "<bdi>st-mary does not allow HISTOGRAM;" in preview._repr_html_()
    assert client.budget().report.events == 0


def test_several_who_would_refuse_are_named_together(client: Client) -> None:
    lines = str(client.preview(HISTOGRAM, epsilon=0.5)).split("\n")
    assert (
        "river allows ε = 0.1 a question (at δ = 1e-06) and this one takes ε = 0.5; st-mary does not allow HISTOGRAM; "
        "without them 2 of 4 hospitals would answer."
    ) in lines


def test_ask_says_so_first_and_still_asks_everybody(federation: SimulatedFederation) -> None:
    said: list[str] = []
    with pytest.raises(AwaitingApproval):
        federation.client.ask(HISTOGRAM, epsilon=0.1, on_note=said.append)
    assert said == [
        "st-mary does not allow HISTOGRAM; without it 3 of 4 hospitals would answer.",
        "lakeside: each question waits for a person.",
    ]
    held = federation.agents["lakeside"].ledger.requests()[0].plan_id
    federation.agents["lakeside"].ledger.decide(held, approve=False, by="ann")
    federation.agents["lakeside"].deliver()
    answer = federation.client.ask(HISTOGRAM, epsilon=0.1)
    assert answer.answer.plan_id == held
    assert answer.answer.answered == ("hilltop", "river")
    assert answer.document()["sites"] == {
        "answered": ["hilltop", "river"],
        "refused": {"lakeside": "ApprovalDenied", "st-mary": "StatisticNotAllowed"},
        "missing": [],
        "left_out": [],
        "asked_patients": 4000,
        "lacking_patients": 2000,
        "reasons": {"lakeside": "a person there declined it", "st-mary": "it does not allow this statistic"},
    }
    assert "st-mary (it does not allow this statistic)" in str(answer)
    # What is stored is not foreseen any more.
    said.clear()
    assert federation.client.ask(HISTOGRAM, epsilon=0.1, on_note=said.append).answer.replayed
    assert said == []


def test_where_too_few_would_answer_ask_and_dry_run_say_so_before_anything_is_charged(tmp_path: Path) -> None:
    strict = dataclasses.replace(STUDY, min_sites=3)
    sites = {name: SimulatedSite(Rows(total=10), 1000, policy=policy) for name, policy in policies().items()}
    found = SimulatedFederation(strict, sites, folder=tmp_path)
    for refused in (found.client.ask, found.client.preview):
        with pytest.raises(TooFewSites) as few:
            refused(HISTOGRAM, epsilon=0.5)  # type: ignore[operator]
        assert few.value.message == (
            "2 of 4 hospitals would answer this question and the study needs 3: river allows ε = 0.1 a question "
            "(at δ = 1e-06) and this one takes ε = 0.5; st-mary does not allow HISTOGRAM. Nothing was charged."
        )
    assert found.client.budget().report.events == 0
    assert all(agent.ledger.head().sequence <= 2 for agent in found.agents.values())
    found.close()


DESCRIBED = """\
Study cardio. Protected: one patient, with all of the patient's rows, at up to 1 hospital.
Budget: ε = 3 at δ = 1e-06 in all. Spent: ε = 0; {left}
An answer needs 2 hospitals. Limits are what each hospital said last.

Table encounters: patient_id says which rows are one patient's. Of one patient at most 4 rows and 4 groups count.
column     holds
─────────────────────────────────────────────────────
age        integer from 0 to 110
sbp        number from 80 to 200 mmHg in steps of 0.1
diagnosis  category, one of 'E11', 'I10'
seen       date from 2020-01-01 to 2020-12-31

hospital  statistics               decides                  largest ε a question   at δ  declared patients
──────────────────────────────────────────────────────────────────────────────────────────────────────────
hilltop   all                      its policy                                  3  1e-06              1,000
lakeside  all                      a person, each question                     3  1e-06              1,000
river     all                      its policy                                0.1  1e-06              1,000
st-mary   COUNT, SUM, AVG, STDDEV  its policy                                  3  1e-06              1,000"""


def test_a_description_shows_tables_hospitals_and_what_is_left(client: Client) -> None:
    description = client.describe()
    left = next_text(client.budget().report.remaining, delta=1e-6)
    assert "\n".join(line.rstrip() for line in str(description).split("\n")) == DESCRIBED.format(left=left)
    assert str(description) == repr(description)
    page = description._repr_html_()
    for text in ("st-mary", "COUNT, SUM, AVG, STDDEV", "number from 80 to 200 mmHg", "a person, each question"):
        assert f"<bdi>{text}" in page


def test_a_description_is_a_document_too(client: Client) -> None:
    document = json.loads(json.dumps(client.describe().document()))
    assert (document["study"], document["unit"], document["min_sites"]) == ("cardio", "patient", 2)
    assert document["cap"] == {"epsilon": 3.0, "delta": 1e-6, "pure_epsilon": 0.0}
    assert document["spent"]["epsilon"] == 0.0
    (table,) = document["tables"]
    assert (table["unit_key"], table["max_rows_per_unit"]) == ("patient_id", 4)
    columns = {column.pop("name"): column for column in table["columns"]}
    assert columns["sbp"] == {
        "type": "number",
        "unit": "mmHg",
        "lower": 80.0,
        "upper": 200.0,
        "step": 0.1,
        "values": [],
        "open": False,
        "default": None,
    }
    assert (columns["seen"]["lower"], columns["seen"]["upper"]) == ("2020-01-01", "2020-12-31")
    hospitals = {each.pop("name"): each for each in document["hospitals"]}
    assert hospitals["st-mary"] == {
        "patients": 1000,
        "active": True,
        "limits": {
            "statistics": ["count", "sum", "mean", "std"],
            "max_epsilon_per_plan": 3.0,
            "delta": 1e-6,
            "approval": "automatic",
        },
    }
    assert hospitals["lakeside"]["limits"]["approval"] == "manual"


def test_a_hospital_that_says_nothing_or_is_frozen_is_shown_as_that(federation: SimulatedFederation) -> None:
    federation.coordinator.note_limits("river", None)
    federation.coordinator.roster.freeze("hilltop", "a fork")
    shown = {line.split()[0]: line for line in str(federation.client.describe()).split("\n")[-4:]}
    assert "not published" in shown["river"]
    assert "(frozen, not asked)" in shown["hilltop"]
    assert federation.client.describe().document()["hospitals"][2]["limits"] is None  # type: ignore[index,call-overload]
