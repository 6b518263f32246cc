"""What a schedule costs by every accountant, side by side."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from wardround.privacy.accounting import accountants
from wardround.privacy.accounting.events import Schedule, SubsampledGaussian

_ACCOUNTANTS: tuple[tuple[str, Callable[[Schedule, float], float]], ...] = (
    ("basic", accountants.basic),
    ("advanced", accountants.advanced),
    ("zcdp", accountants.zcdp),
    ("zcdp_tight", accountants.zcdp_tight),
    ("rdp", accountants.rdp),
    ("gdp", accountants.gdp),
    ("pld", accountants.pld),
)


@dataclass(frozen=True, slots=True)
class Line:
    """One accountant's epsilon; infinite where it has none, and a note where one is due."""

    accountant: str
    epsilon: float
    note: str = ""


def compare(schedule: Schedule, *, delta: float, overlap: int = 1) -> tuple[Line, ...]:
    """Every accountant's epsilon for a unit that meets the schedule at `overlap` sites."""
    if not 0.0 <= delta < 1.0:
        raise ValueError(f"delta must be a number from 0 to 1, 1 excluded, not {delta!r}")
    seen = schedule.seen(overlap)
    lines = []
    for name, accountant in _ACCOUNTANTS:
        epsilon = accountant(seen, delta)
        lines.append(Line(name, epsilon, _note(name, epsilon, seen, delta)))
    return tuple(lines)


def _note(name: str, epsilon: float, schedule: Schedule, delta: float) -> str:
    if math.isinf(epsilon):
        return "none without a larger delta" if delta <= schedule.certain_delta else "none found at this delta"
    sampled = any(isinstance(event, SubsampledGaussian) for event, _ in schedule.counts)
    return "gives no credit for sampling" if sampled and name.startswith("zcdp") else ""
