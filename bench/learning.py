"""What privacy costs a logistic regression: area under the curve lost against the pooled fit without privacy.

Ten simulated hospitals train through the whole path (requests, plans, ledgers, exact noise, one charge for the whole
training, scaling included): with noise at every site, and with one noise on the total. Beside it, output perturbation
of the pooled fit, which has the columns' true scale for nothing or that of their bounds, with a ridge of n/100 or the
best of four for nothing. Areas are over 20,000 fresh patients.
Run with: python bench/learning.py [--repeat N] [--small-repeat N]
"""

from __future__ import annotations

import argparse
import math
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
from wardround.federation.models.training import ModelKind
from wardround.federation.study.study_file import parse_study
from wardround.privacy.accounting.gaussian_dp import mu_of
from wardround.simulation.trial import TrainingTrial, run_trainings

Array = NDArray[np.float64]

SITES = 10
FRESH = 20_000
FIRST_SEED = 10_000
"""None of these populations is one that the defaults were chosen on."""
STRENGTH, OFFSET = 2.2, -1.6
PERTURBED = {
    "true scale for nothing, ridge n/100": (1.0, (0.01,)),
    "true scale and the best of four ridges for nothing": (1.0, (0.001, 0.003, 0.01, 0.03)),
    "scaled by bounds, ridge n/100": (4.0, (0.01,)),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """How many patients with how many features, at which price, and the loss that is promised."""

    patients: int
    features: int
    epsilon: float
    delta: float
    promised: tuple[tuple[bool, float], ...]
    strength: float = STRENGTH


LARGE = Setting(10_000, 30, 1.0, 1e-6, ((False, 0.015), (True, 0.005)))
SMALL = Setting(1_000, 10, 1.0, 1e-5, ((True, 0.010),))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=8)
    parser.add_argument("--small-repeat", type=int, default=40)
    options = parser.parse_args()
    began = time.process_time()
    for setting, repeat in ((LARGE, options.repeat), (SMALL, options.small_repeat)):
        report(setting, repeat)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"processor time {time.process_time() - began:.0f} s, peak memory {memory:.0f} MiB")


def report(setting: Setting, repeat: int) -> None:
    """Losses over several populations, each with noise of its own."""
    print(
        f"{setting.patients} patients in {SITES} hospitals, {setting.features} features, "
        f"ε = {setting.epsilon:g}, δ = {setting.delta:g}, {repeat} populations"
    )
    losses: dict[bool, list[float]] = {one_noise: [] for one_noise, _ in setting.promised}
    perturbed: dict[str, list[float]] = {title: [] for title in PERTURBED}
    pooled, charged, seconds = [], 0.0, 0.0
    for seed in range(repeat):
        draw = np.random.default_rng(FIRST_SEED + seed)
        truth = draw.standard_normal(setting.features) * (draw.random(setting.features) < 0.6) + 1e-3
        inputs, outcome = population(setting.patients, truth, setting.strength, draw)
        fresh, fresh_outcome = population(FRESH, truth, setting.strength, draw)
        best = area(with_intercept(fresh) @ fit(with_intercept(inputs), outcome, 1e-2), fresh_outcome)
        pooled.append(best)
        for title, (width, ridges) in PERTURBED.items():
            rows, fresh_rows = scaled(inputs, width), scaled(fresh, width)
            found = [
                area(fresh_rows @ noised_fit(setting, rows, outcome, each, draw), fresh_outcome) for each in ridges
            ]
            perturbed[title].append(best - max(found))
        with tempfile.TemporaryDirectory(prefix="wardround-learning-") as folder:
            write(Path(folder), inputs, outcome)
            for one_noise, _ in setting.promised:
                start = time.process_time()
                scores, charge = train(Path(folder), setting, fresh, one_noise=one_noise)
                seconds += time.process_time() - start
                charged = max(charged, charge)
                losses[one_noise].append(best - area(scores, fresh_outcome))
    print(f"  pooled, not private          area {np.mean(pooled):.4f}")
    for one_noise, promised in setting.promised:
        title = "one noise on the total" if one_noise else "noise at every site   "
        print(f"  ours, {title} {told(losses[one_noise])}; promised at most {promised:g}")
    for title, lost in perturbed.items():
        print(f"  output perturbation, pooled  {told(lost)} ({title})")
    print(f"  dearest charge ε = {charged:.4f}; {seconds / sum(map(len, losses.values())):.2f} s processor a training")


def told(losses: list[float]) -> str:
    error = float(np.std(losses)) / math.sqrt(len(losses))
    return f"loss {np.mean(losses):.4f} ± {error:.4f}, worst {max(losses):.4f}"


