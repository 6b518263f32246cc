"""Four hospitals' heart disease patients, FLamby's split and features: how accurate a private model is.

Trains a logistic regression on the training patients of all four through the whole path, with the scaling released
and charged, at ε = 1, δ = 1e-4 for everything together, and tries it on each hospital's test patients, which no
federation sees. FLamby's own figures for the mean of the hospitals are .685, for DP-FedAvg at a nominal ε of 1 as for
FedAvg without privacy. All of FLamby's features and the library's defaults are used; those were chosen on synthetic
patients, and there is no option to choose others by these test patients. The tables are looked for in
../shared/data/heart_disease.
Run with: python bench/heart_disease.py [--repeat N]
"""

from __future__ import annotations

import argparse
import csv
import resource
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.stats import rankdata

from wardround.analyst.learning.request import TrainingRequest
from wardround.analyst.learning.trained_model import TrainingResult
from wardround.federation.models.step_layout import LENGTH
from wardround.federation.models.training import ModelKind
from wardround.federation.study.study_file import parse_study
from wardround.simulation.trial import TrainingTrial, run_trainings

Array = NDArray[np.float64]
Columns = dict[str, NDArray[np.generic]]

TABLES = Path(__file__).resolve().parents[2] / "shared" / "data" / "heart_disease"
HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
FLAMBY = 0.685
NUMBERS = ("age", "sex", "trestbps", "chol", "fbs", "thalach", "exang", "oldpeak")
DUMMIES = {"cp": ("1", ("2_2.0", "2_3.0", "2_4.0")), "restecg": ("0", ("6_1.0", "6_2.0"))}
# Bounds that a cardiologist would write down; a cholesterol of 0 stands for one that was not measured.
STUDY = """\
name = "heart-disease"
overlap = 1
[budget]
epsilon = 1.0
delta = 1e-4
[tables.patients]
unit_key = "patient"
max_rows_per_unit = 1
[tables.patients.columns]
disease = { type = "integer", lower = 0, upper = 1 }
age = { type = "number", lower = 20, upper = 90, step = 1 }
sex = { type = "integer", lower = 0, upper = 1 }
cp = { type = "category", values = ["1", "2", "3", "4"] }
trestbps = { type = "number", lower = 80, upper = 200, step = 1 }
chol = { type = "number", lower = 0, upper = 600, step = 1 }
fbs = { type = "integer", lower = 0, upper = 1 }
restecg = { type = "category", values = ["0", "1", "2"] }
thalach = { type = "number", lower = 60, upper = 210, step = 1 }
exang = { type = "integer", lower = 0, upper = 1 }
oldpeak = { type = "number", lower = -3, upper = 7, step = 0.1 }
"""


@dataclass(frozen=True, slots=True)
class Patients:
    """The patients of one hospital and one half of the split."""

    columns: Columns
    disease: Array


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    path = TABLES / "flamby_preprocessed_unnormalised.csv"
    if not path.exists():
        print("the heart disease tables are not in ../shared/data/heart_disease; nothing was measured.")
        return
    training, test = (read(path, half) for half in ("train", "test"))
    sizes = ", ".join(f"{name} {len(training[name].disease)}/{len(test[name].disease)}" for name in HOSPITALS)
    print(f"patients to train and to test: {sizes}; 13 inputs; {options.repeat} trainings with fresh noise")
    print(f"  FLamby: DP-FedAvg at a nominal ε of 1 {FLAMBY}, FedAvg without privacy {FLAMBY}")
    show("pooled fit, not private", [accuracies(pooled(training, test), test)], areas(pooled(training, test), test))
    began = time.process_time()
    with tempfile.TemporaryDirectory(prefix="wardround-heart-") as folder:
        for name, patients in training.items():
            (Path(folder) / name).mkdir()
            keys = [f"{name}-{place}" for place in range(len(patients.disease))]
            table = {"patient": keys, "disease": patients.disease.astype(np.int64), **patients.columns}
            pq.write_table(pa.table(table), Path(folder) / name / "patients.parquet")
        for one_noise, title in ((False, "noise at every site"), (True, "one noise on the total")):
            report(Path(folder), test, title, one_noise=one_noise, repeat=options.repeat)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"processor time {time.process_time() - began:.0f} s, peak memory {memory:.0f} MiB")


