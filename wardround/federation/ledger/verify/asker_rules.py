"""What must be true of who asked and who approved, in a chain and in the tables beside it.

Ledgers of before say nothing of either, and an entry of theirs is known by that. Since then a site's charge names who
asked, under the key that the site knew the analyst by, or a steward approved it; a further round of a training stands
on what was decided about its first.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from wardround.federation.errors import LedgerCorrupt
from wardround.federation.ledger.entry_body import text_in
from wardround.federation.ledger.verify.askings import Asker, shows_task
from wardround.federation.ledger.verify.attested_rows import AttestedRows
from wardround.federation.ledger.verify.evidence import Store
from wardround.federation.ledger.verify.problems import Code, Problem
from wardround.federation.refusal import RefusalReason
from wardround.federation.trust.entry import Entry
from wardround.federation.trust.identity import PublicIdentity
from wardround.privacy.budget.facts import AnyFact, BlockFact, StepFact

_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class _Asking:
    """What an entry says of who asked a plan: the digest of that word, and name and key unless nobody proved them."""

    number: int
    asked: str
    asker: Asker | None
    proved: bool

    def is_stored(self, plan_id: str, store: Store) -> bool:
        """Whether the tables hold the plan, and the word with this digest."""
        found = store.askings.get(plan_id)
        if found is None or (found.plan_id, found.asked) != (plan_id, self.asked):
            return False
        return found.asker == self.asker or not self.proved


class _Askings:
    """Who asked each plan that a chain speaks of."""

    def __init__(self) -> None:
        self._first: dict[str, _Asking] = {}

    def read(self, entry: Entry, body: Mapping[str, object], *, proved: bool = True) -> Iterator[Code]:
        """Take note of it; whoever asked first is who asked."""
        plan_id, asked = text_in(body, "plan_id"), text_in(body, "asked")
        found = _Asking(entry.sequence, asked and _digest(body, "asked"), asker_in(body) if proved else None, proved)
        first = self._first.get(plan_id, found)
        if first.asked != found.asked or (entry.kind == "held" and first is not found):
            yield Code.WRONG_ASKER
        # What is proved later is proved of the same word.
        self._first[plan_id] = first if first.proved else found

    def compare(self, store: Store) -> Iterator[Problem]:
        """Where the tables differ from it."""
        for plan_id, asking in self._first.items():
            if not asking.is_stored(plan_id, store):
                yield Problem(asking.number, Code.WRONG_INDEX)
        for _ in store.askings.keys() - self._first.keys():
            yield Problem(0, Code.WRONG_INDEX)


@dataclass(frozen=True, slots=True)
class _Decision:
    """A steward's yes or no: `approved` or `denied`, and by whom."""

    number: int
    kind: str
    by: str


_UNDECIDED = _Decision(0, "", "")


