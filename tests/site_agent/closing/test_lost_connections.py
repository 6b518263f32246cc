"""A connection that is lost is tried again under the same charge and closes nothing; a row that ends them all does."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from site_agent.answering.closing import MOST_UNENDED
from site_agent.reading.dataset import TableSource
from site_agent.serving.open_dataset import open_dataset
from tests.site_agent.closing.failing_sources import BAD, COHORTS, KEY, asking, sqlite_that_raises
from tests.site_agent.closing.watched_site import WatchedSite
from tests.site_agent.lone_site import LoneSite, Rows
from tests.site_agent.sources.postgresql_cluster import Cluster, absent, begun
from wardround.federation.ledger.verify.verify import verify
from wardround.federation.plan.task import Failed, Released, Submission

psycopg = pytest.importorskip("psycopg")

needs_postgresql = pytest.mark.skipif(bool(absent()), reason=absent() or "PostgreSQL is there")
SOON_SECONDS = 120.0
RUNNING = "SELECT pid FROM pg_stat_activity WHERE application_name = 'wardround' AND wait_event = 'PgSleep'"


@pytest.fixture(scope="module")
def server() -> Iterator[Cluster]:
    """A server of the tests' own, whose view waits at a row while a table says so."""
    found = begun(shared_buffers="16MB")
    found.run(
        "CREATE TABLE slow (seconds float)",
        "INSERT INTO slow VALUES (600)",
        "CREATE FUNCTION public.waits(text) RETURNS text LANGUAGE plpgsql VOLATILE AS "
        "$$ BEGIN PERFORM pg_sleep(seconds) FROM public.slow; RETURN $1; END $$",
        "CREATE TABLE kept AS SELECT i AS patient_id, i AS age, 'E11'::text AS dx FROM generate_series(20, 79) AS i",
        "CREATE VIEW visits AS SELECT patient_id, age, CASE WHEN age = 57 THEN waits(dx) ELSE dx END AS dx FROM kept",
    )
    yield found
    found.remove()


@pytest.fixture
def site(server: Cluster, tmp_path: Path) -> Iterator[WatchedSite]:
    server.run("UPDATE slow SET seconds = 600")
    tables = open_dataset({"visits": TableSource(server.address())}, folder=tmp_path, key=KEY)
    found = WatchedSite(tmp_path, tables)
    yield found
    assert verify(tmp_path).problems == ()
    found.ledger.close()


class Asking(threading.Thread):
    """A question on its way."""

    def __init__(self, site: WatchedSite) -> None:
        super().__init__(daemon=True)
        self._site = site
        self._told: list[Submission] = []
        self.start()

    def run(self) -> None:
        self._told.append(self._site.ask(BAD))

    def told(self) -> Submission:
        self.join(SOON_SECONDS)
        (word,) = self._told
        return word


def await_reading(server: Cluster) -> int:
    """The session that stands at the row, once there is one."""
    until = time.monotonic() + SOON_SECONDS
    while not (found := server.run(RUNNING)):
        assert time.monotonic() < until, "no question reads"
        time.sleep(0.01)
    return int(str(found[0][0]))


def terminate(server: Cluster, session: int) -> None:
    server.run(f"SELECT pg_terminate_backend({session})")


def kill(server: Cluster, session: int) -> None:
    """As a row would that crashes the server: it says nothing, and starts anew."""
    until = time.monotonic() + SOON_SECONDS
    # It ends every session once it has noticed; before that it still takes new ones.
    with psycopg.connect(server.address(), autocommit=True) as bystander:
        os.kill(session, signal.SIGKILL)
        with contextlib.suppress(psycopg.Error):
            while time.monotonic() < until:
                bystander.execute("SELECT 1")
    while time.monotonic() < until:
        with contextlib.suppress(psycopg.Error):
            server.run("SELECT 1")
            return
        time.sleep(0.01)


