"""What a schedule costs by every accountant, side by side, and over the sites of one patient."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

from wardround.privacy.accounting import accountants
from wardround.privacy.accounting.events import Event, Schedule, SubsampledGaussian

# So many sets of sites are compared one by one; beyond it every event counts at its dearest sites.
_MOST_SETS = 256

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


def over_sites(sites: Sequence[Schedule], *, delta: float, overlap: int) -> float:
    """The loss distribution's epsilon for the patient it costs most, at up to `overlap` of the sites."""
    if overlap < 1:
        raise ValueError(f"overlap must be at least 1, not {overlap}")
    most = min(overlap, len(sites))
    if math.comb(len(sites), most) > _MOST_SETS:
        return accountants.pld(_dearest(sites, most), delta)
    together = {sum(chosen, start=Schedule(())) for chosen in combinations(sites, most)}
    return max(accountants.pld(schedule, delta) for schedule in together)


def _dearest(sites: Sequence[Schedule], overlap: int) -> Schedule:
    """For each event the sites where it happened most: no patient meets more of it."""
    counted: dict[Event, list[int]] = {}
    for site in sites:
        for event, count in site.counts:
            counted.setdefault(event, []).append(count)
    return Schedule.of(Counter({event: sum(sorted(found)[-overlap:]) for event, found in counted.items()}))


def _note(name: str, epsilon: float, schedule: Schedule, delta: float) -> str:
    if math.isinf(epsilon):
        return "none without a larger delta" if delta <= schedule.certain_delta else "none found at this delta"
    sampled = any(isinstance(event, SubsampledGaussian) for event, _ in schedule.counts)
    return "gives no credit for sampling" if sampled and name.startswith("zcdp") else ""
