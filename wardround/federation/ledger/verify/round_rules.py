"""What must be true of the tables in which a coordinator keeps rounds, tasks, submissions and trainings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from wardround.federation.errors import LedgerCorrupt
from wardround.federation.ledger.entry_body import text_in
from wardround.federation.ledger.verify.askings import PlanWords
from wardround.federation.ledger.verify.attested_rows import AttestedRows
from wardround.federation.ledger.verify.evidence import Store
from wardround.federation.ledger.verify.problems import Code, Problem
from wardround.federation.trust.entry import Entry
from wardround.privacy.accounting.cost import Cost
from wardround.privacy.budget.facts import AnyFact, BlockFact, StepFact

WAITING = ("open", "pending", "failed")
"""Where a site says it is while nobody has its answer: no entry tells these apart."""


@dataclass(slots=True)
class _Task:
    """A site's task: how far its chain was known when it was opened, None where nobody knows, and where it stands."""

    opened_after: int | None
    state: str = WAITING[0]


@dataclass(slots=True)
class _Round:
    """A round as entries say it; `attested` unless an earlier version began it and nobody took it over.

    A `message` may be stored in place of its plan: the version that reserved it knew no other form. One that was
    `imported` has a task for each site of its plan that was a member then, and no part in a training's beginning.
    """

    number: int
    entry: int
    cost: Cost
    block: str
    attested: bool
    message: bool
    tasks: dict[str, _Task]
    declined: dict[str, str]
    state: str = "open"
    outcome: str = ""
    # The sites of a plan that declined an earlier round of its training, with the codes.
    left_out: dict[str, str] = field(default_factory=dict)
    imported: bool = False