class AskerRules:
    """The keys that a site knows, the plans that it was shown, and what its steward decided."""

    def __init__(self, coordinator: PublicIdentity, rows: AttestedRows) -> None:
        self._coordinator = coordinator
        self._rows = rows
        self._pins: dict[str, tuple[str, int]] = {}
        self._askings = _Askings()
        self._decisions: dict[str, _Decision] = {}
        self._answered: dict[str, str] = {}
        # By plan, where the entry says it: when it began to wait, and when it was refused.
        self._held_on: dict[str, tuple[int, str]] = {}
        # By plan that was held: the digests of who asked it, and of the text that the steward is shown.
        self._shown: dict[str, tuple[str, str]] = {}
        self._refused_on: dict[str, tuple[int, str]] = {}
        # By training: everybody who asked a round of it, and whether its first was decided otherwise than by a key.
        self._blocks: dict[str, set[Asker | None]] = {}
        self._vouched: set[str] = set()

    def read(self, entry: Entry, body: Mapping[str, object]) -> Iterator[Code]:
        """What is wrong with a key that became known, a plan that waits, or a decision."""
        text_in(body, "date")
        match entry.kind:
            case "pinned":
                yield from self._pinned(entry, body)
            case "held":
                plan_id = text_in(body, "plan_id")
                if plan_id in self._answered:
                    yield Code.WRONG_DECISION
                yield from self._askings.read(entry, body)
                self._held_on[plan_id] = entry.sequence, text_in(body, "date")
                summary = _digest(body, "summary") if "summary" in body else ""
                self._shown[plan_id] = text_in(body, "asked"), summary
            case _:
                plan_id = text_in(body, "plan_id")
                before = self._decisions.get(plan_id, _UNDECIDED).kind
                if plan_id in self._answered or before in (entry.kind, "denied"):
                    yield Code.WRONG_DECISION
                self._decisions[plan_id] = _Decision(entry.sequence, entry.kind, text_in(body, "by"))

    def recovered(self, body: Mapping[str, object]) -> None:
        """A recovery made the text of these plans again in other words."""
        anew = body.get("shown_anew", {})
        if not isinstance(anew, dict):
            raise LedgerCorrupt(private="a recovery does not say of which plans the text is new")
        for plan_id in anew:
            asked, _ = self._shown.get(plan_id, ("", ""))
            self._shown[plan_id] = asked, _digest(anew, plan_id)

    def _pinned(self, entry: Entry, body: Mapping[str, object]) -> Iterator[Code]:
        analyst, key = text_in(body, "analyst"), _digest(body, "key")
        match text_in(body, "how"):
            case "first sight":
                if analyst in self._pins:
                    yield Code.WRONG_ASKER
            case "steward":
                text_in(body, "by")
            case _:
                raise LedgerCorrupt(private="a key became known in a way that is none")
        self._pins[analyst] = key, entry.sequence

    def charged(self, entry: Entry, body: Mapping[str, object], facts: tuple[AnyFact, ...]) -> Iterator[Code]:
        """What is wrong with who asked for a charge, and who approved it."""
        plan_id = text_in(body, "plan_id")
        self._answered[plan_id] = entry.kind
        decision = self._decisions.get(plan_id, _UNDECIDED)
        block = next((fact.block for fact in facts if isinstance(fact, BlockFact | StepFact)), "")
        approved, asker = decision.kind == "approved", None
        if "asked" in body:
            asker = asker_in(body)
            yield from self._askings.read(entry, body)
            if body.get("approved_by") != (decision.by if approved else None):
                yield Code.WRONG_DECISION
            known = asker is not None and self._pins.get(asker[0], ("", 0))[0] == asker[1]
            goes_on = block in self._vouched and asker in self._blocks[block]
            if not (known or approved or goes_on):
                yield Code.WRONG_ASKER
        if block and block not in self._blocks and (approved or "asked" not in body):
            # What began under a version that knew nothing of this goes on, too.
            self._vouched.add(block)
        self._blocks.setdefault(block, set()).add(asker)

    def refused(self, entry: Entry, body: Mapping[str, object]) -> Iterator[Code]:
        """What is wrong with the asking of a refusal, and with its decision; an earlier version wrote no date."""
        plan_id, code = text_in(body, "plan_id"), text_in(body, "code")
        self._answered[plan_id] = entry.kind
        if "date" not in body:
            self._refused_on[plan_id] = entry.sequence, ""
            return
        self._refused_on[plan_id] = entry.sequence, text_in(body, "date")
        denied = self._decisions.get(plan_id, _UNDECIDED).kind == "denied"
        if denied != (code == RefusalReason.DENIED):
            yield Code.WRONG_DECISION
        if "asked" in body:
            yield from self._askings.read(entry, body, proved=False)

    def finish(self) -> Iterator[Problem]:
        """What only the whole chain shows: whoever denies refuses."""
        for plan_id, decision in self._decisions.items():
            if decision.kind == "denied" and self._answered.get(plan_id) != "refused":
                yield Problem(decision.number, Code.WRONG_DECISION)

    def compare(self, store: Store) -> Iterator[Problem]:
        """Where the tables differ from the chain."""
        for name in sorted(self._pins.keys() | store.pins.keys()):
            if self._pins.get(name) != store.pins.get(name):
                yield Problem(self._pins.get(name, ("", 0))[1], Code.WRONG_INDEX)
        for plan_id in sorted(self._decisions.keys() | store.decisions.keys()):
            decision, (state, _) = self._decisions.get(plan_id, _UNDECIDED), store.requests.get(plan_id, ("", ""))
            if (store.decisions.get(plan_id), state) != (decision.number, decision.kind):
                yield Problem(decision.number, Code.WRONG_INDEX)
        for plan_id, (number, date) in self._held_on.items():
            if store.requests.get(plan_id, ("", ""))[1] != date:
                yield Problem(number, Code.WRONG_INDEX)
        for plan_id, (number, date) in self._refused_on.items():
            _, taken = self._rows.taken("refusals").get((plan_id,), (0, (date,)))
            if taken[0] and store.refused_on.get(plan_id) != taken[0]:
                yield Problem(number, Code.WRONG_INDEX)
            elif not taken[0]:
                self._rows.unattested.add("refusals")
        yield from self._compare_requests(store)
        yield from self._askings.compare(store)

    def _compare_requests(self, store: Store) -> Iterator[Problem]:
        """What a steward was shown: the text, since when, and the task that a yes runs."""
        stored, taken = store.named("requests"), self._rows.taken("requests")
        for key in taken:
            if key[0] not in stored:
                yield Problem(taken[key][0], Code.WRONG_INDEX)
        for plan_id, (summary, state, asked_on, task) in stored.items():
            number, _ = self._held_on.get(plan_id, (0, ""))
            asked, digest = self._shown.get(plan_id, (None, ""))
            before = taken.get((plan_id,))
            if number == 0 and before is None:
                yield from self._rows.unknown("requests", [plan_id])
            if before is not None and before[1][::2] != (summary, asked_on):
                yield Problem(before[0], Code.WRONG_INDEX)
            if digest and digest != hashlib.sha256(str(summary).encode()).hexdigest():
                yield Problem(number, Code.WRONG_INDEX)
            if not digest and before is None:
                self._rows.unattested.add("requests")
            if plan_id not in self._decisions and (number or before is not None):
                waits = "pending" if before is None else before[1][1]
                if state != waits:
                    yield Problem(number, Code.WRONG_INDEX)
            yield from self._compare_task(number, plan_id, task, asked)

    def _compare_task(self, number: int, plan_id: str, task: object, asked: str | None) -> Iterator[Problem]:
        if not isinstance(task, bytes) or task[:1] != b"{":
            # A message of an earlier version, which is rewritten where it can be read.
            self._rows.unattested.add("requests")
            if number or (self._rows.complete and (plan_id,) not in self._rows.taken("requests")):
                yield Problem(number, Code.WRONG_INDEX)
        elif not shows_task(task, plan_id, asked, self._coordinator):
            yield Problem(number, Code.WRONG_INDEX)


