"""The accountants' figures for a ledger that grows: what one more charge adds is all that is computed anew."""

import math
from collections import Counter
from collections.abc import Callable, Sequence

from wardround.privacy.accounting import accountants
from wardround.privacy.accounting.composition import RunningLoss
from wardround.privacy.accounting.events import (
    LARGEST_EPSILON,
    LEAST_Z,
    Approximate,
    DiscreteLaplace,
    Event,
    Gaussian,
    Pure,
    Schedule,
)
from wardround.privacy.report.dearest_patient import contains

# Up to so many events a loss is computed afresh, which is quick and may also use the plain sum.
_FEW = 64
# A grid made for so many events is too coarse for more than this multiple of them.
_GROWTH = 2
# Nobody would grant so large a loss; its figure need not be quick.
_LARGE_MU_SQUARED = 1e4
# Beyond so many different events, near ones count as one for the accountant that is slow in their number.
_MANY_KINDS = 64
_GRID = 1.01
# Logarithms and powers err by far less than this part of a step.
_MARGIN = 1e-9

_QUICK: tuple[tuple[str, Callable[[Schedule, float], float]], ...] = (
    ("basic", accountants.basic),
    ("advanced", lambda schedule, delta: accountants.advanced(coarse(schedule), delta)),
    ("zcdp", accountants.zcdp),
    ("zcdp_tight", accountants.zcdp_tight),
    ("rdp", accountants.rdp),
    ("gdp", accountants.gdp),
)


class RunningAccountants:
    """Every accountant's epsilon, at one delta, for whichever of some patients it is largest."""

    def __init__(self, delta: float) -> None:
        self._delta = delta
        self._running: list[tuple[RunningLoss, int]] = []

    def epsilons(self, patients: Sequence[Schedule]) -> tuple[tuple[str, float], ...]:
        """By accountant, in the usual order; infinite where one has no figure."""
        found = [(name, max(rule(patient, self._delta) for patient in patients)) for name, rule in _QUICK]
        before, self._running = self._running, []
        found.append(("pld", max(self._by_distribution(patient, before) for patient in patients)))
        return tuple(found)

    def _by_distribution(self, patient: Schedule, before: list[tuple[RunningLoss, int]]) -> float:
        # A sure loss of delta and nothing else is taken from delta, not put on the grid.
        sure = tuple(pair for pair in patient.counts if isinstance(pair[0], Approximate) and not pair[0].epsilon)
        kept = Schedule(tuple(pair for pair in patient.counts if pair not in sure))
        left = self._delta - Schedule(sure).certain_delta
        only_gaussian = not kept.without_gaussians().counts
        if left <= 0.0 or only_gaussian or kept.events <= _FEW or kept.mu_squared > _LARGE_MU_SQUARED:
            return accountants.pld(patient, self._delta)
        running, events = self._grown(kept, before)
        self._running.append((running, events))
        found = max(curve.epsilon_at(left) for curve in running.curves())
        # Where no window is wide enough, the divergences still have an answer.
        return found if math.isfinite(found) else accountants.rdp(kept, left)

    def _grown(self, kept: Schedule, before: list[tuple[RunningLoss, int]]) -> tuple[RunningLoss, int]:
        """A loss that was known before, with what is new added; or one made for this schedule."""
        for index, (running, events) in enumerate(before):
            if kept.events <= _GROWTH * events and contains(kept, running.schedule):
                del before[index]
                known = dict(running.schedule.counts)
                for event, count in kept.counts:
                    if count > known.get(event, 0):
                        running.add(event, count - known.get(event, 0))
                return running, events
        return RunningLoss(kept, self._delta), kept.events


def coarse(schedule: Schedule) -> Schedule:
    """The schedule, or one with fewer different events that costs at least as much, by about a hundredth."""
    if len(schedule.counts) <= _MANY_KINDS:
        return schedule
    merged: Counter[Event] = Counter()
    for event, count in schedule.counts:
        match event:
            case Gaussian(z):
                merged[Gaussian(max(_GRID ** math.floor(math.log(z, _GRID) - _MARGIN), LEAST_Z))] += count
            case DiscreteLaplace(epsilon) | Pure(epsilon):
                merged[Pure(min(_GRID ** math.ceil(math.log(epsilon, _GRID) + _MARGIN), LARGEST_EPSILON))] += count
            case _:
                merged[event] += count
    return Schedule.of(merged)
