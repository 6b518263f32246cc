"""A DuckDB database file: read only, nothing else reachable, and let go of as soon as a question is answered."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from threading import Event, Thread

import duckdb
import pyarrow as pa
import pytest

from site_agent.reading.dataset import TableSource
from site_agent.reading.sources.duckdb.database import DuckdbTable, _interrupt, open_duckdb
from tests.site_agent.sources.database_files import write_duckdb
from tests.site_agent.sources.tables import KEY, Row, form, study, totals
from wardround.federation.errors import SchemaRefused, SourceAway, SourceFailed
from wardround.federation.question.query import Aggregate, Grouping, Query, Statistic
from wardround.privacy.noise.distribution import Mechanism

COUNT = Aggregate(Statistic.COUNT)
CANARY = "canary-91ab"
TYPES = {"patient_id": pa.string(), "dx": pa.string(), "age": pa.int64()}
ROWS: list[Row] = [{"patient_id": f"p{place % 4}", "dx": "E11", "age": place} for place in range(12)]
ASKED = form(Query("visits", (COUNT,), None, (Grouping("dx"),)), study(rows=2), Mechanism.DISCRETE_LAPLACE)
EXPECTED = [[8, 0, 0, 0]]
# A process of its own: inside one process DuckDB knows that both ends are its own.
WRITER = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_duckdb(tmp_path / "o'brien.duckdb", ROWS, TYPES)


def table(path: Path, *, relation: str = "visits", timeout_seconds: float = 600.0) -> DuckdbTable:
    source = TableSource(str(path), relation, timeout_seconds=timeout_seconds)
    return open_duckdb("visits", str(path), source, key=KEY)


def change(path: Path, *statements: str) -> None:
    with duckdb.connect(str(path)) as connection:
        for statement in statements:
            connection.execute(statement)


def test_a_question_leaves_the_file_as_it_was_and_free(path: Path) -> None:
    before = path.read_bytes()
    source = table(path)
    assert totals(source, ASKED) == EXPECTED
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    change(path, "INSERT INTO visits VALUES ('new', 'I10', 5)")
    assert totals(source, ASKED) == [[8, 1, 0, 0]]


def test_a_file_that_is_being_written_is_away_before_the_charge_and_after_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("site_agent.reading.sources.duckdb.database._BUSY_SECONDS", 0.0)
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        with pytest.raises(SourceAway, match="is being written by another process") as before:
            table(path).check(ASKED)
        with pytest.raises(SourceAway) as after:
            table(path).bounded(ASKED)
        assert before.value.__context__ is None
        assert after.value.__context__ is None
        assert after.value.unread, "a lock is met before the first row"
        assert writer.stdin is not None
        writer.stdin.close()
    assert totals(table(path), ASKED) == EXPECTED


RELATIONS = {
    "a view": "CREATE VIEW seen AS SELECT * FROM visits",
    "a view of another schema": 'CREATE SCHEMA clinic; CREATE TABLE clinic."seen" AS SELECT * FROM visits',
    "a table called like a part of the statement": "CREATE TABLE records AS SELECT * FROM visits",
}


@pytest.mark.parametrize(("place", "relation"), list(zip(RELATIONS, ("seen", "clinic.seen", "records"), strict=True)))
def test_a_relation_is_a_table_or_a_view(path: Path, place: str, relation: str) -> None:
    change(path, RELATIONS[place])
    assert totals(table(path, relation=relation), ASKED) == EXPECTED


def test_a_relation_is_the_hospitals_own_select(path: Path) -> None:
    relation = "WITH mine AS (SELECT * FROM visits WHERE age >= 4) SELECT patient_id, dx FROM mine"
    assert totals(table(path, relation=relation), ASKED) == EXPECTED


def test_text_in_a_number_column_is_parsed(tmp_path: Path) -> None:
    rows: list[Row] = [{"patient_id": str(place), "age": age} for place, age in enumerate(("5", "x", "5.5", "", "7"))]
    path = write_duckdb(tmp_path / "t.duckdb", rows, {"patient_id": pa.string(), "age": pa.string()})
    asked = form(Query("visits", (Aggregate(Statistic.SUM, "age"),)), study(), Mechanism.DISCRETE_LAPLACE)
    assert float(totals(table(path), asked)[0][0] * asked.parts[0].grid) == 12.0


OUTSIDE = {
    "a file": "CREATE VIEW hidden AS SELECT * FROM read_csv('{}')",
    "a pattern": "CREATE VIEW hidden AS SELECT content AS patient_id, 'E11' AS dx FROM read_text('{}*')",
    "a macro": (
        "CREATE MACRO inside() AS TABLE SELECT * FROM read_csv('{}'); CREATE VIEW hidden AS SELECT * FROM inside()"
    ),
}


@pytest.mark.parametrize("place", OUTSIDE)
def test_a_view_that_reads_another_file_reads_nothing(path: Path, place: str) -> None:
    secret = path.with_name("secret.csv")
    secret.write_text(f"patient_id,dx\n{CANARY},E11\n")
    change(path, OUTSIDE[place].replace("{}", str(secret)))
    source = table(path, relation="hidden")
    with pytest.raises(SchemaRefused) as refused:
        source.check(ASKED)
    with pytest.raises(SourceFailed):
        source.bounded(ASKED)
    assert CANARY not in repr(refused.value)
    assert refused.value.__context__ is None


def test_a_question_that_takes_too_long_is_stopped(path: Path) -> None:
    change(path, "CREATE TABLE many AS SELECT 'one' AS patient_id, 'E11' AS dx FROM range(20000) t(i)")
    tied = "a.patient_id = b.patient_id AND b.patient_id = c.patient_id"
    relation = f"SELECT a.patient_id, b.dx FROM many a, many b, many c WHERE {tied}"
    # Looking takes no time, but a busy machine may take longer than the question has.
    table(path, relation=relation).check(ASKED)
    with pytest.raises(SourceFailed):
        table(path, relation=relation, timeout_seconds=0.2).bounded(ASKED)
    assert totals(table(path), ASKED) == EXPECTED


class Interrupted:
    """A connection that notes when it was first interrupted."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection, self.once = connection, Event()

    def interrupt(self) -> None:
        self.connection.interrupt()
        self.once.set()


def test_a_question_whose_time_is_over_between_two_statements_is_stopped_in_the_next() -> None:
    with duckdb.connect(config={"threads": 1}) as connection:
        noted, over = Interrupted(connection), Event()
        late = Thread(target=_interrupt, args=(noted, over, 0.0))
        late.start()
        # DuckDB forgets an interruption when nothing is running.
        assert noted.once.wait(60.0)
        with pytest.raises(duckdb.InterruptException):
            connection.execute("SELECT count(*) FROM range(10000000) a, range(1000) b WHERE a.range <> b.range")
        over.set()
        late.join()
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_what_cannot_be_read_is_named_in_one_sentence(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.duckdb"
    other.write_bytes(b"canary " * 3000)
    for source, fault in (
        (table(other), "The file of the table 'visits' is no DuckDB database."),
        (table(tmp_path / "gone.duckdb"), "The file of the table 'visits' does not exist."),
        (
            table(path, relation="gone"),
            "The file of the table 'visits' has no relation that can be read as site.toml says.",
        ),
    ):
        with pytest.raises(SchemaRefused) as refused:
            source.check(ASKED)
        assert refused.value.message == fault
    asked = form(Query("visits", (Aggregate(Statistic.MEAN, "sbp"),)), study())
    with pytest.raises(SchemaRefused, match="has no column 'sbp'"):
        table(path).check(asked)
