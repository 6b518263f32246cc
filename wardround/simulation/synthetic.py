"""Synthetic hospitals: encounters that look like a cardiology clinic's and belong to nobody.

Several rows per patient, four diagnoses, hospitals that differ; made from a seed, so a demo can be seen
twice. A patient appears at one hospital only, which is what `overlap = 1` promises.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

HOSPITALS = ("north-general", "st-mary", "lakeside", "university", "harbour", "hillview", "riverside", "eastfield")
DIAGNOSES = ("E11", "I10", "C50", "I25")
MONTHS = tuple(f"2026-{month:02d}" for month in range(1, 7))
PATIENTS = 10_000
SHARES = (0.4, 0.3, 0.2, 0.1)

_MEAN_COST = {"E11": 2400.0, "I10": 900.0, "C50": 9800.0, "I25": 6100.0}
_MEAN_SBP = {"E11": 134.0, "I10": 148.0, "C50": 124.0, "I25": 139.0}

STUDY = """\
# The agreement every hospital signs.
name = "cardio"
unit = "patient"            # all rows of one patient are protected together
overlap = 1                 # a promise: no patient is treated at two of the hospitals
min_sites = 2
deadline_seconds = 60

[budget]
epsilon = 3.0
delta = 1e-6
pure_epsilon = 0.5          # a lane for a few single numbers with Laplace noise

[tables.encounters]
unit_key = "patient_id"
max_rows_per_unit = 4

[tables.encounters.columns]
age       = { type = "integer", lower = 0, upper = 110 }
sex       = { type = "category", values = ["F", "M"] }
sbp       = { type = "number", lower = 80, upper = 200, step = 0.1 }
diagnosis = { type = "category", values = ["E11", "I10", "C50", "I25"] }
cost      = { type = "number", lower = 0, upper = 20000, step = 0.01 }
month     = { type = "category", values = ["2026-01", "2026-02", "2026-03", "2026-04", "2026-05", "2026-06"] }
positive  = { type = "boolean" }
"""

COLUMNS = ("patient_id", "age", "sex", "sbp", "diagnosis", "cost", "month", "positive")


def hospital_sizes(sites: int, *, patients: int = PATIENTS) -> dict[str, int]:
    """How many patients each of `sites` hospitals has, `patients` in all."""
    names = [HOSPITALS[i] if i < len(HOSPITALS) else f"hospital-{i + 1}" for i in range(sites)]
    weights = np.array([SHARES[i % len(SHARES)] for i in range(sites)])
    sizes = np.floor(patients * weights / weights.sum()).astype(int)
    sizes[0] += patients - int(sizes.sum())
    return dict(zip(names, sizes.tolist(), strict=True))


def write_encounters(path: Path, *, hospital: str, patients: int, seed: int) -> int:
    """A CSV of encounters for one hospital; the number of rows."""
    generator = np.random.default_rng([seed, *hospital.encode()])
    tilt = generator.normal(0.0, 3.0)
    rows = 0
    with path.open("w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream)
        table.writerow(COLUMNS)
        for number in range(patients):
            age = int(np.clip(generator.normal(61, 15), 18, 104))
            sex = "F" if generator.random() < 0.53 else "M"
            usual = DIAGNOSES[generator.choice(4, p=(0.33, 0.36, 0.12, 0.19))]
            for _ in range(1 + int(generator.poisson(1.1))):
                diagnosis = usual if generator.random() < 0.8 else DIAGNOSES[generator.integers(4)]
                pressure = generator.normal(_MEAN_SBP[diagnosis] + tilt + (age - 61) * 0.2, 14)
                cost = generator.gamma(2.0, _MEAN_COST[diagnosis] / 2.0)
                # A few pressures were never measured: an absent value is an ordinary value.
                sbp = "" if generator.random() < 0.02 else f"{pressure:.1f}"
                month = MONTHS[generator.integers(len(MONTHS))]
                # The old and those under pressure test positive more often, so that there is something to learn.
                score = -2.8 + 0.05 * (age - 61) + 0.03 * (pressure - 138)
                positive = "true" if generator.random() < 1 / (1 + np.exp(-score)) else "false"
                table.writerow((f"{hospital}-{number:06d}", age, sex, sbp, diagnosis, f"{cost:.2f}", month, positive))
                rows += 1
    return rows
