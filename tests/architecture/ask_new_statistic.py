"""Asks a statistic named `rate` of a simulated federation, in every way there is; prints what was told as JSON.

Run by `test_new_statistic` in a copy of the tree that has such a statistic: python ask_new_statistic.py FOLDER
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import wardround
from wardround.analyst.asking.builder import query
from wardround.analyst.showing.result import Result
from wardround.federation.errors import QueryMistaken
from wardround.federation.statistics import ALLOWED_BY_DEFAULT
from wardround.federation.study.study_file import parse_study
from wardround.simulation.federation import SimulatedFederation, SimulatedSite
from wardround.simulation.noise import ZeroNoise
from wardround.simulation.sites import find_sites

STUDY = """
name = "throwaway"
overlap = 1
min_sites = 2
[budget]
epsilon = 100.0
delta = 1e-6
[tables.visits]
unit_key = "pid"
max_rows_per_unit = 1
[tables.visits.columns]
age = { type = "integer", lower = 0, upper = 110 }
died = { type = "boolean" }
ward = { type = "category", values = ["a", "b"] }
"""
PATIENTS = 40


def write_hospitals(folder: Path) -> None:
    """Of each hospital's patients half are in each ward; of those in ward a 8 died, in ward b 2."""
    for site in ("one", "two"):
        (folder / site).mkdir(parents=True)
        with (folder / site / "visits.csv").open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(["pid", "age", "died", "ward"])
            for patient in range(PATIENTS):
                ward, place = "ab"[patient % 2], patient // 2
                rows.writerow([f"{site}-{patient}", 50, place < (8 if ward == "a" else 2), ward])


def numbers(result: Result) -> dict[str, list[list[object]]]:
    """The values of an answer by label, each with its group."""
    found: dict[str, list[list[object]]] = {}
    for line in result.shown.lines:
        found.setdefault(line.label, []).append([dict(line.estimate.group), line.estimate.value])
    return found


def mistake(federation: SimulatedFederation, question: str) -> str:
    """The sentence by which a question is refused."""
    try:
        federation.client.ask(question, epsilon=1.0)
    except QueryMistaken as error:
        return error.message
    return ""


def main(folder: Path) -> None:
    """Ask, and print."""
    study = parse_study(STUDY)
    write_hospitals(folder / "hospitals")
    sites = {
        name: SimulatedSite(tables, PATIENTS, noise=ZeroNoise())
        for name, tables in find_sites(folder / "hospitals", study).items()
    }
    (folder / "ledgers").mkdir()
    federation = SimulatedFederation(study, sites, folder=folder / "ledgers", noiseless=True)
    ask = federation.client.ask
    asked = ask("SELECT RATE(died) FROM visits", epsilon=1.0)
    ordered = ask(
        "SELECT ward, RATE(died) AS r FROM visits GROUP BY ward HAVING RATE(died) < 0.3 ORDER BY r", epsilon=1.0
    )
    preview = federation.client.preview(query("visits").of("rate", "died"), epsilon=2.0)
    again = ask("SELECT RATE(died) FROM visits", epsilon=1.0)
    document = {
        "from": wardround.__file__,
        "sql": numbers(asked),
        "groups": numbers(ask("SELECT ward, RATE(died) FROM visits GROUP BY ward", epsilon=1.0)),
        "ordered": [[dict(line.estimate.group)["ward"], line.estimate.value] for line in ordered.shown.lines],
        "beside": numbers(ask("SELECT RATE(died), COUNT(*), AVG(died) FROM visits", epsilon=1.0)),
        "built": numbers(ask(query("visits").of("rate", "died"), epsilon=2.0)),
        "promised": [str(preview), *(each.standard_error for each in preview.preview.expected)],
        "mistaken": mistake(federation, "SELECT RATE(age) FROM visits"),
        "nearest": mistake(federation, "SELECT RATES(died) FROM visits"),
        "again": [again.answer.replayed, numbers(again)],
        "allowed": [*ALLOWED_BY_DEFAULT],
        "drawn": asked.plot().get_xlabel(),
    }
    federation.close()
    print(json.dumps(document))


main(Path(sys.argv[1]))
