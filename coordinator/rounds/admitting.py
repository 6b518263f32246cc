"""Whether a question may be begun: enough hospitals are there, and as many as it requires would answer it.

Whoever is charged and whose round has no answer has paid for nothing. So a question waits for nobody who is away: it is
not begun, nothing is charged, and it can be asked again. What was paid for before goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.accounts.accounting import PlannedQuestion
from coordinator.clock import Clock
from coordinator.members.presence import CALLED, Presence
from coordinator.planning.foreseeing import foreseen
from coordinator.rounds.open_rounds import OpenRounds
from coordinator.store.ledger import Ledger
from coordinator.store.rounds import Outcome
from wardround.federation.errors import FederationError, SitesAway, TooFewSites
from wardround.federation.plan.plan import Plan
from wardround.federation.plan.required import fewer_are_kept
from wardround.federation.plan.task import ALL_SITES
from wardround.federation.question.answer import SiteState
from wardround.federation.refusal import refusal_texts


@dataclass(frozen=True, slots=True)
class Admitting:
    """Counts the hospitals that a question would have; without `presence` all of them are there."""

    _ledger: Ledger
    _clock: Clock
    _rounds: OpenRounds
    _presence: Presence | None

    @property
    def there(self) -> frozenset[str] | None:
        """Who calls, and who has taken up a task and is at work on it; None where that is not known."""
        return None if self._presence is None else self._presence.live() | self._rounds.at_work()

    def check_kept(self, plan: Plan, outcome: Outcome, require: int) -> None:
        """`TooFewSites` where the answer that is kept has fewer hospitals than are required now."""
        if len(outcome.answered) < _wanted(plan, require):
            raise TooFewSites(fewer_are_kept(len(outcome.answered), len(plan.participants)))

    def admitted(
        self, questions: Sequence[PlannedQuestion], require: int, *, paid: bool
    ) -> tuple[PlannedQuestion, ...]:
        """Those of the forms of a question that as many would answer as it requires, once as many are there.

        Raises:
            SitesAway: too few are there; nothing was charged.
            TooFewSites: by their public limits too few would answer; nothing was charged.
        """
        begun = paid or self._ledger.trainings.begun(questions[0].planned.charge) is not None
        if begun and not require:
            return tuple(questions)
        limits = self._ledger.members.limits()
        refusals = [[each for each in foreseen(asked.planned, limits) if each.refuses] for asked in questions]
        kept = [
            (asked, frozenset(each.site for each in refusing if require))
            for asked, refusing in zip(questions, refusals, strict=True)
            if not require or len(asked.plan.participants) - len(refusing) >= _wanted(asked.plan, require)
        ]
        if not kept and refusals[0]:
            why = "; ".join(each.sentence for each in refusals[0])
            raise TooFewSites(f"Fewer hospitals would answer than this question requires: {why}. Nothing was charged.")
        asked, refusing = kept[0] if kept else (questions[0], frozenset())
        self._wait_until_there(asked.plan, refusing, require)
        return tuple(each for each, _ in kept)

    def _wait_until_there(self, plan: Plan, refusing: frozenset[str], require: int) -> None:
        """After a start sites may take one poll for their first call; later nobody is waited for."""
        needed = max(self._ledger.study.min_sites, _wanted(plan, require))
        while True:
            seen = self._clock.changes(CALLED)
            there = self._count(plan, refusing)
            if there >= needed:
                return
            left = 0.0 if self._presence is None else self._presence.first_poll_seconds()
            if left <= 0.0 or self._clock.ended:
                whose = "this question requires" if _wanted(plan, require) >= needed and require else "the study needs"
                raise SitesAway(
                    f"{there} of {len(plan.participants)} hospitals are there and {whose} {needed}; away: "
                    f"{', '.join(self._away(plan)) or 'none'}. Nothing was charged; ask again later."
                )
            self._clock.wait(CALLED, seen=seen, seconds=left)

    def _count(self, plan: Plan, refusing: frozenset[str]) -> int:
        return len(plan.participants) - len({*self._away(plan), *refusing})

    def _away(self, plan: Plan) -> list[str]:
        if (there := self.there) is None:
            return []
        # Who has answered already need not be there any more.
        states = self._ledger.tasks.states(plan.plan_id)
        done = {site for site, state in states.items() if state is SiteState.RELEASED}
        return [site for site in plan.participants if site not in there and site not in done]


def unmet(outcome: Outcome, needed: int, left_out: tuple[str, ...] = ()) -> FederationError:
    """Why a round that requires more hospitals than answered has no answer."""
    asked = len(outcome.answered) + len(outcome.refused) + len(outcome.missing) + len(left_out)
    text = f"{len(outcome.answered)} of {asked} hospitals answered and this question requires {needed}"
    if outcome.missing:
        text += f"; missing: {', '.join(outcome.missing)}"
    if outcome.refused:
        text += f"; refused: {', '.join(refusal_texts(outcome.refused))}"
    if left_out:
        text += f"; left out: {', '.join(left_out)}"
    if needed > len(outcome.answered) + len(outcome.missing):
        return TooFewSites(f"{text}. Ask without --require for the answer of those, or ask again with --fresh.")
    return SitesAway(f"{text}. No answer is kept; asking again asks those that are missing and costs nothing more.")


def _wanted(plan: Plan, require: int) -> int:
    return len(plan.participants) if require >= ALL_SITES else require
