"""What travels, as words: an analyst's request in; a task out to a site, a submission back, a receipt for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from wardround.federation import canonical
from wardround.federation.limits import (
    SIGNATURE_BYTES,
    Above,
    Below,
    Finite,
    Many,
    Needed,
    Nonce,
    PlanId,
    RefusalCode,
    Size,
    name_of,
)
from wardround.federation.models.training import Step
from wardround.federation.plain_text import fault_in
from wardround.federation.plan.plan import Plan
from wardround.federation.question.query import MAX_AGGREGATES, Query
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
    """A task under the coordinator's signature."""

    task: Annotated[Task, _NOT_WHOLE]
    signature: Annotated[bytes, Size("a task's signature", SIGNATURE_BYTES)]

    def signed_by(self, coordinator: PublicIdentity) -> bool:
        """Whether the coordinator this site enrolled with signed exactly this task."""
        return coordinator.verifies(Purpose.TASK, self.task.encode(), self.signature)


def sign_task(task: Task, coordinator: Identity) -> SignedTask:
    """The task as it is handed out."""
    return SignedTask(task, coordinator.sign(Purpose.TASK, task.encode()))


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


Submission = Released | Declined | Pending | Failed


@dataclass(frozen=True, slots=True)
class AskRequest:
    """A question and how sharp its answer should be; `nonce` is set by the analyst for a fresh answer.

    `errors` are the largest half-widths at 95 % that the analyst takes, one for each aggregate; the coordinator finds
    the least ε for them, and `epsilon` is then the most that it may be. A step says how sharp it is by itself: ε and δ
    are None then, and there are no errors.
    """

    query: Annotated[Query | Step, Needed("a question asks nothing.")]
    epsilon: Annotated[float, Finite("ε", lower=0.0), Above("ε", 0.0)] | None = None
    delta: Annotated[float, Finite("δ", lower=0.0), Below("δ", 1.0)] | None = None
    nonce: Nonce = ""
    errors: Annotated[
        tuple[Annotated[float, Finite("an error", lower=0.0), Above("an error", 0.0)], ...],
        Many("a question has too many errors.", MAX_AGGREGATES),
    ] = ()

    def fault(self) -> str | None:
        """A step is as sharp as its training says, and a text that would forge a line is never asked about."""
        if isinstance(self.query, Step) and (self.epsilon, self.delta, self.errors) != (None, None, ()):
            return "a step has the noise of its training."
        return None if (fault := fault_in(self.query)) is None else f"a text in a question {fault}."
