"""What processes hold while they work: memory, threads and descriptors, looked at again and again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.endurance.seeds import say

_EVERY_SECONDS = 2.0
_LOOKS_TO_TELL = 15


@dataclass
class Samples:
    """For each process, how much work was done by then, and how much it held."""

    work: list[int] = field(default_factory=list)
    held: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)

    def look(self, processes: Mapping[str, int], work: int) -> None:
        self.work.append(work)
        for name, number in processes.items():
            place = Path(f"/proc/{number}")
            status = dict(line.split(":", 1) for line in (place / "status").read_text().splitlines())
            memory = int(status["VmRSS"].split()[0]) // 1024
            descriptors = len(list((place / "fd").iterdir()))
            self.held.setdefault(name, []).append((memory, int(status["Threads"]), descriptors))

    def later_half(self, name: str) -> tuple[float, float, float]:
        """By how much each of the three grows in a thousand releases, once half of the work is done."""
        half = max(self.work) / 2
        later = [at for at, work in enumerate(self.work) if work >= half]
        work = np.array([self.work[at] for at in later]) / 1000
        held = np.array([self.held[name][at] for at in later])
        slopes = np.polyfit(work, held, 1)[0]
        return float(slopes[0]), float(slopes[1]), float(slopes[2])


@contextmanager
def sampling(processes: Mapping[str, int], work: Callable[[], int]) -> Iterator[Samples]:
    """Look at these processes until the block is left."""
    samples, ending = Samples(), threading.Event()

    def run() -> None:
        while not ending.wait(_EVERY_SECONDS):
            samples.look(processes, work())
            if len(samples.work) % _LOOKS_TO_TELL == 0:
                say(f"  {samples.work[-1]} releases, after {len(samples.work) * _EVERY_SECONDS:.0f} s and more")

    thread = threading.Thread(target=run, name="sampling")
    thread.start()
    try:
        yield samples
    finally:
        ending.set()
        thread.join()
