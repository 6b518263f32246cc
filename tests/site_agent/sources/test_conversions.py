"""Conversions that a database makes by itself: what a value could fail is refused, what is accepted none fails."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from site_agent.reading.dataset import Declared, TableSource
from site_agent.reading.memory_limits import Limits
from site_agent.reading.relations.hospital_select import relation_query
from site_agent.reading.sources.duckdb.connection import locked_database
from site_agent.reading.sources.duckdb.database import open_duckdb
from site_agent.reading.sources.duckdb.relation_types import check_merged_types
from site_agent.serving.open_dataset import open_dataset
from tests.site_agent.sources.postgresql_cluster import absent, cluster
from tests.site_agent.sources.relation_corpus import HONEST
from tests.site_agent.sources.tables import KEY, form, study, write_parquet
from tests.site_agent.sources.test_relation_corpus import COLUMNS, TYPES, accepted
from wardround.analyst.sql.read import parse
from wardround.federation.errors import FederationError, SchemaRefused

TABLE = study().tables[0]
DUCKDB = {
    "BIGINT": (-(2**63), 2**63 - 1),
    "HUGEINT": (-(2**127), 2**127 - 1),
    "UBIGINT": (0, 2**64 - 1),
    "INTEGER": (-(2**31), 2**31 - 1),
    "BOOLEAN": (True, False),
    "DECIMAL(38,30)": ("-99999999.5", "99999999.5"),
    "DECIMAL(38,0)": (-(10**37), 10**38 - 1),
    "DECIMAL(10,2)": ("-99999999.99", "99999999.99"),
    "DOUBLE": ("-1.7e308", "inf"),
    "FLOAT": ("-3.4e38", "nan"),
    "DATE": ("5000000-01-01", "infinity"),
    "TIMESTAMP": ("294246-01-01", "-infinity"),
    "TIMESTAMPTZ": ("294246-01-01", "infinity"),
    "TIMESTAMP_NS": ("2262-01-01", "1678-01-01"),
    "VARCHAR": ("x", "12"),
}
POSTGRESQL = {
    "int2": (-(2**15), 2**15 - 1),
    "int4": (-(2**31), 2**31 - 1),
    "int8": (-(2**63), 2**63 - 1),
    "numeric": ("1e1000", "-1e-400"),
    "float4": ("3.4e38", "nan"),
    "float8": ("1.7e308", "-infinity"),
    "date": ("5000000-01-01", "infinity"),
    "timestamp": ("294276-01-01", "-infinity"),
    "timestamptz": ("294276-01-01", "4713-01-01 BC"),
    "text": ("x", "1e400"),
    "varchar": ("x", "12"),
    "bool": ("true", "false"),
}
FORMS = {
    "UNION ALL": "SELECT patient_id, a{one} AS x FROM visits UNION ALL SELECT patient_id, a{two} AS x FROM visits",
    "CASE": "SELECT patient_id, CASE WHEN a{one} IS NULL THEN a{one} ELSE a{two} END AS x FROM visits",
    "coalesce": "SELECT patient_id, coalesce(a{one}, a{two}) AS x, coalesce(a{two}, a{one}) AS y FROM visits",
    "IN a query": (
        "SELECT patient_id FROM visits "
        "WHERE a{one} IN (SELECT b{two} FROM codes) OR a{two} IN (SELECT b{one} FROM codes)"
    ),
    "IN a list": "SELECT patient_id FROM visits WHERE a{one} IN (a{two}, a{one})",
    "comparison": "SELECT patient_id FROM visits WHERE a{one} < a{two} OR a{one} = a{two}",
    "of aggregates": "SELECT patient_id, coalesce(max(a{one}), max(a{two})) AS x FROM visits GROUP BY patient_id",
    "in WITH": (
        "WITH q AS (SELECT patient_id, a{one} AS x FROM visits), r AS (SELECT patient_id, a{two} AS x FROM visits) "
        "SELECT * FROM q UNION ALL SELECT * FROM r"
    ),
}
DECLARED = Declared(public=("codes",))
Check = Callable[[str], bool]
"""Whether a relation is accepted; one that is accepted was run."""


def rows(types: dict[str, tuple[object, object]]) -> Iterator[list[object]]:
    """Every type's extremes, and beside each the absence of all others: coalesce comes to every one of them."""
    for place in (0, 1):
        yield [values[place] for values in types.values()]
        for kept in range(len(types)):
            yield [values[place] if number == kept else None for number, values in enumerate(types.values())]


@contextlib.contextmanager
def in_duckdb() -> Iterator[Check]:
    with locked_database((), Limits()) as connection:
        for table, prefix in (("visits", "a"), ("codes", "b")):
            columns = ", ".join(f"{prefix}{place} {name}" for place, name in enumerate(DUCKDB))
            connection.execute(f"CREATE TABLE {table} (patient_id VARCHAR, {columns})")
            marks = ", ".join(f"CAST(CAST(? AS VARCHAR) AS {name})" for name in DUCKDB)
            for values in rows(DUCKDB):
                connection.execute(f"INSERT INTO {table} VALUES ('p', {marks})", values)

        def check(text: str) -> bool:
            try:
                query = relation_query(TABLE, text, "duckdb", declared=DECLARED)
                connection.execute(f"DESCRIBE {query.sql(dialect='duckdb')}")
                check_merged_types(connection, "visits", query)
            except (FederationError, duckdb.BinderException):
                return False
            connection.execute(query.sql(dialect="duckdb")).fetchall()
            return True

        yield check


