"""PostgreSQL: which rows of a patient with too many count, by a choice and by the hospital's own rank."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from site_agent.reading.dataset import Dataset, TableSource
from site_agent.serving.open_dataset import open_dataset
from tests.site_agent.sources.conformance.study_rows import UNIT_KEY, agreed, rows_of, strange
from tests.site_agent.sources.postgresql_cluster import absent, cluster
from tests.site_agent.sources.postgresql_tables import (
    AB,
    BY_DX,
    KEY,
    ask,
    dataset,
    fitting,
    new_table,
    opened,
    study,
    totals,
)
from tests.site_agent.sources.reference_totals import Row, reference_totals
from wardround.federation.errors import SchemaRefused
from wardround.federation.plan.layout import shape
from wardround.federation.question.query import Aggregate, Grouping, Query, Statistic
from wardround.federation.study.study import Study
from wardround.privacy.noise.distribution import Mechanism

pytestmark = pytest.mark.skipif(bool(absent()), reason=absent() or "PostgreSQL is there")


def keyed(rows: Sequence[Row], keys: dict[str, int]) -> list[Row]:
    """The same rows under keys that are whole numbers."""
    return [{**row, UNIT_KEY: keys.get(str(row[UNIT_KEY])) if row[UNIT_KEY] else None} for row in rows]


def whole_keys(rows: Sequence[Row], agreed_study: Study) -> Dataset:
    columns = {column.name: column for column in agreed_study.tables[0].columns}
    types = {UNIT_KEY: "bigint", "dx": "text", "ward": "bigint", "cost": "numeric", "sbp": "double precision"}
    typed = [
        {UNIT_KEY: row[UNIT_KEY]} | {n: fitting(row[n], c) for n, c in columns.items() if n in types} for row in rows
    ]
    return dataset(new_table(typed, types))


PLACES = {"a": 10, "b": 2**62, "c": -5, "target": 11, **{f"p{place}": place for place in range(40)}}


@pytest.mark.parametrize("target", [0, 11, 2**50, 2**63 - 1, -1, -(2**63)])
def test_a_patient_with_a_whole_number_stays_within_the_norms_whoever_else_is_there(target: int) -> None:
    draw = random.Random(target)
    agreed_study = agreed(rows=3, groups=2)
    keys = {**PLACES, "target": target}
    others = keyed([strange(draw, draw.choice(("a", "b", "c", None))) for _ in range(40)], keys)
    mine = keyed([strange(draw, "target") for _ in range(30)], keys)
    mixed = [*others, *mine]
    draw.shuffle(mixed)
    without, alone, along = (whole_keys(rows, agreed_study) for rows in (others, mine, mixed))
    aggregates = (
        Aggregate(Statistic.COUNT),
        Aggregate(Statistic.COUNT, UNIT_KEY),
        Aggregate(Statistic.SUM, "cost"),
        Aggregate(Statistic.HISTOGRAM, "cost", bins=5),
        Aggregate(Statistic.MEAN, "sbp"),
    )
    query = Query("visits", aggregates, None, (Grouping("dx"), Grouping("ward")))
    asked = shape(query, agreed_study, Mechanism.DISCRETE_GAUSSIAN)
    before, own, after = (source.bounded(asked) for source in (without, alone, along))
    for less, only, more in zip(before, own, after, strict=True):
        assert (more.total - less.total).tolist() == only.total.tolist()
        assert abs(only.total).sum() <= only.l1_sensitivity
        assert (only.total.astype(object) ** 2).sum() <= only.l2_sensitivity_squared
    assert own[0].total.sum() == 3 * 64, "the cap keeps as many rows as it may"


@pytest.mark.parametrize("before_the_edge", [None, 15])
def test_where_nobody_has_too_many_rows_whole_keys_give_the_same_integers(before_the_edge: int | None) -> None:
    """Also where some keys have no place in the numbers that are sorted, and others just have."""
    from site_agent.reading.sources.postgresql.choosing import packing

    rows = rows_of(random.Random(9), patients=30, rows=150)
    for by in (BY_DX, (Grouping("dx"), Grouping("ward"))):
        for aggregate in (Aggregate(Statistic.COUNT), Aggregate(Statistic.SUM, "cost")):
            asked = shape(Query("visits", (aggregate,), None, by), agreed(), Mechanism.DISCRETE_GAUSSIAN)
            packed = packing(asked.parts[0])
            assert packed is not None
            assert packed.folded == (aggregate.statistic is Statistic.SUM)
            first = 0 if before_the_edge is None else 2**packed.unit_bits - before_the_edge
            typed = keyed(rows, {f"p{place}": first + place for place in range(30)})
            assert totals(whole_keys(typed, agreed()), asked) == reference_totals(asked, typed)


def test_every_row_of_a_crowded_patient_is_as_likely_to_count() -> None:
    """A cap of one among four different rows, over a thousand patients: nobody's code is preferred."""
    words = ["A", "B", "C", "D"]
    rows: list[Row] = [{"patient_id": place, "dx": word} for place in range(1000) for word in words]
    name = new_table(rows, {"patient_id": "int8", "dx": "text"})
    agreed_study = study('dx = { type = "category", values = ["A", "B", "C", "D"] }', rows=1)
    found = totals(dataset(name), ask(agreed_study, Aggregate(Statistic.COUNT), by=BY_DX))[0]
    assert sum(found) == 1000
    # 1000 draws of a quarter: six standard deviations are 82.
    assert all(abs(number - 250) < 82 for number in found)


