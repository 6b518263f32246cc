"""How long a logistic regression takes over loopback: `python bench/training.py [--trainings N]`.

Coordinator and four sites are separate processes with mutual TLS and durable ledgers, as in `bench/ask.py`. Seven
rounds find the model; one before them scales the inputs and one after them tries it. The limit printed beside it is
what the durable writes of a round's critical path alone cost on this disk, times the rounds.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
from ask import SITES, WRITES_ON_THE_PATH, commit_seconds, rich_stage

from wardround.analyst.asking.client import connect
from wardround.analyst.learning.request import parse_request

WANTED_SECONDS = 3.0
REQUEST = """
kind = "logistic"
table = "encounters"
target = "positive"
features = ["age", "sbp"]
epsilon = 1.0
delta = 1e-6
rounds = 7
validation_fraction = 0.2
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainings", type=int, default=7)
    trainings = parser.parse_args().trainings
    with tempfile.TemporaryDirectory(prefix="wardround-bench-") as name:
        folder = Path(name)
        stage = rich_stage(folder, patients=2500)
        try:
            stage.begin(SITES)
            seconds, plans, replayed = trained(folder, trainings)
            commit = commit_seconds(folder / "probe.sqlite")
        finally:
            stage.stop()
    report(seconds, plans, replayed, commit)


def trained(folder: Path, trainings: int) -> tuple[list[float], int, float]:
    """Seconds of each training from nothing, how many rounds it had, and seconds of reading one again."""
    seconds = []
    request = parse_request(REQUEST)
    with connect(folder / "analyst.profile") as federation:
        for number in range(trainings):
            began = time.perf_counter()
            result = federation.train(request, nonce=f"{number:08x}", out=folder / f"model-{number}")
            seconds.append(time.perf_counter() - began)
        began = time.perf_counter()
        federation.train(request, nonce="00000000", out=folder / "again")
        replayed = time.perf_counter() - began
    return seconds, len(result.document()["plan_ids"]), replayed


def report(seconds: list[float], plans: int, replayed: float, commit: float) -> None:
    limit = plans * WRITES_ON_THE_PATH * commit
    others = seconds[1:] or seconds
    middle = float(np.median(others))
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"logistic regression, 7 rounds and {plans - 7} beside, {SITES} sites, {len(seconds)} trainings")
    print(f"the first, in which sites read their rows for the first time: {seconds[0]:.2f} s")
    print(f"median of the others: {middle:.2f} s (wanted: {WANTED_SECONDS:g}); longest {max(others):.2f} s")
    each = f"{plans} × {WRITES_ON_THE_PATH} × {1000 * commit:.2f} ms"
    print(f"durable writes alone ({each}): {limit:.2f} s;  ratio {middle / limit:.2f}")
    print(f"asked again, from the ledger: {replayed:.2f} s")
    print(f"peak memory: analyst {own:.0f} MiB, largest role {largest:.0f} MiB")


if __name__ == "__main__":
    main()
