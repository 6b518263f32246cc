"""What only SQLite can do to a source: rows of any type, sums that overflow, files that are written meanwhile."""

from __future__ import annotations

import contextlib
import math
import random
import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sqlglot import exp

from site_agent.reading.dataset import TableSource
from site_agent.reading.sources.sqlite.connection import reading
from site_agent.reading.sources.sqlite.dialect import SqliteDialect, literal, written
from site_agent.reading.sources.sqlite.table import SqliteTable, open_sqlite
from tests.site_agent.sources.database_files import write_sqlite
from tests.site_agent.sources.tables import KEY, Row, form, study, totals
from wardround.federation.errors import SchemaRefused, SourceAway, SourceFailed
from wardround.federation.question.cohort import Comparison, IsNull, Operator
from wardround.federation.question.query import Aggregate, Grouping, Query, Statistic
from wardround.privacy.noise.distribution import Mechanism

COUNT = Aggregate(Statistic.COUNT)
PATIENTS = Aggregate(Statistic.COUNT, "patient_id")
HUGE = 2**63 - 1


def table(path: Path, *, relation: str = "visits", timeout_seconds: float = 600.0) -> SqliteTable:
    return open_sqlite("visits", str(path), TableSource(str(path), relation, timeout_seconds=timeout_seconds), key=KEY)


def counted(path: Path, aggregate: Aggregate, *, column: str, kind: str) -> list[list[int]]:
    agreed = study(unit="event", columns=f"{column} = {kind}\n")
    return totals(table(path), form(Query("visits", (aggregate,)), agreed, Mechanism.DISCRETE_LAPLACE))


# --- Types ------------------------------------------------------------------------------------------------

READ: dict[str, list[tuple[object, object]]] = {
    '{ type = "integer" }': [
        (5, 5), (5.0, 5), (5.5, None), ("5", 5), (" 5 ", 5), ("5.0", 5), ("1e3", 1000), ("12.7", None),
        ("5x", None), ("", None),
        ("0x10", None), ("nan", None), (math.inf, None), ("1e400", None), (HUGE, HUGE), (str(HUGE), HUGE),
        (-HUGE - 1, -HUGE - 1),
        (str(-HUGE - 1), -HUGE - 1), ("9223372036854775808", None), (9.3e18, None), (-0.0, 0), (b"5", None),
        (None, None), ("٣", None),
    ],
    '{ type = "number" }': [
        (5, 5.0), (0.1, 0.1), ("0.1", 0.1), ("-1e308", -1e308), ("1e400", None), ("inf", None), ("nan", None),
        (math.inf, None),
        (-math.inf, None), ("1,5", None), ("1_000", None), ("", None), (" ", None), (b"1", None),
        (5e-324, 5e-324), ("--5", None),
    ],
    '{ type = "category" }': [
        ("a", "a"), ("", None), (5, "5"), (5.0, None), (b"a", None), ("A", "A"), ("a ", "a "), ("'", "'"),
    ],
    '{ type = "boolean" }': [
        (1, True), (0, False), (2, None), (1.0, True), (0.5, None), ("TRUE", True), (" no ", False),
        ("t", True), ("x", None), (b"1", None),
    ],
    '{ type = "date" }': [
        ("2024-02-29", "2024-02-29"), ("2023-02-29", None), ("2024-01-05 10:00:00", "2024-01-05"),
        ("2024-01-05T23:30:00-05:00", "2024-01-05"),
        ("2024-01-05 25:00", None), ("2024-01-05x", None), ("now", None), ("2460000.5", None),
        (2460000.5, None), (1700000000, None),
        ("0000-01-01", None), ("0001-01-01", "0001-01-01"), ("9999-12-31", "9999-12-31"),
        ("10000-01-01", None), ("2024-1-5", None), ("", None),
    ],
}  # fmt: skip


@pytest.mark.parametrize("declared", ["", "TEXT", "NUMERIC", "TEXT COLLATE NOCASE", "BLOB"])
@pytest.mark.parametrize("kind", READ)
def test_a_row_of_any_type_is_a_value_or_nothing(tmp_path: Path, kind: str, declared: str) -> None:
    held = [value for value, _ in READ[kind]]
    path = tmp_path / "t.db"
    write_sqlite(
        path,
        [{"patient_id": place, "x": value} for place, value in enumerate(held)],
        ("patient_id", "x"),
        declared=declared,
    )  # type: ignore[list-item]
    with contextlib.closing(sqlite3.connect(path)) as connection:
        stored = connection.execute('SELECT "x" FROM visits').fetchall()
    source = table(path)
    with reading(str(path), key=KEY, timeout_seconds=60) as connection:
        rows = source._typed(study(columns=f"x = {kind}").tables[0], study(columns=f"x = {kind}").tables[0].columns)
        found = connection.execute(written(rows.query)).fetchall()
    for (_, got), (value, expected), (kept,) in zip(found, READ[kind], stored, strict=True):
        if declared and type(kept) is not type(value):
            continue  # The declared type changed the value when it was stored.
        shown = got.decode() if isinstance(got, bytes) else got
        assert (shown, shown is None) == (expected, expected is None), value


