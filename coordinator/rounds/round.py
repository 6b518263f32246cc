"""One plan asked once of its participants: keyed, repeatable steps.

Recovery after a crash is to begin again. Each step finds what it did before and goes on from there; there is no other
code for a restart. Between two steps nothing of a round exists but its line among the open ones.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass

from coordinator.accounts.accounting import Accounting, PlannedQuestion, question_of
from coordinator.clock import Clock
from coordinator.planning.plans import loss_of, planned_again
from coordinator.rounds.admitting import unmet
from coordinator.rounds.combining import combine_releases, impossible
from coordinator.rounds.dispatch import Dispatch, round_key, site_key
from coordinator.rounds.open_rounds import SHARE_FOR_THE_AWAY, OpenRound, OpenRounds, Window
from coordinator.rounds.rejoining import LOST
from coordinator.rounds.stored_answers import StoredAnswer, write_answer
from coordinator.store.kept_answers import WrittenAnswer
from coordinator.store.ledger import Ledger
from coordinator.store.rounds import Outcome, Question, RoundState
from wardround.federation.errors import FederationError, PlanRefused, SitesAway, TooFewSites, Unavailable
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.forms.release import Release, decode_release
from wardround.federation.forms.totals import NoiseSetting
from wardround.federation.models.step_layout import StepLayout
from wardround.federation.plan.plan import Plan
from wardround.federation.question.answer import Estimate, SiteState
from wardround.federation.refusal import refusal_texts
from wardround.federation.study.study import Study

FEW_NUMBERS = 10_000
"""Released numbers that are combined inside the transaction that settles their round; more would hold up the others."""

log = logging.getLogger("wardround.coordinator")


@dataclass(frozen=True, slots=True)
class Round:
    """The straight line of one plan: begin, wait for the sites, conclude."""

    _ledger: Ledger
    _clock: Clock
    _accounting: Accounting
    _dispatch: Dispatch
    _rounds: OpenRounds
    _setting: NoiseSetting

    def begin(self, asked: PlannedQuestion, *, require: int = 0) -> None:
        """What is durable before an analyst hears of the plan; then the sites are told.

        The round keeps no answer of fewer hospitals than are required. Of several who ask the same, the one who
        requires least is heard.
        """
        sites = min(require, len(asked.plan.participants))
        self._accounting.reserve(asked, require=sites)
        self._ledger.rounds.require_no_more(asked.plan.plan_id, sites)
        self._dispatch.open_again(asked.plan)
        self._open(asked.question, asked)

    def take_up(self) -> None:
        """Go on with every round that a stop or a crash left without an answer."""
        for question in self._unfinished():
            self._dispatch.open_again(question.plan)
            self._open(question, None)

    def due_seconds(self, plan_id: str) -> float | None:
        """How long the round still waits for its sites; 0 for whoever is to conclude it, None where it is not open.

        A site whose steward has yet to decide keeps the round open until the study's patience is over.
        """
        with self._rounds.looking(plan_id) as found:
            if found is None:
                return None
            if found.concluding:
                return math.inf
            left = found.ends - self._clock.now()
            patience = found.approve_by - self._clock.date()
            found.awaits_approval = left <= 0 < patience and bool(found.pending())
            if left > 0 or found.awaits_approval:
                return left if left > 0 else patience
            found.concluding = True
            return 0.0

    def conclude(self, plan_id: str, *, remember: Callable[[str, FederationError], None]) -> None:
        """Settle, and combine what was released into the answer that stays.

        Why there is none is remembered before the round is no longer open, so that whoever watches can be told.

        Raises:
            Refused, SitesAway: there is no answer; the round has ended.
            Unavailable: nothing was decided; it is still open.
        """
        with self._rounds.looking(plan_id) as found:
            asked = None if found is None else found.asked
        try:
            self._settle(asked or planned_again(question_of(self._ledger, plan_id), self._ledger.study))
        except SitesAway as away:
            remember(plan_id, away)
            self._rounds.remove(plan_id)
            raise
        except Unavailable:
            with self._rounds.looking(plan_id) as found:
                if found is not None:
                    found.concluding = False
            raise
        except FederationError as error:
            remember(plan_id, error)
            self._rounds.remove(plan_id)
            raise
        self._rounds.remove(plan_id)

    def look_around(self) -> tuple[str, ...]:
        """Notice who may not take part any more, as another process wrote it down; the plans that this moved."""
        if not len(self._rounds):
            return ()
        return self._rounds.leave_all_but(self._ledger.members.active(), now=self._clock.now())

    @property
    def open_rounds(self) -> int:
        """How many rounds are open."""
        return len(self._rounds)

    def note_served(self) -> None:
        """Write down for how long coordinators have served this folder: the deadlines of open rounds count in that."""
        self._ledger.rounds.note_served(self._clock.now())

    def awaited_stewards(self, plan_id: str) -> list[str]:
        """The sites whose stewards an open round waits for, and for nobody else."""
        with self._rounds.looking(plan_id) as found:
            return found.pending() if found is not None and found.awaits_approval else []

    def _open(self, question: Question, asked: PlannedQuestion | None) -> None:
        """Remember the round among the open ones, as the ledger has it; nothing where it was answered, or has ended."""
        ledger, plan_id = self._ledger, question.plan.plan_id
        with ledger.one_moment():
            standing = ledger.rounds.standing(plan_id)
            if standing.state is RoundState.ANSWERED or self._has_ended(plan_id, standing.outcome):
                return
            opened = OpenRound(question, self._window(question.plan), self._states(question.plan), asked=asked)
            opened.approve_by = ledger.trainings.first_opened_at(plan_id) + ledger.study.approval_seconds
        if standing.state is RoundState.SETTLED:
            # What it was settled with stands; late answers do not count.
            opened.window = Window(-math.inf)
            opened.approve_by = -math.inf
        if self._rounds.add(opened, now=self._clock.now()):
            # What arrived since then found no open round.
            for site, state in ledger.tasks.states(plan_id).items():
                if state is not SiteState.OPEN:
                    self._rounds.move(plan_id, site, state, now=self._clock.now())
            for site in question.plan.participants:
                self._clock.announce(site_key(site))
            self._clock.announce(round_key(plan_id))

    def _states(self, plan: Plan) -> dict[str, SiteState]:
        ledger = self._ledger
        stored = dict.fromkeys(ledger.trainings.left_out(plan.plan_id), SiteState.REFUSED)
        stored |= ledger.tasks.states(plan.plan_id)
        active, final = ledger.members.active(), (SiteState.RELEASED, SiteState.REFUSED)
        return {
            site: state if site in active or state in final else SiteState.MISSING
            for site in plan.participants
            for state in (stored.get(site, SiteState.OPEN),)
        }

    def _window(self, plan: Plan) -> Window:
        """Until when the round waits: what was left of its time when the coordinator before stopped."""
        study, now = self._ledger.study, self._clock.now()
        date, opened = self._ledger.rounds.window(plan.plan_id)
        since = self._clock.date() - date if opened is None else now - opened
        left = min(max(study.deadline_seconds - since, 0.0), study.deadline_seconds)
        away = self._ledger.trainings.away(plan.plan_id)
        needed = self._ledger.rounds.needed(plan.plan_id)
        return Window(now + left, study.deadline_seconds * SHARE_FOR_THE_AWAY, away, needed)

    def _settle(self, asked: PlannedQuestion) -> None:
        """The answer to a step holds no more than who answered: its sums are the releases themselves."""
        plan, form, ledger = asked.plan, asked.planned.layout, self._ledger
        few = isinstance(form, StepLayout) or form.dimension * len(plan.participants) <= FEW_NUMBERS
        refused: FederationError | None = None
        with ledger.tasks.settling(plan.plan_id) as round_:
            outcome = self._accounting.settle(round_)
            if few:
                refused = self._answer(asked, outcome, round_.answer)
        if not few:
            refused = self._answer(asked, outcome, functools.partial(ledger.answers.keep, plan.plan_id))
        # Raised only here: inside the transaction it would undo the settling.
        if refused is not None:
            raise refused

    def _answer(
        self, asked: PlannedQuestion, outcome: Outcome, keep: Callable[[WrittenAnswer], None]
    ) -> FederationError | None:
        """Keep the answer of a settled round; why there is none, otherwise."""
        plan, form, study = asked.plan, asked.planned.layout, self._ledger.study
        releases = [] if isinstance(form, StepLayout) else self._released(plan, outcome)
        left_out = () if isinstance(form, StepLayout) else impossible(plan, form, releases)
        if left_out:
            log.warning("round %s leaves out %s: impossible totals", plan.plan_id[:12], ", ".join(left_out))
        kept = outcome.without(left_out)
        if (refused := short_of(self._ledger, plan.plan_id, kept, left_out)) is not None:
            return refused
        estimates: tuple[Estimate, ...] = ()
        if isinstance(form, AnswerLayout):
            declared = {site.name: site.patients for site in self._ledger.members.sites()}
            possible = [release for release in releases if release.site not in left_out]
            estimates = combine_releases(plan, form, possible, setting=self._setting, patients=declared)
        overlap = study.overlap_among(plan.participants)
        answer = StoredAnswer(
            outcome=kept,
            estimates=estimates,
            mechanism=plan.mechanism.value,
            charged=loss_of(self._accounting.charged(asked.planned), overlap=overlap, delta=asked.question.delta),
            overlap=overlap,
            composition=self._setting.composition(overlap=overlap),
            noiseless=self._setting.noiseless,
            left_out=left_out,
        )
        keep(write_answer(answer))
        return None

    def _released(self, plan: Plan, outcome: Outcome) -> list[Release]:
        stored = self._ledger.submissions.releases(plan.plan_id)
        return [decode_release(stored[site]) for site in outcome.answered]

    def _has_ended(self, plan_id: str, outcome: Outcome | None) -> bool:
        """Whether a round was settled with too few answers."""
        return outcome is not None and len(outcome.answered) < self._ledger.rounds.needed(plan_id)

    def _unfinished(self) -> list[Question]:
        """Every round that has neither an answer nor ended with too few sites, oldest first."""
        ledger = self._ledger
        with ledger.one_moment():
            return [
                question_of(ledger, found)
                for found in ledger.rounds.unanswered()
                if not self._has_ended(found, ledger.rounds.standing(found).outcome)
            ]


def ended_without_answer(ledger: Ledger, plan_id: str) -> FederationError:
    """Why a round that is not open has no answer, as far as the ledger knows."""
    if ledger.recovery.is_lost(plan_id, ""):
        return PlanRefused(LOST)
    outcome = ledger.rounds.standing(plan_id).outcome
    refused = None if outcome is None else short_of(ledger, plan_id, outcome)
    return refused or Unavailable("The round is not running now; ask again.")


def short_of(ledger: Ledger, plan_id: str, outcome: Outcome, left_out: tuple[str, ...] = ()) -> FederationError | None:
    """Why a settled round has no answer: fewer sites answered than the question requires, or the study needs."""
    needed = ledger.rounds.needed(plan_id)
    if len(outcome.answered) >= needed:
        return None
    if ledger.rounds.required(plan_id):
        return unmet(outcome, needed, left_out)
    return too_few(outcome, ledger.study, left_out)


def too_few(outcome: Outcome, study: Study, left_out: tuple[str, ...] = ()) -> TooFewSites:
    """The refusal, with who is missing, who refused and who is left out."""
    asked = len(outcome.answered) + len(outcome.refused) + len(outcome.missing) + len(left_out)
    text = f"{len(outcome.answered)} of {asked} sites answered and the study needs {study.min_sites}"
    if outcome.missing:
        text += f"; missing: {', '.join(outcome.missing)}"
    if outcome.refused:
        text += f"; refused: {', '.join(refusal_texts(outcome.refused))}"
    if left_out:
        text += f"; left out: {', '.join(left_out)} (sent totals that no table can give)"
        return TooFewSites(
            f"{text}. What a site has sent cannot be replaced: once the hospital has fixed it, ask again with --fresh."
        )
    # A refusal is signed and stays; a site that is only missing may still answer the same plan.
    if study.min_sites > len(outcome.answered) + len(outcome.missing):
        text += ". A refusal is final for this question: once the hospitals have changed their policy, ask it again"
        return TooFewSites(f"{text} (--fresh).")
    return TooFewSites(f"{text}. Asking again costs nothing more.")
