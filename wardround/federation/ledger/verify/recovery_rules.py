"""What must be true of a coordinator's recoveries: counted, and whatever is imported, rejoined or lost follows one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from wardround.federation.ledger.entry_body import number_in, text_in, texts_in
from wardround.federation.ledger.verify.evidence import Store
from wardround.federation.ledger.verify.member_rules import MemberRules
from wardround.federation.ledger.verify.problems import Code, Problem
from wardround.federation.ledger.verify.training_rules import BlockRules
from wardround.federation.trust.entry import Entry, Head
from wardround.privacy.budget.facts import AnyFact, BlockFact, StepFact

_K = TypeVar("_K")
_V = TypeVar("_V")


class RecoveryRules:
    """The recoveries of one chain."""

    def __init__(self, members: MemberRules) -> None:
        self._members = members
        self._incarnation = 0
        # Each row as its table has it, after the number of the entry that says so.
        self._imports: dict[tuple[str, str], tuple[int, tuple[int, int, int, str]]] = {}
        self._lost: dict[str, tuple[int, tuple[int, str]]] = {}
        self._rejoins: dict[str, tuple[int, tuple[str, int, str]]] = {}
        self._asks: set[str] = set()
        self._answered: set[str] = set()

    def read(self, entry: Entry, body: Mapping[str, object]) -> Iterator[Code]:
        """What is wrong with a recovery, a site that is to come back or did, or a plan that is lost."""
        match entry.kind:
            case "recovered":
                yield from self._recovered(entry, body)
            case "absent":
                yield from self._absent(entry, body)
            case "rejoined":
                yield from self._rejoined(entry, body)
            case _:
                yield from self._lose(entry, body)

    def _recovered(self, entry: Entry, body: Mapping[str, object]) -> Iterator[Code]:
        """A recovery counts on; every active site is to come back, and it waits for those that it names."""
        number = number_in(body, "incarnation")
        if number <= self._incarnation:
            yield Code.WRONG_RECOVERY
        self._incarnation = number
        awaited, active = texts_in(body, "sites"), self._members.active()
        texts_in(body, "analysts")
        if not {*awaited, *texts_in(body, "without")} <= set(active):
            yield Code.UNKNOWN_SITE
        self._rejoins = {}
        for site in active:
            self._await(entry, site, "awaited" if site in awaited else "absent")

    def _absent(self, entry: Entry, body: Mapping[str, object]) -> Iterator[Code]:
        """A site that enrolled since, or knows more than this ledger, is to come back, too."""
        site = text_in(body, "site")
        yield from self._after_recovery(body)
        if not self._members.has(site):
            yield Code.UNKNOWN_SITE
        if site in self._rejoins:
            yield Code.WRONG_RECOVERY
        self._await(entry, site, "absent")

    def _await(self, entry: Entry, site: str, state: str) -> None:
        head: Head = self._members.head(site)
        self._rejoins[site] = entry.sequence, (state, head.sequence, head.digest)

    def _rejoined(self, entry: Entry, body: Mapping[str, object]) -> Iterator[Code]:
        """A site that was to come back did, once."""
        site = text_in(body, "site")
        text_in(body, "digest")
        yield from self._after_recovery(body)
        _, (state, sequence, digest) = self._rejoins.get(site, (0, ("rejoined", 0, "")))
        if state == "rejoined":
            yield Code.WRONG_RECOVERY
            return
        self._rejoins[site] = entry.sequence, ("rejoined", sequence, digest)

    def follows(self, body: Mapping[str, object]) -> Iterator[Code]:
        """What was signed since a recovery says which it follows."""
        if number_in(body, "incarnation") != self._incarnation:
            yield Code.WRONG_RECOVERY

    def _after_recovery(self, body: Mapping[str, object]) -> Iterator[Code]:
        if not self._incarnation:
            yield Code.WRONG_RECOVERY
        yield from self.follows(body)

    def imported(
        self, entry: Entry, body: Mapping[str, object], facts: tuple[AnyFact, ...], blocks: BlockRules
    ) -> Iterator[Code]:
        """A plan is imported once for a site."""
        plan_id, site, asks = text_in(body, "plan_id"), text_in(body, "site"), "analyst" in body
        yield from self._after_recovery(body)
        if (plan_id, site) in self._imports or plan_id in self._answered or (asks and plan_id in self._asks):
            yield Code.REPEATED_CHARGE
        block = next((fact.block for fact in facts if isinstance(fact, BlockFact | StepFact)), "")
        forgotten = "" if blocks.has_begun(block) else block
        self._imports[plan_id, site] = entry.sequence, (entry.sequence, bool(facts), asks, forgotten)
        if asks:
            self._asks.add(plan_id)

    def is_round(self, plan_id: str) -> bool:
        """Whether an import brought this plan's question."""
        return plan_id in self._asks

    def _lose(self, entry: Entry, body: Mapping[str, object]) -> Iterator[Code]:
        """What is answered is not lost, and nothing is lost twice."""
        plan_id = text_in(body, "plan_id")
        if not self._incarnation or plan_id in self._answered or plan_id in self._lost:
            yield Code.WRONG_RECOVERY
        self._lost[plan_id] = entry.sequence, (entry.sequence, text_in(body, "block"))

    def answered(self, plan_id: str) -> Iterator[Code]:
        """What is lost is not answered."""
        self._answered.add(plan_id)
        if plan_id in self._lost:
            yield Code.WRONG_RECOVERY

    def compare(self, store: Store) -> Iterator[Problem]:
        """Where the tables differ from the chain, of which no earlier version wrote a row."""
        imports = {(str(key[0]), str(key[1])): row for key, row in store.rows("imports").items()}
        yield from _differing(self._imports, imports)
        yield from _differing(self._lost, store.named("lost"))
        yield from _differing(self._rejoins, store.named("rejoins"))


def _differing(expected: Mapping[_K, tuple[int, _V]], stored: Mapping[_K, tuple[object, ...]]) -> Iterator[Problem]:
    for key in expected.keys() | stored.keys():
        number, row = expected.get(key, (0, None))
        if stored.get(key) != row:
            yield Problem(number, Code.WRONG_INDEX)
