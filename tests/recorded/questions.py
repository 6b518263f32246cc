"""Every statistic through a simulated federation over every kind of source: ids, dry runs, answers, release hashes.

Without noise and with seeded noise, Gaussian and pure. Nothing in it depends on the clock, on keys or on the order of
files. Which rows of a patient count is decided by the database's own hash, so sources are recorded one by one.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import random
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path

from site_agent.reading.dataset import Dataset
from tests.recorded.recording import Json
from tests.site_agent.sources.conformance.sources import SOURCES
from tests.site_agent.sources.reference_totals import Row
from wardround.federation.errors import FederationError
from wardround.federation.study.study import Study
from wardround.federation.study.study_file import parse_study
from wardround.simulation.federation import SimulatedFederation, SimulatedSite
from wardround.simulation.noise import SeededNoise, ZeroNoise
from wardround.simulation.sites import Remembering

STUDY = """
name = "recorded"
overlap = 1
min_sites = 2
[budget]
epsilon = 500.0
delta = 1e-6
{pure}
[tables.visits]
unit_key = "patient_id"
max_rows_per_unit = 2
max_groups_per_unit = 2
max_windows_per_unit = 2
[tables.visits.columns]
age = { type = "integer", lower = 0, upper = 110 }
sbp = { type = "number", lower = 80, upper = 200, step = 0.1 }
weight = { type = "number", lower = 30, upper = 180 }
died = { type = "boolean" }
dx = { type = "category", values = ["E11", "I10", "J45"] }
ward = { type = "category", values = ["a", "b"] }
seen = { type = "date", lower = "2025-01-01", upper = "2025-06-30" }
code = { type = "category" }
"""
QUESTIONS = (
    "SELECT COUNT(*) FROM visits",
    "SELECT COUNT(DISTINCT patient_id) FROM visits WHERE age >= 40",
    "SELECT SUM(age) FROM visits",
    "SELECT AVG(sbp) FROM visits",
    "SELECT dx, AVG(sbp), AVG(weight) FROM visits WHERE age >= 40 GROUP BY dx",
    "SELECT AVG(CLAMP(sbp, 90, 180)) FROM visits",
    "SELECT AVG(died) FROM visits WHERE NOT (dx = 'E11' OR ward IN ('b'))",
    "SELECT AVG(sbp), STDDEV(sbp), VARIANCE(age) FROM visits",
    "SELECT ward, MEDIAN(sbp), QUANTILE(sbp, 0.9), QUANTILE(age, 0.25) FROM visits GROUP BY ward",
    "SELECT PERCENTILE_CONT(0.75) WITHIN GROUP (ORDER BY weight), COUNT(*) FROM visits",
    "SELECT dx, MEDIAN(CLAMP(age, 20, 80)), AVG(age) FROM visits GROUP BY dx HAVING AVG(age) > 1 ORDER BY AVG(age)",
    "SELECT dx, COUNT(*) FROM visits GROUP BY dx ORDER BY COUNT(*) DESC LIMIT 2",
    "SELECT DATE_TRUNC('month', seen), COUNT(*) FROM visits GROUP BY DATE_TRUNC('month', seen)",
    "SELECT HISTOGRAM(sbp, 12) FROM visits",
    "SELECT dx, SHARE_BELOW(sbp, 140) FROM visits GROUP BY dx",
    "SELECT CORR(sbp, age) FROM visits",
    "SELECT REGRESS(sbp, age, weight) FROM visits",
    "SELECT KAPLAN_MEIER(age, died, 12) FROM visits",
    "SELECT CHI_SQUARE(dx, ward) FROM visits",
    "SELECT MODE(dx) FROM visits",
    "SELECT KEYS(code) FROM visits",
    "SELECT COUNT(*) FROM visits WHERE seen BETWEEN '2025-02-01' AND '2025-03-01' AND weight IS NOT NULL",
    # Refused, each in one sentence.
    "SELECT AVG(dx) FROM visits",
    "SELECT MEDIAN(died) FROM visits",
    "SELECT QUANTILE(age, 1.0) FROM visits",
    "SELECT MAX(age) FROM visits",
    "SELECT AVG(height) FROM visits",
    "SELECT COUNT(*) FROM visits JOIN wards ON TRUE",
)
SITES = ("one", "three", "two")
WHOLE = "csv"
KINDS = {"gaussian": (1e-7, ""), "pure": (0.0, "pure_epsilon = 200.0")}


def rows_of(site: str) -> list[Row]:
    chance = random.Random(site)
    return [_row(f"{site}-{patient}", chance) for patient in range(150) for _ in range(1 + patient % 3)]


def _row(patient: str, chance: random.Random) -> Row:
    return {
        "patient_id": patient,
        "age": chance.randrange(18, 95),
        "sbp": None if chance.random() < 0.03 else round(chance.gauss(130, 18), 1),
        "weight": round(chance.uniform(25, 130), 2),
        "died": chance.random() < 0.3,
        "dx": chance.choice(["E11", "I10", "J45", "Z99"]),
        "ward": chance.choice("ab"),
        "seen": datetime.date(2025, chance.randrange(1, 7), chance.randrange(1, 29)),
        "code": chance.choice(["A01", "A01", "B02", "C03"]),
    }


def documents(source: str, folder: Path) -> Iterator[tuple[str, Json]]:
    """What one source was asked: whole for files, and for the others the ids and the bytes that were released."""
    for kind, (delta, pure) in KINDS.items():
        study = parse_study(STUDY.replace("{pure}", pure))
        yield f"{source}: {kind}: study", study.study_hash
        # Read once: the other noise is added to the same totals.
        datasets = opened(source, study, folder / kind)
        for noise in ("noiseless", "seeded"):
            title = f"{source}: {kind}, {noise}"
            place = folder / kind / noise
            with federation(study, datasets, place, noiseless=noise == "noiseless") as found:
                for question in QUESTIONS:
                    told = asked(found, question, delta)
                    yield f"{title}: {question}", told if source == WHOLE else _id(told)
            yield f"{title}: released", released(place / "ledgers")


def opened(source: str, study: Study, folder: Path) -> dict[str, Dataset]:
    """The hospitals' tables in one kind of source; each question reads them once."""
    found: dict[str, Dataset] = {}
    for name in SITES:
        (folder / name).mkdir(parents=True)
        found[name] = Remembering(SOURCES[source].opened(rows_of(name), study, folder / name))
    return found


