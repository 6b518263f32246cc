"""PostgreSQL: what the columns of a hospital's database may hold."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.site_agent.sources.conformance.study_rows import (
    TEXTS,
    UNIT_KEY,
    agreed,
    groupings,
    question,
    rows_of,
    strange,
)
from tests.site_agent.sources.postgresql_cluster import absent, cluster
from tests.site_agent.sources.postgresql_tables import ask, dataset, new_table, opened, postgresql_texts, study, totals
from tests.site_agent.sources.reference_totals import reference_totals
from wardround.federation.plan.layout import shape
from wardround.federation.question.cohort import IsNull, Not
from wardround.federation.question.query import Aggregate, GroupBy, Grouping, Query, Statistic
from wardround.privacy.noise.distribution import Mechanism

pytestmark = pytest.mark.skipif(bool(absent()), reason=absent() or "PostgreSQL is there")


def test_text_columns_are_read_as_what_they_say() -> None:
    rows = rows_of(random.Random(3), patients=12, rows=80)
    for statistic in (Statistic.SUM, Statistic.MEAN, Statistic.SURVIVAL, Statistic.CHOICE):
        asked = question(statistic, agreed(), next(iter(groupings(statistic).values())))
        assert totals(postgresql_texts(rows, agreed(), Path("/")), asked) == reference_totals(asked, rows)


def test_no_text_can_raise() -> None:
    draw = random.Random(5)
    rows = [{UNIT_KEY: "a", **dict.fromkeys(strange(draw, "a"), word), "x": word} for word in TEXTS]
    rows += [strange(draw, "b", texts=True) for _ in range(30)]
    source = postgresql_texts([{**row, UNIT_KEY: row[UNIT_KEY] or "c"} for row in rows], agreed(), Path("/"))
    for statistic in (Statistic.SUM, Statistic.REGRESSION, Statistic.SURVIVAL, Statistic.QUANTILE):
        for grouping in groupings(statistic).values():
            assert source.bounded(question(statistic, agreed(), grouping))


@pytest.mark.parametrize(
    ("kind", "values", "total"),
    [
        ("numeric", ["NaN", "Infinity", "-Infinity", "1e1000", "1e-1000", "-1e1000", "2.5"], 2.5),
        ("double precision", ["NaN", "Infinity", "-Infinity", "1e308", "5e-324", "-0.0", "2.5"], 12.5),
        ("real", ["NaN", "Infinity", "3e38", "1e-45", "2.5"], 12.5),
        ("text", ["NaN", "inf", "1e400", "1e-400", " 2.5\t", "0x10", "1_0", "2,5", "", "٣"], 2.5),
        ("varchar(9)", ["+2", ".5", "1e", "e1", ".", "-", "+-1"], 2.5),
        ("smallint", ["-3", "2", None], 2.0),
    ],
)
def test_numbers_that_are_none_are_absent(kind: str, values: list[str | None], total: float) -> None:
    name = new_table([{"patient_id": "a", "x": value} for value in values], {"patient_id": "text", "x": kind})
    asked = ask(study('x = { type = "number", lower = 0, upper = 10, step = 0.5 }'), Aggregate(Statistic.SUM, "x"))
    part = dataset(name).bounded(asked)[0]
    assert float(part.total[0] * part.grid) == total


@pytest.mark.parametrize(
    ("kind", "values", "present"),
    [
        ("date", ["infinity", "-infinity", "9999-12-31", "0044-03-15 BC", "5874897-12-31", "2024-01-01", None], 4),
        ("timestamp", ["infinity", "9999-12-31 23:59", "0044-03-15 BC", "2024-01-01 12:00"], 3),
        ("timestamptz", ["-infinity", "2024-01-01 12:00+02"], 1),
        ("text", ["2024-02-30", "now", "tomorrow", "infinity", "epoch", "2024-01-01", "01/02/2024", "20240101"], 1),
    ],
)
def test_days_that_are_none_are_absent(kind: str, values: list[str | None], present: int) -> None:
    rows = [{"patient_id": f"p{place}", "day": value} for place, value in enumerate(values)]
    name = new_table(rows, {"patient_id": "text", "day": kind})
    agreed_study = study('day = { type = "date", lower = "2024-01-01", upper = "2024-12-31" }')
    cohort = Not(IsNull("day"))
    asked = shape(Query("visits", (Aggregate(Statistic.COUNT),), cohort), agreed_study, Mechanism.DISCRETE_LAPLACE)
    assert totals(dataset(name), asked) == [[present]]
    by_month = Query("visits", (Aggregate(Statistic.COUNT),), None, (Grouping("day", GroupBy.MONTH),))
    assert sum(totals(dataset(name), shape(by_month, agreed_study, Mechanism.DISCRETE_LAPLACE))[0]) == (
        values.count("2024-01-01") + sum("2024-01-01 12" in (value or "") for value in values)
    )
    batches = list(opened(name).batches(agreed_study.tables[0]))
    assert sum(len(batch.units) for batch in batches) == len(values)


@pytest.mark.parametrize(
    ("kind", "values", "yes", "no"),
    [
        ("boolean", ["t", "f", None], 1, 1),
        ("int2", ["1", "0", "2", "-1"], 1, 1),
        ("numeric", ["1.0", "0.00", "NaN"], 1, 1),
        ("text", ["TRUE", " y ", "no", "0.0", "2", "", "maybe"], 2, 2),
    ],
)
def test_truth_has_many_spellings(kind: str, values: list[str | None], yes: int, no: int) -> None:
    rows = [{"patient_id": f"p{place}", "sex": value} for place, value in enumerate(values)]
    name = new_table(rows, {"patient_id": "text", "sex": kind})
    asked = ask(study('sex = { type = "boolean" }'), Aggregate(Statistic.COUNT), by=(Grouping("sex"),))
    assert totals(dataset(name), asked) == [[no, yes]]


@pytest.mark.parametrize(
    ("kind", "keys", "patients"),
    [
        ("text", ["a", "A", "a ", "", None], 3),
        ("char(4)", ["a", "a  ", "b", None], 2),
        ("uuid", ["0" * 32, "0" * 31 + "1", "0" * 32], 2),
        ("numeric", ["1", "1.0", "1.00", "2", "NaN"], 3),
        ("double precision", ["0", "-0", "1.5", "NaN", "Infinity"], 2),
        ("bigint", ["-9223372036854775808", "9223372036854775807", "0", "0", None], 3),
        ("mood", ["glad", "sad", "glad", None], 2),
        ("folded", ["a", "A", "b"], 3),
    ],
)
def test_keys_of_every_type_tell_patients_apart(kind: str, keys: list[str | None], patients: int) -> None:
    cluster().run(
        "DO $$ BEGIN CREATE TYPE mood AS ENUM ('glad', 'sad'); EXCEPTION WHEN duplicate_object THEN NULL; END $$",
        "DO $$ BEGIN CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false); "
        'EXCEPTION WHEN OTHERS THEN CREATE COLLATION IF NOT EXISTS nocase FROM "C"; END $$',
        "DO $$ BEGIN CREATE DOMAIN folded AS text COLLATE nocase; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
    )
    name = new_table([{"patient_id": key} for key in keys], {"patient_id": kind})
    agreed_study = study('dx = { type = "category", values = ["E11"] }')
    asked = ask(agreed_study, Aggregate(Statistic.COUNT, "patient_id"))
    assert totals(dataset(name), asked) == [[patients]]
