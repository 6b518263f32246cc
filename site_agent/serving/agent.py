"""The agent's loop: dial out, take a task, answer it, deliver until a receipt arrives.

Nothing here decides anything about privacy; the pipeline does, and the ledger remembers. The loop may be
killed between any two lines and started again.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from site_agent.answering.pipeline import Pipeline
from site_agent.answering.reminders import Reminders
from site_agent.store.ledger import SiteLedger
from wardround.federation.errors import (
    FederationError,
    InvariantBroken,
    LedgerFull,
    NotAuthorized,
    PeerUnreachable,
    ProtocolViolation,
    SiteFrozen,
    Unavailable,
    UnprovedHead,
)
from wardround.federation.plan.recalled import Recalled
from wardround.federation.plan.task import MAX_CHAIN, Declined, Failed, Pending, Released, SignedTask, Submission
from wardround.federation.trust.enrolment import Standing
from wardround.federation.trust.entry import Entry, Head

POLL_SECONDS = 20.0
APPROVAL_SECONDS = 0.5
FIRST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 30.0
# A coordinator that starts, or starts again, should not wait half a minute for its sites; nobody listens meanwhile.
LONGEST_UNREACHABLE_SECONDS = 4.0
# A site whose table is closed, or whose source is away, has other tables: their questions wait this long at most.
LONGEST_FAILED_SECONDS = 1.0

WAITING, WORKING = "waiting", "working"
"""What the agent does since the coordinator last answered it."""

FULL = (
    "there is no room on the disk of this site's folder, or no more files can be opened, so no question is answered; "
    "make room, and the agent goes on by itself"
)
_FROZEN = "%s Nothing is answered until it is recovered; wardround site check says more."

log = logging.getLogger("wardround.site")


def _is_final(error: Exception) -> bool:
    """Whether to try again would change nothing: expired, revoked, another study."""
    return isinstance(error, NotAuthorized) and error.final


def _note(submission: Submission) -> None:
    """A line in the log for whoever runs the site; of a table that fails, `closing` says what may be said, once."""
    match submission:
        case Failed():
            log.debug("plan %s is not answered now", submission.plan_id[:12])
        case Declined():
            log.info("declined plan %s (%s)", submission.plan_id[:12], submission.code)
        case _:
            log.info("%s plan %s", type(submission).__name__.lower(), submission.plan_id[:12])


class CoordinatorLink(Protocol):
    """The coordinator as a site reaches it: over gRPC, or in the same process in a simulation."""

    def claim(self, *, wait_seconds: float, receipt: Entry | None = None) -> SignedTask | None:
        """The next task, waiting up to `wait_seconds` for one; the coordinator is shown our newest receipt."""

    def show(self, chain: Sequence[Entry]) -> None:
        """Show entries of our own ledger, in order."""

    def rejoin(self, chain: Sequence[Entry], recalled: Iterable[Recalled], head: Head) -> None:
        """Show our ledger up to `head`, and every plan in it, to a coordinator that may have forgotten them."""

    def submit(self, submission: Submission) -> Entry | None:
        """Hand over an answer; a release or a refusal gets a signed receipt."""

    def upkeep(self, receipt: Entry | None = None) -> Standing | None:
        """Renew what is about to expire, and greet whoever was not greeted yet: how far it knows our ledger."""

    def greet_again(self) -> None:
        """Greet with the next upkeep, whoever was greeted before."""

    def close(self) -> None:
        """Give up the connection, ending a waiting call."""


@dataclass
class Pause:
    """Exponential backoff with full jitter, so that sites do not return all at once."""

    ceiling_seconds: float = FIRST_PAUSE_SECONDS

    def next_seconds(self, *, most: float = LONGEST_PAUSE_SECONDS) -> float:
        """How long to wait now, `most` at most; the ceiling doubles each time."""
        seconds = min(self.ceiling_seconds, most) * (1 + secrets.randbelow(1000)) / 1000
        self.ceiling_seconds = min(self.ceiling_seconds * 2, LONGEST_PAUSE_SECONDS)
        return seconds

    def reset(self) -> None:
        """Begin again after a success."""
        self.ceiling_seconds = FIRST_PAUSE_SECONDS


@dataclass
class Agent:
    """One site's agent over any link."""

    pipeline: Pipeline
    ledger: SiteLedger
    link: CoordinatorLink
    now_seconds: Callable[[], float] = time.monotonic
    note: Callable[[str], None] = lambda _: None
    _stopping: threading.Event = field(default_factory=threading.Event)
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _again: dict[str, tuple[Pause, float]] = field(default_factory=dict)
    _reminders: Reminders = field(default_factory=Reminders)
    _failures: list[Exception] = field(default_factory=list)

    def step(self, *, wait_seconds: float) -> bool:
        """Deliver what is owed, then claim and answer one task; False when there was none, or its table failed."""
        return isinstance(self._step(wait_seconds), Released | Declined | Pending)

    def _step(self, wait_seconds: float) -> Submission | None:
        self.deliver()
        signed = self.link.claim(wait_seconds=wait_seconds, receipt=self.ledger.newest_receipt())
        self.note(WAITING if signed is None else WORKING)
        if signed is None:
            return None
        submission = self._answer(signed)
        self.note(WAITING)
        return submission

    def deliver(self) -> None:
        """Send every kept answer that has no receipt yet."""
        for kept in self.ledger.undelivered():
            self._send(kept)

    def _send(self, submission: Submission) -> None:
        """Hand over an answer, with what the coordinator may not have seen of our chain before it."""
        if isinstance(submission, Released | Declined):
            unshown = self.ledger.unshown(submission.entry)
            if len(unshown) > MAX_CHAIN:
                self.link.show(unshown)
                unshown = ()
            submission = replace(submission, chain=unshown)
        self.arrived(submission, self.link.submit(submission))

    def meet(self) -> None:
        """Greet a coordinator that came, or came back, and compare what it knows of our ledger with what is there."""
        standing = self.link.upkeep(self.ledger.newest_receipt())
        if standing is None:
            return
        self.ledger.reconcile(standing)
        if (recovered := standing.recovered) is not None:
            self._rejoin(standing.known, recovered)

    def _rejoin(self, known: Head, recovered: Entry) -> None:
        """Recall what a coordinator from a backup has forgotten; it takes nobody's word for that but its own."""
        if recovered.kind != "recovered" or not recovered.signed_by(self.pipeline.coordinator):
            raise ProtocolViolation("the coordinator says that it was recovered, and did not sign that.")
        log.warning(
            "the coordinator came back from a backup; it is shown this site's ledger from entry %d on",
            known.sequence + 1,
        )
        found = self.ledger.recollection(known, recovered)
        self.link.rejoin(found.chain, found.plans, found.head)

    def run_approved(self) -> None:
        """Answer what a steward has decided since: a release where approved, the refusal where denied."""
        for signed in self.ledger.decided():
            plan_id = signed.task.plan.plan_id
            pause, not_before = self._again.get(plan_id, (Pause(), 0.0))
            if self.now_seconds() < not_before:
                continue
            self._again.pop(plan_id, None)
            if isinstance(self._answer(signed), Failed):
                # Each has a pause of its own, so that the others do not wait for it.
                self._again[plan_id] = pause, self.now_seconds() + pause.next_seconds()

    def _answer(self, signed: SignedTask) -> Submission:
        """Run one task and send its answer."""
        submission = self.work(signed)
        self._send(submission)
        return submission

    def work(self, signed: SignedTask) -> Submission:
        """The answer to a task, kept where it is one that must arrive."""
        with self._turn:
            return self.pipeline.run(signed)

    def arrived(self, submission: Submission, receipt: Entry | None) -> None:
        """The coordinator has an answer, and signed for it."""
        _note(submission)
        if isinstance(submission, Released | Declined):
            if receipt is None:
                raise ProtocolViolation("the coordinator's receipt is missing.")
            # Whether the coordinator signed it, and about this, the ledger sees to.
            self.ledger.delivered(submission.plan_id, receipt)

    def stop(self) -> None:
        """End `serve` after the current step."""
        self._stopping.set()
        self.link.close()

    def serve(self) -> None:
        """Work until stopped, or until no later attempt would fare better, which is raised.

        A broken invariant, or what nobody foresaw, ends the process at once.
        """
        steward = threading.Thread(target=self._watch_approvals, name="approvals", daemon=True)
        steward.start()
        pause, failing = Pause(), Pause()
        while not self._stopping.is_set():
            self._turn_once(pause, failing)
        steward.join(timeout=POLL_SECONDS)
        if self._failures:
            raise self._failures[0]

    def _end(self, error: Exception) -> None:
        self._failures.append(error)
        self.stop()

    def _turn_once(self, pause: Pause, failing: Pause) -> None:
        try:
            self.meet()
            match self._step(POLL_SECONDS):
                case Failed():
                    self._stopping.wait(failing.next_seconds(most=LONGEST_FAILED_SECONDS))
                case None:
                    self._stopping.wait(0.05)
                case Released() | Declined() | Pending():
                    failing.reset()
            pause.reset()
            if self._reminders.forget(FULL):
                log.warning("there is room again; questions are answered")
        except SiteFrozen as frozen:
            self._reminders.say(_FROZEN % frozen.message, level=logging.ERROR)
            self._stopping.wait(LONGEST_PAUSE_SECONDS)
        except LedgerFull:
            self._reminders.say(FULL)
            self._stopping.wait(pause.next_seconds())
        except InvariantBroken:
            raise
        except FederationError as error:
            if self._stopping.is_set():
                return
            if isinstance(error, UnprovedHead):
                self.link.greet_again()
            if _is_final(error):
                self._end(error)
                return
            away = isinstance(error, PeerUnreachable)
            seconds = pause.next_seconds(most=LONGEST_UNREACHABLE_SECONDS if away else LONGEST_PAUSE_SECONDS)
            level = logging.INFO if isinstance(error, Unavailable) else logging.WARNING
            log.log(level, "%s (%s); trying again in %.1f s", error.message, error.code, seconds)
            self._stopping.wait(seconds)

    def _watch_approvals(self) -> None:
        pause = Pause()
        while not self._stopping.wait(APPROVAL_SECONDS):
            try:
                self.run_approved()
                pause.reset()
            except LedgerFull:
                self._reminders.say(FULL)
                self._stopping.wait(pause.next_seconds())
            except Exception as error:  # noqa: BLE001 -- a thread that dies would write what it saw, and be missed
                if isinstance(error, InvariantBroken) or not isinstance(error, FederationError) or _is_final(error):
                    self._end(error)
                    return
                log.info("%s (%s)", error.message, error.code)
                self._stopping.wait(pause.next_seconds())
