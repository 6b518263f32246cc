"""One question asked of one source by a process that does nothing else; prints what it found and what it took.

python -m tests.large.asking SOURCE QUESTION MEBIBYTES [FOLDER OF A SNAPSHOT]

A failure is what was found, too: its sentence.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from site_agent.learning.training_step import take
from site_agent.reading.batches import Preparable
from site_agent.reading.columnstore.build import prepare_table
from site_agent.reading.columnstore.prepared_dataset import PreparedFirst
from site_agent.reading.dataset import TableSource, check_form
from site_agent.reading.memory_limits import Limits
from site_agent.serving.open_dataset import open_dataset
from tests.large.giant_table import KEY, KEYS, LAW, form_of, study
from wardround.federation.errors import FederationError
from wardround.federation.models.step_layout import StepLayout
from wardround.simulation.noise import ZeroNoise

PREPARE = "prepare"


def peak_mebibytes() -> float:
    """The most memory this process ever had; getrusage would count what its parent had when it was forked."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) / 1024


def answer(source: str, name: str, limits: Limits, prepared: Path | None) -> object:
    agreed = study()
    tables = open_dataset(
        {"visits": TableSource(source, timeout_seconds=7200.0)}, folder=Path("/"), key=KEY, limits=limits
    )
    if name == PREPARE and prepared is not None:
        found = tables.sources["visits"]
        if not isinstance(found, Preparable):
            raise TypeError(source)
        prepare_table(
            agreed.table("visits"),
            found,
            folder=prepared / "visits",
            study_hash=agreed.study_hash,
            key=KEY,
            now_seconds=time.time(),
            report=lambda _: None,
            limits=limits,
        )
        return None
    form = form_of(name)
    if isinstance(form, StepLayout):
        check_form(tables, form)
        return [int(each) for each in take(form, tables.examples(form), LAW, ZeroNoise())]
    dataset = tables if prepared is None else PreparedFirst(tables, prepared, agreed, KEY, {"visits": 24.0})
    if prepared is not None and isinstance(dataset, PreparedFirst):
        standing = dataset.standing(agreed.table("visits"))
        if not standing.exists or standing.fault is not None:
            raise RuntimeError(f"the snapshot is not used: {standing.fault}")
    dataset.check(form)
    if name == KEYS:
        return dict(sorted(dataset.keys(form).items()))
    return [int(each) for each in dataset.bounded(form)[0].total]


def main() -> None:
    source, name, mebibytes, *prepared = sys.argv[1:]
    before, begun = peak_mebibytes(), time.perf_counter()
    limits = Limits(memory_mebibytes=int(mebibytes))
    try:
        found = answer(source, name, limits, Path(prepared[0]) if prepared else None)
    except FederationError as error:
        found = error.message
    took = time.perf_counter() - begun
    print(json.dumps({"found": found, "before": before, "peak": peak_mebibytes(), "seconds": took}))


if __name__ == "__main__":
    main()