def test_every_row_of_a_crowded_patient_is_as_likely_to_be_added() -> None:
    """The same of a sum, whose records leave a hash no room of its own: neither a code nor a value is preferred."""
    codes: list[Row] = [{"patient_id": place, "dx": word, "x": 3.7} for place in range(1000) for word in "ABCD"]
    values: list[Row] = [
        {"patient_id": place, "dx": "A", "x": x} for place in range(1000) for x in (0.5, 1.5, 2.5, 3.5)
    ]
    columns = 'dx = { type = "category", values = ["A", "B", "C", "D"] }\nx = { type = "number", lower = 0, upper = 4 }'
    asked = ask(study(columns, rows=1), Aggregate(Statistic.SUM, "x"), by=BY_DX)
    types = {"patient_id": "int8", "dx": "text", "x": "float8"}
    by_code, by_value = (totals(dataset(new_table(rows, types)), asked)[0] for rows in (codes, values))
    level = float(asked.parts[0].quantisers[0].per_unit)
    assert sum(by_code) == pytest.approx(1000 * 3.7 * level, rel=1e-6), "one row of each patient"
    # 1000 draws of a quarter: six standard deviations are 82; of the mean of four values they are 0.22.
    assert all(abs(total / (3.7 * level) - 250) < 82 for total in by_code)
    assert abs(by_value[0] / (1000 * level) - 2) < 0.22


def test_the_order_of_rows_decides_nothing() -> None:
    rows: list[Row] = [{"patient_id": place % 7, "dx": "ABCD"[place % 4], "x": place / 3} for place in range(200)]
    columns = (
        'dx = { type = "category", values = ["A", "B", "C", "D"] }\nx = { type = "number", lower = 0, upper = 99 }'
    )
    asked = ask(study(columns, rows=5), Aggregate(Statistic.COUNT), Aggregate(Statistic.SUM, "x"), by=BY_DX)
    types = {"patient_id": "int8", "dx": "text", "x": "float8"}
    found = [totals(dataset(new_table(order, types)), asked) for order in (rows, rows[::-1])]
    assert found[0] == found[1]


# --- The hospital's rank --------------------------------------------------------------------------------------


