"""What must be true of a coordinator's recoveries: counted, and whatever is imported, rejoined or lost follows one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from wardround.federation.ledger.entry_body import number_in, text_in, texts_in
from wardround.federation.ledger.verify.evidence import Store
from wardround.federation.ledger.verify.problems import Code, Problem
from wardround.federation.trust.entry import Entry


class RecoveryRules:
    """The recoveries of one chain."""

    def __init__(self) -> None:
        self._incarnation = 0
        self._imports: dict[tuple[str, str], int] = {}
        self._asks: set[str] = set()
        self._lost: dict[str, tuple[int, str]] = {}
        self._states: dict[str, str] = {}
        self._answered: set[str] = set()

    def read(self, entry: Entry, body: Mapping[str, object], sites: set[str]) -> Iterator[Code]:
        """What is wrong with a recovery, a site that came back or a plan that is lost."""
        match entry.kind:
            case "recovered":
                yield from self._recovered(body, sites)
            case "rejoined":
                yield from self._rejoined(body, sites)
            case _:
                yield from self._lose(entry, body)

    def _recovered(self, body: Mapping[str, object], sites: set[str]) -> Iterator[Code]:
        """A recovery counts on, and names sites that enrolled."""
        number = number_in(body, "incarnation")
        if number <= self._incarnation:
            yield Code.WRONG_RECOVERY
        self._incarnation = number
        awaited, absent = texts_in(body, "sites"), texts_in(body, "without")
        texts_in(body, "analysts")
        if not {*awaited, *absent} <= sites:
            yield Code.UNKNOWN_SITE
        self._states = dict.fromkeys(absent, "absent") | dict.fromkeys(awaited, "awaited")

    def follows(self, body: Mapping[str, object]) -> Iterator[Code]:
        """What was signed since a recovery says which it follows."""
        if number_in(body, "incarnation") != self._incarnation:
            yield Code.WRONG_RECOVERY

    def imported(self, entry: Entry, body: Mapping[str, object]) -> Iterator[Code]:
        """A plan is imported once for a site."""
        plan_id, site = text_in(body, "plan_id"), text_in(body, "site")
        if not self._incarnation:
            yield Code.WRONG_RECOVERY
        yield from self.follows(body)
        if (plan_id, site) in self._imports or plan_id in self._answered:
            yield Code.REPEATED_CHARGE
        self._imports[plan_id, site] = entry.sequence
        if "analyst" in body:
            self._asks.add(plan_id)

    def is_round(self, plan_id: str) -> bool:
        """Whether an import brought this plan's question."""
        return plan_id in self._asks

    def _rejoined(self, body: Mapping[str, object], sites: set[str]) -> Iterator[Code]:
        """A site comes back after a recovery."""
        site = text_in(body, "site")
        if site not in sites:
            yield Code.UNKNOWN_SITE
        text_in(body, "digest")
        if not self._incarnation:
            yield Code.WRONG_RECOVERY
        yield from self.follows(body)
        self._states[site] = "rejoined"

    def _lose(self, entry: Entry, body: Mapping[str, object]) -> Iterator[Code]:
        """What is answered is not lost, and nothing is lost twice."""
        plan_id = text_in(body, "plan_id")
        if not self._incarnation or plan_id in self._answered or plan_id in self._lost:
            yield Code.WRONG_RECOVERY
        self._lost[plan_id] = entry.sequence, text_in(body, "block")

    def answered(self, plan_id: str) -> Iterator[Code]:
        """What is lost is not answered."""
        self._answered.add(plan_id)
        if plan_id in self._lost:
            yield Code.WRONG_RECOVERY

    def compare(self, store: Store) -> Iterator[Problem]:
        """Where the tables differ from the chain."""
        for pair in sorted(self._imports.keys() | store.imports.keys()):
            if self._imports.get(pair) != store.imports.get(pair):
                yield Problem(self._imports.get(pair, 0), Code.WRONG_INDEX)
        for plan_id in sorted(self._lost.keys() | store.lost.keys()):
            if self._lost.get(plan_id) != store.lost.get(plan_id):
                yield Problem(self._lost.get(plan_id, (0, ""))[0], Code.WRONG_INDEX)
        # Who was revoked, or is found to know more later, is to rejoin without a word in the chain.
        if any(store.rejoins.get(site) != state for site, state in self._states.items()):
            yield Problem(0, Code.WRONG_INDEX)
        if {site for site, state in store.rejoins.items() if state != "absent"} - self._states.keys():
            yield Problem(0, Code.WRONG_INDEX)
