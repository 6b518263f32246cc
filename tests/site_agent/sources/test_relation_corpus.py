"""Relations run for real: with or without any patient, the others' rows are the same, and no row fails one."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from sqlglot import exp

from site_agent.reading.dataset import Declared
from site_agent.reading.memory_limits import Limits
from site_agent.reading.relations import ownership
from site_agent.reading.relations.hospital_select import placed, relation_query
from site_agent.reading.relations.scopes import Promise, Scope
from site_agent.reading.sources.duckdb.connection import locked_database
from tests.site_agent.sources.postgresql_cluster import absent, cluster
from tests.site_agent.sources.relation_corpus import EVERY, FAILING, HONEST, MIXING, Case
from tests.site_agent.sources.tables import study
from wardround.federation.errors import ConfigurationMistaken

TABLE = study().tables[0]
Row = tuple[object, ...]
Found = dict[object, Counter[str]]
COLUMNS = {
    "visits": ("patient_id", "age", "sbp", "dx", "seen", "note", "n"),
    "labs": ("patient_id", "code", "value", "taken"),
    "persons": ("id", "born", "sex"),
    "codes": ("code", "name", "weight"),
}
TYPES = {
    "patient_id": "TEXT", "id": "TEXT", "age": "INTEGER", "sbp": "DOUBLE PRECISION", "dx": "TEXT", "seen": "DATE",
    "note": "TEXT", "n": "BIGINT", "code": "TEXT", "value": "INTEGER", "taken": "DATE", "born": "DATE", "sex": "TEXT",
    "name": "TEXT", "weight": "INTEGER",
}  # fmt: skip
# Of days there are more than of moments.
FAR = {"duckdb": "5000000-01-01", "sqlite": "290000-01-01", "postgres": "5000000-01-01"}
MOST, LEAST = 2**63 - 1, -(2**63)
CODES: list[Row] = [("E11", "diabetes", 50), ("I10", "E11", 10), ("I10", "pressure", 70), (None, "none", None)]
# Twins, ties, absent and extreme values, texts that are nearly numbers and days, keys that differ by a capital.
VISITS: dict[str | None, list[Row]] = {
    "a": [(40, 120.5, "E11", "2024-01-01", "12", 7),
          (40, 121.0, "E11", "2024-01-01", "1", 3), (41, 99.5, "I10", "2024-02-01", "x", 5)],
    "b": [(40, 120.5, "E11", "2024-01-01", "12", 7), (52, 130.0, "c", "2023-01-01", "2024-02-30", 0)],
    "A": [(40, 120.5, "E11", "2024-01-01", "12", 7)] * 2,
    "hostile": [
        (0, 1.7e308, "", "infinity", "infinity", MOST),
        (2**31 - 1, 1.7e308, "k", "-infinity", "1e400", MOST),
        (-(2**31), -1.7e308, "E11", "far", "nan", LEAST),
        (None, None, None, None, None, None),
        (1, float("inf"), "%_\\", "0001-01-01", "now", -1),
        (1, float("nan"), "'; --", "2024-02-29", "99999999999999999999", 0),
    ],
    "": [(3, 0.0, "ß", "2020-01-01", "0x1p3", 1)],
    None: [(39, 1.0, "E11", "2024-01-01", "1", 1), (39, 1.0, "I10", "2024-01-01", "1", 1)],
}  # fmt: skip
LABS: dict[str | None, list[Row]] = {
    "a": [("k", 5, "2024-01-01"), ("k", 5, "2024-01-01"), ("E11", 40, "2024-03-01")],
    "b": [("na", -1, None)],
    "hostile": [("k", 2**31 - 1, "infinity"), (None, None, "far"), ("E11", 0, "-infinity")],
    None: [("k", 1, "2024-01-01")],
}
WORLDS: tuple[object, ...] = ("nobody", *VISITS)
"""Who is left out."""


def rows_without(left_out: object) -> dict[str, list[Row]]:
    kept = [who for who in VISITS if who != left_out]
    return {
        "visits": [(who, *row) for who in kept for row in VISITS[who]],
        "labs": [(who, *row) for who in kept for row in LABS.get(who, [])],
        "persons": [(who, "1970-01-01", "f") for who in kept],
        "codes": CODES,
    }


def stored(value: object, dialect: str) -> object:
    return FAR[dialect] if value == "far" else value


@contextlib.contextmanager
def in_duckdb() -> Iterator[Callable[[exp.Query, int], list[Row]]]:
    with locked_database((), Limits()) as connection:
        for place, left_out in enumerate(WORLDS):
            connection.execute(f"CREATE SCHEMA w{place}")
            for table, rows in rows_without(left_out).items():
                columns = ", ".join(f"{name} {TYPES[name]}" for name in COLUMNS[table])
                connection.execute(f"CREATE TABLE w{place}.{table} ({columns})")
                marks = ", ".join("?" for _ in COLUMNS[table])
                lines = [[stored(value, "duckdb") for value in row] for row in rows]
                if lines:
                    connection.executemany(f"INSERT INTO w{place}.{table} VALUES ({marks})", lines)

        def run(query: exp.Query, place: int) -> list[Row]:
            text = placed(query.copy(), schema=f"w{place}").sql(dialect="duckdb")
            return connection.execute(
                f"SELECT CAST(q.patient_id AS TEXT), CAST(q AS TEXT) FROM ({text}) AS q"
            ).fetchall()

        yield run


@contextlib.contextmanager
def in_sqlite() -> Iterator[Callable[[exp.Query, int], list[Row]]]:
    worlds = []
    for left_out in WORLDS:
        connection = sqlite3.connect(":memory:")
        for table, rows in rows_without(left_out).items():
            # Keys compare without their capitals, as a hospital's may.
            names = [f"{name} TEXT COLLATE NOCASE" if TYPES[name] == "TEXT" else name for name in COLUMNS[table]]
            connection.execute(f"CREATE TABLE {table} ({', '.join(names)})")
            marks = ", ".join("?" for _ in names)
            lines = [[stored(value, "sqlite") for value in row] for row in rows]
            connection.executemany(f"INSERT INTO {table} VALUES ({marks})", lines)
        worlds.append(connection)

    def run(query: exp.Query, place: int) -> list[Row]:
        found = worlds[place].execute(f"SELECT q.patient_id, q.* FROM ({query.sql(dialect='sqlite')}) AS q").fetchall()
        return [(row[0], repr(row[1:])) for row in found]

    try:
        yield run
    finally:
        for connection in worlds:
            connection.close()


@contextlib.contextmanager
def in_postgresql() -> Iterator[Callable[[exp.Query, int], list[Row]]]:
    import psycopg

    with psycopg.connect(cluster().address("postgres")) as connection:
        for place, left_out in enumerate(WORLDS):
            connection.execute(f"CREATE SCHEMA w{place}".encode())
            for table, rows in rows_without(left_out).items():
                columns = ", ".join(f"{name} {TYPES[name]}" for name in COLUMNS[table])
                connection.execute(f"CREATE TABLE w{place}.{table} ({columns})".encode())
                marks = ", ".join(f"%s::text::{TYPES[name]}" for name in COLUMNS[table])
                lines = [[stored(value, "postgres") for value in row] for row in rows]
                connection.cursor().executemany(f"INSERT INTO w{place}.{table} VALUES ({marks})".encode(), lines)

        def run(query: exp.Query, place: int) -> list[Row]:
            connection.execute(f"SET LOCAL search_path = w{place}".encode())
            text = query.sql(dialect="postgres")
            found = connection.execute(
                f"SELECT CAST(q.patient_id AS TEXT), CAST(q.* AS TEXT) FROM ({text}) AS q".encode()
            )
            return list(found.fetchall())

        yield run
        connection.rollback()


DATABASES = {"duckdb": in_duckdb, "sqlite": in_sqlite, "postgres": in_postgresql}


def by_patient(rows: list[Row]) -> Found:
    found: Found = {}
    for key, row in rows:
        found.setdefault(key, Counter())[str(row)] += 1
    # Rows without a key count for nobody.
    return {key: rows for key, rows in found.items() if key is not None}


def accepted(case: Case, dialect: str) -> exp.Query:
    return relation_query(TABLE, case.text, dialect, declared=case.declared)


def refused(case: Case, dialect: str) -> str:
    try:
        accepted(case, dialect)
    except ConfigurationMistaken as error:
        return str(error)
    return ""


@pytest.mark.parametrize("dialect", EVERY)
def test_an_honest_relation_gives_each_patient_the_same_rows_whoever_else_is_there(dialect: str) -> None:
    if dialect == "postgres" and absent():
        pytest.skip(absent())
    with DATABASES[dialect]() as run:
        for case in (case for case in HONEST if dialect in case.dialects):
            query = accepted(case, dialect)
            whole = by_patient(run(query, 0))
            assert len(whole) > 1, case.text
            if "note AS patient_id" in case.text:
                # The hospital says that the note is the key; whose row is whose cannot be seen here.
                continue
            for place, left_out in enumerate(WORLDS[1:], start=1):
                others = {key: rows for key, rows in whole.items() if key != left_out}
                assert by_patient(run(query, place)) == others, (case.text, left_out)


@pytest.mark.parametrize("dialect", ["duckdb", "sqlite"])
@pytest.mark.parametrize(
    "text",
    [
        "SELECT v.*, n AS patient_id FROM visits AS v",
        "SELECT n AS patient_id, v.* FROM visits AS v",
        "WITH q AS (SELECT v.*, n AS patient_id FROM visits v) SELECT patient_id, max(age) FROM q GROUP BY patient_id",
    ],
)
def test_a_key_beside_a_star_is_the_one_that_was_named(dialect: str, text: str) -> None:
    query = accepted(Case(text, declared=Declared(keys=("n",))), dialect)
    with DATABASES[dialect]() as run:
        found = by_patient(run(query, 0))
    assert {str(key) for key in found} == {str(n) for rows in VISITS.values() for *_, n in rows if n is not None}


@pytest.mark.parametrize("dialect", EVERY)
def test_what_mixes_patients_or_can_fail_on_a_row_is_refused_in_one_sentence(dialect: str) -> None:
    for case in (case for case in (*MIXING, *FAILING) if dialect in case.dialects):
        said = refused(case, dialect)
        assert said.startswith("tables.visits.relation "), case.text
        assert said.count(".\x20") == 0, said


def test_the_corpus_is_as_large_as_it_claims() -> None:
    assert len({case.text for case in MIXING}) >= 60
    assert len({case.text for case in HONEST}) >= 40
    for dialect in EVERY:
        assert sum(dialect in case.dialects for case in MIXING) >= 60
        assert sum(dialect in case.dialects for case in HONEST) >= 40


def _by_name_alone(self: Scope, column: exp.Column) -> None:
    """Resolve a bare name in the outermost query that has a table."""
    scope = self
    while scope.parent is not None and scope.parent.sources:
        scope = scope.parent
    if column.args.get("table") is None:
        column.set("table", next(iter(scope.sources.values())).identifier.copy())


MUTANTS: dict[str, tuple[object, str, object]] = {
    "names are not resolved from the inside": (Scope, "qualify", _by_name_alone),
    "tables need no tie": (ownership, "meets", lambda _pair, _keys, _tied: True),
    "any alias is the key": (Promise, "keys_of", lambda *_: frozenset(("patient_id", "dx"))),
    "what is grouped is not looked at": (ownership.Ownership, "_rows_together", lambda *_: False),
    "every JOIN is one": (ownership, "beyond", lambda *_: ""),
    "a value may be several rows": (ownership, "is_one_row", lambda *_: True),
    "a table of patients is public": (ownership.Ownership, "_is_public", lambda _self, item: item.name == "labs"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_corpus_notices_a_check_that_looks_less_closely(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, attribute, other = MUTANTS[name]
    monkeypatch.setattr(place, attribute, other)
    corpus = FAILING if name == "a value may be several rows" else MIXING
    # One that refuses more is no danger: what counts is what comes through.
    assert [case.text for case in corpus if any(not refused(case, dialect) for dialect in case.dialects)]


ROW_ERRORS = {
    "duckdb": ("ConversionException", "OutOfRangeException", "InvalidInputException"),
    "sqlite": ("OperationalError",),
    "postgres": ("DataError", "NumericValueOutOfRange", "InvalidTextRepresentation", "DivisionByZero",
                 "DatetimeFieldOverflow", "InvalidDatetimeFormat"),
}  # fmt: skip
"""What a row fails with; a statement that is not understood fails otherwise, or with other words."""


@pytest.mark.parametrize("dialect", EVERY)
def test_without_the_guards_a_row_fails_honest_relations(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if dialect == "postgres" and absent():
        pytest.skip(absent())
    monkeypatch.setattr("site_agent.reading.relations.hospital_select._UNFAILING", {dialect: lambda _query: None})
    for case in (case for case in HONEST if dialect in case.dialects):
        with DATABASES[dialect]() as run:
            try:
                run(accepted(case, dialect), 0)
            except Exception as error:  # noqa: BLE001
                if type(error).__name__ in ROW_ERRORS[dialect] and ("overflow" in str(error) or dialect != "sqlite"):
                    return
    pytest.fail("no row failed anything")


def test_a_row_of_sqlite_does_not_read_the_clock() -> None:
    of_note = "date(note) AS a, julianday(note) AS b, strftime('%Y', note) AS c, datetime(note, '+1 day') AS d"
    with in_sqlite() as run:
        rows = run(accepted(Case(f"SELECT patient_id, {of_note} FROM visits WHERE note LIKE 'no%'"), "sqlite"), 0)
    assert rows == [("hostile", repr(("hostile", None, None, None, None)))]
