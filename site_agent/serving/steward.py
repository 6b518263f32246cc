"""What a data steward decides by: every plan that asked for approval, as a line that whoever asked cannot forge.

Question and price are read anew from the signed task that would run, never from a text that lies beside it. The price
and who asks stand before the question, so no question is long enough to push them away; and a line begins with our own
Latin words, so letters that are written from the right stay among themselves. The purpose is the analyst's own text and
comes last.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from protos.words import stored_task
from site_agent.answering.admission import Policy
from site_agent.answering.pipeline import request_text
from site_agent.serving.folder import open_folder
from site_agent.serving.serve import open_ledger
from site_agent.store.askers import Pin, Pinned
from site_agent.store.requests import Request
from wardround.federation.errors import FederationError, MalformedMessage, Mistaken
from wardround.federation.plan.plan import form_of, planned
from wardround.federation.plan.task import SignedTask
from wardround.federation.private_files import name_of
from wardround.federation.study.study import Study
from wardround.federation.trust.asked_by import AskedBy
from wardround.privacy.budget.filter import epsilon_charged

_SHOWN_DIGITS = 16
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.@-]{0,63}")
_ANOTHER, _UNSIGNED = "another key", "unsigned"
# In a list, where rows are short, and in a sentence.
_SHORT: Mapping[str, str] = {Pinned.FIRST_SIGHT: " (not compared)", Pinned.STEWARD: "", _ANOTHER: " (ANOTHER KEY)"}
_LONG: Mapping[str, str] = {
    Pinned.FIRST_SIGHT: "the one first seen here, which nobody compared yet",
    Pinned.STEWARD: "the one that a steward compared",
    _ANOTHER: "NOT the one known here under this name",
}
_PLAN = re.compile(r"[0-9a-f]{8,64}")


@dataclass(frozen=True, slots=True)
class PlanOnHold:
    """A request, what it asks, who asks and what approving it costs; no price if it cannot be answered any more."""

    request: Request
    epsilon: float | None
    text: str
    asked_by: AskedBy | None = None
    pin: Pin | None = None

    @property
    def price(self) -> str:
        """What approving it costs."""
        return "ε = –" if self.epsilon is None else f"ε = {self.epsilon:.4g}"

    @property
    def key(self) -> str:
        """What the site knows of the key under which it was asked, in one word of ours."""
        if self.asked_by is None:
            return _UNSIGNED
        return _ANOTHER if self.pin is None or self.pin.key != self.asked_by.key else self.pin.how.value

    @property
    def who(self) -> str:
        """Who asks, in a few words."""
        return _UNSIGNED if self.asked_by is None else f"{self.asked_by.analyst}{_SHORT[self.key]}"

    @property
    def purpose(self) -> str:
        """Why, in the analyst's words; often nothing."""
        return "" if self.asked_by is None else self.asked_by.purpose

    def line(self, *, digits: int | None = _SHOWN_DIGITS) -> str:
        """The request for the console, which escapes it: so many digits of its plan, or all, then the rest."""
        request, why = self.request, f"  purpose: {self.purpose}" if self.purpose else ""
        first = f"{request.plan_id[:digits]}  {request.state:<8}  {request.asked_on}  {self.price:<9}"
        return f"{first}  {self.who}  {self.text}{why}"

    def asker(self) -> str:
        """A sentence about who asks, for a steward who would compare."""
        if self.asked_by is None:
            return "Nobody signed it: it is not proved who asks."
        asked = self.asked_by
        return f"Asked by {asked.analyst} under the key {asked.key.fingerprint}, {_LONG[self.key]}."

    def document(self) -> dict[str, object]:
        """The request for machines; JSON knows no infinity, which is what Gaussian noise costs at δ = 0."""
        request, epsilon = self.request, self.epsilon
        return {
            "plan_id": request.plan_id,
            "state": request.state,
            "asked": self.text,
            "epsilon": epsilon if epsilon is not None and math.isfinite(epsilon) else None,
            "date": request.asked_on,
            "analyst": None if self.asked_by is None else self.asked_by.analyst,
            "key": self.key,
            "fingerprint": None if self.asked_by is None else self.asked_by.key.fingerprint,
            "purpose": self.purpose,
        }


def askings(path: Path) -> list[PlanOnHold]:
    """Every plan that ever asked for approval at the site in this folder, oldest first."""
    folder = open_folder(path)
    study, policy = folder.study(), folder.configuration().policy
    with open_ledger(path) as ledger:
        pins = {pin.analyst: pin for pin in ledger.analysts.listed()}
        return [_asking(request, study, policy, pins) for request in ledger.requests()]


def decide(path: Path, beginning: str, *, approve: bool) -> None:
    """Approve or deny the one request whose plan id begins so."""
    with open_ledger(path) as ledger:
        plan_id = named(
            [request.plan_id for request in ledger.requests()], beginning, see=f"see: wardround site requests {path}"
        )
        ledger.decide(plan_id, approve=approve, by=person())


def person() -> str:
    """The name of whoever runs this command: of a service's account that several people use, who called sudo."""
    caller = os.environ.get("SUDO_USER", "")
    return caller if _USER.fullmatch(caller) else name_of(os.geteuid())


def named(plan_ids: Sequence[str], beginning: str, *, what: str = "request", see: str) -> str:
    """The plan id that begins so; `Mistaken` unless it is long enough to be meant and there is exactly one."""
    if not _PLAN.fullmatch(beginning):
        raise Mistaken(f"{beginning!r} is not a plan id; give at least the first 8 of its hexadecimal digits, {see}")
    meant = [plan_id for plan_id in plan_ids if plan_id.startswith(beginning)]
    if len(meant) != 1:
        found = f"several {what}s have" if meant else f"no {what} has"
        raise Mistaken(f"{found} a plan id beginning with {beginning!r}; {see}")
    return meant[0]


def _signed(request: Request) -> SignedTask:
    """The task as it is, or as an agent of an earlier version stored it, which may serve still and reads its own."""
    try:
        return request.signed()
    except MalformedMessage:
        return replace(request, task=stored_task(request.task).content).signed()


def _asking(request: Request, study: Study, policy: Policy, pins: Mapping[str, Pin]) -> PlanOnHold:
    asked_by: AskedBy | None = None
    try:
        signed = _signed(request)
        plan, asked_by = signed.task.plan, signed.asked_by
        found = planned(plan, form_of(plan, study), study)
        epsilon = epsilon_charged(found.charge.cost, delta=policy.cap.delta)
        text = request_text(plan, found.layout, epsilon)
    except FederationError as error:
        # What an older version admitted and this one would not: it is listed, and a yes would end in a refusal.
        epsilon, text = None, f"cannot be answered any more: {error.message}"
    return PlanOnHold(request, epsilon, text, asked_by, None if asked_by is None else pins.get(asked_by.analyst))
