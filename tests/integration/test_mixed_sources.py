"""One federation whose five hospitals keep their tables in five kinds of places, asked noisily as an analyst asks."""

from __future__ import annotations

import contextlib
import csv
import io
import sqlite3
from collections.abc import Callable

import duckdb
import numpy as np
import pytest

from tests.integration.conftest import Make
from tests.integration.stage import Federation, is_about
from tests.integration.terms import COUNTS, LARGER, rows_of
from tests.site_agent.sources.postgresql_cluster import absent, cluster

TABLE = "mixed_encounters"
EPSILON = 30.0
RENAMING = "SELECT pid AS patient_id, years AS age, systolic AS sbp, icd AS diagnosis FROM visits"
SITES = (*COUNTS, *LARGER)
AGE, SBP = (
    np.array([first + patient % period for name in SITES for patient in range((COUNTS | LARGER)[name])], np.float64)
    for first, period in ((30, 50), (120, 30))
)

pytestmark = pytest.mark.skipif(bool(absent()), reason=absent())


def rows(name: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(rows_of(name))))[1:]


def as_parquet(federation: Federation, name: str) -> str:
    place = federation.site(name)
    (place / "exports").mkdir()
    # Several files, as exports come.
    for diagnosis in ("E11", "I10"):
        rows = f"SELECT * FROM read_csv('{place}/encounters.csv') WHERE diagnosis = '{diagnosis}'"
        duckdb.sql(f"COPY ({rows}) TO '{place}/exports/{diagnosis}.parquet'")
    return 'source = "parquet:exports"'


def as_sqlite(federation: Federation, name: str) -> str:
    with contextlib.closing(sqlite3.connect(federation.site(name) / "ehr.sqlite")) as database:
        database.execute("CREATE TABLE visits (pid TEXT, years INTEGER, systolic REAL, icd TEXT)")
        database.executemany("INSERT INTO visits VALUES (?, ?, ?, ?)", rows(name))
        database.commit()
    return f'source = "ehr.sqlite"\nrelation = "{RENAMING}"'


def as_duckdb(federation: Federation, name: str) -> str:
    place = federation.site(name)
    with duckdb.connect(str(place / "ehr.duckdb")) as database:
        database.execute(f"CREATE TABLE encounters AS SELECT * FROM read_csv('{place}/encounters.csv')")
    return 'source = "ehr.duckdb"'


def as_postgresql(federation: Federation, name: str) -> str:
    cluster().run(f"DROP TABLE IF EXISTS {TABLE}")
    types = {"patient_id": "text", "age": "integer", "sbp": "float8", "diagnosis": "text"}
    cluster().fill(TABLE, types, rows(name))
    return f'source = "{cluster().address()}"\nrelation = "{TABLE}"'


PLACES: dict[str, Callable[[Federation, str], str]] = {
    "two": as_parquet,
    "three": as_sqlite,
    "four": as_duckdb,
    "five": as_postgresql,
}


def move_tables(federation: Federation) -> None:
    """Let each hospital but the first keep its table elsewhere, and no CSV file."""
    for name, move in PLACES.items():
        file = federation.site(name) / "site.toml"
        words = move(federation, name)
        (federation.site(name) / "encounters.csv").unlink()
        file.write_text(file.read_text(encoding="utf-8").replace('source = "encounters.csv"', words), encoding="utf-8")


def asked(federation: Federation, sql: str) -> dict[str, tuple[float, float]]:
    """Value and standard error by statistic, group and term; the question is paid once everywhere."""
    document = federation.ask(sql, epsilon=EPSILON)
    assert document["sites"] == {"answered": sorted(SITES), "refused": {}, "missing": [], "left_out": []}
    federation.check_charged_once(str(document["plan_id"]))
    return {
        " ".join([each["statistic"], *each["group"].values(), each["term"] or ""]).strip(): (  # type: ignore[call-overload,index,union-attr]
            each["value"],  # type: ignore[call-overload,index]
            each["standard_error"],  # type: ignore[call-overload,index]
        )
        for each in document["estimates"]  # type: ignore[union-attr]
    }


def test_five_kinds_of_sources_answer_one_question_together(make_federation: Make) -> None:
    federation = make_federation(sites=SITES)
    move_tables(federation)
    prepared = federation.run("site", "prepare", federation.site("three"))
    assert prepared.code == 0, prepared.err
    federation.start()

    patients = sum(COUNTS.values()) + sum(LARGER.values())
    assert is_about(federation.ask(), patients), "each hospital's number of patients has a decimal place of its own"

    slope, intercept = np.polyfit(AGE, SBP, 1)
    truths = {
        "SELECT diagnosis, COUNT(*) FROM encounters GROUP BY diagnosis": {"count E11": patients, "count I10": patients},
        "SELECT AVG(sbp), STDDEV(sbp), MEDIAN(age), SHARE_BELOW(sbp, 140) FROM encounters WHERE diagnosis = 'E11'": {
            "mean": SBP.mean(),
            "std": SBP.std(),
            "quantile 0.5": np.quantile(AGE, 0.5, method="inverted_cdf"),
            "below 140": (SBP <= 140).mean(),
        },
        "SELECT REGRESS(sbp, age) FROM encounters": {"regression age": slope, "regression intercept": intercept},
    }
    exact = []
    for sql, truth in truths.items():
        found = asked(federation, sql)
        for name, true in truth.items():
            value, error = found[name]
            # A chance of 1e-9 for each; a median is a step of the column, so it may also be half a step off.
            assert abs(value - true) <= 6 * error + 0.5 * (name == "quantile 0.5"), (name, value, true, error)
            exact.append(value == true)
    assert not all(exact), "answers carry noise"
    federation.check_ledgers()
    assert all("not used" not in federation.log(name) and "failed" not in federation.log(name) for name in SITES)
