"""A hospital's SELECT over its own files: what it says is read, and what it cannot read is said before the charge."""

from __future__ import annotations

from pathlib import Path

import pytest

from site_agent.reading.dataset import Dataset, TableSource
from site_agent.serving.configuration import parse_site
from site_agent.serving.open_dataset import open_dataset
from tests.site_agent.sources.tables import (
    ARROW,
    KEY,
    dataset,
    form,
    random_rows,
    study,
    totals,
    write_csv,
    write_parquet,
)
from wardround.federation.errors import ConfigurationMistaken, SchemaRefused, SourceFailed
from wardround.federation.question.query import Aggregate, Grouping, Query, Statistic
from wardround.privacy.noise.distribution import Mechanism

ROWS = random_rows(patients=20, rows=200, seed=21)
ASKED = form(
    Query("visits", (Aggregate(Statistic.COUNT), Aggregate(Statistic.MEAN, "sbp")), None, (Grouping("dx"),)),
    study(rows=100, groups=4),
    Mechanism.DISCRETE_LAPLACE,
)
WRITERS = {"csv": write_csv, "parquet": write_parquet}
SITE = """
[site]
name = "one"
patients = 100
[policy]
epsilon = 1.0
delta = 1e-6
[tables.visits]
source = "visits.csv"
"""


def opened(folder: Path, kind: str, relation: str | None, rows: list[dict[str, object]] | None = None) -> Dataset:
    WRITERS[kind](folder / f"visits.{kind}", ROWS if rows is None else rows)
    return open_dataset({"visits": TableSource(f"visits.{kind}", relation)}, folder=folder, key=KEY)


@pytest.mark.parametrize("kind", WRITERS)
def test_a_plain_select_changes_nothing(tmp_path: Path, kind: str) -> None:
    whole = totals(opened(tmp_path, kind, None), ASKED)
    assert totals(opened(tmp_path, kind, "SELECT * FROM this"), ASKED) == whole


@pytest.mark.parametrize("kind", WRITERS)
def test_a_select_renames_filters_and_joins_files_to_themselves(tmp_path: Path, kind: str) -> None:
    kept = [row for row in ROWS if row["sex"]]
    expected = totals(dataset(write_parquet(tmp_path / "kept.parquet", kept)), ASKED)
    renamed = [{**row, "dx": None, "age": None} for row in ROWS]
    relation = (
        "WITH mine AS (SELECT patient_id AS who, sbp, dx FROM this AS t WHERE CAST(t.sex AS BOOLEAN))"
        " SELECT who AS patient_id, sbp, dx FROM mine"
    )
    assert totals(opened(tmp_path, kind, relation), ASKED) == expected
    assert totals(opened(tmp_path, kind, relation, renamed), ASKED) != expected


def test_a_cast_of_the_hospitals_that_one_row_breaks_breaks_nothing(tmp_path: Path) -> None:
    rows = [{"patient_id": "a", "sbp": 100.0, "dx": "E11"}, {"patient_id": "b", "sbp": "canary", "dx": "E11"}]
    source = opened(tmp_path, "csv", "SELECT patient_id, dx, CAST(sbp AS DOUBLE) AS sbp FROM this", rows)
    count, mean = totals(source, ASKED)
    assert count[0] == 2
    assert sum(mean) == ASKED.parts[1].quantisers[0].high