def test_keys_are_told_apart_exactly_and_one_key_is_one(tmp_path: Path) -> None:
    same = [5, "5", 5.0]
    others = [
        "05",
        "5 ",
        "a",
        "A",
        b"5",
        b"a",
        0.1,
        0.1 + 2**-55,
        0.30000000000000004,
        0.3,
        "0.3",
        HUGE,
        -HUGE - 1,
        "x'61'",
    ]
    absent = [None, "", math.inf, math.nan]
    keys = [*same, *others, *absent]
    path = write_sqlite(tmp_path / "t.db", [{"patient_id": key} for key in keys], ("patient_id",), declared="")  # type: ignore[list-item]
    agreed = study(columns='x = { type = "boolean", default = true }\n')
    relation = "SELECT patient_id, 1 AS x FROM visits"
    asked = form(Query("visits", (PATIENTS,)), agreed, Mechanism.DISCRETE_LAPLACE)
    assert totals(table(path, relation=relation), asked) == [[1 + len(others)]]


def test_the_text_of_bytes_and_a_text_like_their_literal_are_one_key(tmp_path: Path) -> None:
    path = write_sqlite(tmp_path / "t.db", [{"patient_id": b"a"}, {"patient_id": "X'61'"}], ("patient_id",))  # type: ignore[list-item]
    asked = form(Query("visits", (PATIENTS,)), study(), Mechanism.DISCRETE_LAPLACE)
    assert totals(table(path), asked) == [[1]]


def test_the_columns_own_collation_decides_nothing(tmp_path: Path) -> None:
    rows: list[Row] = [{"patient_id": key, "dx": dx} for key, dx in (("a", "E11"), ("A", "e11"), ("a ", "E11 "))]
    for declared in ("TEXT COLLATE NOCASE", "TEXT COLLATE RTRIM"):
        path = write_sqlite(tmp_path / f"{declared[-3:]}.db", rows, ("patient_id", "dx"), declared=declared)
        asked = form(Query("visits", (PATIENTS,)), study(), Mechanism.DISCRETE_LAPLACE)
        assert totals(table(path), asked) == [[3]]
        asked = form(
            Query("visits", (COUNT,), Comparison("dx", Operator.EQUAL, "E11")), study(), Mechanism.DISCRETE_LAPLACE
        )
        assert totals(table(path), asked) == [[1]]


