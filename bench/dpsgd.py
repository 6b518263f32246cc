"""One epoch of DP-SGD over 100,000 patients with 50 features, beside Opacus and beside torch without privacy.

Run: python bench/dpsgd.py [--patients N] [--turns T]

Everybody fits the same logistic regression for one epoch of batches of 256 on one thread, each in a process of
its own: ours with secret Poisson samples, per-patient clipping, exact discrete noise and whole numbers; Opacus with
its own loader as `make_private` gives it; torch without privacy, once with its DataLoader and once in the
tightest loop that can be written (a shuffled tensor, cut into batches). torch and opacus are not needed by wardround
and not in its environment: what is absent is said and left out. Sides take turns, and the best of each counts.
"""
# ruff: noqa: ANN401 (torch is not there when this is checked)

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

FEATURES, BATCH, NOISE = 50, 256, 1.0
MIB = 2**20
Run = Callable[[], None]


def population(patients: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(7)
    inputs = np.clip(draw.normal(size=(patients, FEATURES)), -4.0, 4.0)
    chance = 1.0 / (1.0 + np.exp(-inputs @ draw.normal(size=FEATURES) / 4.0))
    return inputs, (draw.random(patients) < chance).astype(np.float64)


def wardround(patients: int) -> Run:
    from site_agent.learning.training_step import take  # noqa: PLC0415
    from site_agent.reading.examples import Examples  # noqa: PLC0415
    from wardround.federation.models.step_layout import LENGTH, pack, step_form  # noqa: PLC0415
    from wardround.federation.models.training import (  # noqa: PLC0415
        RATE_UNIT,
        Model,
        ModelKind,
        Stage,
        StageKind,
        Step,
        Training,
    )
    from wardround.federation.study.study_file import parse_study  # noqa: PLC0415
    from wardround.privacy.mechanisms.randomness import SecureChance  # noqa: PLC0415
    from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution  # noqa: PLC0415

    names = tuple(f"x{place}" for place in range(FEATURES))
    columns = "\n".join(f'{name} = {{ type = "number", lower = -4, upper = 4 }}' for name in names)
    study = parse_study(
        f'name = "bench"\nunit = "patient"\n[budget]\nepsilon = 3.0\ndelta = 1e-6\n[tables.visits]\n'
        f'unit_key = "patient"\nmax_rows_per_unit = 1\n[tables.visits.columns]\n{columns}\n'
        'ill = { type = "boolean" }\n'
    )
    rate = Fraction(round(Fraction(BATCH, patients) * RATE_UNIT), RATE_UNIT)
    stage = Stage(StageKind.GRADIENT, Fraction(round(NOISE * LENGTH)), 1, patients // BATCH, rate)
    training = Training(Model(ModelKind.LOGISTIC, "visits", "ill", names), (stage,), slack=1)
    scale = {"centre": pack(np.zeros(FEATURES)), "spread": pack(np.full(FEATURES, 0.25))}
    weights = pack(np.zeros(FEATURES + 1))
    form = step_form(Step(training, 0, 0, **scale, weights=weights, learning_rate=1.0, batch=float(BATCH)), study)
    inputs, target = population(patients)
    examples = Examples(inputs, target, np.arange(patients + 1), np.zeros(patients, dtype=np.bool_))
    law = NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, stage.scale)
    return lambda: _used(take(form, examples, law, SecureChance()))


def _used(released: np.ndarray) -> None:
    assert released.any()


def _torch(patients: int) -> tuple[Any, Any, Any, Any]:
    import torch  # noqa: PLC0415

    torch.set_num_threads(1)
    inputs, target = population(patients)
    model = torch.nn.Linear(FEATURES, 1)
    rows = torch.tensor(inputs, dtype=torch.float32), torch.tensor(target[:, np.newaxis], dtype=torch.float32)
    return torch, model, torch.optim.SGD(model.parameters(), lr=1.0), rows


def _epoch(torch: Any, model: Any, optimizer: Any, batches: Any) -> None:
    lost = torch.nn.BCEWithLogitsLoss()
    for inputs, target in batches:
        optimizer.zero_grad()
        lost(model(inputs), target).backward()
        optimizer.step()


def torch_tight(patients: int) -> Run:
    torch, model, optimizer, (inputs, target) = _torch(patients)

    def _batches() -> Any:
        order = torch.randperm(patients)
        for start in range(0, patients - BATCH + 1, BATCH):
            mine = order[start : start + BATCH]
            yield inputs[mine], target[mine]

    return lambda: _epoch(torch, model, optimizer, _batches())


def _loader(torch: Any, rows: Any) -> Any:
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*rows), batch_size=BATCH, shuffle=True)