@pytest.mark.parametrize("again", ["age * age + 19", "CAST(age * age AS DOUBLE)"])
def test_what_two_columns_of_a_select_have_in_common_breaks_nothing(tmp_path: Path, again: str) -> None:
    """DuckDB would work out age * age once, outside both guards, and fail for the row that overflows."""
    rows = [{"patient_id": who, "age": age, "dx": "E11"} for who, age in (("a", 9), ("b", 2**62))]
    asked = form(
        Query("visits", (Aggregate(Statistic.CORRELATION, "sbp", others=("age",)),)),
        study(rows=100, groups=4),
        Mechanism.DISCRETE_LAPLACE,
    )
    relation = f"SELECT patient_id, age * age AS age, {again} AS sbp, dx FROM this"
    both = totals(opened(tmp_path, "parquet", relation, rows), asked)
    assert both == totals(opened(tmp_path, "parquet", relation, rows[:1]), asked), "the row that overflows is left out"


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize(
    ("relation", "words"),
    [
        ("SELECT * FROM this LIMIT 3", "LIMIT"),
        ("SELECT * FROM that", "only this"),
        ("SELECT patient_id, nothing AS sbp, dx FROM this", "cannot be read by the SELECT"),
        ("SELECT patient_id, sbp FROM this", "'dx'"),
        ("SELECT patient_id, [sbp] AS sbp, dx FROM this", "may not use array"),
        ("WITH this AS (SELECT 1 AS patient_id) SELECT * FROM this", "the name this"),
        ("SELECT * FROM read_csv('/etc/passwd')", "no functions"),
    ],
)
def test_a_select_that_cannot_be_read_is_refused_before_the_charge(
    tmp_path: Path, kind: str, relation: str, words: str
) -> None:
    source = opened(tmp_path, kind, relation)
    with pytest.raises(SchemaRefused, match=words):
        source.check(ASKED)
    with pytest.raises(SourceFailed):
        source.bounded(ASKED)


@pytest.mark.parametrize("kind", WRITERS)
def test_files_with_other_columns_cannot_be_read_by_one_select(tmp_path: Path, kind: str) -> None:
    names = [name for name in ARROW if name != "dose"]
    WRITERS[kind](tmp_path / f"a.{kind}", ROWS)
    WRITERS[kind](tmp_path / f"b.{kind}", ROWS, names if kind == "csv" else {name: ARROW[name] for name in names})
    table = TableSource(f"{kind}:*.{kind}", "SELECT * FROM this")
    with pytest.raises(SchemaRefused):
        open_dataset({"visits": table}, folder=tmp_path, key=KEY).check(ASKED)


@pytest.mark.parametrize("kind", WRITERS)
def test_several_files_are_one_table_to_a_select(tmp_path: Path, kind: str) -> None:
    whole = totals(opened(tmp_path, kind, None), ASKED)
    parts = tmp_path / "parts"
    parts.mkdir()
    WRITERS[kind](parts / f"a.{kind}", ROWS[:90])
    WRITERS[kind](parts / f"b.{kind}", ROWS[90:])
    table = TableSource(f"{kind}:parts", "SELECT * FROM this WHERE patient_id IS NOT NULL")
    assert totals(open_dataset({"visits": table}, folder=tmp_path, key=KEY), ASKED) == whole


def test_a_relation_that_mixes_patients_is_a_mistake_in_the_configuration() -> None:
    assert parse_site(SITE + 'relation = "SELECT * FROM this WHERE age > 3"\n', study()).tables["visits"].relation
    with pytest.raises(ConfigurationMistaken, match="LIMIT"):
        parse_site(SITE + 'relation = "SELECT * FROM this LIMIT 3"\n', study())


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('public = ["codes"]', "public must be left out: it is about"),
        ('relation = "SELECT * FROM this"\npublic = ["codes"]', "public must be left out: a SELECT over files"),
        ('relation = "SELECT * FROM this"\npublic = "codes"', "public must be a list of texts"),
        ('relation = "SELECT * FROM this"\nkey = ["a..b"]', "key must be a list of names"),
        ('relation = "SELECT nr AS patient_id, max(age) AS age FROM this GROUP BY nr"', 'add key = \\["nr"\\]'),
    ],
)
def test_what_is_said_about_tables_wrongly_gets_one_sentence(lines: str, words: str) -> None:
    with pytest.raises(ConfigurationMistaken, match=words):
        parse_site(SITE + lines + "\n", study())


def test_what_is_said_about_tables_is_read() -> None:
    relation = 'relation = "SELECT nr AS patient_id, max(age) AS age FROM this GROUP BY nr"\nkey = ["nr"]\n'
    assert parse_site(SITE + relation, study()).tables["visits"].declared.keys == ("nr",)
    joined = SITE.replace("visits.csv", "ehr.duckdb") + (
        'relation = "SELECT v.patient_id, c.name FROM visits v JOIN codes c ON c.code = v.dx"\npublic = ["codes"]\n'
    )
    assert parse_site(joined, study()).tables["visits"].declared.public == ("codes",)
