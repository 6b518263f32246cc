"""The one path from patient rows to the wire.

Order is the guarantee: a charge is durable before any row is read, so a crash can lose a release but
never leak one unpaid; and only bytes read back from the ledger are ever handed on. What fails once rows were
read closes its table before anything is said about it (`closing`). Nothing may fail by what they hold: a key that may
not be shown is left out, and a count beyond all counts saturates.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from site_agent.answering.admission import Approval, Policy, admit, authentic, check_asked
from site_agent.answering.closing import Closing
from site_agent.reading.dataset import Dataset, check_form
from site_agent.store.askers import AskerStanding, Asking
from site_agent.store.ledger import SiteLedger
from site_agent.store.requests import RequestState
from site_agent.store.shared_account import SharedAccount
from wardround.federation.errors import (
    AwaitingApproval,
    BudgetExceeded,
    InvariantBroken,
    LedgerBusy,
    Mistaken,
    PlanRefused,
    Refused,
    SiteFrozen,
    SourceAway,
    UnprovedHead,
)
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.forms.release import Release, showable
from wardround.federation.models.step_layout import StepLayout
from wardround.federation.plan.plan import Charge, Plan, choice, form_of, selection
from wardround.federation.plan.sql_text import query_text, step_text
from wardround.federation.plan.task import Failed, Pending, SignedTask, Submission
from wardround.federation.question.query import MAX_KEYS
from wardround.federation.refusal import RefusalReason
from wardround.federation.study.study import Study
from wardround.federation.trust.asked_by import AskedBy
from wardround.federation.trust.entry import Head
from wardround.federation.trust.identity import PublicIdentity
from wardround.privacy.budget.filter import epsilon_charged
from wardround.privacy.mechanisms.additive import apply
from wardround.privacy.mechanisms.partition_selection import LARGEST_COUNT, KeyCounts, SelectionFact
from wardround.privacy.mechanisms.private_selection import Choosing, Scores
from wardround.privacy.mechanisms.randomness import Chance
from wardround.privacy.noise.vectors import Bounded, IntVector

log = logging.getLogger("wardround.site")


@dataclass(frozen=True, slots=True)
class Pipeline:
    """admit → spend → read and bound → noise → keep."""

    site: str
    study: Study
    policy: Policy
    coordinator: PublicIdentity
    ledger: SiteLedger
    dataset: Dataset
    noise: Chance
    today: Callable[[], datetime.date]
    shared: SharedAccount | None = None
    key: bytes = field(default=b"", repr=False)
    closing: Closing = field(init=False, repr=False)
    _unkept: dict[str, Release] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        """A pipeline over another dataset or ledger looks after that one's tables."""
        object.__setattr__(self, "closing", Closing(self.ledger.tables, self.dataset, self.key))

    def run(self, signed: SignedTask) -> Submission:
        """Answer the task exactly once; a repeat returns the stored bytes."""
        task = authentic(signed, site=self.site, coordinator=self.coordinator)
        plan = task.plan
        earlier, charged, asked_by = self.ledger.look(signed)
        if earlier is not None:
            self._unkept.pop(plan.plan_id, None)
            return earlier
        if charged:
            form = form_of(plan, self.study)
            if self.ledger.is_abandoned(plan.plan_id) or not self.closing.is_open(form.table):
                return Failed(plan.plan_id)
            if (made := self._unkept.get(plan.plan_id)) is not None:
                return self._keep(made)
            self.ledger.tables.begin_again(plan.plan_id, form.table.name)
            return self._read(plan, form)
        try:
            admitted = admit(plan, site=self.site, study=self.study, policy=self.policy)
            check_asked(asked_by, admitted, study=self.study, policy=self.policy)
            form, charge = admitted.layout, admitted.charge
            if not self.closing.is_open(form.table) or not self._checked(plan, form):
                return Failed(plan.plan_id)
            if not self._approved(signed, asked_by, form, charge):
                return Pending(plan.plan_id)
            self._spend(charge, Asking(plan, asked_by), task.head, form.table.name)
        except SiteFrozen:
            raise
        except (Refused, Mistaken) as refusal:
            return self._refuse(Asking(plan, asked_by), refusal)
        return self._read(plan, form)

    def _read(self, plan: Plan, form: AnswerLayout | StepLayout) -> Submission:
        """The release of a paid plan, kept; or that there is none now, which is all that is ever said."""
        before = self.closing.state(form.table)
        release: Release | None
        try:
            release = self._release(plan, form)
        except SourceAway as away:
            return self.closing.away(plan.plan_id, form.table, away)
        except InvariantBroken:
            # Our own fault, not a row's: the process stops, and what was begun is counted.
            raise
        except Exception:  # noqa: BLE001 -- whatever it was: a row may have decided it, and its text may quote one
            release = None
        if release is None:
            # Outside: an error raised there must not carry what failed here as its cause.
            return self.closing.failed(plan.plan_id, form, before=before)
        return self._keep(release)

    def _keep(self, release: Release) -> Submission:
        """Store a release; while there is no room for it, it waits here, and no row is read for it again."""
        try:
            return self.ledger.keep(release)
        except LedgerBusy:
            self._unkept[release.plan_id] = release
            raise

    def _checked(self, plan: Plan, form: AnswerLayout | StepLayout) -> bool:
        """Look at schemas, the last chance to refuse; False where nothing can be seen of the source now."""
        try:
            check_form(self.dataset, form)
        except SourceAway as away:
            self.closing.away(plan.plan_id, form.table, away)
            return False
        return True

    def _spend(self, charge: Charge, asking: Asking, head: Head, table: str) -> None:
        """Charge the dataset's shared account, where there is one, and then this folder's ledger."""
        if self.shared is None:
            self.ledger.spend(charge, asking, head=head, table=table)
            return
        self.shared.spend(charge)
        try:
            self.ledger.spend(charge, asking, head=head, table=table)
        except (Refused, AwaitingApproval, UnprovedHead):
            self.shared.void(charge)
            raise

    def _release(self, plan: Plan, form: AnswerLayout | StepLayout) -> Release:
        date = self.today().isoformat()
        if isinstance(form, StepLayout):
            return Release(plan.plan_id, self.site, date, self._sums(plan, form))
        if plan.threshold:
            fact = selection(plan.laws()[0], form.parts[0], plan.threshold)
            shown = most_frequent(self.noise.select(key_counts(self.dataset.keys(form), fact), fact))
            return Release(plan.plan_id, self.site, date, np.array(list(shown.values()), np.int64), tuple(shown))
        bounded = self.dataset.bounded(form)
        if plan.mechanism is Choosing.PERMUTE_AND_FLIP:
            vote = self.noise.choose(scores(bounded[0]), choice(plan, form.parts[0]))
            return Release(plan.plan_id, self.site, date, one_vote(vote, among=form.dimension))
        noised = [apply(part, law, self.noise) for part, law in zip(bounded, plan.laws(), strict=True)]
        return Release(plan.plan_id, self.site, date, np.concatenate([part.total for part in noised]))

    def _sums(self, plan: Plan, form: StepLayout) -> IntVector:
        """The noised sums of one round of a training."""
        # Only here: a site that nobody trains at does not load the mathematics of models.
        from site_agent.learning.training_step import take  # noqa: PLC0415

        return take(form, self.dataset.examples(form), plan.laws()[0], self.noise)

    def _approved(
        self, signed: SignedTask, asked_by: AskedBy | None, form: AnswerLayout | StepLayout, charge: Charge
    ) -> bool:
        """Whether it may run: by policy if it is known who asks, else if a steward, who never sees rows, said yes.

        A no is already a kept refusal. A steward decides on a training as a whole: once it is paid for, its further
        rounds go on for whoever began it.
        """
        standing = self.ledger.standing(asked_by, block=charge.block)
        automatic = self.policy.approval is Approval.AUTOMATIC
        if standing is AskerStanding.GOES_ON or (automatic and standing is AskerStanding.KNOWN):
            return True
        cost = epsilon_charged(charge.cost, delta=self.policy.cap.delta)
        summary = request_text(signed.task.plan, form, cost)
        return self.ledger.hold(signed, summary=summary) is RequestState.APPROVED

    def _refuse(self, asking: Asking, refusal: Refused | Mistaken) -> Submission:
        # The sentence stays here: only the reason leaves.
        log.info("plan %s is refused: %s", asking.plan.plan_id[:12], refusal.message)
        return self.ledger.refuse(asking, reason_of(refusal))


