"""An agent that is ended while it reads: politely, and it answers first; by force, five times, and its table closes."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
from pathlib import Path

import pytest

from site_agent.answering.closing import MOST_UNENDED
from tests.integration.conftest import Make
from tests.integration.stage import Federation, eventually, is_about

BY_DIAGNOSIS = "SELECT diagnosis, COUNT(*) FROM encounters GROUP BY diagnosis"
SOME_SECONDS, FOR_EVER = 30_000_000, 1_000_000_000_000


def slow(federation: Federation, steps: int) -> None:
    """Ten patients in a database whose view counts to a number at one row, where a question looks at the diagnosis."""
    path = federation.site("two") / "encounters.db"
    path.unlink(missing_ok=True)
    count = f"WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {steps}) SELECT max(n) FROM c"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE kept (patient_id, age, sbp, diagnosis)")
        rows = [(f"two-{n}", 30 + n, 120 + n, "E11") for n in range(10)]
        connection.executemany("INSERT INTO kept VALUES (?, ?, ?, ?)", rows)
        connection.execute(
            "CREATE VIEW encounters AS SELECT patient_id, age, sbp, "
            f"CASE WHEN age = 35 AND ({count}) = 0 THEN 'I10' ELSE diagnosis END AS diagnosis FROM kept"
        )


def slow_federation(make_federation: Make, steps: int) -> Federation:
    federation = make_federation(sites=("one", "two"))
    slow(federation, steps)
    config: Path = federation.site("two") / "site.toml"
    config.write_text(config.read_text(encoding="utf-8").replace(".csv", ".db"), encoding="utf-8")
    federation.start_timeless_coordinator()
    federation.start_site("one")
    federation.start_site("two")
    return federation


def begun(federation: Federation) -> int:
    (found,) = federation.rows("two", "SELECT COALESCE(SUM(begun), 0) FROM readings")[0]
    return int(str(found))


@pytest.mark.slow
@pytest.mark.serial
def test_an_agent_that_is_stopped_while_it_reads_keeps_its_answer_first(make_federation: Make) -> None:
    federation = slow_federation(make_federation, SOME_SECONDS)
    asked = federation.asking(BY_DIAGNOSIS)
    eventually(lambda: begun(federation) == 1, what="it reads")
    assert federation.stop("two") == 0
    assert len(federation.entries("two", "released")) == 1
    assert begun(federation) == 0
    federation.start_site("two")
    assert asked.answer()["sites"]["missing"] == []  # type: ignore[index,call-overload]
    assert federation.entries("two", "closed") == []
    federation.check_ledgers()


@pytest.mark.slow
@pytest.mark.serial
def test_an_agent_that_is_killed_five_times_while_it_reads_finds_its_table_closed(make_federation: Make) -> None:
    federation = slow_federation(make_federation, FOR_EVER)
    asked = federation.asking(BY_DIAGNOSIS)
    for number in range(1, MOST_UNENDED + 1):
        eventually(lambda number=number: begun(federation) == number, what="it reads")  # type: ignore[misc]
        assert federation.entries("two", "closed") == []
        federation.stop("two", number=signal.SIGKILL)
        federation.start_site("two")
    eventually(lambda: federation.entries("two", "closed"), what="the table is closed")
    assert begun(federation) == MOST_UNENDED
    federation.after_the_deadline(asked, when=lambda: federation.received() == 1, what="one answered")
    assert len(federation.entries("two", "charged")) == 1
    federation.check_ledgers()
    # Mended, it opens by itself, and what was paid for is answered.
    slow(federation, 1)
    assert is_about(federation.ask("SELECT COUNT(DISTINCT patient_id) FROM encounters"), 11)
    federation.check_ledgers()
