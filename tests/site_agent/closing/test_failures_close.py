"""What fails after rows were read closes its table for every question alike, in every kind of source."""

from __future__ import annotations

import datetime
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from protos.words import TASK
from site_agent.reading.dataset import Tables
from tests.integration.faulty_site import CLOSING_POINTS
from tests.site_agent.closing.failing_sources import BAD, COHORTS, EVERY_SOURCE, SOURCES, asking, sqlite_that_raises
from tests.site_agent.closing.watched_site import WatchedSite
from wardround.federation.ledger.verify.verify import verify
from wardround.federation.plan.plan import price
from wardround.federation.plan.task import Failed, Released

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", EVERY_SOURCE)
def test_a_failure_closes_the_table_for_twelve_cohorts_alike(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    source = SOURCES[name]
    site = WatchedSite(tmp_path, source.opened(tmp_path, bad=True))
    with caplog.at_level(logging.DEBUG):
        bad = site.plan(BAD, epsilon=1.0)
        assert site.ask(BAD) == Failed(bad.plan_id)
        site.watched.events.clear()
        told = {cohort: site.ask(asking(cohort)) for cohort in (*COHORTS, *COHORTS)}
        assert site.ask(BAD) == Failed(bad.plan_id), "nor is it read for what was paid"
    assert {type(word) for word in told.values()} == {Failed}
    assert site.watched.events == [], "the source is not touched"
    assert site.spent == price(bad, site.study).cost, "what failed stays charged, and nothing else is"
    assert site.kinds() == ["charged", "closed"]
    assert [record.message for record in caplog.records if record.name == "wardround.site"] == [
        "the table visits is closed: a question could not read it to the end"
    ]
    assert "canary" not in caplog.text
    assert verify(tmp_path).problems == ()
    site.ledger.close()


@pytest.mark.parametrize("name", EVERY_SOURCE)
def test_a_table_opens_by_itself_once_its_source_has_changed_or_a_steward_says_so(tmp_path: Path, name: str) -> None:
    source = SOURCES[name]
    site = WatchedSite(tmp_path, source.opened(tmp_path, bad=True))
    site.ask(BAD)
    assert isinstance(site.ask(asking(COHORTS[0])), Failed)
    site.put(source.opened(tmp_path, bad=False))
    if not source.sees_changes:
        assert isinstance(site.ask(asking(COHORTS[0])), Failed)
        site.ledger.tables.reopen("visits")
    assert all(isinstance(site.ask(sql), Released) for sql in (*map(asking, COHORTS), BAD))
    turns = [(turn.kind, turn.reason) for turn in site.ledger.tables.turns()]
    assert turns == [("closed", ""), ("reopened", "changed" if source.sees_changes else "steward")]
    assert site.kinds().count("charged") == 1 + len(COHORTS), "what had failed is answered under the charge it had"
    assert verify(tmp_path).problems == ()
    site.ledger.close()


def bad_sqlite(folder: Path) -> Tables:
    return sqlite_that_raises(folder, bad=True)


def test_a_source_that_changes_all_day_opens_its_table_once_a_day(tmp_path: Path) -> None:
    site = WatchedSite(tmp_path, bad_sqlite(tmp_path))
    told = []
    for _ in range(5):
        told.append(site.ask(BAD))
        site.put(bad_sqlite(tmp_path))
    assert [type(word) for word in told] == [Failed] * 5
    assert site.kinds() == ["charged", "closed", "reopened", "closed"]
    assert isinstance(site.ask(asking("age < 30")), Failed)
    site.day += datetime.timedelta(days=1)
    assert isinstance(site.ask(asking("age < 30")), Released)
    assert verify(tmp_path).problems == ()
    site.ledger.close()


def test_other_tables_and_kept_answers_are_not_closed(tmp_path: Path) -> None:
    site = WatchedSite(tmp_path, bad_sqlite(tmp_path))
    kept = site.ask(asking("age = 57"))
    assert isinstance(kept, Released)
    site.ask(BAD)
    assert site.closed == ["visits"]
    assert site.ask(asking("age = 57")) == kept
    assert site.ledger.tables.standing("labs") == (None, 0)
    site.ledger.close()


def test_a_closed_table_is_closed_after_a_restart_too(tmp_path: Path) -> None:
    site = WatchedSite(tmp_path, bad_sqlite(tmp_path))
    site.ask(BAD)
    site.watched.events.clear()
    site.restart()
    assert isinstance(site.ask(asking("age < 30")), Failed)
    assert site.watched.events == []
    site.ledger.close()


@pytest.mark.parametrize("point", CLOSING_POINTS)
def test_killed_around_the_moment_it_closes_a_table_answers_nobody_afterwards(tmp_path: Path, point: str) -> None:
    """kill −9 between the failure and the entry, and between the entry and the word that it failed."""
    site = WatchedSite(tmp_path, bad_sqlite(tmp_path))
    site.ledger.close()
    (tmp_path / "task").write_bytes(TASK.encode(site.task(site.plan(BAD, epsilon=1.0))))
    command = [sys.executable, str(Path(__file__).parent / "dying_process.py"), str(tmp_path), point]
    died = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()
    site.restart()
    assert site.kinds() == ["charged"] + ["closed"] * (point == "after_close")
    assert isinstance(site.ask(BAD), Failed)
    assert {type(site.ask(asking(cohort))) for cohort in COHORTS} == {Failed}
    assert site.kinds() == ["charged", "closed"]
    assert verify(tmp_path).problems == ()
    site.ledger.close()
