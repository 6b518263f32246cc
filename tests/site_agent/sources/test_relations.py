"""A hospital's own SELECT: what can be seen to mix patients is refused, the rest is read as it stands."""

from __future__ import annotations

import duckdb
import pytest

from site_agent.reading.dataset import Declared
from site_agent.reading.relations.hospital_select import THIS, relation_query
from tests.site_agent.sources.tables import study
from wardround.federation.errors import ConfigurationMistaken

TABLE = study().tables[0]
DIALECTS = ("duckdb", "sqlite", "postgres")

GOOD = [
    "visits",
    "ehr.visits",
    '"my visits"',
    "SELECT * FROM visits",
    "SELECT pid AS patient_id, age FROM visits WHERE age > 40 ORDER BY age",
    "SELECT patient_id, max(age) AS age FROM visits GROUP BY patient_id, dx",
    "SELECT patient_id, row_number() OVER (PARTITION BY patient_id ORDER BY seen) AS age FROM visits",
    "SELECT patient_id, sum(age) OVER (PARTITION BY dx, patient_id) AS age FROM visits",
    "SELECT patient_id, age FROM a UNION ALL SELECT patient_id, age FROM b",
    "WITH mine AS (SELECT patient_id, min(seen) AS seen FROM visits GROUP BY patient_id) SELECT * FROM mine",
    "SELECT DISTINCT patient_id, dx FROM visits",
    "SELECT patient_id, (SELECT max(age) FROM visits b WHERE b.patient_id = a.patient_id) AS age FROM visits a",
    "SELECT patient_id, CASE WHEN age > 200 THEN NULL ELSE age END AS age FROM visits -- the ward's own\n",
]
BAD = [
    "",
    " ",
    "SELECT",
    "SELECT * FROM visits LIMIT 10",
    "SELECT * FROM visits OFFSET 10",
    "SELECT * FROM (SELECT * FROM visits ORDER BY age LIMIT 5) t",
    "SELECT patient_id, row_number() OVER (ORDER BY age) AS age FROM visits",
    "SELECT patient_id, avg(age) OVER () AS age FROM visits",
    "SELECT patient_id, rank() OVER (PARTITION BY dx ORDER BY age) AS age FROM visits",
    "SELECT dx, count(*) FROM visits GROUP BY dx",
    "SELECT max(age) AS age FROM visits",
    "SELECT patient_id, age - (SELECT avg(age) FROM visits) AS age FROM visits",
    "SELECT patient_id FROM visits WHERE age > (SELECT avg(age) FROM visits b WHERE b.dx = visits.dx)",
    "SELECT DISTINCT dx FROM visits",
    "SELECT patient_id FROM a UNION SELECT patient_id FROM b",
    "SELECT patient_id FROM a EXCEPT SELECT patient_id FROM b",
    "SELECT patient_id FROM a INTERSECT SELECT patient_id FROM b",
    "SELECT patient_id, random() AS age FROM visits",
    "SELECT patient_id, CURRENT_DATE AS seen FROM visits",
    "SELECT patient_id, CURRENT_TIMESTAMP AS seen FROM visits",
    "SELECT patient_id, date('now') AS seen FROM visits",
    "SELECT patient_id, rowid AS age FROM visits",
    "SELECT patient_id, ctid AS age FROM visits",
    "DELETE FROM visits",
    "DROP TABLE visits",
    "INSERT INTO visits VALUES (1)",
    "UPDATE visits SET age = 1",
    "SELECT * FROM visits; DROP TABLE visits",
    "SELECT * FROM visits; SELECT * FROM visits",
    "PRAGMA database_list",
    "ATTACH 'x' AS y",
    "COPY visits TO 'x'",
    "visits; DROP TABLE visits",
    "visits WHERE age > 40",
    "read_csv('x')",
    "SELECT * FROM read_csv('x')",
    "SELECT patient_id, pg_sleep(1) AS age FROM visits",
    "SELECT patient_id, load_extension('x') AS age FROM visits",
    "WITH RECURSIVE r AS (SELECT 1 AS patient_id UNION ALL SELECT patient_id + 1 FROM r) SELECT * FROM r",
    "SELECT patient_id, sum(age) FROM visits GROUP BY ROLLUP (patient_id)",
    "SELECT * FROM visits WHERE age = ?",
    "SELECT * FROM visits\x00",
]  # fmt: skip


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("text", GOOD)
def test_a_select_over_one_patients_own_rows_is_read(text: str, dialect: str) -> None:
    assert relation_query(TABLE, text, dialect).sql(dialect=dialect).upper().startswith(("SELECT", "WITH"))


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("text", BAD)
def test_what_mixes_patients_or_changes_something_is_refused_in_one_sentence(text: str, dialect: str) -> None:
    with pytest.raises(ConfigurationMistaken) as refused:
        relation_query(TABLE, text, dialect)
    assert str(refused.value).startswith("tables.visits.relation ")
    assert str(refused.value).count(". ") == 0


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        ("SELECT DISTINCT ON (dx) patient_id, dx FROM visits", "postgres"),
        ("SELECT * FROM visits FOR UPDATE", "postgres"),
        ("SELECT * INTO other FROM visits", "postgres"),
        ("SELECT * FROM visits FETCH FIRST 3 ROWS ONLY", "postgres"),
        ("SELECT * FROM visits TABLESAMPLE SYSTEM (10)", "postgres"),
        ("SELECT patient_id, nextval('s') AS age FROM visits", "postgres"),
        ("SELECT patient_id, 'now'::timestamp AS seen FROM visits", "postgres"),
        ("SELECT * FROM visits USING SAMPLE 10", "duckdb"),
        ("SELECT * FROM visits QUALIFY row_number() OVER (ORDER BY age) = 1", "duckdb"),
        ("SELECT patient_id, count(*) FROM visits GROUP BY ALL", "duckdb"),
        ("SELECT patient_id, today() AS seen FROM visits", "duckdb"),
    ],
)
def test_each_databases_own_ways_to_mix_patients_are_refused(text: str, dialect: str) -> None:
    with pytest.raises(ConfigurationMistaken):
        relation_query(TABLE, text, dialect)


