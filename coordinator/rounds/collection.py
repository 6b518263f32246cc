"""What sites hand in: authentic, expected, once; and whom a round waits for.

Authentic: the site's enrolled identity signed an entry that names exactly these bytes. Expected: a task was
opened for this site, and the bytes have its form. Once: the same bytes again get the same receipt; other
bytes under the same plan, or a chain that contradicts itself, freeze the site. Values are never logged.

A round waits by who answered and who took the task up, never by what was answered. Everybody has the study's deadline.
Only who was away when the round before of the same training ended is given up earlier, and only where the others are
enough; who takes the task up again has the whole deadline like the rest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from coordinator.accounts.accounting import Accounting
from coordinator.clock import Clock
from coordinator.members.roster import Roster, refuse_unless_active
from coordinator.rounds.dispatch import Dispatch, round_key, site_key
from coordinator.store.ledger import Ledger
from coordinator.store.submissions import AcceptingTask
from wardround.federation.errors import (
    AwaitingApproval,
    FederationError,
    LedgerCorrupt,
    MalformedMessage,
    PeerUnreachable,
    ReleaseConflict,
    SiteFrozen,
    UnknownTask,
)
from wardround.federation.forms.release import decode_release, extent, is_one_vote, release_hash
from wardround.federation.ledger.entry_body import decode_body
from wardround.federation.plan.plan import Charge, Plan, price
from wardround.federation.plan.task import Declined, Failed, Pending, Released, Submission
from wardround.federation.question.answer import SiteState
from wardround.federation.trust.entry import GENESIS, Entry, Head
from wardround.federation.trust.identity import PublicIdentity
from wardround.privacy.mechanisms.private_selection import Choosing

# A change made by another process is announced to nobody; a round looks this often.
LOOK_SECONDS = 1.0
_CODE = re.compile(r"[A-Za-z]{1,64}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_LARGEST_SEQUENCE = 2**62
SHARE_FOR_THE_AWAY = 1 / 30
"""Of the deadline, after the others have answered: time to take up a task, not to compute."""
_WORKING = frozenset((SiteState.OPEN, SiteState.CLAIMED, SiteState.FAILED))


class Collection:
    """Accepts what sites hand in, and waits for it."""

    def __init__(self, ledger: Ledger, clock: Clock, accounting: Accounting, dispatch: Dispatch) -> None:
        self._ledger = ledger
        self._clock = clock
        self._accounting = accounting
        self._dispatch = dispatch
        self._roster = Roster(ledger)
        self._expected: dict[str, Charge] = {}

    def expect(self, charge: Charge) -> None:
        """A round runs: what its sites hand in is compared with the price that it carries."""
        self._expected[charge.plan_id] = charge

    def expect_no_more(self, plan: Plan) -> None:
        """The round has ended; an answer that comes later, as after a steward's days, has its plan priced for it."""
        self._expected.pop(plan.plan_id, None)

    def accept(self, site: str, submission: Submission) -> Entry | None:
        """Take an answer and return its receipt, or note that a site is waiting or failed."""
        receipt: Entry | None = None
        match submission:
            case Released() | Declined():
                receipt = self._keep(site, submission)
            case Pending():
                self._note(site, submission.plan_id, SiteState.PENDING)
            case Failed():
                self._note(site, submission.plan_id, SiteState.FAILED)
                self._dispatch.failed(submission.plan_id, site)
                # Not announced: whoever watches a site that is away hears nothing either.
                return None
        self._clock.announce(round_key(submission.plan_id))
        return receipt

    def gather(self, plan: Plan) -> None:
        """Return when every participant has answered, or when the deadline has passed for those who did not.

        The deadline counts from now, so that a restart gives the sites their time again; of a training only the
        first round waits all of it for a site that is away. A site whose steward has yet to decide keeps the round
        open: `AwaitingApproval`, until the study's patience is over.
        """
        wait = self._awaited(plan)
        ends = wait.deadline
        while True:
            seen = self._clock.changes(round_key(plan.plan_id))
            states = dict(self._dispatch.states(plan))
            now = self._clock.now()
            ends = wait.ends(states, before=ends, now=now)
            if ends <= now:
                break
            if self._clock.ended:
                raise PeerUnreachable("The coordinator is stopping; ask again.")
            self._clock.wait(round_key(plan.plan_id), seen=seen, seconds=min(ends - now, LOOK_SECONDS))
        pending = sorted(site for site, state in states.items() if state is SiteState.PENDING)
        if pending and not self._approval_over(plan):
            names = ", ".join(pending)
            raise AwaitingApproval(f"The question is waiting for approval at {names}; ask again later.")

    def _awaited(self, plan: Plan) -> Awaited:
        study = self._ledger.study
        away = self._ledger.trainings.away(plan.plan_id)
        return awaited(
            now=self._clock.now(), deadline_seconds=study.deadline_seconds, away=away, needed=study.min_sites
        )

    def _approval_over(self, plan: Plan) -> bool:
        opened_at = self._ledger.trainings.first_opened_at(plan.plan_id)
        return self._clock.date() - opened_at >= self._ledger.study.approval_seconds

    def _note(self, site: str, plan_id: str, state: SiteState) -> None:
        with self._ledger.submissions.accepting(plan_id, site) as task:
            refuse_unless_active(task.standing)
            if task.opened_after is None:
                raise UnknownTask
            task.note(state)

    def _keep(self, site: str, submission: Released | Declined) -> Entry:
        plan_id = submission.plan_id
        with self._ledger.one_moment():
            identity = self._roster.admit_site(site).identity
            if not self._ledger.tasks.exists(plan_id, site):
                raise UnknownTask
            plan = self._ledger.rounds.plan(plan_id)
        self._check(site, identity, plan, submission)
        with self._ledger.submissions.accepting(plan_id, site) as task:
            refuse_unless_active(task.standing)
            kept = self._keep_once(task, submission)
        # Raised only here: inside the transaction it would undo the freeze.
        if isinstance(kept, FederationError):
            self._clock.announce(site_key(site))
            raise kept
        return kept

    def _check(self, site: str, identity: PublicIdentity, plan: Plan, submission: Released | Declined) -> None:
        """Everything about a submission that needs no look at the ledger; `MalformedMessage` otherwise."""
        entry = submission.entry
        if not 0 < entry.sequence <= _LARGEST_SEQUENCE or not _DIGEST.fullmatch(entry.previous):
            raise MalformedMessage("the entry has no place in a chain.")
        if not entry.signed_by(identity):
            raise MalformedMessage("the entry is not signed by the site's enrolled identity.")
        match submission:
            case Released(plan_id, payload, _):
                _check_body(entry, "released", {"plan_id": plan_id, "release_hash": release_hash(payload)})
                release = decode_release(payload)
                if (release.plan_id, release.site) != (plan_id, site):
                    raise MalformedMessage("the release names another plan or another site.")
                charge = self._expected.get(plan_id) or price(plan, self._ledger.study)
                if not extent(release).is_paid_by(charge.facts):
                    raise MalformedMessage("the release does not have as many values as the plan.")
                if plan.mechanism is Choosing.PERMUTE_AND_FLIP and not is_one_vote(release.values):
                    raise MalformedMessage("the release is not one vote.")
            case Declined(plan_id, code, _):
                if not _CODE.fullmatch(code):
                    raise MalformedMessage("the refusal has no valid code.")
                _check_body(entry, "refused", {"plan_id": plan_id, "code": code})

    def _keep_once(self, task: AcceptingTask, submission: Released | Declined) -> Entry | FederationError:
        """The receipt, or the error to raise once the freeze that goes with it is durable."""
        payload = submission.payload if isinstance(submission, Released) else b""
        if (kept := task.kept()) is not None:
            if (kept.entry, kept.payload) == (submission.entry.digest, payload):
                return task.receipt(kept.receipt)
            task.freeze("two answers to one plan")
            return ReleaseConflict()
        if (fault := _fork(task, submission.entry)) is not None:
            task.freeze(fault)
            return SiteFrozen()
        receipt = task.keep(submission, _places(submission.entry))
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


