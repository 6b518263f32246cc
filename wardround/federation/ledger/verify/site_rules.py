"""What must be true of a site's ledger, entry by entry.

A table is closed once, and opened for a reason there can be. An entry that charges does not say which table a plan
reads; what the chain alone proves is that nothing is charged or released while every table of the study is closed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from wardround.federation.errors import LedgerCorrupt
from wardround.federation.ledger.accounts import Balance
from wardround.federation.ledger.entry_body import acknowledges, cap_in, cost_in, facts_in, text_in
from wardround.federation.ledger.verify.asker_rules import AskerRules
from wardround.federation.ledger.verify.attested_rows import AttestedRows
from wardround.federation.ledger.verify.evidence import Store
from wardround.federation.ledger.verify.problems import Code, Problem
from wardround.federation.ledger.verify.training_rules import BlockRules
from wardround.federation.trust.entry import Entry
from wardround.federation.trust.identity import PublicIdentity
from wardround.privacy.accounting.cost import Cost, total
from wardround.privacy.budget.facts import AnyFact
from wardround.privacy.budget.filter import Cap, epsilon_charged

# Allowances come from floating point, whose last places differ between machines; this is far above that.
_MACHINE_DIFFERENCE = 1e-9
_LARGEST_DELTA = math.nextafter(1.0, 0.0)


class ClosingRules:
    """The tables that a site's chain closed; `tables` are all there are, where that is known."""

    def __init__(self, tables: frozenset[str]) -> None:
        self._tables = tables
        self._sources: dict[str, str] = {}
        self._reopened: set[tuple[str, str]] = set()
        self.closed: dict[str, int] = {}

    @property
    def all_closed(self) -> bool:
        """Whether no table could be asked."""
        return bool(self._tables) and self._tables <= self.closed.keys()

    def turned(self, entry: Entry, body: Mapping[str, object]) -> Iterator[Code]:
        """What is wrong with the next closing or opening."""
        table, date = text_in(body, "table"), text_in(body, "date")
        if self._tables and table not in self._tables:
            yield Code.WRONG_CLOSING
        if entry.kind == "closed":
            if table in self.closed:
                yield Code.WRONG_CLOSING
            self._sources[table] = text_in(body, "source")
            self.closed.setdefault(table, entry.sequence)
            return
        if self.closed.pop(table, None) is None:
            yield Code.WRONG_CLOSING
        match text_in(body, "reason"):
            case "steward":
                pass
            case "changed":
                # Only a source that sees changes opens its table by itself, and only once a day.
                if not self._sources.get(table) or (table, date) in self._reopened:
                    yield Code.WRONG_CLOSING
                self._reopened.add((table, date))
            case _:
                raise LedgerCorrupt(private="a table was opened for a reason that is none")


