"""Four small hospitals with a thing to predict, on disk and as a federation in this process."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from site_agent.answering.admission import Policy
from site_agent.reading.dataset import Dataset
from wardround.analyst.learning.request import TrainingRequest, parse_request
from wardround.federation.study.study import Study
from wardround.federation.study.study_file import parse_study
from wardround.privacy.mechanisms.randomness import Chance
from wardround.simulation.federation import SimulatedFederation, SimulatedSite
from wardround.simulation.noise import SeededNoise, ZeroNoise

SIZES = {"east": 120, "north": 240, "south": 180, "west": 200}
STUDY = """\
name = "readmission"
unit = "patient"
overlap = 1
min_sites = 2
deadline_seconds = 60
[budget]
epsilon = 3.0
delta = 1e-6
[tables.visits]
unit_key = "patient_id"
max_rows_per_unit = 4
[tables.visits.columns]
age = { type = "integer", lower = 18, upper = 100 }
sbp = { type = "number", lower = 80, upper = 200, step = 0.1 }
sex = { type = "category", values = ["F", "M"] }
smoker = { type = "boolean" }
code = { type = "category" }
stay = { type = "integer", lower = 0, upper = 30 }
readmitted = { type = "boolean" }
"""
REQUEST = """\
kind = "logistic"
table = "visits"
target = "readmitted"
features = ["age", "sbp", "sex", "smoker"]
epsilon = 1.0
"""
COLUMNS = ("patient_id", "age", "sbp", "sex", "smoker", "code", "stay", "readmitted")

Row = dict[str, str]


def study(**changes: object) -> Study:
    """The study with some of its top keys changed."""
    lines = [line for line in STUDY.splitlines() if line.partition(" =")[0] not in changes]
    return parse_study("\n".join([*(f"{key} = {value}" for key, value in changes.items()), *lines]))


def request_text(**changes: object) -> str:
    """The request with some keys changed or added, written as TOML; None leaves a key out."""
    kept = [line for line in REQUEST.splitlines() if line.partition(" =")[0] not in changes]
    return "\n".join([*kept, *(f"{key} = {toml(value)}" for key, value in changes.items() if value is not None)])


def toml(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{value}"'
        case list() | tuple():
            return f"[{', '.join(toml(each) for each in value)}]"
        case _:
            return str(value)


def request(**changes: object) -> TrainingRequest:
    return parse_request(request_text(**changes))


def patients(site: str, number: int) -> list[Row]:
    """One or two visits of each of so many patients."""
    generator = np.random.default_rng([7, *site.encode()])
    rows = []
    for place in range(number):
        age = int(np.clip(generator.normal(62, 14), 18, 100))
        sbp = float(np.clip(generator.normal(125 + 0.3 * (age - 60), 14), 80, 200))
        sex, smoker = "FM"[generator.integers(2)], generator.random() < 0.3
        score = -0.8 + 0.07 * (age - 62) + 0.03 * (sbp - 125) + 0.9 * smoker
        readmitted = generator.random() < 1 / (1 + np.exp(-score))
        stay = min(30, int(generator.poisson(np.exp(0.8 + 0.02 * (age - 62) + 0.4 * smoker))))
        cells = (f"{site}-{place}", age, f"{sbp:.1f}", sex, _truth(smoker), "c", stay, _truth(readmitted))
        rows += [dict(zip(COLUMNS, map(str, cells), strict=True))] * int(generator.integers(1, 3))
    return rows


def _truth(value: bool | np.bool_) -> str:
    return "true" if value else "false"


def write(
    folder: Path,
    change: Callable[[str, list[Row]], Sequence[Row]] | None = None,
    *,
    sizes: Mapping[str, int] = SIZES,
    columns: Sequence[str] = COLUMNS,
) -> Path:
    """The hospitals' tables under `folder`, after a change of their rows."""
    for site, number in sizes.items():
        rows = [dict(row) for row in patients(site, number)]
        place = folder / site
        place.mkdir(parents=True, exist_ok=True)
        with (place / "visits.csv").open("w", newline="", encoding="utf-8") as stream:
            table = csv.DictWriter(stream, columns, extrasaction="ignore")
            table.writeheader()
            table.writerows(rows if change is None else change(site, rows))
    return folder


def federation(
    folder: Path,
    datasets: Mapping[str, Dataset],
    *,
    noise: Callable[[str], Chance] | None = None,
    policies: Mapping[str, Policy] | None = None,
) -> SimulatedFederation:
    """Coordinator and sites over the tables; without noise unless one is given."""
    chance = noise or (lambda _: ZeroNoise())
    sites = {
        name: SimulatedSite(dataset, 300, noise=chance(name), policy=(policies or {}).get(name))
        for name, dataset in datasets.items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    found = SimulatedFederation(study(), sites, folder=folder, noiseless=noise is None)
    # What a folder holds beside its ledger, so that it can be verified.
    for place, identity in (
        (folder, found.coordinator.identity),
        *((folder / name, agent.ledger._identity) for name, agent in found.agents.items()),
    ):
        identity.save(place / "identity.pem")
        (place / "study.toml").write_text(STUDY, encoding="utf-8")
    return found


def seeded(site: str) -> Chance:
    """Noise of about the right law, the same in every run."""
    return SeededNoise(sum(site.encode()))


def spent(clinics: SimulatedFederation) -> float:
    return clinics.client.budget().report.spent.epsilon