def test_windows_make_the_choices_of_an_array() -> None:
    rows: list[Row] = [
        {"patient_id": place % 50 - 3, "dx": "AB"[place % 3 // 2], "x": place / 10} for place in range(900)
    ]
    name = new_table(rows, {"patient_id": "int8", "dx": "text", "x": "float8"})
    agreed_study = study(f'{AB}\nx = {{ type = "number", lower = 0, upper = 90 }}', rows=5)
    asked = ask(agreed_study, Aggregate(Statistic.COUNT), Aggregate(Statistic.SUM, "x"), by=BY_DX)
    table = opened(name)
    with table.reading() as connection:
        once = table.tallies(connection, asked)
        found = [
            [part.total.tolist() for part in replace(once, arrays=arrays).bounded(asked)] for arrays in (True, False)
        ]
    assert found[0] == found[1]
    assert sum(found[0][0]) == 50 * 5


def test_a_glance_at_the_first_rows_changes_no_total() -> None:
    rows: list[Row] = [
        {"patient_id": (place % 50) << (place % 2 * 50), "dx": "AB"[place % 3 // 2], "x": place / 10}
        for place in range(900)
    ]
    name = new_table(rows, {"patient_id": "int8", "dx": "text", "x": "float8"})
    agreed_study = study(f'{AB}\nx = {{ type = "number", lower = 0, upper = 90 }}', rows=5)
    asked = ask(agreed_study, Aggregate(Statistic.SUM, "x"), by=BY_DX)
    table = opened(name)
    with table.reading() as connection:
        once = table.tallies(connection, asked)
        found = [replace(once, peeked=number).bounded(asked)[0].total.tolist() for number in (0, 900)]
    assert found[0] == found[1]


def ranked(*, unique: str = "patient_id, place", kind: str = "int4") -> str:
    rows: list[Row] = [
        {"patient_id": place // 10, "dx": "AB"[place % 2], "place": place % 10 + 1} for place in range(50)
    ]
    rows += [{"patient_id": 1, "dx": "A", "place": place} for place in (0, -1, None, None)]
    name = new_table(rows, {"patient_id": "int8", "dx": "text", "place": kind})
    if unique:
        cluster().run(f'CREATE UNIQUE INDEX ON "{name}" ({unique})')
    return name


def test_the_rank_decides_which_rows_count() -> None:
    asked = ask(study(AB, rows=3), Aggregate(Statistic.COUNT), by=BY_DX)
    assert totals(dataset(ranked(), rank="place"), asked) == [[10, 5]]


@pytest.mark.parametrize("unique", ["", "place, patient_id, dx", "patient_id, place) WHERE (place > 2"])
def test_a_rank_that_the_database_does_not_keep_different_is_refused(unique: str) -> None:
    asked = ask(study(AB, rows=3), Aggregate(Statistic.COUNT), by=BY_DX)
    with pytest.raises(SchemaRefused, match="no unique index on exactly 'patient_id' and 'place'"):
        dataset(ranked(unique=unique), rank="place").check(asked)


def test_a_rank_must_be_a_whole_number() -> None:
    asked = ask(study(AB, rows=3), Aggregate(Statistic.COUNT), by=BY_DX)
    with pytest.raises(SchemaRefused, match="does not hold whole numbers"):
        dataset(ranked(kind="numeric"), rank="place").check(asked)
    with pytest.raises(SchemaRefused, match="does not hold whole numbers"):
        dataset(ranked(), rank="missing").check(asked)


def test_the_sample_of_a_role_and_a_rank_works_twice() -> None:
    """What a hospital's administrator is told to run, run."""
    cluster().run(
        "DROP TABLE IF EXISTS encounters",
        "CREATE TABLE encounters AS SELECT i / 10 AS patient_id, 'A'::text AS dx FROM generate_series(0, 99) AS i",
        "DROP ROLE IF EXISTS wardround_reader",
    )
    sample = (Path(__file__).parents[3] / "deploy" / "postgresql.sql").read_text()
    _, rank = sample.split("-- Only if", 1)
    cluster().run(sample)
    cluster().run("INSERT INTO encounters VALUES (3, 'A')")
    cluster().run("-- Only if" + rank)
    # Imported here: a machine without the driver skips these tests.
    from site_agent.reading.sources.postgresql.table import can_write

    source = TableSource(cluster().address("wardround_reader"), "encounters", rank="place")
    asked = ask(study(AB, rows=3), Aggregate(Statistic.COUNT), by=BY_DX)
    assert totals(open_dataset({"visits": source}, folder=Path("/"), key=KEY), asked) == [[30, 0]]
    assert not can_write(asked.table, source)
    cluster().run("DROP TABLE encounters", "DROP OWNED BY wardround_reader", "DROP ROLE wardround_reader")