class SiteRules:
    """Charged before released, once each, never above the cap, nothing while closed, and nothing after freezing.

    `tables` are the study's, where it is known.
    """

    def __init__(self, opened: Mapping[str, object], *, tables: frozenset[str] = frozenset()) -> None:
        self._site = text_in(opened, "name")
        self._account = text_in(opened, "dataset")
        self._coordinator = PublicIdentity(text_in(opened, "coordinator_key"))
        self._spent = Cost.zero()
        self._allowance = Cost.zero()
        self._cap: Cap | None = None
        self._charges: dict[str, tuple[int, tuple[AnyFact, ...]]] = {}
        self._releases: dict[str, tuple[Entry, str]] = {}
        self._refusals: dict[str, Entry] = {}
        self._blocks = BlockRules()
        self._closing = ClosingRules(tables)
        self._rows = AttestedRows(opened)
        self._asking = AskerRules(self._coordinator, self._rows)
        self._abandoned: set[str] = set()
        self._frozen = False

    @property
    def spent(self) -> Cost:
        return self._spent

    @property
    def cap(self) -> Cap | None:
        return self._cap

    @property
    def complete(self) -> bool:
        return self._rows.complete

    @property
    def unattested(self) -> tuple[str, ...]:
        return tuple(sorted(self._rows.unattested))

    def read(self, entry: Entry, body: Mapping[str, object]) -> Iterator[Code]:
        if self._frozen:
            yield Code.AFTER_FROZEN
        if entry.kind in ("charged", "released") and self._closing.all_closed:
            yield Code.WHILE_CLOSED
        match entry.kind:
            case "capped":
                yield from self._capped(body)
            case "charged":
                yield from self._charged(entry, body)
            case "released":
                yield from self._released(entry, body)
            case "refused":
                yield from self._refused(entry, body)
            case "closed" | "reopened":
                yield from self._closing.turned(entry, body)
            case "pinned" | "held" | "approved" | "denied":
                yield from self._asking.read(entry, body)
            case "attested":
                yield from self._rows.read(entry.sequence, body)
            case "recovered":
                yield from self._recovered(body)
            case "frozen":
                text_in(body, "reason")
                self._frozen = True
            case kind:
                yield Code.NOT_OPENED if kind == "opened" else Code.MALFORMED_ENTRY

    def finish(self) -> Iterator[Problem]:
        yield from self._asking.finish()

    def compare(self, store: Store) -> Iterator[Problem]:
        yield from _index({plan: number for plan, (number, _) in self._charges.items()}, store.charges)
        yield from _index({plan: entry.sequence for plan, entry in self._refusals.items()}, store.refusals)
        yield from _index(self._closing.closed, store.closed)
        yield from self._blocks.compare(store.steps)
        yield from self._asking.compare(store)
        expected = {self._account: Balance(self._spent, self._allowance)} if self._cap is not None else {}
        if dict(store.accounts) != expected:
            yield Problem(0, Code.WRONG_ACCOUNT)
        yield from self._compare_bytes(store)
        yield from self._compare_receipts(store)
        yield from self._compare_readings(store)

    def _capped(self, body: Mapping[str, object]) -> Iterator[Code]:
        cap, allowance = cap_in(body), cost_in(body)
        if text_in(body, "account") != self._account:
            yield Code.WRONG_ACCOUNT
        if not within(allowance, cap):
            yield Code.WRONG_ALLOWANCE
        self._cap = cap
        # A cap below what is spent leaves nothing; it undoes nothing.
        self._allowance = Cost(
            mu_squared=max(allowance.mu_squared, self._spent.mu_squared),
            pure=max(allowance.pure, self._spent.pure),
            slack=max(allowance.slack, self._spent.slack),
        )

    def _charged(self, entry: Entry, body: Mapping[str, object]) -> Iterator[Code]:
        plan_id, facts, cost = text_in(body, "plan_id"), facts_in(body), cost_in(body)
        if text_in(body, "account") != self._account:
            yield Code.WRONG_ACCOUNT
        if plan_id in self._charges:
            yield Code.REPEATED_CHARGE
        if plan_id in self._refusals:
            yield Code.WRONG_REFUSAL
        if cost != price_of(facts):
            yield Code.WRONG_CHARGE
        yield from self._blocks.charged(facts, plan_id=plan_id, sites=(self._site,), sequence=entry.sequence)
        yield from self._asking.charged(entry, body, facts)
        self._charges.setdefault(plan_id, (entry.sequence, facts))
        self._spent += cost
        if not self._spent.fits(self._allowance) or (cost != Cost.zero() and self._above_the_cap()):
            yield Code.OVERSPENT

    def _recovered(self, body: Mapping[str, object]) -> Iterator[Code]:
        """What nobody knows any more is charged, and what was paid before is not answered after it."""
        if text_in(body, "account") != self._account:
            yield Code.WRONG_ACCOUNT
        text_in(body, "by")
        self._asking.recovered(body)
        self._spent += cost_in(body)
        if not self._spent.fits(self._allowance):
            yield Code.OVERSPENT
        self._abandoned = self._charges.keys() - self._releases.keys()
        self._blocks.end()

    def _above_the_cap(self) -> bool:
        """Whether both lanes together are above the cap: one was lowered below its own, and the other went on."""
        if self._cap is None or self._spent.fits(self._cap.allowance()):
            return False
        return epsilon_charged(self._spent, delta=self._cap.delta) > self._cap.epsilon * (1.0 + _MACHINE_DIFFERENCE)

    def _released(self, entry: Entry, body: Mapping[str, object]) -> Iterator[Code]:
        plan_id, hashed = text_in(body, "plan_id"), text_in(body, "release_hash")
        if plan_id not in self._charges:
            yield Code.UNPAID_RELEASE
        if plan_id in self._releases:
            yield Code.SECOND_RELEASE
        if plan_id in self._abandoned:
            yield Code.WRONG_RECOVERY
        self._releases.setdefault(plan_id, (entry, hashed))

    def _refused(self, entry: Entry, body: Mapping[str, object]) -> Iterator[Code]:
        plan_id = text_in(body, "plan_id")
        yield from self._asking.refused(entry, body)
        if plan_id in self._charges or plan_id in self._refusals:
            yield Code.WRONG_REFUSAL
        self._refusals.setdefault(plan_id, entry)

    def _compare_bytes(self, store: Store) -> Iterator[Problem]:
        for plan_id, (entry, hashed) in self._releases.items():
            stored = store.releases.get((plan_id, ""))
            if stored is None:
                yield Problem(entry.sequence, Code.MISSING_BYTES)
                continue
            _, facts = self._charges.get(plan_id, (0, ()))
            signed = (stored.sequence, stored.site, stored.release_hash) == (entry.sequence, self._site, hashed)
            if not signed or stored.extent is None or not stored.extent.is_paid_by(facts):
                yield Problem(entry.sequence, Code.ALTERED_BYTES)
        for plan_id, _ in store.releases:
            if plan_id not in self._releases:
                yield Problem(0, Code.UNLISTED_BYTES)

    def _compare_receipts(self, store: Store) -> Iterator[Problem]:
        for plan_id, receipt in store.receipts.items():
            entry, hashed = self._releases.get(plan_id, (self._refusals.get(plan_id), None))
            if entry is None:
                yield Problem(0, Code.BAD_RECEIPT)
            elif not (
                receipt.signed_by(self._coordinator)
                and acknowledges(receipt, entry.head, plan_id=plan_id, site=self._site, released=hashed)
            ):
                yield Problem(entry.sequence, Code.BAD_RECEIPT)

    def _compare_readings(self, store: Store) -> Iterator[Problem]:
        """A plan is being read that is paid for and has no release, and it reads its own table."""
        for plan_id, (table,) in store.named("readings").items():
            asking = store.askings.get(plan_id)
            if plan_id not in self._charges or plan_id in self._releases:
                yield Problem(0, Code.WRONG_INDEX)
            elif asking is not None and asking.table != table:
                yield Problem(self._charges[plan_id][0], Code.WRONG_INDEX)
            elif asking is None:
                self._rows.unattested.add("readings")


def price_of(facts: tuple[AnyFact, ...]) -> Cost:
    """The cost of facts, derived again; `LedgerCorrupt` for noise that cannot be accounted."""
    try:
        return total(facts)
    except (ValueError, ArithmeticError) as error:
        raise LedgerCorrupt(private=str(error)) from None


def within(allowance: Cost, cap: Cap) -> bool:
    """Whether amounts are no more than a cap allows."""
    more = 1.0 + _MACHINE_DIFFERENCE
    try:
        rounded_up = Cap(cap.epsilon * more, min(cap.delta * more, _LARGEST_DELTA), cap.pure_epsilon * more)
        return allowance.fits(rounded_up.allowance())
    except (ValueError, ArithmeticError) as error:
        raise LedgerCorrupt(private=str(error)) from None


def _index(expected: Mapping[str, int], stored: Mapping[str, int]) -> Iterator[Problem]:
    for plan_id in sorted(expected.keys() | stored.keys()):
        if expected.get(plan_id) != stored.get(plan_id):
            yield Problem(expected.get(plan_id, 0), Code.WRONG_INDEX)