class ReservedAskers:
    """Who asked each plan that a coordinator reserved, and for how much; of before there were any, nobody knows."""

    def __init__(self) -> None:
        self._askings = _Askings()
        self._terms: dict[str, tuple[int, tuple[str, float, float]]] = {}

    def reserved(self, entry: Entry, body: Mapping[str, object]) -> Iterator[Code]:
        """Take note of it."""
        if "asked" not in body:
            return
        terms = text_in(body, "analyst"), _number(body, "epsilon"), _number(body, "delta")
        self._terms.setdefault(text_in(body, "plan_id"), (entry.sequence, terms))
        if text_in(body, "asked"):
            yield from self._askings.read(entry, body)

    def take_over(self, number: int, plan_id: str, row: Sequence[object]) -> None:
        """What an `attested` entry says of a plan's analyst, ε and δ, where its own said nothing."""
        analyst, epsilon, delta = row[:3]
        terms = str(analyst), _number({"": epsilon}, ""), _number({"": delta}, "")
        self._terms.setdefault(plan_id, (number, terms))

    def compare(self, store: Store) -> Iterator[Problem]:
        """Where the tables differ from the chain."""
        yield from self._askings.compare(store)
        for plan_id, (number, terms) in self._terms.items():
            if store.terms.get(plan_id) != terms:
                yield Problem(number, Code.WRONG_INDEX)


def asker_in(body: Mapping[str, object]) -> Asker | None:
    """Who asked, by name and key; None where nobody signed."""
    return (text_in(body, "analyst"), _digest(body, "analyst_key")) if text_in(body, "asked") else None


def _digest(body: Mapping[str, object], key: str) -> str:
    found = text_in(body, key)
    if not _DIGEST.fullmatch(found):
        raise LedgerCorrupt(private=f"{key!r} is no hash and no key")
    return found


def _number(body: Mapping[str, object], key: str) -> float:
    try:
        return float(text_in(body, key))
    except ValueError:
        raise LedgerCorrupt(private=f"{key!r} is no number") from None
