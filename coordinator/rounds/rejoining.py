"""How sites come back to a coordinator that was restored from a backup and recovered.

A site shows its ledger from the last place that is known of it, recalls each plan that it charged, held or refused
since, and says how far it came. Whatever it is asked next comes after that. Once everybody is back who is waited for,
each round that had no answer is settled with what the lost ledger is proved to have held. Where that is not certain, an
answer may have been told that nobody can make again, and the plan is lost.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from coordinator.accounts.accounting import Accounting
from coordinator.clock import Clock
from coordinator.members.roster import Roster
from coordinator.planning.plans import loss_of
from coordinator.rounds.collection import Collection
from coordinator.store.ledger import Ledger
from coordinator.store.recovery import NOTHING, TAKEN, ImportedCharge, ImportingSite, RejoinState
from coordinator.store.rounds import Question
from wardround.federation.canonical import encode
from wardround.federation.errors import (
    LedgerCorrupt,
    MalformedMessage,
    PeerUnreachable,
    PlanRefused,
    Unavailable,
)
from wardround.federation.forms.release import release_hash
from wardround.federation.ledger.entry_body import acknowledges, cost_in, decode_body, facts_in, text_in
from wardround.federation.plan.plan import Charge, Plan, price
from wardround.federation.plan.recalled import Recalled
from wardround.federation.plan.task import Released
from wardround.federation.trust.asked_by import AskedBy
from wardround.federation.trust.enrolment import Standing
from wardround.federation.trust.entry import Entry, Head, follow_each_other
from wardround.privacy.accounting.cost import total
from wardround.privacy.budget.facts import AnyFact, BlockFact, StepFact

LOST = (
    "What was answered to this question is lost: the coordinator came back from a backup that is older. Ask it again "
    "with --fresh, which is charged again."
)
_FIRST = (
    "The coordinator came back from a backup, and this site is to show its ledger first; its agent does so by itself. "
    "If it does not, upgrade it."
)
_UNPROVED = "what is recalled is not in the ledger that the site showed."

log = logging.getLogger("wardround.coordinator")


class Rejoining:
    """Imports what sites recall, and decides what became of the rounds."""

    def __init__(self, ledger: Ledger, clock: Clock, accounting: Accounting, collection: Collection) -> None:
        self._ledger = ledger
        self._clock = clock
        self._accounting = accounting
        self._collection = collection
        self._roster = Roster(ledger)

    def refuse_while_recovering(self) -> None:
        """`Unavailable` until every site is back that is waited for."""
        if awaited := self._ledger.recovery.awaited():
            raise Unavailable(
                f"The coordinator came back from a backup and waits for {', '.join(awaited)}; ask again later. "
                "Nothing was charged."
            )

    def refuse_unless_back(self, site: str) -> None:
        """`PeerUnreachable` for a site that is to rejoin first, so that it greets again."""
        if self.is_to_rejoin(site):
            raise PeerUnreachable(_FIRST)

    def refuse_if_lost(self, plan_id: str, block: str) -> None:
        """`PlanRefused` where the answer is lost."""
        if self._ledger.recovery.is_lost(plan_id, block):
            raise PlanRefused(LOST)

    def is_to_rejoin(self, site: str) -> bool:
        """Whether a site has yet to come back."""
        return self._ledger.recovery.state(site) in (RejoinState.AWAITED, RejoinState.ABSENT)

    def standing(self, site: str) -> Standing:
        """How far a site's ledger is known, and whether it is to rejoin."""
        members, recovery = self._ledger.members, self._ledger.recovery
        if not self.is_to_rejoin(site):
            return members.standing_of(site)
        # From where it was known when the ledger came back, also when it was broken off in between.
        return replace(members.standing_at(site, recovery.known_before(site)), recovered=recovery.recovered())

    def recall(self, site: str, recalled: Recalled) -> None:
        """Import a plan that this site charged, held or refused, and what it answered."""
        if not self.is_to_rejoin(site):
            return
        question, priced = self._question(site, recalled)
        with self._ledger.recovery.importing(site) as importing:
            if not importing.knows(recalled.plan_id):
                self._import(importing, recalled, question, priced)
        if recalled.answer is not None and self._ledger.tasks.exists(recalled.plan_id, site):
            self._collection.take_back(site, recalled.answer, before=self._proved(site, recalled))

    def rejoin(self, site: str, head: Head) -> bool:
        """A site has shown all of its ledger; whether nobody is waited for any more."""
        if not self.is_to_rejoin(site):
            return False
        self._import_the_rest(site, head)
        waited = self._ledger.recovery.awaited()
        if waited == (site,):
            self._decide(site)
        self._ledger.recovery.rejoined(site, head)
        log.warning("%s has rejoined with entry %d", site, head.sequence)
        return waited == (site,)

    def _import_the_rest(self, site: str, head: Head) -> None:
        """Whatever a site charged is imported, also what it did not recall; a gap in its chain could hide a charge."""
        after = self._ledger.recovery.known_before(site)
        entries = self._ledger.recovery.shown(site, after, head)
        last = entries[-1].head if entries else after
        gapless = follow_each_other(entries) and (not entries or entries[0].previous == after.digest)
        if not gapless or (last != head and head.sequence > after.sequence):
            raise MalformedMessage("the site did not show all of its ledger.")
        for entry in entries:
            if entry.kind == "charged":
                recalled = Recalled(_text(entry, "plan_id"), charged=entry)
                with self._ledger.recovery.importing(site) as importing:
                    if not importing.knows(recalled.plan_id):
                        self._import(importing, recalled, None, None)
            elif entry.kind == "released" and self._ledger.recovery.lacks_release(_text(entry, "plan_id"), site):
                # It may have been in the answer, and is not here to make it again.
                self._ledger.recovery.lose(_text(entry, "plan_id"), "")

    def _import(
        self, importing: ImportingSite, recalled: Recalled, question: Question | None, priced: Charge | None
    ) -> None:
        charge = self._charge(importing, recalled, priced)
        if not importing.fits(charge.cost):
            raise MalformedMessage("the site says that it spent more than the study allows.")
        step = priced if priced is not None and priced.block and charge.facts and not charge.block else None
        if step is not None and not importing.is_round(recalled.plan_id) and importing.is_taken(step.block, step.place):
            raise MalformedMessage("the site recalls two plans for one round of a training.")
        asks = importing.keep(recalled.plan_id, charge, question, at=self._clock.date())
        if asks and step is not None:
            importing.take_place(step.block, step.place, recalled.plan_id)

    def _charge(self, importing: ImportingSite, recalled: Recalled, priced: Charge | None) -> ImportedCharge:
        """What a plan is charged here: as the site's own entry says, or what it costs where a steward holds it."""
        if recalled.charged is not None:
            facts = _proved_facts(importing, recalled.charged, recalled.plan_id)
            if priced is not None and not priced.is_paid_by(facts):
                raise MalformedMessage("a plan was charged otherwise than it costs.")
        elif recalled.answer is None and priced is not None:
            facts = priced.facts
        else:
            return NOTHING
        fact = facts[0] if facts else None
        if not isinstance(fact, BlockFact | StepFact):
            return ImportedCharge(facts, total(facts))
        if importing.paid_block(fact.block):
            facts = (StepFact(fact.block, fact.place, fact.dimension),)
        forgotten = importing.is_forgotten_block(fact.block)
        return ImportedCharge(facts, total(facts), fact.block if forgotten else "")

    def _question(self, site: str, recalled: Recalled) -> tuple[Question | None, Charge | None]:
        """The forgotten question with its price, as far as the site still has it and it fits the study."""
        plan, study = recalled.plan, self._ledger.study
        if plan is None:
            return None, None
        if site not in plan.addressed:
            raise MalformedMessage("a plan is recalled by a site that it does not ask.")
        try:
            priced = price(plan, study)
        except PlanRefused:
            return None, None
        asked_by = recalled.asked_by if recalled.asked_by is not None and _asked(plan, recalled.asked_by) else None
        delta = study.cap.delta if asked_by is None or asked_by.delta is None else asked_by.delta
        loss = loss_of(priced.cost, overlap=study.overlap_among(plan.participants), delta=delta)
        analyst = "" if asked_by is None else asked_by.analyst
        return Question(plan, analyst, loss.epsilon, delta, asked_by), priced

    def _proved(self, site: str, recalled: Recalled) -> str:
        """What our own receipt from before says of the answer: that it was taken, in time or late; or unknown."""
        receipt, answer = recalled.receipt, recalled.answer
        if receipt is None or answer is None:
            return "unknown"
        hashed = release_hash(answer.payload) if isinstance(answer, Released) else None
        if not receipt.signed_by(self._ledger.identity.public) or not acknowledges(
            receipt, answer.entry.head, plan_id=recalled.plan_id, site=site, released=hashed
        ):
            log.warning("%s shows a receipt that this coordinator did not sign; it is ignored", site)
            return "unknown"
        body = decode_body(receipt.body)
        # One that was given while recovering says what was known then.
        return str(body.get("before", "late" if body.get("late") else TAKEN))

    def _decide(self, rejoining: str) -> None:
        """Settle each round that had no answer, as the lost ledger did or would have done; the rest is lost."""
        ledger, lost = self._ledger, 0
        for plan_id, block in ledger.recovery.unasked():
            ledger.recovery.lose(plan_id, block)
        for plan_id in ledger.recovery.undecided():
            if self._is_lost(plan_id, rejoining):
                ledger.recovery.lose(plan_id, "")
            lost += ledger.recovery.is_lost(plan_id, "")
            with ledger.tasks.settling(plan_id) as round_:
                self._accounting.settle(round_)
        log.warning("every site is back that was waited for; the answers of %d questions are lost", lost)

    def _is_lost(self, plan_id: str, rejoining: str) -> bool:
        """Whether there may have been an answer that cannot be made again, or can be no answer any more."""
        ledger = self._ledger
        parts = ledger.recovery.parts(ledger.rounds.plan(plan_id), rejoining=rejoining).values()
        released = sum(part.released for part in parts)
        if not all(part.certain for part in parts):
            return True
        if released >= ledger.rounds.needed(plan_id):
            return False
        # Whoever required fewer may have been told. Of a plan that was forgotten only those are charged who recalled
        # it, so it is not asked again.
        return released >= ledger.study.min_sites or ledger.recovery.is_imported(plan_id)


def _asked(plan: Plan, asked_by: AskedBy) -> bool:
    return asked_by.covers(study_hash=plan.study_hash, query=encode(plan.query), nonce=plan.nonce)


def _proved_facts(importing: ImportingSite, entry: Entry, plan_id: str) -> tuple[AnyFact, ...]:
    if not importing.was_shown(entry) or entry.kind != "charged" or _text(entry, "plan_id") != plan_id:
        raise MalformedMessage(_UNPROVED)
    try:
        body = decode_body(entry.body)
        facts = facts_in(body)
        if cost_in(body) == total(facts):
            return facts
    except (LedgerCorrupt, ValueError, ArithmeticError):
        pass  # Answered below: whatever it says, it is no charge.
    raise MalformedMessage("a charge of the site is not what its facts cost.")


def _text(entry: Entry, key: str) -> str:
    try:
        return text_in(decode_body(entry.body), key)
    except LedgerCorrupt:
        raise MalformedMessage(_UNPROVED) from None
