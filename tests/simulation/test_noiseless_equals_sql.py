"""`simulate --noiseless` against plain SQL over the same rows: equal to the last bit."""

from __future__ import annotations

import itertools
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.hospitals_on_disk import (
    BOUNDS,
    DIAGNOSES,
    Cell,
    Plain,
    Row,
    random_rows,
    simulate,
    table_of,
    write_site,
)

EVERY = ("COUNT(*)", "COUNT(DISTINCT patient_id)", "SUM(age)", "SUM(cost)", "AVG(sbp)", "AVG(cost)", "AVG(urgent)")
DOMAINS = {"diagnosis": DIAGNOSES, "urgent": (False, True)}
COHORTS = (
    "age >= 40",
    "NOT (age < 40)",
    "diagnosis IN ('E11', 'C50') OR urgent",
    "sbp BETWEEN 100 AND 140.5",
    "sbp IS NULL AND cost > 100",
    "urgent = false AND seen >= '2026-03-01'",
    "NOT (diagnosis = 'I10' OR sbp > 150)",
    "sbp IS NULL AND sbp > 100",
)


def expected(found: dict[tuple[Any, ...], float], aggregate: str, by: tuple[str, ...]) -> dict[tuple[Any, ...], float]:
    """Every public group: an empty one has no events, and no mean."""
    nothing = None if aggregate.startswith("AVG") else 0.0
    return {key: found.get(key, nothing) for key in itertools.product(*(DOMAINS[name] for name in by))}


def agree(folder: Path, plain: Plain, *, where: str = "", by: tuple[str, ...] = (), **study: object) -> None:
    clause = (f" WHERE {where}" if where else "") + (f" GROUP BY {', '.join(by)}" if by else "")
    sql = f"SELECT {', '.join([*by, *EVERY])} FROM encounters{clause}"
    answer = simulate(folder, sql, "--noiseless", **study)
    assert answer["noiseless"] is True
    for aggregate in EVERY:
        found = plain.numbers(aggregate, where=where or "true", by=by, unit=study.get("unit", "patient"))
        assert table_of(answer, aggregate) == expected(found, aggregate, by), aggregate
    for found in answer["estimates"]:
        known = found["standard_error"] == 0 and found["interval"] == [found["value"]] * 2
        # Of nobody there is no mean, and all of the public bounds are possible.
        assert known or (found["value"], found["reason"]["code"]) == (None, "too_few")
        assert known or found["interval"] == list(BOUNDS[found["column"]])


def hospitals(folder: Path, *forms: str) -> Plain:
    """Three sites whose patients have at most as many rows as the study counts."""
    sites = {name: random_rows(seed) for seed, name in enumerate(("north", "south", "west"))}
    for (name, rows), form in zip(sites.items(), forms, strict=True):
        write_site(folder / "sites" / name, rows, form=form)
    return Plain(sites)


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("by", [(), ("diagnosis",), ("diagnosis", "urgent")], ids=["whole", "one", "two"])
def test_whole_tables_and_groups_are_what_sql_says(tmp_path: Path, form: str, by: tuple[str, ...]) -> None:
    agree(tmp_path, hospitals(tmp_path, form, form, form), by=by)


@pytest.mark.parametrize("cohort", COHORTS)
def test_cohorts_are_what_sql_says(tmp_path: Path, cohort: str) -> None:
    agree(tmp_path, hospitals(tmp_path, "csv", "parquet", "csv"), where=cohort)


def test_groups_of_a_cohort_are_what_sql_says(tmp_path: Path) -> None:
    agree(tmp_path, hospitals(tmp_path, "parquet", "csv", "parquet"), where="age >= 40", by=("urgent",))


def test_events_are_what_sql_says_however_many_one_patient_has(tmp_path: Path) -> None:
    sites = {name: random_rows(seed, patients=10, most=30) for seed, name in enumerate(("north", "south"))}
    for name, rows in sites.items():
        write_site(tmp_path / "sites" / name, rows)
    plain = Plain(sites)
    agree(tmp_path, plain, unit="event", rows=1)
    agree(tmp_path, plain, unit="event", rows=1, where="age >= 40", by=("diagnosis",))


def test_one_id_at_two_sites_is_two_patients(tmp_path: Path) -> None:
    rows = random_rows(1, patients=12)
    for name in ("north", "south"):
        write_site(tmp_path / "sites" / name, rows)
    answer = simulate(tmp_path, "SELECT COUNT(DISTINCT patient_id) FROM encounters", "--noiseless")
    assert answer["estimates"][0]["value"] == 24


