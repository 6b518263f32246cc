"""Whose loss is reported: the patients that releases can cost most.

A patient meets the schedules of its own sites and of no other. Where there are too many sets of sites to look at one
by one, a patient is made up who meets every event as often as anybody could: no real one loses more.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from wardround.privacy.accounting.events import Event, Schedule
from wardround.privacy.budget.parallel import Group

# So many sets of sites are formed, and so many patients kept, before one is made up for all of them.
_MOST_SETS = 32
_MOST_PATIENTS = 4
_NOTHING = Schedule(())


def dearest_patients(sites: Mapping[str, Schedule], groups: Iterable[Group]) -> tuple[Schedule, ...]:
    """Schedules of which one costs at least what any patient's does, whatever the accountant.

    Every site with a schedule must be in one of the groups, as for the filter.
    """
    found: set[Schedule] = set()
    inside: set[str] = set()
    for group in groups:
        inside.update(group.sites)
        met = Counter(sites[site] for site in group.sites if site in sites)
        found.update(_patients(met, group.overlap))
    if outside := set(sites) - inside:
        raise ValueError(f"every site must be in a group; outside: {', '.join(sorted(outside))}")
    return undominated(found) or (_NOTHING,)


def contains(more: Schedule, less: Schedule) -> bool:
    """Whether every event of `less` happens in `more` at least as often; then `more` never costs less."""
    counts = dict(more.counts)
    return all(counts.get(event, 0) >= count for event, count in less.counts)


def undominated(schedules: Iterable[Schedule]) -> tuple[Schedule, ...]:
    """Those of the schedules that none of the others contains."""
    kept: list[Schedule] = []
    for schedule in sorted(set(schedules), key=lambda one: (-one.events, repr(one.counts[:1]))):
        if not any(contains(other, schedule) for other in kept):
            kept.append(schedule)
    return tuple(kept)


def of_many_events(epsilon: float, delta: float, *, events: int) -> tuple[float, float]:
    """The (epsilon, delta) of a patient with so many events, where each event alone has `epsilon` and `delta`.

    Group privacy: a path of `events` steps, each to a neighbour. A delta of 1 promises nothing.
    """
    if events < 1:
        raise ValueError(f"a patient has at least one event, not {events}")
    whole = events * epsilon
    if delta == 0.0:
        return whole, 0.0
    if epsilon == 0.0:
        return 0.0, min(1.0, events * delta)
    # In logarithms, since e^(m epsilon) is soon beyond any float.
    log_steps = whole + math.log(-math.expm1(-whole)) - epsilon - math.log(-math.expm1(-epsilon))
    return whole, math.exp(min(0.0, math.log(delta) + log_steps))


def _patients(met: Counter[Schedule], overlap: int) -> Sequence[Schedule]:
    kinds = tuple(met.items())
    if math.comb(len(kinds) + overlap, overlap) <= _MOST_SETS:
        found = undominated(_unions(kinds, overlap))
        if len(found) <= _MOST_PATIENTS:
            return found
    return (_made_up(kinds, overlap),)


def _unions(kinds: tuple[tuple[Schedule, int], ...], overlap: int) -> Iterator[Schedule]:
    """What patients at up to `overlap` sites meet, when sites with the same schedule are alike."""
    if not kinds or overlap == 0:
        yield _NOTHING
        return
    (schedule, alike), *rest = kinds
    for taken in range(min(alike, overlap) + 1):
        here = schedule.seen(taken) if taken else _NOTHING
        for others in _unions(tuple(rest), overlap - taken):
            yield here + others


def _made_up(kinds: Iterable[tuple[Schedule, int]], overlap: int) -> Schedule:
    """For each event the sites where it happened most."""
    counted: dict[Event, list[int]] = {}
    for schedule, alike in kinds:
        for event, count in schedule.counts:
            counted.setdefault(event, []).extend([count] * min(alike, overlap))
    return Schedule.of({event: sum(sorted(counts)[-overlap:]) for event, counts in counted.items()})
