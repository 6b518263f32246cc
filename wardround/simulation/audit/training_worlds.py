"""A hospital to train at, with and without one patient who has many rows that all pull the same way.

The canary stands in a corner of the bounds and is ill where its neighbours are well, so that in every step its
contribution is as long as one may be: nothing that a training is charged for is left unused by this patient.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from site_agent.reading.dataset import Dataset, TableSource
from site_agent.reading.examples import Examples, Folds
from site_agent.serving.open_dataset import open_dataset
from wardround.federation.models.step_layout import LENGTH, step_form
from wardround.federation.models.training import Model, ModelKind, Stage, StageKind, Step, Training
from wardround.federation.study.study import Study
from wardround.federation.study.study_file import parse_study

TABLE = "visits"
EPSILON = 12.0
"""Of one training: a few hundred of them prove over half of it, and could prove half as much again were it there."""
CANARY_ROWS = 50
PATIENTS = 8
HELD_OUT = Fraction(1, 4)
MODEL = Model(ModelKind.LOGISTIC, TABLE, "ill", ("dose", "age"))

_KEY = hashlib.sha256(b"audited").digest()
_Row = tuple[str, float, float, int]


def training_text(*, epsilon: float) -> str:
    """The study of the hospital as its file says it, with room for as many trainings as are tried."""
    return (
        'name = "audit"\nunit = "patient"\noverlap = 1\nmin_sites = 1\n'
        f"[budget]\nepsilon = {epsilon}\ndelta = 1e-6\n"
        f'[tables.{TABLE}]\nunit_key = "patient_id"\nmax_rows_per_unit = 1\n'
        f"[tables.{TABLE}.columns]\n"
        'dose = { type = "number", lower = -1, upper = 1 }\n'
        'age = { type = "number", lower = -1, upper = 1 }\n'
        'ill = { type = "boolean" }\n'
    )


def training_study(*, epsilon: float = EPSILON) -> Study:
    """The study of the hospital."""
    return parse_study(training_text(epsilon=epsilon))


@dataclass(frozen=True, slots=True)
class Hospitals:
    """One hospital in three worlds: without the canary, learning from it, and holding it out."""

    without: Examples
    learning: Examples
    trying: Examples


def hospitals(folder: Path, *, learning_from_others: bool = True) -> Hospitals:
    """The worlds, read as a site reads them; others may all be held out, so that the canary is learnt from alone."""
    others = list(_others(learning_from_others=learning_from_others))
    found = [
        _examples(folder / name, [*others, *canary])
        for name, canary in (
            ("without", ()),
            ("learning", _canary(held_out=False)),
            ("trying", _canary(held_out=True)),
        )
    ]
    return Hospitals(*found)


def _canary(*, held_out: bool) -> Iterator[_Row]:
    name = next(_names("canary", held_out=held_out))
    for _ in range(CANARY_ROWS):
        yield name, 1.0, 1.0, 1


def _others(*, learning_from_others: bool) -> Iterator[_Row]:
    learnt, tried = _names("patient", held_out=False), _names("patient", held_out=True)
    for i in range(PATIENTS):
        name = next(learnt if learning_from_others and i % 4 else tried)
        for row in range(1 + i % 3):
            yield name, (37 * i + 11 * row) % 20 / 10 - 1, (53 * i + 7 * row) % 20 / 10 - 1, (i + row) % 2


def _names(stem: str, *, held_out: bool) -> Iterator[str]:
    """Keys of one fold: whose it is decided by a hash, so one asks until it says so."""
    folds, number = Folds(_KEY, HELD_OUT), 0
    while True:
        number += 1
        name = f"{stem}-{number}"
        if bool(folds.held_out([name], 1)[0]) is held_out:
            yield name


def _examples(folder: Path, rows: Iterable[_Row]) -> Examples:
    # Which step is asked does not matter: all of a training look at the same rows.
    training = Training(MODEL, (Stage(StageKind.MOMENTS, Fraction(LENGTH)),), HELD_OUT)
    return _dataset(folder, rows).examples(step_form(Step(training, 0, 0), training_study()))


def _dataset(folder: Path, rows: Iterable[_Row]) -> Dataset:
    folder.mkdir(parents=True)
    path = folder / f"{TABLE}.csv"
    with path.open("w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream)
        table.writerow(("patient_id", "dose", "age", "ill"))
        table.writerows((name, dose, age, "true" if ill else "false") for name, dose, age, ill in rows)
    return open_dataset({TABLE: TableSource(str(path))}, folder=folder, key=_KEY)
