"""The two worlds of an audit: the same hospital, with and without one patient who has a great deal to hide.

The canary has more rows than may count, in more groups than may count, with values far out of bounds: whatever
the pipeline fails to bound shows.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from site_agent.reading.dataset import Dataset, TableSource
from site_agent.serving.open_dataset import open_dataset
from wardround.federation.study.study import Study
from wardround.federation.study.study_file import parse_study

TABLE = "visits"
SITE = "audited"
MAX_ROWS = 4
GROUPS = ("E11", "I10", "C50", "I25", "J44", "N18")
WARDS = 1000
PATIENTS = 60
CANARY_ROWS = 40
OUT_OF_BOUNDS = 5000.0

_HEADER = ("patient_id", "diagnosis", "ward", "cost", "code")
_Row = tuple[str, str, int, float]


def audit_study(
    *,
    epsilon: float = 9000.0,
    pure_epsilon: float = 4000.0,
    max_rows: int = MAX_ROWS,
    max_groups: int = MAX_ROWS,
    cost: int = 1000,
) -> Study:
    """A study with room for a thousand questions: an audit asks again and again, which nobody else may."""
    names = ", ".join(f'"{name}"' for name in GROUPS)
    return parse_study(
        f'name = "audit"\nunit = "patient"\noverlap = 1\nmin_sites = 1\n'
        f"[budget]\nepsilon = {epsilon}\ndelta = 1e-6\npure_epsilon = {pure_epsilon}\n"
        f'[tables.{TABLE}]\nunit_key = "patient_id"\nmax_rows_per_unit = {max_rows}\n'
        f"max_groups_per_unit = {max_groups}\n"
        f"[tables.{TABLE}.columns]\n"
        f'diagnosis = {{ type = "category", values = [{names}] }}\n'
        f'ward = {{ type = "integer", lower = 1, upper = {WARDS} }}\n'
        f'cost = {{ type = "number", lower = 0, upper = {cost}, step = 1 }}\n'
        # The diagnosis once more, as text whose values nobody declared.
        'code = { type = "category" }\n'
    )


@dataclass(frozen=True, slots=True)
class Worlds:
    """A hospital with its canaries and the same hospital without them."""

    with_unit: Dataset
    without: Dataset


def one_canary(folder: Path, *, patients: int = PATIENTS) -> Worlds:
    """One patient more or less, who has rows everywhere."""
    canary = [("canary", GROUPS[i % len(GROUPS)], 1 + i, OUT_OF_BOUNDS) for i in range(CANARY_ROWS)]
    return _worlds(folder, _others(patients), canary)


def canary_in_every_ward(folder: Path) -> Worlds:
    """One patient more or less in each ward, known nowhere else.

    Every ward is an audit of its own, because its count depends on its own canary only: a single question to
    a federation is as many independent experiments as there are wards.
    """
    canaries = [
        (f"canary-{ward}", GROUPS[0], ward, OUT_OF_BOUNDS) for ward in range(1, WARDS + 1) for _ in range(2 * MAX_ROWS)
    ]
    return _worlds(folder, _others(), canaries)


def _others(patients: int = PATIENTS) -> list[_Row]:
    return [
        (f"patient-{i}", GROUPS[(i + row) % len(GROUPS)], 1 + (7 * i + row) % WARDS, float(37 * i % 900))
        for i in range(patients)
        for row in range(1 + i % 3)
    ]


def _worlds(folder: Path, others: list[_Row], canaries: list[_Row]) -> Worlds:
    return Worlds(
        with_unit=_dataset(folder / "with", [*others, *canaries]), without=_dataset(folder / "without", others)
    )


def _dataset(folder: Path, rows: Iterable[_Row]) -> Dataset:
    folder.mkdir(parents=True)
    path = folder / f"{TABLE}.csv"
    with path.open("w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream)
        table.writerow(_HEADER)
        table.writerows((*row, row[1]) for row in rows)
    # Which rows count is decided alike in both worlds, as it is at one hospital before and after a patient leaves.
    key = hashlib.sha256(SITE.encode()).digest()
    return open_dataset({TABLE: TableSource(str(path))}, folder=folder, key=key)
