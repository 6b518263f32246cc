"""An agent whose table is closed: it waits, leaves its other tables their turn, and does not fill its log."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from site_agent.answering.admission import Approval
from site_agent.answering.reminders import REMINDER_SECONDS
from site_agent.reading.batches import Fingerprint
from site_agent.serving.agent import LONGEST_FAILED_SECONDS, LONGEST_PAUSE_SECONDS, Agent
from tests.site_agent.closing.failing_sources import STUDY
from tests.site_agent.lone_site import NAME, LoneSite, Rows
from tests.site_agent.serving.test_agent import Hurried, Scripted
from wardround.federation.errors import SourceFailed
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.forms.release import release_hash
from wardround.federation.ledger.entry_body import encode_body
from wardround.federation.plan.task import Failed, Pending, Released, SignedTask, Submission
from wardround.federation.study.study import Table
from wardround.federation.trust.entry import EMPTY, Entry, make_entry
from wardround.privacy.noise.vectors import Bounded

LABS = """\
[tables.labs]
unit_key = "patient_id"
max_rows_per_unit = 1
[tables.labs.columns]
age = { type = "integer", lower = 0, upper = 110 }
"""
TWO_TABLES = STUDY + LABS


class OneBad(Rows):
    """Two tables, of which visits fails."""

    def bounded(self, form: AnswerLayout) -> tuple[Bounded, ...]:
        if form.table.name == "visits":
            self.events.append("read")
            raise SourceFailed
        return super().bounded(form)

    def fingerprint(self, table: Table) -> Fingerprint:
        return self.seen


class Receiving(Scripted):
    """A link over which everything arrives, and is signed for."""

    def __init__(self, site: LoneSite, *tasks: SignedTask) -> None:
        super().__init__(*(lambda task=task: task for task in tasks))  # type: ignore[misc]
        self.site, self.deaf = site, False

    def submit(self, submission: Submission) -> Entry | None:
        super().submit(submission)
        if not isinstance(submission, Released):
            return None
        place = {"sequence": submission.entry.sequence, "digest": submission.entry.digest}
        body = {"plan_id": submission.plan_id, "site": NAME, "release_hash": release_hash(submission.payload), **place}
        return make_entry(self.site.coordinator, after=EMPTY, kind="received", body=encode_body(body))


def two_tables(folder: Path, **policy: object) -> LoneSite:
    return LoneSite(folder, study=TWO_TABLES, rows=OneBad(), max_epsilon_per_plan=100.0, **policy)


def tasks(site: LoneSite, table: str, number: int) -> list[SignedTask]:
    return [
        site.task(site.plan(f"SELECT COUNT(*) FROM {table}", epsilon=0.1, nonce=f"{place:04x}"))
        for place in range(number)
    ]


def test_a_closed_table_is_said_once_and_remembered_once_an_hour(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site = two_tables(tmp_path)
    now = [0.0]
    site.pipeline.closing.reminders.now_seconds = lambda: now[0]
    with caplog.at_level(logging.INFO, "wardround.site"):
        for quarter in range(12):
            now[0] = 900.0 * quarter
            for task in tasks(site, "visits", 3):
                assert isinstance(site.pipeline.run(task), Failed)
    first, *said = (record.message for record in caplog.records)
    assert first.startswith("analyst ada asks for the first time")
    assert said == [
        "the table visits is closed: a question could not read it to the end",
        *["the table visits is closed; fix its source, or run: wardround site reopen"] * 2,
    ]
    assert REMINDER_SECONDS == 3600.0
    site.ledger.close()


def test_an_agent_says_when_a_table_opens_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    site = two_tables(tmp_path)
    site.rows.seen = Fingerprint("first", sees_changes=True)
    first, second = tasks(site, "visits", 2)
    with caplog.at_level(logging.INFO, "wardround.site"):
        site.pipeline.run(first)
        site.rows.seen = Fingerprint("second", sees_changes=True)
        site.pipeline.run(second)
    assert "the table visits is open again: its source has changed" in caplog.messages
    site.ledger.close()


def test_between_two_failures_an_agent_waits_and_then_its_other_table_has_its_turn(tmp_path: Path) -> None:
    site, ending = two_tables(tmp_path), Hurried()
    link = Receiving(site, *tasks(site, "visits", 20), *tasks(site, "labs", 1))
    agent = Agent(site.pipeline, site.ledger, link, _stopping=ending)

    def enough() -> SignedTask | None:
        agent.stop()
        return None

    link.claims.append(enough)
    agent.serve()
    assert [type(word) for word in link.submitted] == [Failed] * 20 + [Released]
    assert site.rows.events.count("read") == 2, "visits once and labs once"
    # One for each failure; a few may be as long as the steward's thread waits, and are not noted.
    assert len(ending.waits) > 10
    assert max(ending.waits) <= LONGEST_FAILED_SECONDS * 1.001
    site.ledger.close()


def test_what_a_steward_approved_is_tried_again_without_haste_and_holds_nobody_up(tmp_path: Path) -> None:
    site, now = two_tables(tmp_path, approval=Approval.MANUAL), [0.0]
    (visit,), (lab,) = tasks(site, "visits", 1), tasks(site, "labs", 1)
    link = Receiving(site, visit, lab)
    agent = Agent(site.pipeline, site.ledger, link, now_seconds=lambda: now[0])
    for _ in range(2):
        agent.step(wait_seconds=0.0)
    site.ledger.decide(visit.task.plan.plan_id, approve=True, by="ann")
    for _ in range(100):
        agent.run_approved()
    assert [type(word) for word in link.submitted] == [Pending, Pending, Failed]
    site.ledger.decide(lab.task.plan.plan_id, approve=True, by="ann")
    agent.run_approved()
    assert [type(word) for word in link.submitted[3:]] == [Released], "the other one does not wait"
    for _ in range(3600):
        now[0] += 1.0
        agent.run_approved()
    tried = len(link.submitted) - 4
    assert 3600 / (LONGEST_PAUSE_SECONDS + 1) <= tried < 3600 / 2, "half a minute apart at last"
    assert site.rows.events.count("read") == 2
    site.ledger.close()
