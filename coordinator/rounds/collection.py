"""What sites hand in: authentic, expected, once.

Authentic: the site's enrolled identity signed an entry that names exactly these bytes. Expected: a task was
opened for this site, and the bytes have its form. Once: the same bytes again get the same receipt; other
bytes under the same plan, or a chain that contradicts itself, freeze the site. Values are never logged.
"""

from __future__ import annotations

import re

from coordinator.accounts.accounting import Accounting
from coordinator.clock import Clock
from coordinator.members.roster import Roster, refuse_unless_active
from coordinator.rounds.dispatch import round_key, site_key
from coordinator.rounds.open_rounds import OpenRounds
from coordinator.store.ledger import Ledger
from coordinator.store.submissions import AcceptingTask, ShowingChain
from wardround.federation.errors import (
    FederationError,
    LedgerCorrupt,
    MalformedMessage,
    ReleaseConflict,
    SiteFrozen,
    UnknownTask,
)
from wardround.federation.forms.release import decode_release, extent, is_one_vote, release_hash
from wardround.federation.ledger.entry_body import decode_body
from wardround.federation.plan.plan import Charge, Plan, price
from wardround.federation.plan.task import Declined, Failed, Pending, Released, Submission
from wardround.federation.question.answer import SiteState
from wardround.federation.trust.entry import GENESIS, Entry, follow_each_other, places
from wardround.federation.trust.identity import PublicIdentity
from wardround.privacy.mechanisms.private_selection import Choosing