@contextlib.contextmanager
def federation(
    study: Study, datasets: Mapping[str, Dataset], folder: Path, *, noiseless: bool
) -> Iterator[SimulatedFederation]:
    sites = {
        name: SimulatedSite(dataset, 400, noise=ZeroNoise() if noiseless else SeededNoise(number))
        for number, (name, dataset) in enumerate(datasets.items())
    }
    (folder / "ledgers").mkdir(parents=True)
    found = SimulatedFederation(study, sites, folder=folder / "ledgers", noiseless=noiseless)
    try:
        yield found
    finally:
        found.close()


def asked(federation: SimulatedFederation, question: str, delta: float) -> list[Json]:
    """The dry run, the answer and what a person is shown; or the code and sentence of a refusal."""
    try:
        preview = federation.client.preview(question, epsilon=1.0, delta=delta)
        result = federation.client.ask(question, epsilon=1.0, delta=delta)
    except FederationError as error:
        return [error.code, error.message]
    return [preview.document(), result.document(), result.text(long=True).splitlines()]


def _id(told: list[Json]) -> Json:
    return told[0] if isinstance(told[0], str) else told[0]["plan_id"]  # type: ignore[index,call-overload]


def released(folder: Path) -> Json:
    """The bytes that each site released, in the order in which it did."""
    found: dict[str, Json] = {}
    for file in sorted(folder.rglob("*.sqlite")):
        with contextlib.closing(sqlite3.connect(file)) as ledger:
            if ledger.execute("SELECT 1 FROM sqlite_master WHERE name = 'releases'").fetchone():
                payloads = ledger.execute("SELECT payload FROM releases ORDER BY sequence").fetchall()
                found[file.parent.name] = [hashlib.sha256(payload).hexdigest() for (payload,) in payloads]
    return found