def test_text_that_is_none_is_absent(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE visits (patient_id, dx, note)")
        for place in range(6):
            broken = f"CAST(X'{'ff' * (place % 3 + 1)}' AS TEXT)"
            connection.execute(f"INSERT INTO visits VALUES ({broken}, 'E11', 'n'), ({place}, 'E11', {broken})")
            connection.execute(f"INSERT INTO visits VALUES ({place + 10}, {broken}, 'n')")
    agreed = study(
        rows=1, groups=1, columns="dx = { type = 'category', values = ['E11', 'I10'] }\nnote = { type = 'category' }\n"
    )
    asked = form(Query("visits", (COUNT, PATIENTS), None, (Grouping("dx"),)), agreed, Mechanism.DISCRETE_LAPLACE)
    assert [sum(part) for part in totals(table(path), asked)] == [6, 6]
    absent = form(Query("visits", (COUNT,), IsNull("dx")), agreed, Mechanism.DISCRETE_LAPLACE)
    assert totals(table(path), absent) == [[6]]
    wide = study(rows=9, groups=9, columns="note = { type = 'category' }\n")
    assert table(path).keys(form(Query("visits", (Aggregate(Statistic.KEYS, "note"),)), wide)) == {"n": 6}


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le", "UTF-16be"])
def test_a_database_may_keep_its_text_in_any_encoding(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "t.db"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"PRAGMA encoding = '{encoding}'")
        connection.execute("CREATE TABLE visits (patient_id, dx)")
        connection.executemany("INSERT INTO visits VALUES (?, ?)", [("Jürgen", "ü😀"), ("Zoë", "E11"), ("Zoë", "ü😀")])
        # Half a pair in UTF-16, and no text in UTF-8 either.
        connection.execute(
            "INSERT INTO visits VALUES ('x', CAST(X'd8dfd8df' AS TEXT)), (CAST(X'd8dfd8df' AS TEXT), 'E11')"
        )
    agreed = study(rows=9, groups=9, columns="dx = { type = 'category', values = ['E11', 'ü😀'] }\n")
    asked = form(Query("visits", (COUNT,), None, (Grouping("dx"),)), agreed, Mechanism.DISCRETE_LAPLACE)
    assert totals(table(path), asked) == [[1, 2]]
    absent = form(Query("visits", (COUNT,), IsNull("dx")), agreed, Mechanism.DISCRETE_LAPLACE)
    assert totals(table(path), absent) == [[1]]


# --- Arithmetic -------------------------------------------------------------------------------------------


def computed(wanted: exp.Expression) -> float:
    """What SQLite makes of an expression without rows."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        found: float = connection.execute(written(exp.select(wanted))).fetchone()[0]
    return found


def test_a_double_is_read_back_to_the_last_bit() -> None:
    draw = random.Random(3)
    values = [0.1, -0.5, 5e-324, -2.2250738585072014e-308, 1.7976931348623157e308, 1e22, 0.0, 80.0]
    values += [
        value for value in (struct.unpack("d", draw.randbytes(8))[0] for _ in range(200)) if math.isfinite(value)
    ]
    for value in values:
        assert computed(literal(value)) == value


@pytest.mark.parametrize("value", [-3.0, -2.5, -0.5, -0.0, 0.0, 0.5, 2.999999, 4503599627370497.5, -1e17, 1e17])
def test_the_floor_is_the_floor(value: float) -> None:
    assert computed(SqliteDialect().floor(literal(value))) == math.floor(value)


@pytest.mark.parametrize("value", [1e300, -1e300])
def test_a_floor_beyond_64_bits_stays_beyond_every_bound(value: float) -> None:
    found = computed(SqliteDialect().floor(literal(value)))
    assert abs(found) >= 2**62
    assert (found > 0) == (value > 0)


# --- The cap ----------------------------------------------------------------------------------------------


def test_which_rows_count_depends_on_the_patients_own_rows_alone(tmp_path: Path) -> None:
    draw = random.Random(5)
    mine: list[Row] = [{"patient_id": "me", "dx": draw.choice(("E11", "I10", "it's", "ü"))} for _ in range(20)]
    others: list[Row] = [{"patient_id": f"p{place % 7}", "dx": draw.choice(("E11", "ü"))} for place in range(60)]
    asked = form(Query("visits", (COUNT,), None, (Grouping("dx"),)), study(rows=3), Mechanism.DISCRETE_LAPLACE)
    names = ("patient_id", "dx")

    def found(name: str, rows: list[Row]) -> np.ndarray:
        return table(write_sqlite(tmp_path / name, rows, names)).bounded(asked)[0].total

    alone, without = found("a.db", mine), found("b.db", others)
    mixed = mine + others
    draw.shuffle(mixed)
    assert (found("c.db", mixed) - without).tolist() == alone.tolist()
    assert alone.sum() == 3


# --- Reading only -----------------------------------------------------------------------------------------


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    rows: list[Row] = [{"patient_id": f"p{place}", "age": place % 90, "seen": "2024-03-01"} for place in range(500)]
    return write_sqlite(tmp_path / "visits.db", rows, ("patient_id", "age", "seen"))


FORBIDDEN = (
    "DELETE FROM visits", "CREATE TABLE x (a)", "CREATE TEMP TABLE x (a)", "ATTACH ':memory:' AS x",
    "PRAGMA query_only = OFF",
    "PRAGMA table_info(visits)", "SELECT load_extension('x')", "VACUUM", "SELECT randomblob(1)",
    "DROP TABLE visits", "DETACH main",
    "SAVEPOINT x", "ANALYZE", "CREATE VIEW v AS SELECT 1",
)  # fmt: skip


@pytest.mark.parametrize("statement", FORBIDDEN)
def test_nothing_but_reading_is_possible(visits: Path, statement: str) -> None:
    before = visits.read_bytes()
    with reading(str(visits), key=KEY, timeout_seconds=60) as connection, pytest.raises(sqlite3.DatabaseError):
        connection.execute(statement)
    assert visits.read_bytes() == before
    assert sorted(path.name for path in visits.parent.iterdir()) == ["visits.db"]


def test_a_question_sees_one_state(visits: Path) -> None:
    with reading(str(visits), key=KEY, timeout_seconds=60) as connection:
        before = connection.execute("SELECT count(*) FROM visits").fetchone()
        with contextlib.closing(sqlite3.connect(visits, timeout=0.05)) as writer:
            writer.execute("INSERT INTO visits VALUES ('new', 1, '2024-01-01')")
            with pytest.raises(sqlite3.OperationalError):
                writer.commit()
        assert connection.execute("SELECT count(*) FROM visits").fetchone() == before


def test_a_question_that_takes_too_long_is_stopped(visits: Path) -> None:
    # A join of the hospital's own that gets out of hand: 500 times 500 times 500 rows.
    with contextlib.closing(sqlite3.connect(visits)) as writer, writer:
        writer.execute("CREATE TABLE many AS SELECT 'one' AS patient_id, 1 AS age FROM visits")
    tied = "a.patient_id = b.patient_id AND a.patient_id = c.patient_id"
    relation = f"SELECT a.patient_id, b.age FROM many a, many b, many c WHERE {tied}"
    asked = form(Query("visits", (Aggregate(Statistic.SUM, "age"),)), study())
    # Looking takes no time, but a busy machine may take longer than the question has.
    table(visits, relation=relation).check(asked)
    with pytest.raises(SourceFailed) as failed:
        table(visits, relation=relation, timeout_seconds=0.05).bounded(asked)
    assert failed.value.__cause__ is None
    assert failed.value.__context__ is None


FAULTS = {
    "gone": "does not exist.",
    "folder": "does not exist.",
    "garbage": "cannot be read as SQLite.",
    "no table": "has no relation that can be read as site.toml says.",
}


@contextlib.contextmanager
def fault(name: str, path: Path) -> Iterator[Path]:
    match name:
        case "gone":
            yield path.with_name("gone.db")
        case "folder":
            yield path.parent
        case "garbage":
            path.write_bytes(b"canary " * 2000)
            yield path
        case _:
            with contextlib.closing(sqlite3.connect(path)) as writer, writer:
                writer.execute("DROP TABLE visits")
            yield path


def test_a_file_that_is_being_written_is_away_before_the_charge_and_after_it(
    visits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("site_agent.reading.sources.sqlite.connection._BUSY_SECONDS", 0.05)
    asked = form(Query("visits", (COUNT,)), study())
    with contextlib.closing(sqlite3.connect(visits)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(SourceAway, match="is being written by another process") as before:
            table(visits).check(asked)
        with pytest.raises(SourceAway) as after:
            table(visits).bounded(asked)
    assert before.value.__context__ is None
    assert after.value.__context__ is None
    assert after.value.unread, "a lock is met before the first row"
    assert table(visits).bounded(asked)


@pytest.mark.parametrize("name", FAULTS)
def test_a_file_that_cannot_be_read_is_one_sentence_before_the_charge(visits: Path, name: str) -> None:
    asked = form(Query("visits", (COUNT,)), study())
    with fault(name, visits) as path:
        with pytest.raises(SchemaRefused) as refused:
            table(path).check(asked)
        with pytest.raises(SourceFailed) as failed:
            table(path).bounded(asked)
    assert refused.value.message == f"The file of the table 'visits' {FAULTS[name]}"
    assert refused.value.__context__ is None
    assert failed.value.__context__ is None


def test_a_missing_column_is_named(visits: Path) -> None:
    asked = form(Query("visits", (Aggregate(Statistic.MEAN, "sbp"),)), study())
    with pytest.raises(SchemaRefused, match="has no column 'sbp'"):
        table(visits).check(asked)


@pytest.mark.parametrize("name", ["records", "selected", "counting", "this", "typed", "select", "a b", 'a"b'])
def test_a_table_may_be_called_like_anything_in_the_statement(tmp_path: Path, name: str) -> None:
    rows: list[Row] = [{"patient_id": f"p{place % 4}", "dx": "E11"} for place in range(12)]
    path = write_sqlite(tmp_path / "t.db", rows, ("patient_id", "dx"), table=name)
    asked = form(Query("visits", (COUNT,), None, (Grouping("dx"),)), study(rows=2), Mechanism.DISCRETE_LAPLACE)
    written_name = '"' + name.replace('"', '""') + '"'
    assert totals(table(path, relation=written_name), asked) == [[8, 0, 0, 0]]
