"""What must be true of a coordinator's ledger, entry by entry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from wardround.federation.ledger.entry_body import cap_in, cost_in, facts_in, text_in, texts_in
from wardround.federation.ledger.verify.asker_rules import ReservedAskers
from wardround.federation.ledger.verify.attested_rows import AttestedRows
from wardround.federation.ledger.verify.evidence import Store
from wardround.federation.ledger.verify.member_rules import MemberRules
from wardround.federation.ledger.verify.problems import Code, Problem
from wardround.federation.ledger.verify.recovery_rules import RecoveryRules
from wardround.federation.ledger.verify.round_rules import RoundRules
from wardround.federation.ledger.verify.site_rules import price_of, within
from wardround.federation.ledger.verify.training_rules import BlockRules
from wardround.federation.trust.entry import Entry
from wardround.privacy.accounting.cost import Cost
from wardround.privacy.budget.filter import Cap
from wardround.privacy.budget.parallel import Group, groups_among, over_groups

_AMOUNTS = ("mu_squared", "pure", "slack")


class CoordinatorRules:
    """Reserved before received, once each, and what the dearest patient lost never above the cap."""

    def __init__(self, opened: Mapping[str, object], *, overlap: int | None, groups: tuple[Group, ...] = ()) -> None:
        self._overlap = overlap
        self._groups = groups
        self._cap: Cap | None = None
        self._allowance = Cost.zero()
        self._by_site: dict[str, Cost] = {}
        self._held: dict[tuple[str, str], Cost] = {}
        self._plans: set[str] = set()
        self._voided: dict[tuple[str, str], int] = {}
        self._declined: set[tuple[str, str]] = set()
        self._received: dict[tuple[str, str], tuple[Entry, str]] = {}
        self._settled: set[str] = set()
        self._answered: dict[str, tuple[int, str]] = {}
        self._blocks = BlockRules()
        self._askers = ReservedAskers()
        self._rows = AttestedRows(opened)
        self._members = MemberRules(opened, self._rows)
        self._recovery = RecoveryRules(self._members)
        self._rounds = RoundRules(self._rows)
        # By site, what its account may spend, where the entry that opened it says so.
        self._allowances: dict[str, Cost] = {}
        self._digests: dict[int, str] = {}

    @property
    def complete(self) -> bool:
        return self._rows.complete

    @property
    def unattested(self) -> tuple[str, ...]:
        return tuple(sorted(self._rows.unattested))

    @property
    def spent(self) -> Cost:
        groups = groups_among(self._by_site, declared=self._groups, overlap=self._overlap)
        return over_groups(self._by_site, groups)

    @property
    def cap(self) -> Cap | None:
        return self._cap

    def read(self, entry: Entry, body: Mapping[str, object]) -> Iterator[Code]:
        self._digests[entry.sequence] = entry.digest
        match entry.kind:
            case "capped":
                yield from self._read_cap(body)
            case "enrolled":
                yield from self._enrolled(body)
                yield from self._members.read(entry, body)
            case "reserved":
                yield from self._reserved(entry, body)
            case "voided" | "received" | "declined":
                yield from self._from_site(entry, body)
            case "settled" | "answered" | "asked_again":
                yield from self._concluded(entry, body)
                yield from self._rounds.concluded(entry, body)
            case "frozen":
                if text_in(body, "site") not in self._by_site:
                    yield Code.UNKNOWN_SITE
                yield from self._members.read(entry, body)
            case "attested":
                yield from self._taken_over(entry, body)
            case "recovered" | "absent" | "rejoined" | "lost" | "imported":
                yield from self._since_backup(entry, body)
            case "opened":
                yield Code.NOT_OPENED
            case _:
                yield from self._members.read(entry, body)

    def compare(self, store: Store) -> Iterator[Problem]:
        if {site: balance.spent for site, balance in store.accounts.items()} != self._by_site:
            yield Problem(0, Code.WRONG_ACCOUNT)
        for site, balance in store.accounts.items():
            known = self._allowances.get(site)
            if not balance.allowance.fits(self._allowance) or (known is not None and balance.allowance != known):
                yield Problem(0, Code.WRONG_ALLOWANCE)
        yield from self._members.compare(store, self._digests)
        yield from self._rounds.compare(store)
        yield from self._compare_bytes(store)
        yield from self._blocks.compare(store.steps)
        yield from self._askers.compare(store)
        yield from self._recovery.compare(store)
        for plan_id, (number, hashed) in self._answered.items():
            if store.answers.get(plan_id) != hashed:
                yield Problem(number, Code.ALTERED_BYTES)
        for plan_id in store.answers:
            if plan_id not in self._answered:
                yield Problem(0, Code.UNLISTED_BYTES)

    def finish(self) -> Iterator[Problem]:
        """What only the whole chain shows: a charge is given back on a signed refusal, and on nothing else."""
        for pair, number in self._voided.items():
            if pair not in self._declined:
                yield Problem(number, Code.WRONG_REFUSAL)

    def _compare_bytes(self, store: Store) -> Iterator[Problem]:
        for pair, (entry, hashed) in self._received.items():
            stored = store.releases.get(pair)
            if stored is None:
                yield Problem(entry.sequence, Code.MISSING_BYTES)
            elif (stored.sequence, stored.site, stored.release_hash) != (entry.sequence, pair[1], hashed):
                yield Problem(entry.sequence, Code.ALTERED_BYTES)
        for pair in store.releases:
            if pair not in self._received:
                yield Problem(0, Code.UNLISTED_BYTES)

    def _read_cap(self, body: Mapping[str, object]) -> Iterator[Code]:
        cap, allowance = cap_in(body), cost_in(body)
        # The study's allowance is fixed once; another study is another ledger.
        if self._cap is not None or not within(allowance, cap):
            yield Code.WRONG_ALLOWANCE
        self._cap, self._allowance = cap, allowance

    def _enrolled(self, body: Mapping[str, object]) -> Iterator[Code]:
        site = text_in(body, "site")
        text_in(body, "key")
        if site in self._by_site:
            yield Code.UNKNOWN_SITE
        self._by_site.setdefault(site, Cost.zero())
        if "mu_squared" in body:
            self._allowances.setdefault(site, cost_in(body))

    def _taken_over(self, entry: Entry, body: Mapping[str, object]) -> Iterator[Code]:
        """Rows of before, as they stood when a newer version first served the folder."""
        yield from self._rows.read(entry.sequence, body)
        table = text_in(body, "table")
        self._members.take_over(table)
        self._rounds.take_over(table)
        for key, (_, row) in self._rows.taken(table).items():
            match table:
                case "accounts":
                    self._allowances[str(key[0])] = cost_in(dict(zip(_AMOUNTS, row, strict=False)))
                case "rounds":
                    self._askers.take_over(entry.sequence, str(key[0]), row)

    def _reserved(self, entry: Entry, body: Mapping[str, object]) -> Iterator[Code]:
        plan_id, facts, cost = text_in(body, "plan_id"), facts_in(body), cost_in(body)
        sites = texts_in(body, "sites")
        if cost != price_of(facts):
            yield Code.WRONG_CHARGE
        if not self._by_site.keys() >= set(sites):
            yield Code.UNKNOWN_SITE
        if plan_id in self._plans or len(set(sites)) != len(sites):
            yield Code.REPEATED_CHARGE
        yield from self._askers.reserved(entry, body)
        yield from self._blocks.charged(facts, plan_id=plan_id, sites=sites, sequence=entry.sequence)
        self._plans.add(plan_id)
        heads = {site: self._members.head(site).sequence for site in sites}
        self._rounds.reserved(entry, plan_id, (facts, cost), heads, signed="asked" in body)
        for site in sites:
            self._held[plan_id, site] = cost
            self._by_site[site] = self._by_site.get(site, Cost.zero()) + cost
        # What sites proved to have spent may be above the cap; then nothing more is.
        if cost != Cost.zero() and not self.spent.fits(self._allowance):
            yield Code.OVERSPENT

    def _since_backup(self, entry: Entry, body: Mapping[str, object]) -> Iterator[Code]:
        """A recovery, and what sites say of what was forgotten."""
        if entry.kind == "imported":
            yield from self._imported(entry, body)
            return
        yield from self._recovery.read(entry, body)
        if entry.kind == "recovered":
            yield from self._members.read(entry, body)
            yield from self._rounds.opened_again(texts_in(body, "again"))

    def _imported(self, entry: Entry, body: Mapping[str, object]) -> Iterator[Code]:
        """A forgotten plan as one site charged it, or without facts, as it was only asked of it."""
        pair, facts, cost = (text_in(body, "plan_id"), text_in(body, "site")), facts_in(body), cost_in(body)
        yield from self._recovery.imported(entry, body, facts, self._blocks)
        if cost != price_of(facts):
            yield Code.WRONG_CHARGE
        if pair[1] not in self._by_site:
            yield Code.UNKNOWN_SITE
        if pair in self._held:
            yield Code.REPEATED_CHARGE
        if "analyst" in body:
            yield from self._askers.reserved(entry, body)
            self._plans.add(pair[0])
            self._rounds.imported(entry, pair[0], (facts, cost), self._by_site)
            yield from self._blocks.went_on(facts, plan_id=pair[0], site=pair[1], sequence=entry.sequence)
        if facts:
            self._held[pair] = cost
            self._by_site[pair[1]] = self._by_site.get(pair[1], Cost.zero()) + cost
        if not self._by_site.get(pair[1], Cost.zero()).fits(self._allowance):
            yield Code.OVERSPENT

    def _from_site(self, entry: Entry, body: Mapping[str, object]) -> Iterator[Code]:
        pair = text_in(body, "plan_id"), text_in(body, "site")
        if entry.kind != "voided":
            yield from self._recovery.follows(body)
            self._members.answered(entry, body)
            self._rounds.answered_by(entry, body)
        match entry.kind:
            case "received":
                if pair not in self._held:
                    yield Code.UNPAID_RELEASE
                if pair in self._received:
                    yield Code.SECOND_RELEASE
                self._received.setdefault(pair, (entry, text_in(body, "release_hash")))
            case "declined":
                known = pair in self._held or pair in self._voided or self._recovery.is_round(pair[0])
                if not known or pair in self._received or pair in self._declined:
                    yield Code.WRONG_REFUSAL
                self._declined.add(pair)
            case _:
                if pair not in self._held or pair in self._received:
                    yield Code.WRONG_REFUSAL
                yield from self._blocks.given_back(*pair)
                self._give_back(pair)
                self._voided.setdefault(pair, entry.sequence)

    def _give_back(self, pair: tuple[str, str]) -> None:
        cost, before = self._held.pop(pair, Cost.zero()), self._by_site.get(pair[1], Cost.zero())
        self._by_site[pair[1]] = Cost(
            mu_squared=before.mu_squared - cost.mu_squared,
            pure=before.pure - cost.pure,
            slack=before.slack - cost.slack,
        )

    def _concluded(self, entry: Entry, body: Mapping[str, object]) -> Iterator[Code]:
        plan_id = text_in(body, "plan_id")
        if entry.kind == "answered":
            hashed = text_in(body, "answer_hash")
            yield from self._recovery.answered(plan_id)
            if plan_id in self._answered or plan_id not in self._settled:
                yield Code.SECOND_ANSWER
            self._answered.setdefault(plan_id, (entry.sequence, hashed))
            return
        if plan_id not in self._plans:
            yield Code.UNPAID_RELEASE
        if entry.kind == "asked_again":
            return
        if any((plan_id, site) not in self._received for site in texts_in(body, "answered")):
            yield Code.MISSING_BYTES
        self._settled.add(plan_id)
