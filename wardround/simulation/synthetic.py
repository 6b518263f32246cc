"""Synthetic hospitals: a heart clinic's patients and their encounters, which belong to nobody.

One row a patient with what became of the patient, several rows of encounters, hospitals that differ; made from a
seed, so a demo can be seen twice. A patient appears at one hospital only, which is what `overlap = 1` promises.
Something can be found in it: tests that turn positive more and more often, a treatment after which patients live
longer, and who comes back to the hospital.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

HOSPITALS = ("north-general", "st-mary", "lakeside", "university", "harbour", "hillview", "riverside", "eastfield")
DIAGNOSES = ("E11", "I10", "C50", "I25")
PATIENTS = 20_000
SHARES = (0.4, 0.3, 0.2, 0.1)
FOLLOWED_MONTHS = 48

_MEAN_COST = np.array([2400.0, 900.0, 9800.0, 6100.0])
_MEAN_SBP = np.array([134.0, 148.0, 124.0, 139.0])
_FIRST_DAY = np.datetime64("2026-01-01")
_DAYS = 181
_MOST_COST = 20_000.0

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
age       = { type = "integer", lower = 0, upper = 110, unit = "years" }
sex       = { type = "category", values = ["F", "M"] }
sbp       = { type = "number", lower = 80, upper = 200, step = 0.1, unit = "mmHg" }
diagnosis = { type = "category", values = ["E11", "I10", "C50", "I25"] }
cost      = { type = "number", lower = 0, upper = 20000, step = 0.01, unit = "EUR" }
day       = { type = "date", lower = 2026-01-01, upper = 2026-06-30 }
positive  = { type = "boolean" }

[tables.patients]           # one row each, with what became of the patient
unit_key = "patient_id"
max_rows_per_unit = 1

[tables.patients.columns]
age        = { type = "integer", lower = 18, upper = 104, unit = "years" }
sex        = { type = "category", values = ["F", "M"] }
sbp        = { type = "number", lower = 80, upper = 200, step = 0.1, unit = "mmHg" }
smoker     = { type = "boolean" }
treatment  = { type = "category", values = ["usual care", "new drug"] }
months     = { type = "integer", lower = 1, upper = 48 }
died       = { type = "boolean" }
readmitted = { type = "boolean" }
"""

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Written:
    """How many rows each table of a hospital has."""

    encounters: int
    patients: int


def hospital_sizes(sites: int, *, patients: int = PATIENTS) -> dict[str, int]:
    """How many patients each of `sites` hospitals has, `patients` in all."""
    names = [HOSPITALS[i] if i < len(HOSPITALS) else f"hospital-{i + 1}" for i in range(sites)]
    weights = np.array([SHARES[i % len(SHARES)] for i in range(sites)])
    sizes = np.floor(patients * weights / weights.sum()).astype(int)
    sizes[0] += patients - int(sizes.sum())
    return dict(zip(names, sizes.tolist(), strict=True))


def write_hospital(folder: Path, *, hospital: str, patients: int, seed: int) -> Written:
    """The two tables of one hospital, as CSV files in its folder."""
    generator = np.random.default_rng([seed, *hospital.encode()])
    ages = np.clip(generator.normal(61, 15, patients), 18, 104).astype(int)
    people = _People(
        keys=[f"{hospital}-{number:06d}" for number in range(patients)],
        ages=ages,
        sexes=np.where(generator.random(patients) < 0.53, "F", "M"),
        diagnoses=generator.choice(4, patients, p=(0.33, 0.36, 0.12, 0.19)),
        tilt=float(generator.normal(0.0, 3.0)),
    )
    _write(folder / "patients.csv", _outcomes(people, generator))
    return Written(encounters=_write(folder / "encounters.csv", _encounters(people, generator)), patients=patients)


@dataclass(frozen=True, slots=True)
class _People:
    """What stays with a patient; `tilt` is by how much this hospital measures higher than others."""

    keys: list[str]
    ages: npt.NDArray[np.int_]
    sexes: npt.NDArray[np.str_]
    diagnoses: npt.NDArray[np.int_]
    tilt: float


def _outcomes(people: _People, generator: np.random.Generator) -> dict[str, Iterable[object]]:
    number = len(people.keys)
    older = people.ages - 61
    pressure = generator.normal(_MEAN_SBP[people.diagnoses] + people.tilt + 0.2 * older, 14)
    smoker = generator.random(number) < 0.3
    treated = generator.random(number) < 0.5
    # Deaths in a month: more often with age, less often under the new drug. Some patients are lost to follow-up.
    death = generator.exponential(70.0 * np.exp(-0.035 * older + 0.6 * treated))
    left = np.minimum(generator.uniform(6.0, 2.0 * FOLLOWED_MONTHS, number), FOLLOWED_MONTHS)
    score = -1.1 + 0.055 * older + 0.03 * (pressure - 138) + 1.1 * smoker
    return {
        "patient_id": people.keys,
        "age": people.ages,
        "sex": people.sexes,
        "sbp": _tenths(pressure),
        "smoker": _words(smoker),
        "treatment": np.where(treated, "new drug", "usual care"),
        "months": np.ceil(np.minimum(death, left)).astype(int),
        "died": _words(death <= left),
        "readmitted": _words(generator.random(number) < _chance(score)),
    }


def _encounters(people: _People, generator: np.random.Generator) -> dict[str, Iterable[object]]:
    who = np.repeat(np.arange(len(people.keys)), 1 + generator.poisson(1.1, len(people.keys)))
    number = len(who)
    diagnosis = np.where(generator.random(number) < 0.8, people.diagnoses[who], generator.integers(4, size=number))
    older = people.ages[who] - 61
    pressure = generator.normal(_MEAN_SBP[diagnosis] + people.tilt + 0.2 * older, 14)
    cost = np.minimum(generator.gamma(2.0, _MEAN_COST[diagnosis] / 2.0), _MOST_COST)
    day = generator.integers(_DAYS, size=number)
    score = -3.2 + 0.05 * older + 0.03 * (pressure - 138) + 1.5 * day / _DAYS
    # A few pressures were never measured: an absent value is an ordinary value.
    sbp = np.where(generator.random(number) < 0.02, "", _tenths(pressure))
    return {
        "patient_id": (people.keys[each] for each in who),
        "age": people.ages[who],
        "sex": people.sexes[who],
        "sbp": sbp,
        "diagnosis": np.array(DIAGNOSES)[diagnosis],
        "cost": (f"{each:.2f}" for each in cost),
        "day": (_FIRST_DAY + day).astype(str),
        "positive": _words(generator.random(number) < _chance(score)),
    }


def _chance(score: Numbers) -> Numbers:
    return 1.0 / (1.0 + np.exp(-score))


def _tenths(numbers: Numbers) -> npt.NDArray[np.str_]:
    return np.array([f"{each:.1f}" for each in numbers])


def _words(flags: npt.NDArray[np.bool_]) -> npt.NDArray[np.str_]:
    return np.where(flags, "true", "false")


def _write(path: Path, columns: dict[str, Iterable[object]]) -> int:
    rows = list(zip(*columns.values(), strict=True))
    with path.open("w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream)
        table.writerow(columns)
        table.writerows(rows)
    return len(rows)
