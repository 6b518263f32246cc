"""Rounds beside Flower's own: `python bench/flower.py [--sites N] [--rounds N] [--processes N] [--ray PYTHON]`.

1. One round of training with three sites: our coordinator and sites as processes over loopback gRPC, with mutual TLS
   and durable ledgers, driven by a Flower app through our grid; and the same app over Flower's own runtime, a SuperLink
   and three SuperNodes as processes on loopback, without TLS and without a ledger. Both train the same logistic model
   on as many rows. Limit: 50 × faster.
2. A thousand simulated sites: ours with the production's agents, signatures and noise, in as many processes as there
   are cores and with ledgers in memory; Flower's by its Ray engine on the same cores, with clients that add up one
   gradient and do nothing else. Limit: 20 × faster than the 296 s that the engine took when the limit was set. It is
   also measured in the same run, where --ray names a Python that has `flwr[simulation]`: Ray is no dependency of ours.
"""

from __future__ import annotations

import argparse
import logging
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

try:
    from flwr.app import Array, ArrayRecord, Message, RecordDict
except ImportError:
    print("flwr is not installed (pip install 'wardround[flower]'): nothing was measured.")
    sys.exit(0)

from _flower_runtime import ray_seconds, runtime_seconds
from ask import rich_stage

from site_agent.reading.examples import Examples
from wardround.analyst.asking.client import connect
from wardround.analyst.flower.grid import WardroundGrid
from wardround.analyst.flower.run_app import grid_over
from wardround.analyst.learning.request import TrainingRequest
from wardround.federation.errors import SourceFailed
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.models.step_layout import StepLayout
from wardround.federation.models.training import ModelKind
from wardround.federation.study.study_file import parse_study
from wardround.privacy.noise.vectors import Bounded
from wardround.simulation.federation import SimulatedFederation, SimulatedSite
from wardround.simulation.synthetic import STUDY

FEATURES = ("age", "sbp")
RAY_SECONDS = 296.0
"""Five rounds of a thousand clients in Flower's Ray engine on two cores, measured when the limit was set."""
RAY_CORES = (2, 1)
"""What a client is given in Flower's Ray engine: its own default, and one core, which is quicker for so small ones."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sites", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="of the thousand sites")
    parser.add_argument("--ray", type=Path, help="a Python with flwr[simulation]")
    parser.add_argument("--ray-rounds", type=int, default=2, help="rounds to run in Ray; the time of one is compared")
    parser.add_argument("--only", choices=["latency", "simulation"])
    options = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    if options.only != "simulation":
        latency(options.rounds)
    if options.only != "latency":
        simulated(options.sites, options.rounds, options.processes, options.ray, options.ray_rounds)


# --- Latency ----------------------------------------------------------------------------------------------


def latency(rounds: int) -> None:
    ours = our_rounds(rounds)
    theirs = flower_rounds(min(rounds, 3))
    print("\nOne round of training, three sites, over loopback")
    print(f"  ours (mutual TLS, durable ledgers, private): median {1e3 * statistics.median(ours):8.1f} ms")
    if theirs is None:
        print("  Flower's SuperLink did not start here: not measured.")
        return
    print(f"  Flower's own runtime (no TLS, no ledger):    median {1e3 * statistics.median(theirs):8.1f} ms")
    ratio = statistics.median(theirs) / statistics.median(ours)
    print(f"  {ratio:.0f} × faster (limit 50): {'kept' if ratio >= 50 else 'MISSED'}")


def our_rounds(rounds: int) -> list[float]:
    """Seconds of each round of gradients, through the grid, without the one that measures."""
    with tempfile.TemporaryDirectory(prefix="wardround-bench-") as name:
        folder = Path(name)
        stage = rich_stage(folder, patients=1000)
        try:
            stage.begin(3)
            with connect(folder / "analyst.profile") as client:
                grid = grid_over(client, request(5 * rounds))
                # Moments and products scale the inputs first.
                arrays = grid.first_arrays()
                seconds = []
                for _ in range(5 * rounds):
                    began = time.perf_counter()
                    replies = list(grid.send_and_receive(messages(grid, arrays)))
                    seconds.append(time.perf_counter() - began)
                    assert all(reply.has_content() for reply in replies)
        finally:
            stage.stop()
    return seconds[1:]


def flower_rounds(rounds: int) -> list[float] | None:
    with tempfile.TemporaryDirectory(prefix="wardround-bench-", ignore_cleanup_errors=True) as name:
        return runtime_seconds(Path(name), sites=3, rounds=rounds)


def request(rounds: int) -> TrainingRequest:
    """Products and gradients of everybody, as many rounds of gradients as asked for."""
    return TrainingRequest(
        ModelKind.LOGISTIC, "encounters", "positive", FEATURES, 1.0, rounds=rounds + 1, validation_fraction=0.0
    )


# --- A thousand sites -------------------------------------------------------------------------------------


class Held:
    """A site's rows in memory, as the clients of a simulation have them."""

    def __init__(self, number: int) -> None:
        draw = np.random.default_rng(number)
        rows = 333
        inputs = np.column_stack((draw.uniform(20, 100, rows), draw.uniform(90, 190, rows)))
        self._examples = Examples(
            inputs,
            (draw.random(rows) < 0.5).astype(np.float64),
            np.arange(rows + 1, dtype=np.intp),
            np.zeros(rows, dtype=np.bool_),
        )

    def check(self, form: AnswerLayout) -> None:
        """Whatever is asked can be answered."""

    def bounded(self, form: AnswerLayout) -> tuple[Bounded, ...]:  # noqa: ARG002
        raise SourceFailed

    def keys(self, form: AnswerLayout) -> Mapping[str, int]:  # noqa: ARG002
        raise SourceFailed

    def examples(self, form: StepLayout) -> Examples:  # noqa: ARG002
        return self._examples


