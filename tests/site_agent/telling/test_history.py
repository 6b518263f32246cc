"""What a steward reads of what left: who asked what, which numbers, at what loss, and who approved."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from site_agent.store.askers import Asking
from site_agent.store.departed import HistoryLine
from site_agent.telling.history import Departure
from tests.cli.calling import call
from tests.fixtures.asking import ADA, asked_by
from tests.screens.hostile_words import STUDY, Hospital, plan_of
from wardround.analyst.sql.read import parse
from wardround.federation.forms.release import Release
from wardround.federation.plan.plan import Plan, form_of, price
from wardround.federation.plan.task import SignedTask, Task, sign_task
from wardround.federation.refusal import RefusalReason
from wardround.federation.study.study_file import parse_study
from wardround.federation.trust.entry import EMPTY
from wardround.privacy.accounting.cost import Cost
from wardround.privacy.budget.filter import Cap

MEANS = "SELECT AVG(age), COUNT(DISTINCT patient_id) FROM visits WHERE age >= 40"
WHY = "=HYPERLINK(1) Do the old fall more?"


@pytest.fixture
def hospital(tmp_path: Path) -> Hospital:
    found = Hospital(tmp_path)
    found.ledger.set_cap(Cap(4.0, 1e-6))
    return found


def planned(sql: str) -> Plan:
    return plan_of(parse(sql))


def shown(hospital: Hospital, plan: Plan, *, purpose: str = "") -> SignedTask:
    return sign_task(Task(plan, "north", EMPTY), hospital.coordinator, asked_by(plan, purpose=purpose))


def answers(hospital: Hospital, plan: Plan, *, purpose: str = "", signed: bool = True) -> Release:
    """The plan is charged and answered: 0, 1, 2 and so on."""
    import numpy as np

    study = parse_study(STUDY)
    asking = Asking(plan, asked_by(plan, purpose=purpose) if signed else None)
    hospital.ledger.spend(price(plan, study), asking, head=EMPTY)
    values = np.arange(form_of(plan, study).dimension, dtype=np.int64)
    release = Release(plan.plan_id, "north", "2026-03-01", values)
    hospital.ledger.keep(release)
    return release


def listed(hospital: Hospital) -> list[dict[str, object]]:
    found = call("site", "history", hospital.folder, "--json").document()["history"]
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize(
    ("kind", "cost", "end"),
    [
        ("released", Cost.zero(), "received, paid with its training's first round"),
        ("released", Cost(mu_squared=1, pure=0, slack=0), " received"),
        ("refused", Cost.zero(), " received"),
    ],
)
def test_numbers_that_cost_nothing_say_when_they_were_paid(kind: str, cost: Cost, end: str) -> None:
    line = HistoryLine(1, "2026-01-31", "ab" * 32, kind, 5, True, cost)
    assert Departure(line, 0.0, 0.0).text().endswith(f"ε = 0        {end.lstrip()}")


def test_a_line_says_who_asked_what_and_which_numbers_left(hospital: Hospital) -> None:
    plan = planned(MEANS)
    answers(hospital, plan, purpose="Do the old fall more?")
    (line,) = listed(hospital)
    told = {key: line[key] for key in ("plan_id", "kind", "values", "delivered", "analyst", "fingerprint", "purpose")}
    assert told == {
        "plan_id": plan.plan_id,
        "kind": "released",
        "values": 3,
        "delivered": False,
        "analyst": "ada",
        "fingerprint": ADA.public.fingerprint,
        "purpose": "Do the old fall more?",
    }
    assert line["sql"] == MEANS
    assert line["question"] == "mean of age and count of patients in visits, where age >= 40"
    assert line["numbers"] == [
        {"of": "mean of age", "count": 2, "step": 2**-25},
        {"of": "count of patients", "count": 1, "step": 1 / 64},
    ]
    assert line["decided_by"] is None
    (text,) = call("site", "history", hospital.folder).out.splitlines()
    assert text.startswith(f"{line['hour']}h  {plan.plan_id[:16]}  3 noised numbers")
    assert text.endswith(f"not yet received  ada  {MEANS}  purpose: Do the old fall more?")


def test_who_approved_and_who_denied_is_told(hospital: Hospital) -> None:
    approved, denied = planned(MEANS), planned("SELECT COUNT(*) FROM visits")
    for plan, approve in ((approved, True), (denied, False)):
        hospital.ledger.hold(shown(hospital, plan), summary="")
        hospital.ledger.decide(plan.plan_id, approve=approve, by="ann")
    answers(hospital, approved)
    lines = {line["plan_id"]: line for line in listed(hospital)}
    assert [lines[plan.plan_id]["decided_by"] for plan in (approved, denied)] == ["ann", "ann"]
    assert lines[denied.plan_id]["refused"] == RefusalReason.DENIED.value
    assert lines[denied.plan_id]["numbers"] == []
    texts = call("site", "history", hospital.folder).out
    assert "  approved by ann  ada  " in texts
    assert "  denied by ann  ada  " in texts


def test_one_that_left_is_shown_in_full_with_the_numbers_that_left(hospital: Hospital) -> None:
    plan = planned("SELECT HISTOGRAM(age, 11) FROM visits")
    release = answers(hospital, plan)
    done = call("site", "history", hospital.folder, plan.plan_id[:12])
    assert "what left  11 noised numbers: 0, 1, 2, 3, 4, 5, 6, 7, …\n" in done.out
    assert "11 numbers, in steps of 0.0156: histogram of age in 11 intervals\n" in done.out
    assert f"asked by   ada, key {ADA.public.fingerprint}\n" in done.out
    assert "decided    automatically, by site.toml\n" in done.out
    document = call("site", "history", hospital.folder, plan.plan_id, "--json").document()
    assert document["released"] == release.values.tolist()
    assert call("site", "history", hospital.folder, "0" * 8).code == 2


def test_no_release_is_decoded_but_the_one_that_is_shown(hospital: Hospital, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = [planned(f"SELECT COUNT(*) FROM visits WHERE age >= {age}") for age in (20, 30)]
    for plan in plans:
        answers(hospital, plan)
    decoded: list[str] = []
    real = Release.encode

    def counting(self: Release) -> bytes:
        decoded.append(self.plan_id)
        return real(self)

    # Whoever decodes a release compares it with its encoding.
    monkeypatch.setattr(Release, "encode", counting)
    assert call("site", "history", hospital.folder, "--json").code == 0
    assert decoded == []
    assert call("site", "history", hospital.folder, plans[0].plan_id).code == 0
    assert decoded == [plans[0].plan_id]


def test_a_long_header_is_read_to_its_end(hospital: Hospital) -> None:
    """Keys stand in the header, so that it may be longer than what is read of it at first."""
    plan = planned("SELECT COUNT(*) FROM visits")
    keys = tuple(f"E{place:04d}" for place in range(1000))
    release = Release(plan.plan_id, "north", "2026-03-01", answers(hospital, plan).values.repeat(1000), keys)
    with hospital.ledger._database.transaction() as connection:
        connection.execute("DROP TRIGGER releases_are_never_changed")
        connection.execute("UPDATE releases SET payload = ?", (release.encode(),))
    assert [line.values for line in hospital.ledger.history()] == [1000]


def test_a_table_for_a_spreadsheet_holds_no_formula(hospital: Hospital) -> None:
    answers(hospital, planned(MEANS), purpose=WHY)
    hospital.ledger.refuse(Asking(planned("SELECT SUM(age) FROM visits"), None), RefusalReason.PLAN)
    done = call("site", "history", hospital.folder, "--csv")
    first, second = csv.DictReader(io.StringIO(done.out))
    assert (first["analyst"], first["values"], first["sql"], first["purpose"]) == ("ada", "3", MEANS, f"'{WHY}")
    assert first["epsilon"].startswith("0.")
    assert (second["kind"], second["analyst"], second["refused"]) == ("refused", "", "PlanRefused")
    for wrong in (("--json",), ("abcdef12",)):
        assert call("site", "history", hospital.folder, "--csv", *wrong).code == 2


def test_what_an_earlier_version_sent_is_listed_without_what_it_did_not_keep(hospital: Hospital) -> None:
    answers(hospital, planned(MEANS))
    with hospital.ledger._database.transaction() as connection:
        connection.execute("DROP TRIGGER plans_are_never_removed")
        connection.execute("DELETE FROM plans")
    (line,) = listed(hospital)
    assert (line["hour"], line["analyst"], line["sql"], line["values"]) == (None, None, None, 3)
    assert call("site", "history", hospital.folder).out.startswith("2026-03-01      ")


def test_the_hour_is_that_of_the_decision(hospital: Hospital) -> None:
    plan = planned(MEANS)
    hospital.ledger.hold(shown(hospital, plan), summary="")
    with hospital.ledger._database.transaction() as connection:
        connection.execute("UPDATE plans SET hour = '2001-01-01 01'")
    hospital.ledger.decide(plan.plan_id, approve=False, by="ann")
    (line,) = hospital.ledger.history()
    assert line.hour > "2026"


def test_the_hour_travels_nowhere(hospital: Hospital) -> None:
    release = answers(hospital, planned(MEANS))
    kept = hospital.ledger.find(release.plan_id)
    (line,) = hospital.ledger.history()
    assert line.hour
    assert kept is not None
    assert line.hour not in json.dumps([kept.entry.body, release.encode().decode("latin-1")])