def reason_of(refusal: Refused | Mistaken) -> RefusalReason:
    """Which of the public reasons a refusal has."""
    match refusal:
        case PlanRefused():
            return refusal.reason
        case BudgetExceeded():
            return RefusalReason.OWN_BUDGET
        case _:
            return RefusalReason.PLAN


def request_text(plan: Plan, form: AnswerLayout | StepLayout, epsilon: float) -> str:
    """What a steward reads; any text of the question is in it as it was sent, so whoever shows it escapes it."""
    if isinstance(form, StepLayout):
        return step_text(form.step, epsilon=epsilon)
    leaving = ""
    if plan.threshold:
        least = plan.threshold * form.parts[0].grid
        leaving = f", texts whose noisy count is above {float(least):.4g} leave the hospital"
    return f"{query_text(form.query)}  [ε = {epsilon:.3g}, {plan.mechanism.value}{leaving}]"


def key_counts(held: Mapping[str, int], fact: SelectionFact) -> KeyCounts:
    """The keys that may be shown at all, as a selection takes them; a unit still holds no more of them."""
    counts = {key: min(count, LARGEST_COUNT) for key, count in held.items() if count >= 1 and showable(key)}
    return KeyCounts(counts, fact.max_keys)


def most_frequent(shown: Mapping[str, int]) -> dict[str, int]:
    """At most `MAX_KEYS` of the keys that passed, those with the largest noised counts, in the order of the keys."""
    kept = sorted(sorted(shown), key=lambda key: shown[key], reverse=True)[:MAX_KEYS]
    return {key: shown[key] for key in sorted(kept)}


def scores(bounded: Bounded) -> Scores:
    """Counts of units by candidate: a unit moves each of them by at most 1, and none down."""
    return Scores(bounded.total, sensitivity=1, monotone=True)


def one_vote(place: int, *, among: int) -> IntVector:
    """Zeros, and a one at the place that was chosen."""
    vote = np.zeros(among, dtype=np.int64)
    vote[place] = 1
    return vote
