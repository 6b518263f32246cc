"""Closed tables in the ledger: honest chains verify, forged ones do not, and older files gain what they lack."""

from __future__ import annotations

import dataclasses
import sqlite3
import zlib
from pathlib import Path

import pytest

from tests.federation.ledger.ledger_bench import Bench, forgotten, plan_id, spend
from tests.federation.ledger.test_verify_site import CAPPED, FROZEN, RELEASED, Said, codes, paid, signed
from tests.site_agent.closing.failing_sources import BAD, COHORTS, STUDY, asking, sqlite_that_raises
from tests.site_agent.closing.watched_site import WatchedSite
from wardround.federation import canonical
from wardround.federation.errors import Mistaken, SiteFrozen
from wardround.federation.ledger import site_tables
from wardround.federation.ledger.sqlite_file import LEDGER_FILE
from wardround.federation.ledger.verify.evidence import Evidence, export
from wardround.federation.ledger.verify.verify import judge, verify
from wardround.federation.plan.task import Released
from wardround.federation.study.study_file import parse_study

STUDY_TEXT = canonical.encode(parse_study(STUDY)).decode()


LABS = """\
[tables.labs]
unit_key = "patient_id"
max_rows_per_unit = 1
[tables.labs.columns]
ldl = { type = "number", lower = 0, upper = 10 }
"""


def closed(table: str = "visits", source: str = "first", date: str = "2026-01-01") -> Said:
    return "closed", {"table": table, "source": source, "date": date}


def reopened(reason: str, table: str = "visits", date: str = "2026-01-01") -> Said:
    return "reopened", {"table": table, "reason": reason, "date": date}


def of_the_study(*said: Said) -> Evidence:
    """A chain whose study is known to have one table, visits."""
    return dataclasses.replace(signed(*said), study=STUDY_TEXT)


TRUTHS: dict[str, list[Said]] = {
    "closed": [CAPPED, paid("a"), closed()],
    "opened by a steward": [CAPPED, paid("a"), closed(), reopened("steward"), RELEASED],
    "opened by a change": [CAPPED, paid("a"), closed(), reopened("changed"), RELEASED],
    "opened by a change on two days": [
        *(closed(), reopened("changed"), closed(source="second")),
        reopened("changed", date="2026-01-02"),
    ],
    "opened by a steward twice a day": [closed(source=""), reopened("steward"), closed(source=""), reopened("steward")],
}
LIES: dict[str, tuple[list[Said], str]] = {
    "opened while it was open": ([reopened("steward")], "WrongClosing"),
    "opened twice": ([closed(), reopened("steward"), reopened("steward")], "WrongClosing"),
    "closed twice": ([closed(), closed()], "WrongClosing"),
    "another table opened": ([closed(), reopened("steward", table="labs")], "WrongClosing"),
    "a table that is none": ([closed(table="labs")], "WrongClosing"),
    "opened by a change nobody could see": ([closed(source=""), reopened("changed")], "WrongClosing"),
    "opened by a change twice a day": (
        [closed(), reopened("changed"), closed(source="second"), reopened("changed")],
        "WrongClosing",
    ),
    "opened for no reason": ([closed(), reopened("")], "MalformedEntry"),
    "opened for another reason": ([closed(), reopened("boredom")], "MalformedEntry"),
    "closed without a table": ([("closed", {"source": "", "date": "2026-01-01"})], "MalformedEntry"),
    "closed without a source": ([("closed", {"table": "visits", "date": "2026-01-01"})], "MalformedEntry"),
    "charged while closed": ([CAPPED, closed(), paid("a")], "WhileClosed"),
    "released while closed": ([CAPPED, paid("a"), closed(), RELEASED], "WhileClosed"),
    "closed after freezing": ([CAPPED, FROZEN, closed()], "AfterFrozen"),
}


@pytest.mark.parametrize("name", TRUTHS)
def test_an_honest_chain_is_valid(name: str) -> None:
    assert codes(judge(of_the_study(*TRUTHS[name]))) == {"WrongStudy"}, "its hash is not the one in these chains"
    assert codes(judge(signed(*TRUTHS[name]))) == set()


@pytest.mark.parametrize("name", LIES)
def test_a_forged_chain_is_found(name: str) -> None:
    said, code = LIES[name]
    assert code in codes(judge(of_the_study(*said)))


def test_one_open_table_may_be_charged_for_while_another_is_closed() -> None:
    two = STUDY.replace("[tables.visits]", f"{LABS}[tables.visits]")
    evidence = dataclasses.replace(
        signed(CAPPED, closed(), paid("a"), RELEASED), study=canonical.encode(parse_study(two)).decode()
    )
    assert codes(judge(evidence)) == {"WrongStudy"}