def report(folder: Path, test: dict[str, Patients], title: str, *, one_noise: bool, repeat: int) -> None:
    """Train so often, and say what it cost and how good it was."""
    request = TrainingRequest(
        kind=ModelKind.LOGISTIC,
        table="patients",
        target="disease",
        features=(*NUMBERS, *DUMMIES),
        epsilon=1.0,
        delta=1e-4,
        validation_fraction=0.0,
    )
    results = list(
        run_trainings(parse_study(STUDY), folder, TrainingTrial(request, trusted_total=one_noise), repeat=repeat)
    )
    chances = [{name: result.predict(test[name].columns) for name in HOSPITALS} for result in results]
    area = np.mean([areas(each, test) for each in chances], axis=0)
    show(f"ours, {title}", [accuracies(each, test) for each in chances], area)
    print(f"    {charges(results)}")


def charges(results: list[TrainingResult]) -> str:
    """Every charge: the stages, which are paid together, and what that was."""
    training = results[0].trained.beginning.outline.training
    stages = ", ".join(
        f"{stage.kind.value} × {stage.rounds} (noise {float(stage.scale) / LENGTH:.2f} patients)"
        for stage in training.stages
    )
    paid = [f"{result.privacy.charged.epsilon:.4f}" for result in results]
    delta = results[0].privacy.charged.delta
    return f"charged ε = {', '.join(paid)} at δ = {delta:g} for {stages}; clip {training.clip:g}"


def show(title: str, found: list[list[float]], area: Array) -> None:
    means = [float(np.mean(each)) for each in found]
    sites = ", ".join(
        f"{name} {value:.3f}" for name, value in zip(HOSPITALS, np.mean(found, axis=0).tolist(), strict=True)
    )
    spread = f" (runs {', '.join(f'{mean:.3f}' for mean in means)})" if len(means) > 1 else ""
    print(f"  {title}: mean of hospitals {np.mean(means):.3f}{spread}; {sites}")
    named = ", ".join(f"{name} {value:.3f}" for name, value in zip((*HOSPITALS, "all"), area.tolist(), strict=True))
    print(f"    areas under the curve: {named}")


def accuracies(chances: dict[str, Array], test: dict[str, Patients]) -> list[float]:
    return [float(np.mean((chances[name] >= 0.5) == (test[name].disease == 1))) for name in HOSPITALS]


def areas(chances: dict[str, Array], test: dict[str, Patients]) -> Array:
    found = [area(chances[name], test[name].disease) for name in HOSPITALS]
    together = np.concatenate([chances[name] for name in HOSPITALS])
    return np.array([*found, area(together, np.concatenate([test[name].disease for name in HOSPITALS]))])


def area(score: Array, outcome: Array) -> float:
    ranks, positive = rankdata(score), outcome.sum()
    return float((ranks[outcome == 1].sum() - positive * (positive + 1) / 2) / (positive * (len(outcome) - positive)))


def read(path: Path, half: str) -> dict[str, Patients]:
    """One half of the split; FLamby's indicators are put back into the categories they came from."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["set"] == half]
    found = {}
    for place, name in enumerate(HOSPITALS):
        own = [row for row in rows if int(row["center"]) == place]
        columns: Columns = {key: np.array([float(row[key]) for row in own]) for key in NUMBERS}
        for key, (first, dummies) in DUMMIES.items():
            columns[key] = np.array([_category(row, first, dummies) for row in own])
        found[name] = Patients(columns, np.array([float(row["y"]) for row in own]))
    return found


def _category(row: dict[str, str], first: str, dummies: tuple[str, ...]) -> str:
    for dummy in dummies:
        if float(row[dummy]) == 1.0:
            return dummy.split("_")[1].removesuffix(".0")
    return first


def pooled(training: dict[str, Patients], test: dict[str, Patients]) -> dict[str, Array]:
    """Chances by the most likely model of everybody's patients, scaled by their own moments."""
    everybody = [design(patients) for patients in training.values()]
    rows, disease = np.concatenate(everybody), np.concatenate([each.disease for each in training.values()])
    mean, deviation = rows.mean(axis=0), rows.std(axis=0)
    placed = np.column_stack((np.ones(len(rows)), (rows - mean) / deviation))

    def loss(weights: Array) -> float:
        score = placed @ weights
        return float(np.logaddexp(0.0, score).sum() - disease @ score + 0.005 * weights @ weights)

    weights = minimize(loss, np.zeros(placed.shape[1])).x
    found = {}
    for name, patients in test.items():
        score = np.column_stack((np.ones(len(patients.disease)), (design(patients) - mean) / deviation)) @ weights
        found[name] = 0.5 + 0.5 * np.tanh(score / 2.0)
    return found


def design(patients: Patients) -> Array:
    indicators = [
        (patients.columns[key] == dummy.split("_")[1].removesuffix(".0")).astype(np.float64)
        for key, (_, dummies) in DUMMIES.items()
        for dummy in dummies
    ]
    return np.column_stack([*(patients.columns[key] for key in NUMBERS), *indicators])


if __name__ == "__main__":
    main()