@pytest.mark.parametrize(
    ("name", "dialect"),
    [
        *((name, "sqlite") for name in ("total", "median", "percentile", "group_concat", "jsonb_group_array")),
        *((name, "postgres") for name in ("every", "bit_xor", "range_agg", "regr_slope", "xmlagg", "json_arrayagg")),
        *((name, "duckdb") for name in ("mean", "favg", "product", "mad", "entropy", "arbitrary", "histogram")),
    ],
)
def test_an_aggregate_of_everybody_is_refused_whatever_a_database_calls_it(name: str, dialect: str) -> None:
    for text in (
        f"SELECT * FROM visits WHERE age > (SELECT {name}(age) FROM visits)",
        f"SELECT * FROM visits WHERE age > (SELECT {name}(age, ward) FROM visits)",
    ):
        with pytest.raises(ConfigurationMistaken):
            relation_query(TABLE, text, dialect)


def test_a_refusal_says_what_to_add_to_site_toml() -> None:
    grouped = "SELECT pid AS patient_id, max(age) AS age FROM visits GROUP BY 1"
    joined = "SELECT v.patient_id, c.dx FROM visits v JOIN ref.codes c ON v.dx = c.raw"
    for dialect in DIALECTS:
        with pytest.raises(ConfigurationMistaken, match=r'add key = \["pid"\]'):
            relation_query(TABLE, grouped, dialect)
        with pytest.raises(ConfigurationMistaken, match=r'public = \["ref.codes"\] if no patient'):
            relation_query(TABLE, joined, dialect)
        assert relation_query(TABLE, grouped, dialect, declared=Declared(keys=("pid",)))
        assert relation_query(TABLE, joined, dialect, declared=Declared(public=("ref.codes",)))
        with pytest.raises(ConfigurationMistaken):
            relation_query(TABLE, joined, dialect, declared=Declared(public=("codes",)))


def test_a_bare_name_inside_is_of_the_table_inside() -> None:
    inside = "SELECT 1 FROM labs l WHERE l.patient_id = v.patient_id AND x > 3"
    text = f"SELECT patient_id FROM visits v WHERE EXISTS ({inside})"
    assert "l.x > 3" in relation_query(TABLE, text, "sqlite").sql(dialect="sqlite")
    with pytest.raises(ConfigurationMistaken, match=r"write v.age or l.age"):
        relation_query(TABLE, "SELECT age FROM visits v JOIN labs l ON l.patient_id = v.patient_id", "sqlite")


def test_every_aggregate_of_duckdb_is_known() -> None:
    with duckdb.connect() as connection:
        found = connection.execute(
            "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = 'aggregate'"
        ).fetchall()
    names = [str(line[0]) for line in found if str(line[0])[0].isalpha()]
    assert len(names) > 50
    for name in names:
        with pytest.raises(ConfigurationMistaken):
            relation_query(TABLE, f"SELECT * FROM visits WHERE age > (SELECT {name}(age, ward) FROM visits)", "duckdb")


def test_over_files_only_the_files_can_be_named() -> None:
    assert relation_query(TABLE, "SELECT * FROM this", "duckdb", only=(THIS,)).sql()
    for text in ("SELECT * FROM visits", "SELECT * FROM other.this", "SELECT * FROM '/etc/passwd'"):
        with pytest.raises(ConfigurationMistaken):
            relation_query(TABLE, text, "duckdb", only=(THIS,))


def test_a_cast_of_the_hospitals_cannot_fail_on_a_row() -> None:
    query = relation_query(
        TABLE, "SELECT patient_id, CAST(age AS INT) AS age, sbp::DOUBLE AS sbp FROM visits", "duckdb"
    )
    assert query.sql(dialect="duckdb").count("TRY_CAST") == 2


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("SELECT v.pid AS pid, v.age AS age FROM v RIGHT JOIN w ON v.pid = w.pid", "write LEFT JOIN"),
        ("SELECT pid, sum(age) OVER x AS age FROM v WINDOW x AS (PARTITION BY pid)", "write each one"),
    ],
)
def test_what_is_refused_although_honest_says_what_to_write(text: str, instead: str) -> None:
    with pytest.raises(ConfigurationMistaken, match=instead):
        relation_query(TABLE, text, "duckdb")