@contextlib.contextmanager
def in_postgresql() -> Iterator[Check]:
    import psycopg

    from site_agent.reading.sources.postgresql.schema import check_merged_types as check_types

    with psycopg.connect(cluster().address("postgres")) as connection:
        for table, prefix in (("visits", "a"), ("codes", "b")):
            columns = ", ".join(f"{prefix}{place} {name}" for place, name in enumerate(POSTGRESQL))
            connection.execute(f"CREATE TEMP TABLE {table} (patient_id text, {columns})".encode())
            marks = ", ".join(f"%s::text::{name}" for name in POSTGRESQL)
            for values in rows(POSTGRESQL):
                connection.execute(f"INSERT INTO {table} VALUES ('p', {marks})".encode(), values)

        def check(text: str) -> bool:
            try:
                query = relation_query(TABLE, text, "postgres", declared=DECLARED)
                with connection.transaction():
                    connection.execute(query.copy().limit(0).sql(dialect="postgres").encode())
                check_types(connection, TABLE, query)
            except (FederationError, psycopg.ProgrammingError):
                return False
            connection.execute(f"SELECT CAST(q.* AS text) FROM ({query.sql(dialect='postgres')}) AS q".encode())
            return True

        yield check
        connection.rollback()


@pytest.mark.parametrize("way", FORMS)
@pytest.mark.parametrize("engine", ["duckdb", "postgresql"])
def test_no_value_fails_what_is_accepted(engine: str, way: str) -> None:
    if engine == "postgresql" and absent():
        pytest.skip(absent())
    types, opened = (DUCKDB, in_duckdb) if engine == "duckdb" else (POSTGRESQL, in_postgresql)
    with opened() as check:
        for one, two in itertools.combinations_with_replacement(range(len(types)), 2):
            told = check(FORMS[way].format(one=one, two=two))
            if one == two and way != "of aggregates":
                assert told, list(types)[one]


@pytest.mark.parametrize(
    ("engine", "one", "two", "ways"),
    [
        ("duckdb", "BIGINT", "DECIMAL(38,30)", ("UNION ALL", "in WITH", "IN a query", "IN a list")),
        ("duckdb", "DATE", "TIMESTAMP", ("UNION ALL", "in WITH", "IN a query")),
        ("postgresql", "date", "timestamp", ("UNION ALL", "in WITH", "CASE", "coalesce", "of aggregates")),
        ("postgresql", "numeric", "float8", ("UNION ALL", "CASE", "coalesce", "comparison", "IN a query")),
    ],
)
def test_what_a_value_could_fail_is_refused_and_accepted_with_a_cast(
    engine: str, one: str, two: str, ways: tuple[str, ...]
) -> None:
    if engine == "postgresql" and absent():
        pytest.skip(absent())
    types, opened = (DUCKDB, in_duckdb) if engine == "duckdb" else (POSTGRESQL, in_postgresql)
    places = {"one": list(types).index(one), "two": list(types).index(two)}
    with opened() as check:
        for way in ways:
            assert not check(FORMS[way].format(**places)), way
        cast = FORMS["UNION ALL"].replace("a{one} AS", "CAST(a{one} AS TEXT) AS")
        assert check(cast.replace("a{two} AS", "CAST(a{two} AS TEXT) AS").format(**places))


@pytest.mark.parametrize("engine", ["duckdb", "postgres"])
def test_honest_relations_stay_accepted(engine: str) -> None:
    if engine == "postgres" and absent():
        pytest.skip(absent())
    made = [
        f"CREATE TABLE {table} ({', '.join(f'{name} {TYPES[name]}' for name in names)})"
        for table, names in COLUMNS.items()
    ]
    cases = [accepted(case, engine) for case in HONEST if engine in case.dialects]
    assert len(cases) > 50
    if engine == "duckdb":
        with locked_database((), Limits()) as connection:
            for statement in made:
                connection.execute(statement)
            for query in cases:
                check_merged_types(connection, "visits", query)
        return
    import psycopg

    from site_agent.reading.sources.postgresql.schema import check_merged_types as check_types

    with psycopg.connect(cluster().address("postgres")) as other:
        for statement in made:
            other.execute(statement.replace("CREATE TABLE", "CREATE TEMP TABLE").encode())
        for query in cases:
            check_types(other, TABLE, query)
        other.rollback()


def test_such_a_relation_over_files_is_refused_too(tmp_path: Path) -> None:
    types = {"patient_id": pa.string(), "age": pa.int64(), "small": pa.decimal128(38, 30)}
    write_parquet(tmp_path / "visits.parquet", [{"patient_id": "p", "age": 1, "small": None}], types)
    union = "SELECT patient_id, age FROM this UNION ALL SELECT patient_id, small AS age FROM this"
    opened = open_dataset({"visits": TableSource("visits.parquet", union)}, folder=tmp_path, key=KEY)
    with pytest.raises(SchemaRefused, match=r"has BIGINT and DECIMAL\(38,30\) in UNION ALL"):
        opened.check(form(parse("SELECT COUNT(*) FROM visits"), study()))


def test_a_site_refuses_such_a_relation_before_a_row_is_read(tmp_path: Path) -> None:
    path = str(tmp_path / "ward.duckdb")
    columns = "patient_id VARCHAR, age BIGINT, small DECIMAL(38,30)"
    with duckdb.connect(path) as connection:
        connection.execute(f"CREATE TABLE visits ({columns})")
    union = "SELECT patient_id, age FROM visits UNION ALL SELECT patient_id, small AS age FROM visits"
    opened = open_duckdb("visits", path, TableSource(path, union), key=KEY)
    with pytest.raises(SchemaRefused) as refused:
        opened.check(form(parse("SELECT COUNT(*) FROM visits"), study()))
    assert refused.value.message == (
        "tables.visits.relation has BIGINT and DECIMAL(38,30) in UNION ALL, which the database converts by itself and "
        "some value could fail: write CAST(… AS …) so that they have one type."
    )