def patient(name: str, times: int, **cells: Cell) -> list[Row]:
    row: Row = {
        "patient_id": name,
        "age": 50,
        "sbp": Decimal(120),
        "cost": Decimal(10),
        "diagnosis": "E11",
        "urgent": True,
        "seen": None,
    } | cells
    return [row] * times


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_patient_counts_for_at_most_so_many_events(tmp_path: Path, form: str) -> None:
    """Rows of one patient are alike here, so which of them count does not matter."""
    rows = [*patient("often", 9, age=70), *patient("twice", 2, age=30), *patient("once", 1, age=20)]
    write_site(tmp_path / "sites" / "north", rows, form=form)
    write_site(tmp_path / "sites" / "south", patient("often", 100, age=10), form=form)
    answer = simulate(
        tmp_path, "SELECT COUNT(*), COUNT(DISTINCT patient_id), SUM(age) FROM encounters", "--noiseless", rows=3
    )
    assert [e["value"] for e in answer["estimates"]] == [3 + 2 + 1 + 3, 4, 3 * 70 + 2 * 30 + 20 + 3 * 10]


def test_the_rows_that_count_are_chosen_after_the_cohort(tmp_path: Path) -> None:
    rows = [*patient("often", 50, age=20), *patient("often", 3, age=70)]
    write_site(tmp_path / "sites" / "north", rows)
    answer = simulate(tmp_path, "SELECT COUNT(*) FROM encounters WHERE age >= 60", "--noiseless", rows=3)
    assert answer["estimates"][0]["value"] == 3


def test_a_value_beyond_its_bound_counts_as_the_bound(tmp_path: Path) -> None:
    rows = [
        *patient("a", 1, sbp=Decimal("999.9"), cost=Decimal(-5), age=500),
        *patient("b", 2, sbp=Decimal("-3.0"), cost=Decimal(10**9), age=-1),
        *patient("c", 1, sbp=Decimal("100.1")),
    ]
    write_site(tmp_path / "sites" / "north", rows)
    answer = simulate(tmp_path, "SELECT SUM(age), SUM(cost), AVG(sbp) FROM encounters", "--noiseless")
    plain = Plain({"north": rows})
    for aggregate in ("SUM(age)", "SUM(cost)", "AVG(sbp)"):
        assert table_of(answer, aggregate) == plain.numbers(aggregate, clip=True), aggregate


def test_a_mean_is_of_all_rows_of_a_patient_and_each_patient_weighs_the_same(tmp_path: Path) -> None:
    rows = [
        *(row for n in range(8) for row in patient("often", 1, sbp=Decimal(100 + 11 * n))),
        *patient("once", 1, sbp=Decimal("120.3")),
    ]
    write_site(tmp_path / "sites" / "north", rows)
    answer = simulate(tmp_path, "SELECT AVG(sbp) FROM encounters", "--noiseless", rows=4)
    assert answer["estimates"][0]["value"] == (138.5 + 120.3) / 2


def test_a_patient_counts_in_at_most_so_many_groups(tmp_path: Path) -> None:
    everywhere = [row for name in DIAGNOSES for row in patient("everywhere", 1, diagnosis=name)]
    rows = [*everywhere, *({**row, "patient_id": "too"} for row in everywhere), *patient("one", 4)]
    write_site(tmp_path / "sites" / "north", rows)
    sql = "SELECT diagnosis, COUNT(DISTINCT patient_id), AVG(sbp) FROM encounters GROUP BY diagnosis"
    answer = simulate(tmp_path, sql, "--noiseless", groups=2)
    counts = table_of(answer, "COUNT(DISTINCT patient_id)")
    assert sum(counts.values()) == 2 + 2 + 1
    assert counts[("E11",)] <= 3
    assert max(value for key, value in counts.items() if key != ("E11",)) <= 2
    assert set(table_of(answer, "AVG(sbp)").values()) <= {120.0, None}


def test_what_cannot_be_read_as_a_number_is_absent(tmp_path: Path) -> None:
    folder = tmp_path / "sites" / "north"
    folder.mkdir(parents=True)
    (folder / "encounters.csv").write_text(
        "patient_id,age,sbp,cost,diagnosis,urgent,seen\n"
        "a,forty,NaN,inf,E11,maybe,yesterday\n"
        "b,1e999,-inf,,E11,true,2026-02-30\n"
        "c,40,120.5,1,E11,true,2026-02-03\n",
        encoding="utf-8",
    )
    sql = "SELECT COUNT(*), SUM(age), SUM(cost), AVG(sbp), AVG(urgent) FROM encounters"
    answer = simulate(tmp_path, sql, "--noiseless")
    assert [e["value"] for e in answer["estimates"]] == [3, 40, 12.5 + 12.5 + 1, 120.5, 1]
