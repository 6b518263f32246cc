"""The one path from patient rows to the wire.

Order is the guarantee: a charge is durable before any row is read, so a crash can lose a release but
never leak one unpaid; and only bytes read back from the ledger are ever handed on.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from site_agent.admission import admit, authentic
from site_agent.dataset import Dataset
from site_agent.ledger import SiteLedger
from site_agent.policy import Approval, Policy
from site_agent.requests import RequestState
from site_agent.selecting import key_counts, most_frequent, one_vote, scores
from site_agent.shared_account import SharedAccount
from wardround.federation.errors import BudgetExceeded, Mistaken, PlanRefused, Refused, SiteFrozen, SourceFailed
from wardround.federation.identity import PublicIdentity
from wardround.federation.ledger.entry import Head
from wardround.federation.plan import Charge, Plan, choice, price, selection, shape_of
from wardround.federation.release import Release
from wardround.federation.shape import Shape
from wardround.federation.study import Study
from wardround.federation.task import Failed, Pending, SignedTask, Submission
from wardround.federation.wording import query_text
from wardround.privacy.chance import Chance
from wardround.privacy.filter import epsilon_charged
from wardround.privacy.mechanisms import apply
from wardround.privacy.selection import Choosing

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

    def run(self, signed: SignedTask) -> Submission:
        """Answer the task exactly once; a repeat returns the stored bytes."""
        task = authentic(signed, site=self.site, coordinator=self.coordinator)
        plan = task.plan
        self.ledger.reconcile(task.head)
        if (earlier := self.ledger.find(plan.plan_id)) is not None:
            return earlier
        if not self.ledger.charged(plan.plan_id):
            try:
                self.dataset.check(admit(plan, site=self.site, study=self.study, policy=self.policy))
                if not self._approved(signed):
                    return Pending(plan.plan_id)
                self._spend(price(plan, self.study), task.head)
            except SiteFrozen:
                raise
            except (Refused, Mistaken) as refusal:
                return self._refuse(plan, refusal)
        try:
            return self.ledger.keep(self._release(plan, shape_of(plan, self.study)))
        except SourceFailed:
            return Failed(plan.plan_id)

    def _spend(self, charge: Charge, head: Head) -> None:
        """Charge the dataset's shared account, where there is one, and then this folder's ledger."""
        if self.shared is None:
            self.ledger.spend(charge, head=head)
            return
        self.shared.spend(charge)
        try:
            self.ledger.spend(charge, head=head)
        except Refused:
            self.shared.void(charge.plan_id)
            raise

    def _release(self, plan: Plan, form: Shape) -> Release:
        date = self.today().isoformat()
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

    def _approved(self, signed: SignedTask) -> bool:
        """Whether a steward, who never sees rows, has said yes; a no is already a kept refusal."""
        if self.policy.approval is Approval.AUTOMATIC:
            return True
        plan = signed.task.plan
        cost = epsilon_charged(price(plan, self.study).cost, delta=self.policy.cap.delta)
        leaving = ""
        if plan.threshold:
            least = plan.threshold * shape_of(plan, self.study).parts[0].grid
            leaving = f", texts whose noised count passes {float(least):.4g} leave the hospital"
        summary = f"{query_text(plan.query)}  [ε = {cost:.3g}, {plan.mechanism.value}{leaving}]"
        return self.ledger.hold(signed, summary=summary) is RequestState.APPROVED

    def _refuse(self, plan: Plan, refusal: Refused | Mistaken) -> Submission:
        # The reason stays here: only the code leaves.
        log.info("plan %s is refused: %s", plan.plan_id[:12], refusal.message)
        code = refusal.code if isinstance(refusal, PlanRefused | BudgetExceeded) else PlanRefused.__name__
        return self.ledger.refuse(plan.plan_id, code)