def train(folder: Path, setting: Setting, fresh: Array, *, one_noise: bool) -> tuple[Array, float]:
    """Chances of fresh patients by a model of the simulated federation, and what it was charged."""
    names = tuple(f"x{place}" for place in range(setting.features))
    request = TrainingRequest(
        kind=ModelKind.LOGISTIC,
        table="visits",
        target="outcome",
        features=names,
        epsilon=setting.epsilon,
        delta=setting.delta,
        validation_fraction=0.0,
    )
    trial = TrainingTrial(request, trusted_total=one_noise)
    (result,) = run_trainings(parse_study(study_text(setting)), folder, trial)
    found = result.predict({name: fresh[:, place] for place, name in enumerate(names)})
    return found, result.privacy.charged.epsilon


def study_text(setting: Setting) -> str:
    """Bounds a consortium would choose: the binary features as such, the others from −4 to 4."""
    binary = setting.features // 3
    columns = [
        f'x{place} = {{ type = "integer", lower = 0, upper = 1 }}'
        if place < binary
        else f'x{place} = {{ type = "number", lower = -4, upper = 4, step = 0.001 }}'
        for place in range(setting.features)
    ]
    head = f"""\
name = "learning"
overlap = 1
[budget]
epsilon = {setting.epsilon}
delta = {setting.delta}
[tables.visits]
unit_key = "patient"
max_rows_per_unit = 1
[tables.visits.columns]
outcome = {{ type = "integer", lower = 0, upper = 1 }}
"""
    return head + "\n".join(columns) + "\n"


def write(folder: Path, inputs: Array, outcome: Array) -> None:
    """Everybody at one of the hospitals."""
    for site in range(SITES):
        rows = np.arange(site, len(outcome), SITES)
        table = {"patient": rows, "outcome": outcome[rows].astype(np.int64)}
        table |= {f"x{place}": inputs[rows, place] for place in range(inputs.shape[1])}
        (folder / f"h{site}").mkdir()
        pq.write_table(pa.table(table), folder / f"h{site}" / "visits.parquet")


def population(patients: int, truth: Array, strength: float, draw: np.random.Generator) -> tuple[Array, Array]:
    """Correlated features, a third of them binary, and an outcome that about a quarter has."""
    features = len(truth)
    distance = np.abs(np.subtract.outer(np.arange(features), np.arange(features)))
    inputs = draw.standard_normal((patients, features)) @ np.linalg.cholesky(0.5**distance).T
    binary = features // 3
    inputs[:, :binary] = np.where(inputs[:, :binary] > 0.5, 1.0, -1.0)
    pull = inputs @ truth
    score = pull / math.sqrt(float(np.mean(pull**2))) * strength + OFFSET
    inputs[:, :binary] = (inputs[:, :binary] + 1.0) / 2.0
    return inputs, (draw.random(patients) < chance(score)).astype(np.float64)


def chance(score: Array) -> Array:
    return 0.5 + 0.5 * np.tanh(score / 2.0)


def with_intercept(inputs: Array) -> Array:
    return np.column_stack((np.ones(len(inputs)), inputs))


def fit(rows: Array, outcome: Array, ridge: float) -> Array:
    """The ridge-penalised maximum likelihood fit."""

    def loss(weights: Array) -> tuple[float, Array]:
        score = rows @ weights
        value = float(np.logaddexp(0.0, score).sum() - outcome @ score + ridge / 2.0 * weights @ weights)
        return value, rows.T @ (chance(score) - outcome) + ridge * weights

    found: Array = minimize(loss, np.zeros(rows.shape[1]), jac=True, method="L-BFGS-B").x
    return found


def noised_fit(setting: Setting, rows: Array, outcome: Array, share: float, draw: np.random.Generator) -> Array:
    """A pooled ridge fit with noise on its weights: one patient moves them by at most 1/ridge."""
    ridge = share * setting.patients
    noise = draw.standard_normal(rows.shape[1]) / (ridge * mu_of(setting.epsilon, setting.delta))
    return fit(rows, outcome, ridge) + noise


def scaled(inputs: Array, width: float) -> Array:
    """Rows no longer than 1; `width` is what numeric features are divided by."""
    binary = inputs.shape[1] // 3
    centred = np.concatenate((2.0 * inputs[:, :binary] - 1.0, inputs[:, binary:] / width), axis=1)
    rows = with_intercept(centred) / math.sqrt(inputs.shape[1] + 1)
    shortened: Array = rows / np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
    return shortened


def area(score: Array, outcome: Array) -> float:
    ranks, positive = rankdata(score), outcome.sum()
    return float((ranks[outcome == 1].sum() - positive * (positive + 1) / 2) / (positive * (len(outcome) - positive)))


if __name__ == "__main__":
    main()
