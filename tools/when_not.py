"""How large errors are for so many patients, hospitals and ε: the tables of docs/when-not.md.

Counts, shares, means and survival curves are dry runs of a simulated federation; no table is read and no noise is
drawn, so the tables are the same every time. The error of a model's AUC comes from the noise of a training's dry run
and a model that tells well.
Run with: python -m tools.when_not
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

import numpy as np

from wardround import Client, ModelKind, TrainingRequest, parse
from wardround.analyst.estimation.fitted import RoundSums
from wardround.analyst.learning.evaluating import binary_metrics, edges_of
from wardround.federation.models.step_layout import LENGTH
from wardround.federation.models.training import Vector
from wardround.simulation import SimulatedFederation, SimulatedSite, find_sites, parse_study

PATIENTS = (500, 2_000, 10_000, 100_000)
EPSILONS = (0.1, 0.3, 1.0, 3.0)
HOSPITALS = (1, 5, 20)
SURE = NormalDist().inv_cdf(0.975)

STUDY = """
name = "sizes"
overlap = 1
min_sites = 1
[budget]
epsilon = 4.0
delta = 1e-6
[tables.patients]
unit_key = "patient_id"
max_rows_per_unit = 1
[tables.patients.columns]
sbp    = { type = "number", lower = 80, upper = 200, step = 0.1 }
smoker = { type = "boolean" }
months = { type = "integer", lower = 0, upper = 60 }
died   = { type = "boolean" }
"""

AREA = 0.75
OUTCOMES = 0.3
HELD_OUT = 0.2


@dataclass(frozen=True, slots=True)
class Measure:
    """One table: what is measured, the largest useful half-width of its interval, and how that is written."""

    title: str
    useful: float
    half_width: Callable[[Client, int, int, float], float]
    text: Callable[[float], str]

    def cell(self, client: Client, hospitals: int, patients: int, epsilon: float) -> str:
        """The half-width of the 95 % interval, or no where the answer would be of little use."""
        width = self.half_width(client, hospitals, patients, epsilon)
        return f"± {self.text(width)}" if width <= self.useful else "no"


def expected(client: Client, statistic: str, epsilon: float) -> float:
    """The half-width that a dry run expects."""
    question = parse(f"SELECT {statistic} FROM patients")  # noqa: S608 -- ours
    (line,) = client.preview(question, epsilon=epsilon).preview.expected
    return SURE * line.standard_error


def area(client: Client, hospitals: int, patients: int, epsilon: float) -> float:
    """The half-width of the AUC on held-out patients, when scores of both outcomes are normal and the AUC is AREA."""
    request = TrainingRequest(
        ModelKind.LOGISTIC, "patients", "died", ("sbp", "smoker"), epsilon, validation_fraction=HELD_OUT
    )
    *_, scores = client.preview_training(request).beginning.outline.training.stages
    apart = math.sqrt(2.0) * NormalDist().inv_cdf(AREA)
    # Around the score at which both outcomes are as likely.
    middle = apart / 2.0 + math.log((1.0 - OUTCOMES) / OUTCOMES) / apart
    laws = NormalDist(-middle), NormalDist(apart - middle)
    edges = edges_of(OUTCOMES * apart - middle, math.sqrt(1.0 + OUTCOMES * (1.0 - OUTCOMES) * apart**2))
    shares = [np.diff([0.0, *(law.cdf(edge) for edge in edges), 1.0]) for law in laws]
    cells = HELD_OUT * patients * np.column_stack(((1.0 - OUTCOMES) * shares[0], OUTCOMES * shares[1]))
    noise = math.sqrt(hospitals) * float(scores.scale) / LENGTH
    sums = RoundSums(cells.reshape(1, -1), {}, hospitals, noise)
    found, *_ = binary_metrics(sums, edges, lambda score, _: _chance(apart * score))
    return math.inf if found.standard_error is None else SURE * found.standard_error


def _chance(score: Vector) -> Vector:
    found: Vector = 1.0 / (1.0 + np.exp(-score))
    return found


MEASURES = (
    Measure(
        "a count of patients, in per cent of it",
        20.0,
        lambda client, _, patients, epsilon: 100.0 * expected(client, "COUNT(DISTINCT patient_id)", epsilon) / patients,
        lambda width: f"{width:.2g} %",
    ),
    Measure(
        "a share of patients, in percentage points",
        10.0,
        lambda client, _hospitals, _patients, epsilon: 100.0 * expected(client, "AVG(smoker)", epsilon),
        lambda width: f"{width:.2g}",
    ),
    Measure(
        "a mean blood pressure (80 to 200 mmHg), in mmHg",
        5.0,
        lambda client, _hospitals, _patients, epsilon: expected(client, "AVG(sbp)", epsilon),
        lambda width: f"{width:.2g}",
    ),
    Measure(
        "a survival curve at five times, where half are left",
        0.1,
        lambda client, _hospitals, _patients, epsilon: expected(client, "KAPLAN_MEIER(months, died, 5)", epsilon),
        lambda width: f"{width:.2f}" if width >= 0.01 else f"{width:.3f}",  # noqa: PLR2004 -- two digits
    ),
    Measure(
        f"the AUC of a model that has {AREA:g}",
        0.1,
        area,
        lambda width: f"{width:.2f}" if width >= 0.01 else f"{width:.3f}",  # noqa: PLR2004 -- two digits
    ),
)


@contextmanager
def federation(hospitals: int, patients: int) -> Iterator[Client]:
    """So many hospitals with even shares of so many patients, and empty tables."""
    study = parse_study(STUDY)
    with tempfile.TemporaryDirectory(prefix="wardround-") as folder:
        for place in range(hospitals):
            home = Path(folder, "tables", f"hospital-{place:02d}")
            home.mkdir(parents=True)
            (home / "patients.csv").write_text("patient_id,sbp,smoker,months,died\n", "utf-8")
        found = find_sites(Path(folder, "tables"), study)
        sites = {name: SimulatedSite(dataset, patients // hospitals) for name, dataset in found.items()}
        Path(folder, "ledgers").mkdir()
        simulated = SimulatedFederation(study, sites, folder=Path(folder, "ledgers"))
        try:
            yield simulated.client
        finally:
            simulated.close()


def tables() -> Iterator[str]:
    """Each measure as a Markdown table: hospitals and ε down, patients across."""
    cells: dict[tuple[int, float, int], list[str]] = {}
    for hospitals in HOSPITALS:
        for patients in PATIENTS:
            with federation(hospitals, patients) as client:
                for epsilon in EPSILONS:
                    cells[hospitals, epsilon, patients] = [
                        measure.cell(client, hospitals, patients, epsilon) for measure in MEASURES
                    ]
    heads = " | ".join(f"{patients:,} patients" for patients in PATIENTS)
    for number, measure in enumerate(MEASURES):
        lines = [f"| {measure.title} | ε | {heads} |", f"|---|---|{'---|' * len(PATIENTS)}"]
        for hospitals in HOSPITALS:
            for epsilon in EPSILONS:
                row = " | ".join(cells[hospitals, epsilon, patients][number] for patients in PATIENTS)
                name = f"{hospitals} hospital{'s' if hospitals > 1 else ''}"
                lines.append(f"| {name} | {epsilon:g} | {row} |")
        yield "\n".join(lines)


if __name__ == "__main__":
    print("\n\n".join(tables()))