@needs_postgresql
@pytest.mark.parametrize("end", [terminate, kill])
def test_a_session_that_is_ended_is_tried_again_under_the_same_charge(
    server: Cluster, site: WatchedSite, end: Callable[[Cluster, int], None], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        asked = Asking(site)
        end(server, await_reading(server))
        assert isinstance(asked.told(), Failed)
    assert site.closed == []
    assert site.ledger.tables.standing("visits") == (None, 1)
    server.run("UPDATE slow SET seconds = 0")
    assert isinstance(site.ask(BAD), Released)
    assert site.kinds() == ["charged", "released"]
    assert site.ledger.tables.standing("visits") == (None, 0)
    said = [record.message for record in caplog.records if record.name == "wardround.site"]
    assert said == ["the source of the table visits cannot be reached or is being changed; trying again"]


@needs_postgresql
def test_a_server_that_stops_and_starts_again_is_only_away(server: Cluster, site: WatchedSite) -> None:
    asked = Asking(site)
    await_reading(server)
    server.stop()
    assert isinstance(asked.told(), Failed)
    for _ in range(2 * MOST_UNENDED):
        assert isinstance(site.ask(BAD), Failed), "it cannot be connected to"
    assert isinstance(site.ask(asking("age < 30")), Failed), "nor before a charge"
    assert site.closed == []
    server.start()
    server.run("UPDATE slow SET seconds = 0")
    assert isinstance(site.ask(BAD), Released)
    assert isinstance(site.ask(asking("age < 30")), Released)
    assert site.kinds() == ["charged", "released"] * 2


@needs_postgresql
def test_a_row_that_ends_every_session_closes_its_table(server: Cluster, site: WatchedSite) -> None:
    for _ in range(MOST_UNENDED):
        asked = Asking(site)
        terminate(server, await_reading(server))
        assert isinstance(asked.told(), Failed)
    assert site.closed == []
    told = [site.ask(asking(cohort)) for cohort in COHORTS]
    assert {type(word) for word in told} == {Failed}
    assert site.closed == ["visits"]
    assert site.kinds() == ["charged", "closed"]


def test_lost_readings_of_many_plans_count_together_and_an_answer_clears_its_own(tmp_path: Path) -> None:
    site = LoneSite(tmp_path, rows=Rows(absences=MOST_UNENDED - 1))
    lost = [site.task(site.plan(nonce=f"{number:02x}", epsilon=0.1)) for number in range(MOST_UNENDED)]
    for task in lost[:-1]:
        assert isinstance(site.pipeline.run(task), Failed)
    assert isinstance(site.pipeline.run(lost[0]), Released), "the same plan was read to its end"
    assert site.ledger.tables.standing("visits") == (None, MOST_UNENDED - 2)
    site.rows.absences = 2
    for task in lost[-2:]:
        assert isinstance(site.pipeline.run(task), Failed)
    assert isinstance(site.pipeline.run(site.task(site.plan(nonce="ff", epsilon=0.1))), Failed)
    assert site.ledger.tables.listed() != []
    assert site.rows.events.count("read") == MOST_UNENDED + 2
    site.ledger.close()


class DiedError(BaseException):
    """The end of a process while it reads: nothing is caught and nothing is said, but that it began is on the disk."""


def test_a_row_that_ends_the_agent_closes_its_table(tmp_path: Path) -> None:
    def die() -> None:
        raise DiedError

    site = LoneSite(tmp_path, rows=Rows(before_reading=die))
    for number in range(MOST_UNENDED):
        with pytest.raises(DiedError):
            site.pipeline.run(site.task(site.plan(nonce=f"{number // 2:02x}", epsilon=0.1)))
    assert isinstance(site.pipeline.run(site.task(site.plan(nonce="ff", epsilon=0.1))), Failed)
    assert [closed.table for closed in site.ledger.tables.listed()] == ["visits"]
    assert verify(tmp_path).problems == ()
    site.ledger.close()


def test_a_file_that_is_gone_or_replaced_while_it_is_read_closes_nothing(tmp_path: Path) -> None:
    for last in ("gone", "replaced"):
        folder = tmp_path / last
        folder.mkdir()
        site = WatchedSite(folder, sqlite_that_raises(folder, bad=True))
        reading = site.watched.tables.bounded

        def read(form: object, folder: Path = folder, last: str = last, reading: object = reading) -> object:
            try:
                return reading(form)  # type: ignore[operator]
            finally:
                if last == "gone":
                    (folder / "visits.db").unlink()
                else:
                    sqlite_that_raises(folder, bad=False)

        site.watched.bounded = read  # type: ignore[method-assign, assignment]
        assert isinstance(site.ask(BAD), Failed)
        assert site.closed == []
        site.put(sqlite_that_raises(folder, bad=False))
        assert isinstance(site.ask(BAD), Released)
        assert site.kinds() == ["charged", "released"]
        site.ledger.close()
