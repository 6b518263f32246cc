"""The table of docs/simulation.md: how the error of a dry run moves with the study and the question."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from wardround.simulation import SimulatedFederation, SimulatedSite, find_sites, parse_study

TEXT = (ROOT / "docs" / "simulation.md").read_text("utf-8")
STUDY = """
name = "table"
overlap = 1
[budget]
epsilon = 8.0
delta = 1e-6
[tables.rows]
unit_key = "patient_id"
max_rows_per_unit = {rows}
max_groups_per_unit = {groups}
[tables.rows.columns]
age = {{ type = "integer", lower = 0, upper = 110 }}
sex = {{ type = "category", values = ["F", "M"] }}
"""
COUNT, SUM, MEAN, BY_GROUP = "COUNT(*)", "SUM(age)", "AVG(age)", "sex, AVG(age)"


def error(
    folder: Path, select: str, *, epsilon: float = 1.0, rows: int = 4, groups: int = 2, hospitals: int = 4
) -> float:
    """The expected error of the question's last aggregate, for 8,000 patients."""
    study = parse_study(STUDY.format(rows=rows, groups=groups))
    for number in range(hospitals):
        (folder / "tables" / f"h{number}").mkdir(parents=True)
        (folder / "tables" / f"h{number}" / "rows.csv").write_text("patient_id,age,sex\n", "utf-8")
    (folder / "ledgers").mkdir()
    found = find_sites(folder / "tables", study)
    sites = {name: SimulatedSite(dataset, 8000 // hospitals) for name, dataset in found.items()}
    federation = SimulatedFederation(study, sites, folder=folder / "ledgers")
    by = " GROUP BY sex" if select.startswith("sex") else ""
    expected = federation.client.preview(f"SELECT {select} FROM rows{by}", epsilon=epsilon).preview.expected
    federation.close()
    return expected[0].standard_error


# The change, the question, and by how much its error is multiplied.
ROWS = {
    "half of ε": [({"epsilon": 0.5}, COUNT, 1.9, 2.0)],
    "half of `max_rows_per_unit`": [
        ({"rows": 2}, COUNT, 0.5, 0.5),
        ({"rows": 2}, SUM, 0.5, 0.5),
        ({"rows": 2}, MEAN, 1.0, 1.0),
    ],
    "half of `max_groups_per_unit`": [({"groups": 1}, BY_GROUP, 0.5, 0.8)],
    "four times the hospitals": [({"hospitals": 16}, COUNT, 2.0, 2.0)],
}


@pytest.mark.parametrize("row", ROWS)
def test_the_error_changes_as_the_page_says(row: str, tmp_path: Path) -> None:
    assert f"| {row}" in TEXT
    for number, (change, select, least, most) in enumerate(ROWS[row]):
        before = error(tmp_path / f"{number}-before", select)
        ratio = error(tmp_path / f"{number}-after", select, **change) / before  # type: ignore[arg-type]
        assert least * 0.999 <= ratio <= most * 1.001


def test_another_aggregate_takes_a_share(tmp_path: Path) -> None:
    assert "| one more aggregate in the question | grows" in TEXT
    assert error(tmp_path / "two", "COUNT(*), AVG(age)") > 1.1 * error(tmp_path / "one", "COUNT(*)")
