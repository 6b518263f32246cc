"""What a data steward decides by: every plan that asked for approval, as a line that whoever asked cannot forge.

Question and price are read anew from the signed task that would run, never from a text that lies beside it. The price
stands before the question, so no question is long enough to push it away; and a line begins with our own Latin words,
so letters that are written from the right stay among themselves.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from protos.words import stored_task
from site_agent.answering.admission import Policy
from site_agent.answering.pipeline import request_text
from site_agent.serving.folder import open_folder
from site_agent.serving.serve import open_ledger
from site_agent.store.requests import Request
from wardround.federation.errors import FederationError, MalformedMessage, Mistaken
from wardround.federation.plan.plan import form_of, planned
from wardround.federation.plan.task import SignedTask
from wardround.federation.study.study import Study
from wardround.privacy.budget.filter import epsilon_charged

_SHOWN_DIGITS = 16
_PLAN = re.compile(r"[0-9a-f]{8,64}")


@dataclass(frozen=True, slots=True)
class PlanOnHold:
    """A request, what it asks and what approving it costs; no price if the plan cannot be answered any more."""

    request: Request
    epsilon: float | None
    text: str

    @property
    def price(self) -> str:
        """What approving it costs."""
        return "ε = –" if self.epsilon is None else f"ε = {self.epsilon:.4g}"

    def line(self, *, digits: int | None = _SHOWN_DIGITS) -> str:
        """The request for the console, which escapes it: so many digits of its plan, or all, then the rest."""
        request = self.request
        return f"{request.plan_id[:digits]}  {request.state:<8}  {request.asked_on}  {self.price:<9}  {self.text}"

    def document(self) -> dict[str, object]:
        """The request for machines; JSON knows no infinity, which is what Gaussian noise costs at δ = 0."""
        request, epsilon = self.request, self.epsilon
        return {
            "plan_id": request.plan_id,
            "state": request.state,
            "asked": self.text,
            "epsilon": epsilon if epsilon is not None and math.isfinite(epsilon) else None,
            "date": request.asked_on,
        }


def askings(path: Path) -> list[PlanOnHold]:
    """Every plan that ever asked for approval at the site in this folder, oldest first."""
    folder = open_folder(path)
    study, policy = folder.study(), folder.configuration().policy
    with open_ledger(path) as ledger:
        return [_asking(request, study, policy) for request in ledger.requests()]


def decide(path: Path, beginning: str, *, approve: bool) -> None:
    """Approve or deny the one request whose plan id begins so."""
    with open_ledger(path) as ledger:
        ledger.decide(named(ledger.requests(), beginning, see=f"see: wardround site requests {path}"), approve=approve)


def named(requests: Sequence[Request], beginning: str, *, see: str) -> str:
    """The plan id that begins so; `Mistaken` unless it is long enough to be meant and there is exactly one."""
    if not _PLAN.fullmatch(beginning):
        raise Mistaken(f"{beginning!r} is not a plan id; give at least the first 8 of its hexadecimal digits, {see}")
    meant = [request.plan_id for request in requests if request.plan_id.startswith(beginning)]
    if len(meant) != 1:
        found = "several requests have" if meant else "no request has"
        raise Mistaken(f"{found} a plan id beginning with {beginning!r}; {see}")
    return meant[0]


def _signed(request: Request) -> SignedTask:
    """The task as it is, or as an agent of an earlier version stored it, which may serve still and reads its own."""
    try:
        return request.signed()
    except MalformedMessage:
        return replace(request, task=stored_task(request.task).content).signed()


def _asking(request: Request, study: Study, policy: Policy) -> PlanOnHold:
    try:
        plan = _signed(request).task.plan
        found = planned(plan, form_of(plan, study), study)
        epsilon = epsilon_charged(found.charge.cost, delta=policy.cap.delta)
        return PlanOnHold(request, epsilon, request_text(plan, found.layout, epsilon))
    except FederationError as error:
        # What an older version admitted and this one would not: it is listed, and a yes would end in a refusal.
        return PlanOnHold(request, None, f"cannot be answered any more: {error.message}")
