"""A table that closes in a real agent: killed around the moment, looked at by its steward, opened again."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from tests.integration.conftest import Make
from tests.integration.faulty_site import CLOSING_POINTS
from tests.integration.stage import PATIENTS, Federation, eventually, is_about, sites_in

BY_DIAGNOSIS = "SELECT diagnosis, COUNT(*) FROM encounters GROUP BY diagnosis"


def fill(site: Path, *, bad: bool) -> None:
    """Ten patients in a database whose view fails on one row, for questions that look at the diagnosis."""
    path = site / "encounters.db"
    path.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE kept (patient_id, age, sbp, diagnosis)")
        rows = [(f"two-{n}", 30 + n, 120 + n, "E11") for n in range(10)]
        connection.executemany("INSERT INTO kept VALUES (?, ?, ?, ?)", rows)
        # The lowest number has no absolute value: that of the patient of 35 years.
        lowest = -9223372036854775773 if bad else 0
        connection.execute(
            "CREATE VIEW encounters AS SELECT patient_id, age, sbp, "
            f"CASE WHEN abs({lowest} - age) = 1 THEN 'I10' ELSE diagnosis END AS diagnosis FROM kept"
        )


def with_a_bad_row(make_federation: Make) -> Federation:
    federation = make_federation(sites=("one", "two"))
    fill(federation.site("two"), bad=True)
    config = federation.site("two") / "site.toml"
    config.write_text(config.read_text(encoding="utf-8").replace(".csv", ".db"), encoding="utf-8")
    federation.start_timeless_coordinator()
    federation.start_site("one")
    return federation


def ask_without_two(federation: Federation, sql: str) -> dict[str, object]:
    """The answer of one alone, after the deadline; two has failed by then."""
    before = federation.received()
    answer = federation.after_the_deadline(
        federation.asking(sql), when=lambda: federation.received() == before + 1, what="one answered"
    )
    assert sites_in(answer) == {"answered": ["one"], "refused": {}, "missing": ["two"], "left_out": []}
    return dict(answer)


@pytest.mark.slow
@pytest.mark.parametrize("point", CLOSING_POINTS)
def test_killed_around_its_closing_a_table_is_closed_for_every_question(make_federation: Make, point: str) -> None:
    federation = with_a_bad_row(make_federation)
    federation.start_site("two", failpoint=point)
    asked = federation.asking(BY_DIAGNOSIS)
    federation.await_death("two")
    assert len(federation.entries("two", "closed")) == (point == "after_close")
    federation.start_site("two")
    eventually(lambda: len(federation.entries("two", "closed")) == 1, what="the table is closed")
    federation.after_the_deadline(asked, when=lambda: federation.received() == 1, what="one answered")
    ask_without_two(federation, PATIENTS)
    assert len(federation.entries("two", "charged")) == 1
    assert federation.entries("two", "released") == []
    federation.check_ledgers()
    # Its steward is told, and the source is mended: it opens by itself.
    site = federation.site("two")
    check = federation.run("site", "check", site)
    assert check.code == 1
    assert "FAIL  closed encounters  since" in check.out
    assert f"wardround site reopen {site} encounters" in check.out
    fill(site, bad=False)
    assert is_about(federation.ask(PATIENTS, fresh=True), 11)
    assert [body["reason"] for body in federation.entries("two", "reopened")] == ["changed"]
    assert "is closed" in federation.log("two") or point == "after_close"
    assert "the table encounters is open again" in federation.log("two")
    history = federation.run("site", "history", site)
    assert "the table encounters was closed: a question could not read it to the end" in history.out
    assert "the table encounters was opened again: its source had changed" in history.out
    federation.check_ledgers()


@pytest.mark.slow
def test_a_steward_opens_a_closed_table_beside_the_serving_agent(make_federation: Make) -> None:
    federation = with_a_bad_row(make_federation)
    federation.start_site("two")
    ask_without_two(federation, BY_DIAGNOSIS)
    eventually(lambda: federation.entries("two", "closed"), what="the table is closed")
    site = federation.site("two")
    unknown = federation.run("site", "reopen", site, "labs")
    assert (unknown.code, "the study has no table 'labs'; it has encounters." in unknown.err) == (2, True)
    opened = federation.run("site", "reopen", site, "encounters")
    assert (opened.code, opened.out.split(";")[0]) == (0, "encounters is open again")
    again = federation.run("site", "reopen", site, "encounters")
    assert (again.code, "is not closed; nothing was done" in again.err) == (2, True)
    assert is_about(federation.ask(PATIENTS), 11)
    documents = federation.run("site", "history", site, "--json").document["history"]
    assert isinstance(documents, list)
    kinds = [str(line["kind"]) for line in documents if isinstance(line, dict)]
    assert kinds == ["closed", "reopened", "released"]
    assert documents[1] == {
        "date": documents[1]["date"],
        "kind": "reopened",
        "reason": "steward",
        "table": "encounters",
    }  # type: ignore[call-overload,index]
    federation.check_ledgers()