def simulated(sites: int, rounds: int, processes: int, ray: Path | None, ray_rounds: int) -> None:
    a_round, whole = our_simulation(sites, rounds, processes)
    limit = RAY_SECONDS * sites / 1000 * rounds / 5
    print(f"  Flower's Ray engine took {limit:.0f} s for as much when the limit was set")
    print(f"    {verdict(limit / whole)}, our enrolment and files included")
    for cores in RAY_CORES if ray is not None else ():
        with tempfile.TemporaryDirectory(prefix="wardround-bench-", ignore_cleanup_errors=True) as name:
            theirs = ray_seconds(ray, Path(name), sites=sites, rounds=ray_rounds, cores=cores)
        if theirs is None:
            print(f"  Flower's Ray engine did not come to its end here, with {cores} cores for a client.")
            continue
        each = statistics.mean(theirs)
        print(f"  here and now, {cores} cores for a client, which only adds up one gradient: {each:.1f} s a round")
        print(f"    {verdict(each / a_round)} a round, without ledger, signatures and noise on their side")
    if ray is None:
        print("  Not measured here: name a Python with flwr[simulation] by --ray.")


def verdict(ratio: float) -> str:
    return f"{ratio:.0f} × faster (limit 20: {'kept' if ratio >= 20 else 'MISSED'})"


def our_simulation(sites: int, rounds: int, processes: int) -> tuple[float, float]:
    """Seconds of a round, and of all rounds with the sites' enrolment and the ledgers' files."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="wardround-bench-") as name:
        study = parse_study(STUDY.replace("delta = 1e-6", "delta = 1e-7").replace("pure_epsilon = 0.5", ""))
        held = {f"site-{number:04}": SimulatedSite(Held(number), 333) for number in range(sites)}
        federation = SimulatedFederation(study, held, folder=Path(name), processes=min(processes, sites))
        made = time.perf_counter() - began
        times: list[float] = []
        grid = grid_over(federation.client, request(rounds))
        arrays = grid.first_arrays()
        measured = time.perf_counter() - began - made
        for _ in range(rounds):
            started = time.perf_counter()
            replies = list(grid.send_and_receive(messages(grid, arrays)))
            times.append(time.perf_counter() - started)
            assert len(replies) == sites
            assert not any(reply.has_error() for reply in replies)
            weights = np.mean([reply.content["arrays"].to_numpy_ndarrays()[0] for reply in replies], axis=0)
            arrays = ArrayRecord({"weights": Array(weights)})
        started = time.perf_counter()
        federation.close()
        closed = time.perf_counter() - started
    whole = made + sum(times) + closed
    each = statistics.mean(times)
    print(f"\n{sites} simulated sites × {rounds} rounds, sites in {processes} processes")
    print(f"  ours: {sum(times):.1f} s of rounds ({each:.2f} s a round, {1e3 * each / sites:.2f} ms a site)")
    print(f"    {made:.1f} s to enrol everybody and {closed:.1f} s to write the ledgers to files: {whole:.1f} s in all")
    print(f"    before them two other rounds, which scale inputs: {measured:.1f} s")
    of_sites = peak_mebibytes(resource.RUSAGE_CHILDREN)
    print(f"    peak memory {peak_mebibytes():.0f} MiB, and {of_sites:.0f} MiB in the largest process of sites")
    return each, whole


def messages(grid: WardroundGrid, arrays: ArrayRecord) -> list[Message]:
    record = RecordDict({"arrays": arrays})
    return [Message(record, place, "train") for place in grid.get_node_ids()]


def peak_mebibytes(whose: int = resource.RUSAGE_SELF) -> float:
    return resource.getrusage(whose).ru_maxrss / 1024


if __name__ == "__main__":
    main()
