"""A mirror for the path of one question: which of our functions and files it meets in a warm simulated federation.

    make mirrors

It also counts by role how often the question is typed, laid out and priced: once on each side, because no side trusts
another, and no more.
"""

from __future__ import annotations

import csv
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType

from wardround.federation.study.study_file import parse_study
from wardround.simulation.federation import SimulatedFederation, SimulatedSite
from wardround.simulation.sites import find_sites

ROOT = str(Path(__file__).resolve().parents[1]) + "/"
STUDY = """
name = "cardio"
overlap = 1
min_sites = 2
[budget]
epsilon = 30.0
delta = 1e-6
[tables.visits]
unit_key = "pid"
max_rows_per_unit = 2
[tables.visits.columns]
age = { type = "integer", lower = 0, upper = 110 }
sbp = { type = "number", lower = 80, upper = 200, step = 0.1 }
dx = { type = "category", values = ["E11", "I10"] }
"""
QUESTION = "SELECT dx, AVG(sbp) FROM visits WHERE age >= 40 GROUP BY dx"
SITES = ("one", "two")
PATIENTS = 500
ROLES = ("site_agent/", "coordinator/", "wardround/analyst/")

# What is computed, by the function that does it.
COMPUTATIONS = {"typed": "typing", "layout": "layout", "_charge": "price"}
# From the call of the first function to the return of the second.
STRETCHES = {
    "ask → reservation": ("Client.ask", "ReservingRound.charge"),
    "claim → kept release": ("Agent.work", "SiteLedger.keep"),
}
NESTED = ("<module>", "<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>", "<lambda>")
SKIPPED = frozenset((*NESTED, "__init__", "__post_init__", "__eq__", "__hash__"))

Function = tuple[str, str]


@dataclass
class Trace:
    """The functions of a question, those of each stretch, and who computed what how often."""

    calls: Counter[Function] = field(default_factory=Counter)
    stretches: dict[str, set[Function]] = field(default_factory=lambda: {name: set() for name in STRETCHES})
    computed: Counter[tuple[str, str]] = field(default_factory=Counter)
    _open: set[str] = field(default_factory=set)

    def see(self, frame: FrameType, event: str, _: object) -> None:
        """One event of the interpreter."""
        function = _ours(frame.f_code)
        if function is None:
            return
        name = function[1]
        if event == "call":
            self._open |= {stretch for stretch, (first, _) in STRETCHES.items() if first == name}
            if frame.f_code.co_name not in SKIPPED:
                self.calls[function] += 1
                for stretch in self._open:
                    self.stretches[stretch].add(function)
            if name in COMPUTATIONS and function[0].startswith("wardround/federation/"):
                self.computed[COMPUTATIONS[name], _whose(frame)] += 1
        elif event == "return":
            self._open -= {stretch for stretch, (_, last) in STRETCHES.items() if last == name}

    def lines(self) -> list[str]:
        """What it shows."""
        told = [f"{QUESTION}: {_met(set(self.calls))}, calls {self.calls.total()}"]
        told += [f"{stretch}: {_met(functions)}" for stretch, functions in self.stretches.items()]
        for what in COMPUTATIONS.values():
            by_role = {role: number for (each, role), number in sorted(self.computed.items()) if each == what}
            told.append(f"{what}: " + ", ".join(f"{role} {number}" for role, number in by_role.items()))
        return told


def _met(functions: set[Function]) -> str:
    return f"functions {len(functions)}, files {len({file for file, _ in functions})}"


def _ours(code: CodeType) -> Function | None:
    name = code.co_filename
    return (name.removeprefix(ROOT), code.co_qualname) if name.startswith(ROOT) and "/.venv/" not in name else None


def _whose(frame: FrameType) -> str:
    """The role that asked for it, and of the sites which."""
    site, found = "", ""
    above: FrameType | None = frame
    while above is not None and not found:
        file = above.f_code.co_filename.removeprefix(ROOT)
        found = next((role for role in ROLES if file.startswith(role)), "")
        above = above.f_back
    while found == ROLES[0] and above is not None and not site:
        site = getattr(above.f_locals.get("self"), "site", "") if above.f_code.co_name == "run" else ""
        above = above.f_back
    return f"{found.rstrip('/').rpartition('/')[2]} {site}".strip()


def traced(ask: Callable[[SimulatedFederation], object], folder: Path) -> Trace:
    """What `ask` meets in a federation of two sites that has answered before."""
    for site in SITES:
        (folder / "hospitals" / site).mkdir(parents=True)
        with (folder / "hospitals" / site / "visits.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["pid", "age", "sbp", "dx"])
            rows.writerows([f"{site}-{i}", 20 + i % 70, 100 + i % 60, ("E11", "I10")[i % 2]] for i in range(PATIENTS))
    study = parse_study(STUDY)
    sites = {name: SimulatedSite(found, PATIENTS) for name, found in find_sites(folder / "hospitals", study).items()}
    (folder / "run").mkdir()
    federation = SimulatedFederation(study, sites, folder=folder / "run")
    trace = Trace()
    before = sys.getprofile()
    try:
        federation.client.ask("SELECT COUNT(*) FROM visits", epsilon=0.5)
        threading.setprofile(trace.see)
        sys.setprofile(trace.see)
        ask(federation)
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
        federation.close()
    return trace


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        for line in traced(lambda federation: str(federation.client.ask(QUESTION, epsilon=0.5)), Path(name)).lines():
            print(line)
