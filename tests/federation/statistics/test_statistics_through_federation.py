"""Every statistic in SQL, through a simulated federation over real files, is what numpy and scipy say of the same rows.

A patient with several rows is one record: the mean of the rows that have every column of the statistic, or the
latest of them where time is asked.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tests.simulation.hospitals_on_disk import DEFAULT_COST, DIAGNOSES, Row, random_rows, simulate, write_site

SITES = {"north": "csv", "south": "parquet", "west": "csv"}


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pd.DataFrame]:
    """Three sites on disk, each with its own kind of file, and all their rows as one table of numbers."""
    folder = tmp_path_factory.mktemp("statistics")
    tables = []
    for seed, (name, form) in enumerate(SITES.items()):
        rows = [*random_rows(10 + seed, patients=200)]
        write_site(folder / "sites" / name, rows, form=form)
        tables.append(as_numbers(rows).assign(site=name))
    return folder, pd.concat(tables, ignore_index=True)


def as_numbers(rows: list[Row]) -> pd.DataFrame:
    table = pd.DataFrame([dict(row) for row in rows if row["patient_id"] is not None])
    table["cost"] = table["cost"].fillna(DEFAULT_COST)
    for name in ("age", "sbp", "cost", "urgent"):
        table[name] = table[name].astype(float)
    return table


def records(table: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """One line a patient: the mean of the rows in which none of the columns is absent."""
    whole = table.dropna(subset=list(columns))
    return whole.groupby(["site", "patient_id"])[list(columns)].mean()


def asked(folder: Path, sql: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = simulate(folder, sql, "--noiseless")["estimates"]
    return found


def test_spread_histogram_quantiles_and_shares(hospitals: tuple[Path, pd.DataFrame]) -> None:
    folder, table = hospitals
    sbp = records(table, "sbp")["sbp"].to_numpy()
    found = asked(
        folder,
        "SELECT AVG(sbp), VARIANCE(sbp), STDDEV(sbp), MEDIAN(sbp), "
        "PERCENTILE_CONT(0.95) WITHIN GROUP (ORDER BY sbp), SHARE_BELOW(sbp, 140), HISTOGRAM(sbp, 4) FROM encounters",
    )
    values = [e["value"] for e in found]
    assert values[:3] == pytest.approx([sbp.mean(), sbp.var(), sbp.std()], rel=1e-6)
    exact = np.quantile(sbp, [0.5, 0.95], method="inverted_cdf")
    assert values[3:5] == pytest.approx(exact.tolist(), abs=0.1 + 1e-9)
    assert values[5] == (sbp <= 140 + 1e-9).mean()
    # Means of up to four steps of a tenth, in whole numbers.
    assert values[6:] == np.histogram(np.round(sbp * 120), bins=4, range=(9600, 24000))[0].tolist()


def test_quantiles_by_group(hospitals: tuple[Path, pd.DataFrame]) -> None:
    folder, table = hospitals
    found = asked(folder, "SELECT diagnosis, MEDIAN(age), STDDEV(age) FROM encounters GROUP BY diagnosis")
    for place, diagnosis in enumerate(DIAGNOSES):
        ages = records(table[table["diagnosis"] == diagnosis], "age")["age"].to_numpy()
        assert found[place]["group"] == {"diagnosis": diagnosis}
        exact = float(np.quantile(ages, 0.5, method="inverted_cdf"))
        assert found[place]["interval"][0] - 1e-9 <= exact <= found[place]["interval"][1] + 1e-9
        assert found[len(DIAGNOSES) + place]["value"] == pytest.approx(ages.std(), rel=1e-6)


def test_correlations_and_coefficients(hospitals: tuple[Path, pd.DataFrame]) -> None:
    folder, table = hospitals
    found = asked(folder, "SELECT CORR(sbp, age, cost), REGRESS(sbp, age, urgent) FROM encounters")
    together = records(table, "sbp", "age", "cost")
    exact = np.corrcoef(together.to_numpy().T)
    assert [e["value"] for e in found[:3]] == pytest.approx(exact[np.triu_indices(3, 1)].tolist(), abs=1e-5)
    fitted = records(table, "sbp", "age", "urgent")
    matrix = np.column_stack([fitted["age"], fitted["urgent"], np.ones(len(fitted))])
    coefficients, squares, *_ = np.linalg.lstsq(matrix, fitted["sbp"].to_numpy(), rcond=None)
    assert [e["value"] for e in found[3:6]] == pytest.approx(coefficients.tolist(), rel=1e-3)
    assert found[7]["value"] == pytest.approx(float(np.sqrt(squares[0] / (len(fitted) - 3))), rel=1e-6)
    assert [e["term"] for e in found] == [
        *("age", "cost", "cost"),
        *("age", "urgent", "intercept", "r_squared", "residual_sd"),
    ]
    assert all(e["sampling"] for e in found)


def test_survival(hospitals: tuple[Path, pd.DataFrame]) -> None:
    folder, table = hospitals
    found = asked(folder, "SELECT KAPLAN_MEIER(age, urgent) FROM encounters")
    whole = table.dropna(subset=["age", "urgent"])
    # The latest row of a patient; of two at the same time, the one with the event.
    last = whole.sort_values(["age", "urgent"]).groupby(["site", "patient_id"]).tail(1)
    died, ages = last["urgent"].to_numpy() == 1, last["age"].to_numpy()
    curve = stats.ecdf(stats.CensoredData(uncensored=ages[died], right=ages[~died])).sf
    points = {float(e["term"]): e["value"] for e in found if e["term"].isdigit()}
    exact = curve.evaluate(np.array(list(points)))
    assert list(points.values()) == pytest.approx(exact.tolist(), abs=1e-12)
    left = {e["term"]: e["value"] for e in found if e["term"].endswith(" at risk")}
    assert left == {f"{age:g} at risk": float((ages >= age).sum()) for age in points}


def test_a_table_and_the_most_frequent_value(tmp_path: Path) -> None:
    """One row a patient, so that no cap chooses."""
    rows = [row for seed in (20, 21) for row in random_rows(seed, patients=150, most=1)[:-1]]
    for place, row in enumerate(rows):
        row["patient_id"] = f"p{place}"  # type: ignore[index]
    write_site(tmp_path / "sites" / "north", rows[:150])
    write_site(tmp_path / "sites" / "south", rows[150:])
    table = as_numbers(rows).dropna(subset=["diagnosis", "urgent"])
    table = table[table["diagnosis"].isin(DIAGNOSES)]
    exact = pd.crosstab(table["diagnosis"], table["urgent"]).loc[list(DIAGNOSES)].to_numpy()
    test = stats.chi2_contingency(exact, correction=False)
    found = asked(tmp_path, "SELECT CHI_SQUARE(diagnosis, urgent) FROM encounters")
    assert [e["value"] for e in found[:3]] == pytest.approx([test.statistic, test.dof, test.pvalue])
    assert [e["value"] for e in found[3:]] == exact.ravel().tolist()
    assert found[4]["group"] == {"diagnosis": "E11", "urgent": True}