@pytest.fixture
def site(tmp_path: Path) -> WatchedSite:
    """A site that failed, was mended, failed again and was opened by its steward."""
    (tmp_path / "site").mkdir()
    found = WatchedSite(tmp_path / "site", sqlite_that_raises(tmp_path, bad=True))
    found.ask(BAD)
    found.put(sqlite_that_raises(tmp_path, bad=False))
    found.ask(asking(COHORTS[0]))
    found.put(sqlite_that_raises(tmp_path, bad=True))
    found.ask(BAD)
    return found


def test_what_a_site_writes_is_valid_in_its_folder_and_as_an_export(site: WatchedSite, tmp_path: Path) -> None:
    for _ in range(2):
        assert verify(site.folder).problems == ()
        export(site.folder, tmp_path / "site.ledger")
        assert verify(tmp_path / "site.ledger").problems == ()
        if site.closed:
            site.ledger.tables.reopen("visits")
    told = (tmp_path / "site.ledger").read_text("ascii")
    assert [told.count(f'"kind":"{kind}"') for kind in ("closed", "reopened")] == [2, 2]
    site.ledger.close()


def test_the_ledger_says_nothing_about_the_file_that_another_could_use(site: WatchedSite) -> None:
    """A size and a path could be guessed from a digest without a key."""
    form = site.study.table("visits")
    state = site.watched.fingerprint(form).text
    told = [each.source for each in site.ledger.tables.listed()]
    assert told == [site.pipeline.closing.state(form)]
    assert state not in told
    other = dataclasses.replace(site.pipeline, key=bytes(32))
    assert other.closing.state(form) not in told
    site.ledger.close()


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM closed_tables",
        "UPDATE closed_tables SET name = 'labs'",
        "UPDATE closed_tables SET sequence = 1",
        "INSERT INTO closed_tables VALUES ('labs', 1)",
    ],
)
def test_a_table_beside_the_chain_that_says_something_else_is_found(site: WatchedSite, statement: str) -> None:
    site.ledger.close()
    with sqlite3.connect(site.folder / LEDGER_FILE) as connection:
        connection.execute(statement)
    connection.close()
    assert codes(verify(site.folder)) == {"WrongIndex"}


def test_a_steward_opens_only_what_is_closed(site: WatchedSite) -> None:
    site.ledger.tables.reopen("visits")
    for table in ("visits", "labs"):
        with pytest.raises(Mistaken, match=f"the table '{table}' is not closed; nothing was done"):
            site.ledger.tables.reopen(table)
    site.ledger.close()


def test_a_frozen_ledger_opens_and_closes_nothing(site: WatchedSite) -> None:
    with pytest.raises(SiteFrozen):
        site.ledger.reconcile(forgotten(site.identity, 2))
    for turn in (
        lambda: site.ledger.tables.reopen("visits"),
        lambda: site.ledger.tables.close("labs", source=""),
        lambda: site.ledger.tables.reopen_changed("visits", source="other"),
    ):
        with pytest.raises(SiteFrozen):
            turn()
    assert verify(site.folder).problems == ()
    site.ledger.close()


# --- ledgers from before tables could be closed ---------------------------------------------------------------

BEFORE = site_tables.LATER[: site_tables.LATER.index("-- the study's tables")]


def forget_the_tables(folder: Path) -> None:
    """The file as the version before made it."""
    connection = sqlite3.connect(folder / LEDGER_FILE, isolation_level=None)
    for trigger in ("a_closed_table_is_not_read", "a_closed_table_releases_nothing"):
        connection.execute(f"DROP TRIGGER {trigger}")
    for table in ("readings", "closed_tables"):
        connection.execute(f"DROP TABLE {table}")
    connection.execute(f"PRAGMA application_id = {zlib.crc32(BEFORE.encode()) & 0x7FFF_FFFF}")
    connection.close()


def test_an_older_ledger_is_valid_as_it_is_and_gains_the_tables_when_it_is_opened(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.answer("a")
    spend(bench.ledger, "b")
    bench.ledger.close()
    forget_the_tables(tmp_path)
    before = verify(tmp_path)
    assert before.problems == ()
    ledger = bench.reopen()
    assert verify(tmp_path) == before, "opening it says nothing"
    ledger.tables.begin_again(plan_id("b"), "visits")
    assert isinstance(ledger.keep(bench.release("b")), Released), "a charge from before is answered"
    ledger.tables.close("visits", source="")
    assert [each.table for each in bench.reopen().tables.listed()] == ["visits"]
    bench.ledger.close()
    assert verify(tmp_path).problems == ()


def test_a_closed_table_that_was_forgotten_is_found(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.ledger.tables.close("visits", source="")
    bench.ledger.close()
    forget_the_tables(tmp_path)
    assert codes(verify(tmp_path)) == {"WrongIndex"}
