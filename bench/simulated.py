"""How long thirty simulated hospitals take: `python bench/simulated.py [--sites N] [--repeat N]`.

A mean of two groups, where most of the time goes into rounds and ledgers, and a histogram of four hundred groups, where
it goes into combining. Every repeat is a federation of its own. `wardround simulate` is started as anybody starts it,
so the time of the start is in it; processor seconds, because only they can be compared on a busy machine.
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

PATIENTS = 100
DIAGNOSES = [f"D{number:03}" for number in range(400)]
STUDY = f"""\
name = "simulated"
[budget]
epsilon = 3.0
delta = 1e-6
[tables.encounters]
unit_key = "patient_id"
max_rows_per_unit = 2
[tables.encounters.columns.sbp]
type = "number"
lower = 80.0
upper = 200.0
step = 0.1
[tables.encounters.columns.sex]
type = "category"
values = ["f", "m"]
[tables.encounters.columns.diagnosis]
type = "category"
values = {DIAGNOSES}
"""
QUESTIONS = {
    "mean of two groups": "SELECT sex, AVG(sbp) FROM encounters GROUP BY sex",
    "histogram of 400 groups": "SELECT diagnosis, HISTOGRAM(sbp, 50) FROM encounters GROUP BY diagnosis",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sites", type=int, default=30)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wardround-bench-") as name:
        folder = Path(name)
        write(folder, options.sites)
        for question, sql in QUESTIONS.items():
            seconds = asked(folder, sql, options.repeat)
            print(f"{question:<26}{options.sites} sites, {options.repeat} times:  {seconds:6.2f} s")


def write(folder: Path, sites: int) -> None:
    """A study, and two rows of each of a site's patients."""
    (folder / "study.toml").write_text(STUDY, encoding="utf-8")
    draw = random.Random(7)
    for site in range(sites):
        path = folder / "hospitals" / f"site-{site:02}" / "encounters.csv"
        path.parent.mkdir(parents=True)
        rows = [
            f"{patient},{draw.uniform(80, 200):.1f},{draw.choice('fm')},{draw.choice(DIAGNOSES)}\n"
            for patient in range(PATIENTS)
            for _ in range(2)
        ]
        path.write_text("patient_id,sbp,sex,diagnosis\n" + "".join(rows), encoding="utf-8")


def asked(folder: Path, sql: str, repeat: int) -> float:
    """Processor seconds of one command."""
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    options = f"--study study.toml --tables hospitals --epsilon 1 --repeat {repeat} --json".split()
    subprocess.run(
        [Path(sys.executable).with_name("wardround"), "simulate", *options, sql],
        cwd=folder,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime


if __name__ == "__main__":
    main()
