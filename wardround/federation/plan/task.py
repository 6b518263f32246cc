"""What travels, as words: an analyst's request in; a task out to a site, a submission back, a receipt for it.

Beside both the request and the task stands who asked, in the analyst's own signature. The coordinator's signature on a
task does not cover it: it needs no other than its own, and a site of an earlier version, which does not know it, must
find the task signed as before.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated

from wardround.federation import canonical
from wardround.federation.limits import (
    SIGNATURE_BYTES,
    Delta,
    Epsilon,
    Errors,
    Many,
    Needed,
    Nonce,
    PlanId,
    RefusalCode,
    Size,
    Whole,
    name_of,
)
from wardround.federation.models.training import Step
from wardround.federation.plain_text import fault_in
from wardround.federation.plan.plan import Plan
from wardround.federation.question.query import Query
from wardround.federation.trust.asked_by import AskedBy
from wardround.federation.trust.entry import Entry, Head
from wardround.federation.trust.identity import Identity, PublicIdentity, Purpose

_NOT_WHOLE = Needed("a task has no plan or no head.")


@dataclass(frozen=True, slots=True)
class Task:
    """One plan at one site, with the last head of that site's ledger that the coordinator holds."""

    plan: Annotated[Plan, _NOT_WHOLE]
    site: Annotated[str, name_of("a task's site")]
    head: Annotated[Head, _NOT_WHOLE]

    def encode(self) -> bytes:
        """The canonical bytes, which the coordinator signs; the plan's are not made again for each of its sites."""
        head, site = canonical.encode(self.head), canonical.encode(self.site)
        return b'{"fields":{"head":%b,"plan":%b,"site":%b},"word":"Task"}' % (head, self.plan.encoding, site)


@dataclass(frozen=True, slots=True)
class SignedTask:
    """A task under the coordinator's signature, and who asked it under the analyst's; None where nobody signed."""

    task: Annotated[Task, _NOT_WHOLE]
    signature: Annotated[bytes, Size("a task's signature", SIGNATURE_BYTES)]
    asked_by: AskedBy | None = field(default=None, metadata=canonical.LATER)

    def signed_by(self, coordinator: PublicIdentity) -> bool:
        """Whether the coordinator this site enrolled with signed exactly this task."""
        return coordinator.verifies(Purpose.TASK, self.task.encode(), self.signature)


def sign_task(task: Task, coordinator: Identity, asked_by: AskedBy | None = None) -> SignedTask:
    """The task as it is handed out."""
    return SignedTask(task, coordinator.sign(Purpose.TASK, task.encode()), asked_by)


MAX_CHAIN = 64

Chain = Annotated[tuple[Entry, ...], Many("an answer shows too many entries.", MAX_CHAIN)]
"""Entries of the site's own chain, one after the other, before the one that an answer stands in."""


@dataclass(frozen=True, slots=True)
class Released:
    """The stored bytes of a release and the signed ledger entry that names their hash.

    `chain` are the entries before it that the coordinator may not have seen.
    """

    plan_id: PlanId
    payload: bytes
    entry: Annotated[Entry, Needed("a release has no ledger entry.")]
    chain: Chain = ()


@dataclass(frozen=True, slots=True)
class Declined:
    """A signed refusal, made before anything was spent; the entry's body names plan and code."""

    plan_id: PlanId
    code: RefusalCode
    entry: Annotated[Entry, Needed("a refusal has no ledger entry.")]
    chain: Chain = ()


@dataclass(frozen=True, slots=True)
class Pending:
    """A data steward has yet to decide; nothing was spent."""

    plan_id: PlanId


@dataclass(frozen=True, slots=True)
class Failed:
    """The site cannot answer now; it will try again under the same plan id, and under the charge if there is one."""

    plan_id: PlanId


ALL_SITES = 1_000_000
"""Requires every hospital that is asked, however many these are."""

Submission = Released | Declined | Pending | Failed


@dataclass(frozen=True, slots=True)
class AskRequest:
    """A question and how sharp its answer should be; `nonce` is set by the analyst for a fresh answer.

    `errors` are the largest half-widths at 95 % that the analyst takes, one for each aggregate; the coordinator finds
    the least ε for them, and `epsilon` is then the most that it may be. A step says how sharp it is by itself: ε and δ
    are None then, and there are no errors. Whoever only looks what a question would cost signs nothing. `require` is
    how many hospitals the answer must have, 0 where the study's own number is enough; it is no part of the plan.
    """

    query: Annotated[Query | Step, Needed("a question asks nothing.")]
    epsilon: Epsilon | None = None
    delta: Delta | None = None
    nonce: Nonce = ""
    errors: Errors = ()
    asked_by: AskedBy | None = None
    require: Annotated[int, Whole("the number of hospitals that are required", upper=ALL_SITES)] = 0

    def fault(self) -> str | None:
        """A step is as sharp as its training says, and a text that would forge a line is never asked about."""
        terms = (self.epsilon, self.delta, self.errors)
        if isinstance(self.query, Step) and terms != (None, None, ()):
            return "a step has the noise of its training."
        if self.asked_by is not None and terms != (self.asked_by.epsilon, self.asked_by.delta, self.asked_by.errors):
            return "a question is signed with another ε, δ or error than it has."
        return None if (fault := fault_in(self.query)) is None else f"a text in a question {fault}."


def sign_request(
    request: AskRequest, identity: Identity, *, analyst: str, study_hash: str, purpose: str = ""
) -> AskRequest:
    """The request with who asks it, and why, under the analyst's own signature.

    What is asked must be as a plan would say it, with typed literals: a site compares the two.
    """
    epsilon, delta = (None if each is None else float(each) for each in (request.epsilon, request.delta))
    asked = AskedBy(analyst, identity.public, purpose, epsilon, delta, tuple(map(float, request.errors)), b"")
    message = asked.message(study_hash, canonical.encode(request.query), request.nonce.lower())
    return replace(request, asked_by=replace(asked, signature=identity.sign(Purpose.QUESTION, message)))