_CODE = re.compile(r"[A-Za-z]{1,64}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_LARGEST_SEQUENCE = 2**62
_FORKED = "two entries at one place of the site's chain"


class Collection:
    """Accepts what sites hand in."""

    def __init__(self, ledger: Ledger, clock: Clock, accounting: Accounting, rounds: OpenRounds) -> None:
        self._ledger = ledger
        self._clock = clock
        self._accounting = accounting
        self._rounds = rounds
        self._roster = Roster(ledger)

    def accept(self, site: str, submission: Submission) -> Entry | None:
        """Take an answer and return its receipt, or note that a site is waiting or failed."""
        plan_id = submission.plan_id
        receipt: Entry | None = None
        match submission:
            case Released():
                receipt = self._keep(site, submission)
                self._move(site, plan_id, SiteState.RELEASED)
            case Declined():
                receipt = self._keep(site, submission)
                self._move(site, plan_id, SiteState.REFUSED)
            case Pending():
                self._note(site, plan_id, SiteState.PENDING)
                self._move(site, plan_id, SiteState.PENDING)
            case Failed():
                self._note(site, plan_id, SiteState.FAILED)
                # Not announced: whoever watches a site that is away hears nothing either.
                self._rounds.move(plan_id, site, SiteState.FAILED, now=self._clock.now())
        return receipt

    def keep_shown(self, site: str, entries: tuple[Entry, ...]) -> None:
        """Keep entries of a site's own chain; two at one place freeze it."""
        if not entries:
            return
        identity = self._roster.admit_site(site).identity
        _check_places(identity, entries)
        with self._ledger.submissions.showing(site) as shown:
            refuse_unless_active(shown.standing)
            forked = _contradicts(shown, entries)
            if forked:
                shown.freeze(_FORKED)
            else:
                shown.keep(entries)
        # Raised only here: inside the transaction it would undo the freeze.
        if forked:
            self._clock.announce(site_key(site))
            raise SiteFrozen

    def take_back(self, site: str, answer: Released | Declined, *, before: str) -> None:
        """Take an answer that a lost ledger may have held; `before` says what receipt proves it."""
        self._keep(site, answer, before=before)

    def _move(self, site: str, plan_id: str, state: SiteState) -> None:
        self._rounds.move(plan_id, site, state, now=self._clock.now())
        self._clock.announce(round_key(plan_id))

    def _note(self, site: str, plan_id: str, state: SiteState) -> None:
        with self._ledger.submissions.accepting(plan_id, site) as task:
            refuse_unless_active(task.standing)
            if task.opened_after is None:
                raise UnknownTask
            task.note(state)

    def _keep(self, site: str, submission: Released | Declined, *, before: str = "") -> Entry:
        plan_id = submission.plan_id
        with self._ledger.one_moment():
            identity = self._roster.admit_site(site).identity
            if not self._ledger.tasks.exists(plan_id, site):
                raise UnknownTask
            plan = self._ledger.rounds.plan(plan_id)
        self._check(site, identity, plan, submission)
        with self._ledger.submissions.accepting(plan_id, site) as task:
            refuse_unless_active(task.standing)
            kept = self._keep_once(task, submission, before)
        # Raised only here: inside the transaction it would undo the freeze.
        if isinstance(kept, FederationError):
            self._clock.announce(site_key(site))
            raise kept
        return kept

    def _check(self, site: str, identity: PublicIdentity, plan: Plan, submission: Released | Declined) -> None:
        """Everything about a submission that needs no look at the ledger; `MalformedMessage` otherwise."""
        entry = submission.entry
        _check_places(identity, (*submission.chain, entry))
        match submission:
            case Released(plan_id, payload):
                _check_body(entry, "released", {"plan_id": plan_id, "release_hash": release_hash(payload)})
                release = decode_release(payload)
                if (release.plan_id, release.site) != (plan_id, site):
                    raise MalformedMessage("the release names another plan or another site.")
                if not extent(release).is_paid_by(self._charge(plan).facts):
                    raise MalformedMessage("the release does not have as many values as the plan.")
                if plan.mechanism is Choosing.PERMUTE_AND_FLIP and not is_one_vote(release.values):
                    raise MalformedMessage("the release is not one vote.")
            case Declined(plan_id, code):
                if not _CODE.fullmatch(code):
                    raise MalformedMessage("the refusal has no valid code.")
                _check_body(entry, "refused", {"plan_id": plan_id, "code": code})

    def _charge(self, plan: Plan) -> Charge:
        """The price that an open round carries; what comes later, as after a steward's days, has its plan priced."""
        with self._rounds.looking(plan.plan_id) as found:
            carried = None if found is None else found.charge
        return carried or price(plan, self._ledger.study)

    def _keep_once(self, task: AcceptingTask, submission: Released | Declined, before: str) -> Entry | FederationError:
        """The receipt, or the error to raise once the freeze that goes with it is durable."""
        payload = submission.payload if isinstance(submission, Released) else b""
        if (kept := task.kept()) is not None:
            if (kept.entry, kept.payload) == (submission.entry.digest, payload):
                return task.receipt(kept.receipt)
            task.freeze("two answers to one plan")
            return ReleaseConflict()
        if (fault := _fork(task, submission)) is not None:
            task.freeze(fault)
            return SiteFrozen()
        if isinstance(submission, Released) and not task.charged:
            return UnknownTask(private="a release of a plan that is not charged at the site")
        receipt = task.keep(submission, before=before)
        if isinstance(submission, Declined):
            self._accounting.void(task)
        return receipt


def _check_body(entry: Entry, kind: str, expected: dict[str, str]) -> None:
    try:
        body = decode_body(entry.body)
    except LedgerCorrupt:
        raise MalformedMessage("the entry's body does not have its canonical form.") from None
    if entry.kind != kind or any(body.get(key) != value for key, value in expected.items()):
        raise MalformedMessage("the entry does not name this answer.")


def _fork(task: AcceptingTask, submission: Released | Declined) -> str | None:
    """How this answer contradicts what the site has signed before, or None.

    An honest site may deliver two answers in either order, so a low number alone proves nothing. But its answer
    stands after everything it had a receipt for when the plan was opened, and each place has one digest.
    """
    entry = submission.entry
    if entry.sequence == 1 and entry.previous != GENESIS:
        return "a first entry that follows another"
    if task.opened_after is None or entry.sequence <= task.opened_after:
        return "an answer that stands before the plan in the site's chain"
    return _FORKED if _contradicts(task, (*submission.chain, entry)) else None


def _contradicts(known: AcceptingTask | ShowingChain, entries: tuple[Entry, ...]) -> bool:
    """Whether the site's chain is known to hold something else at a place of these entries."""
    return any(known.digest_at(place.sequence) not in (None, place.digest) for place in places(entries))


def _check_places(identity: PublicIdentity, entries: tuple[Entry, ...]) -> None:
    """Refuse entries that are not the site's own, one after the other."""
    if not all(0 < entry.sequence <= _LARGEST_SEQUENCE and _DIGEST.fullmatch(entry.previous) for entry in entries):
        raise MalformedMessage("the entry has no place in a chain.")
    if not all(entry.signed_by(identity) for entry in entries):
        raise MalformedMessage("the entry is not signed by the site's enrolled identity.")
    if not follow_each_other(entries):
        raise MalformedMessage("the entries that are shown do not follow each other.")
