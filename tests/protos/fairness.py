"""How fair turns were, as counts: what was taken up between a name's call that waits and that call's own turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from protos.turns import SERVED, WAITS

Event = tuple[str, str]


def most_ahead(events: Iterable[Event], name: str) -> Counter[str]:
    """For each other name, how many of its calls were at most taken up ahead of one waiting call of `name`.

    Only for a name that has one call at a time: then its turn after it began to wait is the one it waits for.
    """
    most: Counter[str] = Counter()
    ahead: Counter[str] | None = None
    for kind, who in events:
        if who == name:
            if ahead is not None and kind == SERVED:
                most |= ahead
            ahead = Counter() if kind == WAITS else None
        elif ahead is not None and kind == SERVED:
            ahead[who] += 1
    return most


def times_waited(events: Iterable[Event], name: str) -> int:
    return sum(event == (WAITS, name) for event in events)
