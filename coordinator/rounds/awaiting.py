"""Whom a round waits for, and until when: by who answered and who took the task up, never by what was answered.

Everybody has the study's deadline. Only who was away when the round before of the same training ended is given up
earlier, and only where the others are enough; who takes the task up again has the whole deadline like the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wardround.federation.question.answer import SiteState

SHARE_FOR_THE_AWAY = 1 / 30
"""Of the deadline, after the others have answered: time to take up a task, not to compute."""

_WORKING = frozenset((SiteState.OPEN, SiteState.CLAIMED, SiteState.FAILED))


@dataclass(frozen=True, slots=True)
class Awaited:
    """The wait of one round, in the coordinator's seconds."""

    deadline: float
    short_seconds: float
    away: frozenset[str]
    needed: int

    def ends(self, states: Mapping[str, SiteState], *, before: float, now: float) -> float:
        """When the wait ends as things stand; `before` is what this said last, at first the deadline."""
        working = {site: state for site, state in states.items() if state in _WORKING}
        if not working:
            return now
        answered = sum(state is SiteState.RELEASED for state in states.values())
        # A source that fails is no sign that it will be mended; a task that was taken up is one of work.
        back = any(state is SiteState.CLAIMED or site not in self.away for site, state in working.items())
        if back or answered < self.needed:
            return self.deadline
        return min(before, now + self.short_seconds)


def awaited(*, now: float, deadline_seconds: float, away: frozenset[str], needed: int) -> Awaited:
    """The wait of a round that begins now, for an answer of at least so many sites."""
    return Awaited(now + deadline_seconds, deadline_seconds * SHARE_FOR_THE_AWAY, away, needed)