def torch_loader(patients: int) -> Run:
    torch, model, optimizer, rows = _torch(patients)
    loader = _loader(torch, rows)
    return lambda: _epoch(torch, model, optimizer, loader)


def opacus(patients: int) -> Run:
    import opacus as theirs  # noqa: PLC0415

    warnings.simplefilter("ignore")
    torch, model, optimizer, rows = _torch(patients)
    private = theirs.PrivacyEngine().make_private(
        module=model, optimizer=optimizer, data_loader=_loader(torch, rows), noise_multiplier=NOISE, max_grad_norm=1.0
    )
    return lambda: _epoch(torch, *private)


SIDES: dict[str, tuple[Callable[[int], Run], str]] = {
    "wardround": (wardround, ""),
    "torch, tight loop, no privacy": (torch_tight, "torch"),
    "torch, DataLoader, no privacy": (torch_loader, "torch"),
    "Opacus, its own loader": (opacus, "opacus"),
}


def one(side: str, patients: int) -> None:
    """The better of two epochs, and how much memory they took beyond what the rows and libraries had taken."""
    run = SIDES[side][0](patients)
    before = memory_now()
    walls, processors = [], []
    for _ in range(2):
        wall, processor = time.perf_counter(), time.process_time()
        run()
        walls.append(time.perf_counter() - wall)
        processors.append(time.process_time() - processor)
    print(json.dumps({"wall": min(walls), "processor": min(processors), "memory": memory_peak() - before}))


def memory_now() -> int:
    """What the process holds, in bytes; the kernel forgets the peak so far."""
    Path("/proc/self/clear_refs").write_text("5")
    return _kept("VmRSS")


def memory_peak() -> int:
    return _kept("VmHWM")


def _kept(name: str) -> int:
    (line,) = [each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith(f"{name}:")]
    return int(line.split()[1]) * 1024


def measured(side: str, patients: int) -> dict[str, float]:
    root = Path(__file__).resolve().parent.parent
    single = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--one", side, "--patients", str(patients)]
    environment = {**os.environ, **single, "PYTHONPATH": str(root)}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--patients", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--one", choices=tuple(SIDES), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one is not None:
        one(given.one, given.patients)
        return
    print(f"one epoch, {given.patients} patients × {FEATURES} features, batches of {BATCH}, one thread")
    sides = [side for side, (_, needed) in SIDES.items() if not needed or importlib.util.find_spec(needed) is not None]
    for side in SIDES.keys() - sides:
        print(f"{side:32} absent: {SIDES[side][1]} is not installed here")
    turns = [{side: measured(side, given.patients) for side in sides} for _ in range(given.turns)]
    best = {side: {name: min(turn[side][name] for turn in turns) for name in turns[0][side]} for side in sides}
    for side, found in best.items():
        times = found["processor"] / best["wardround"]["processor"]
        print(
            f"{side:32} processor {1e3 * found['processor']:7.0f} ms   wall {1e3 * found['wall']:7.0f} ms   "
            f"memory +{found['memory'] / MIB:5.1f} MiB   {times:6.2f} × ours"
        )


if __name__ == "__main__":
    main()