def _places(entry: Entry) -> tuple[Head, ...]:
    """The two places of a site's chain that one entry fixes: its own and the one before it."""
    return (entry.head,) if entry.sequence == 1 else (Head(entry.sequence - 1, entry.previous), entry.head)


def _fork(task: AcceptingTask, entry: Entry) -> str | None:
    """How this entry contradicts what the site has signed before, or None.

    An honest site may deliver two answers in either order, so a low number alone proves nothing. But its answer
    stands after everything it had a receipt for when the plan was opened, and each place has one digest.
    """
    if entry.sequence == 1 and entry.previous != GENESIS:
        return "a first entry that follows another"
    if task.opened_after is None or entry.sequence <= task.opened_after:
        return "an answer that stands before the plan in the site's chain"
    if any(task.digest_at(place.sequence) not in (None, place.digest) for place in _places(entry)):
        return "two entries at one place of the site's chain"
    return None


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
        # A source that fails is no sign that it will be fixed; a task that was taken up is one of work.
        back = any(state is SiteState.CLAIMED or site not in self.away for site, state in working.items())
        if back or answered < self.needed:
            return self.deadline
        return min(before, now + self.short_seconds)


def awaited(*, now: float, deadline_seconds: float, away: frozenset[str], needed: int) -> Awaited:
    """The wait of a round that begins now, for an answer of at least so many sites."""
    return Awaited(now + deadline_seconds, deadline_seconds * SHARE_FOR_THE_AWAY, away, needed)