class RoundRules:
    """Each plan's round, by its entries."""

    def __init__(self, rows: AttestedRows) -> None:
        self._rows = rows
        self._rounds: dict[str, _Round] = {}
        self._submissions: dict[tuple[str, str], tuple[int, tuple[object, ...]]] = {}
        # By training, the codes of whoever declined a round of it, the oldest of each.
        self._declined: dict[str, dict[str, str]] = {}

    def reserved(
        self,
        entry: Entry,
        plan_id: str,
        charged: tuple[tuple[AnyFact, ...], Cost],
        heads: Mapping[str, int],
        *,
        signed: bool,
    ) -> None:
        """A plan is charged, and a task opened at each of these sites, whose chains were known so far."""
        facts, cost = charged
        block = next((fact.block for fact in facts if isinstance(fact, BlockFact | StepFact)), "")
        attested = self._rows.complete
        tasks = {site: _Task(head if attested else None) for site, head in heads.items()}
        declined = dict(self._declined.get(block, {})) if block else {}
        number, message = len(self._rounds) + 1, not signed
        self._rounds.setdefault(
            plan_id, _Round(number, entry.sequence, cost, block, attested, message, tasks, declined)
        )

    def imported(
        self, entry: Entry, plan_id: str, charged: tuple[tuple[AnyFact, ...], Cost], members: Iterable[str]
    ) -> None:
        """A forgotten plan is a round again, which each of its sites can hand in what it has for."""
        facts, cost = charged
        block = next((fact.block for fact in facts if isinstance(fact, BlockFact | StepFact)), "")
        tasks = {site: _Task(0) for site in members}
        found = _Round(
            number=len(self._rounds) + 1,
            entry=entry.sequence,
            cost=cost,
            block=block,
            attested=True,
            message=False,
            tasks=tasks,
            declined={},
            state="reserved",
            imported=True,
        )
        self._rounds.setdefault(plan_id, found)

    def opened_again(self, plans: Iterable[str]) -> Iterator[Code]:
        """A recovery: what was settled with too few answers may have had more since."""
        for plan_id in plans:
            round_ = self._rounds.get(plan_id)
            if round_ is None or round_.state != "settled":
                yield Code.WRONG_RECOVERY
            else:
                round_.state, round_.outcome = "open", ""

    def answered_by(self, entry: Entry, body: Mapping[str, object]) -> None:
        """A site's answer arrived."""
        plan_id, site = text_in(body, "plan_id"), text_in(body, "site")
        round_, code = self._rounds.get(plan_id), ""
        if entry.kind == "declined":
            code = text_in(body, "code")
            if round_ is not None and round_.block:
                self._declined.setdefault(round_.block, {}).setdefault(site, code)
        if round_ is not None and site in round_.tasks:
            round_.tasks[site].state = "released" if entry.kind == "received" else "refused"
        row = (text_in(body, "digest"), code, entry.sequence, 0)
        self._submissions.setdefault((plan_id, site), (entry.sequence, row))

    def concluded(self, entry: Entry, body: Mapping[str, object]) -> Iterator[Code]:
        """A round was settled, answered, or asked again of whoever was missing."""
        round_ = self._rounds.get(text_in(body, "plan_id"))
        if round_ is None:
            return
        match entry.kind:
            case "settled":
                round_.state, round_.outcome = "settled", _outcome(body)
                for task in round_.tasks.values():
                    task.state = "missing" if task.state in WAITING else task.state
            case "answered":
                round_.state = "answered"
            case _:
                if round_.attested and round_.state != "settled":
                    yield Code.MALFORMED_ENTRY
                round_.state = "open"
                for task in round_.tasks.values():
                    task.state = WAITING[0] if task.state == "missing" else task.state

    def take_over(self, table: str) -> None:
        """Rounds and tasks of before, where they stood."""
        for key, (_, row) in self._rows.taken(table).items():
            round_ = self._rounds.get(str(key[0]))
            if round_ is None:
                continue
            if table == "rounds":
                round_.state, round_.attested = str(row[-1]), True
            elif str(key[-1]) in round_.tasks:
                task = round_.tasks[str(key[-1])]
                task.opened_after = _whole(row[0])
                if task.state in (*WAITING, "missing"):
                    task.state = "missing" if row[1] == "1" else WAITING[0]

    def compare(self, store: Store) -> Iterator[Problem]:
        """Where the tables differ from the chain."""
        stored = store.rows("rounds")
        words = {str(key[0]): row[-1] for key, row in stored.items() if isinstance(row[-1], PlanWords)}
        yield from self._compare_rounds({str(key[0]): row[:-1] for key, row in stored.items()}, words)
        yield from self._compare_tasks(store, words)
        stored_submissions = {(str(key[0]), str(key[1])): row for key, row in store.rows("submissions").items()}
        yield from self._rows.compare("submissions", self._submissions, stored_submissions)
        yield from self._compare_trainings(store, words)
        # SQLite's own count of them.
        if list(store.rows("sqlite_sequence").values()) != [("rounds", len(self._rounds))][: len(self._rounds)]:
            yield Problem(0, Code.WRONG_INDEX)

    def _compare_rounds(
        self, stored: Mapping[str, tuple[object, ...]], words: Mapping[str, PlanWords]
    ) -> Iterator[Problem]:
        expected: dict[str, tuple[int, tuple[object, ...]]] = {}
        for plan_id, found in self._rounds.items():
            cost, row = found.cost, stored.get(plan_id, ())
            state = found.state
            if not found.attested and row and row[-2] in _possible(state):
                # Opened again, or not opened at all, by a version that wrote no entry of it.
                state = str(row[-2])
                self._rows.unattested.add("rounds")
            charged = (cost.mu_squared, cost.pure, cost.slack)
            expected[plan_id] = found.entry, (found.number, *charged, state, found.outcome)
            plan = words.get(plan_id)
            if plan is not None and plan.plan_id != plan_id:
                # A message has no such hash, and is rewritten before the folder is served.
                if plan.plan_id or not found.message:
                    yield Problem(found.entry, Code.WRONG_INDEX)
                else:
                    self._rows.unattested.add("rounds")
        yield from self._rows.compare("rounds", expected, stored)

    def _compare_tasks(self, store: Store, words: Mapping[str, PlanWords]) -> Iterator[Problem]:
        stored = store.rows("tasks")
        expected: dict[tuple[object, ...], tuple[int, tuple[object, ...]]] = {}
        for plan_id, found in self._rounds.items():
            plan = words.get(plan_id)
            for site, task in found.tasks.items():
                if found.imported and plan is not None and site not in plan.participants:
                    continue
                row = stored.get((plan_id, site))
                if row is None and not found.attested:
                    self._rows.unattested.add("tasks")
                    continue
                _, state, after = row or (0, "", 0)
                said, known = task.state, task.opened_after
                if said in WAITING and state in WAITING:
                    said = str(state)
                if known is None:
                    self._rows.unattested.add("tasks")
                    known = _whole(after)
                    said = str(state) if said in (*WAITING, "missing") and state in (*WAITING, "missing") else said
                expected[plan_id, site] = found.entry, (found.number, said, known)
        yield from self._rows.compare("tasks", expected, stored)

    def _compare_trainings(self, store: Store, words: Mapping[str, PlanWords]) -> Iterator[Problem]:
        trainings: dict[tuple[object, ...], tuple[int, tuple[object, ...]]] = {}
        left_out: dict[tuple[object, ...], tuple[int, tuple[object, ...]]] = {}
        for plan_id, found in self._rounds.items():
            plan = words.get(plan_id)
            if not found.block or found.imported or plan is None or plan.plan_id != plan_id:
                continue
            row = (found.block, json.dumps(plan.participants))
            trainings.setdefault((plan.lineage,), (found.entry, row))
            for site in plan.participants:
                if site not in found.tasks:
                    left_out[plan_id, site] = found.entry, (found.declined.get(site, ""),)
        yield from self._rows.compare("trainings", trainings, store.rows("trainings"))
        yield from self._rows.compare("left_out", left_out, store.rows("left_out"))


def _possible(state: str) -> tuple[str, ...]:
    """Where a round may stand whose last entry leaves it in a state, of those that earlier versions began."""
    return {"open": ("open", "reserved"), "settled": ("settled", "open")}.get(state, (state,))


def _outcome(body: Mapping[str, object]) -> str:
    """The outcome as its row has it."""
    refused = body.get("refused")
    if not isinstance(refused, dict):
        raise LedgerCorrupt(private="an entry does not say who refused")
    pairs = [[site, code] for site, code in refused.items()]
    return json.dumps([_names(body.get("answered")), pairs, _names(body.get("missing"))], separators=(",", ":"))


def _names(listed: object) -> list[object]:
    if not isinstance(listed, Iterable) or isinstance(listed, str):
        raise LedgerCorrupt(private="an entry has no list of sites")
    return list(listed)


def _whole(value: object) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise LedgerCorrupt(private="a column has no whole number") from None
