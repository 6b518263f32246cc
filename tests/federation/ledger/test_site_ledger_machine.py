"""Any sequence of calls, reopenings and rollbacks leaves the invariants of the ledger standing."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from site_agent.store.requests import RequestState
from tests.federation.ledger.ledger_bench import Bench, asking, charge, forgotten, plan_id, spend, task
from wardround.federation.errors import (
    BudgetExceeded,
    InvariantBroken,
    Mistaken,
    PlanRefused,
    SiteFrozen,
    UnpaidRelease,
    UnprovedHead,
)
from wardround.federation.ledger.verify.verify import verify
from wardround.federation.refusal import RefusalReason
from wardround.federation.trust.enrolment import Standing
from wardround.federation.trust.entry import EMPTY, Head
from wardround.federation.trust.identity import Identity
from wardround.privacy.accounting.cost import Cost, total
from wardround.privacy.budget.filter import Cap

WORDS = st.sampled_from(["a", "b", "c", "d", "e"])
# Dear enough that two or three exhaust the budget.
SCALE = 120


class SiteLedgerMachine(RuleBasedStateMachine):
    """The model is three sets and a number; the ledger must agree after every step."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="ledger"))
        self.charged: set[str] = set()
        self.sent: dict[str, bytes] = {}
        self.refused: set[str] = set()
        self.acknowledged: set[str] = set()
        self.held: dict[str, RequestState] = {}
        self.frozen = False
        self.cap = Cap(3.0, 1e-6)
        self.heads: list[Head] = [EMPTY]

    @initialize()
    def begin(self) -> None:
        self.bench = Bench(self.root / "site")

    def teardown(self) -> None:
        self.bench.ledger.close()
        assert verify(self.bench.folder).problems == ()
        shutil.rmtree(self.root)

    def cost(self) -> Cost:
        return total(fact for word in self.charged for fact in charge(word, SCALE).facts)

    @rule(word=WORDS, place=st.integers(0, 50))
    def spend(self, word: str, place: int) -> None:
        fresh = word not in self.charged
        try:
            spend(self.bench.ledger, word, charge(word, SCALE), head=self.heads[place % len(self.heads)])
        except SiteFrozen:
            assert self.frozen
        except PlanRefused:
            assert word in self.refused
        except BudgetExceeded:
            assert fresh
            assert not (self.cost() + charge(word, SCALE).cost).fits(self.cap.allowance())
        else:
            assert not self.frozen
            assert word not in self.refused
            self.charged.add(word)

    @rule(word=WORDS)
    def keep(self, word: str) -> None:
        try:
            kept = self.bench.ledger.keep(self.bench.release(word))
        except SiteFrozen:
            assert self.frozen
        except UnpaidRelease:
            assert word not in self.charged
        else:
            assert not self.frozen
            assert word in self.charged
            assert self.sent.setdefault(word, kept.payload) == kept.payload
            self.heads.append(kept.entry.head)

    @rule(word=WORDS)
    def refuse(self, word: str) -> None:
        try:
            kept = self.bench.ledger.refuse(asking(word), RefusalReason.PLAN)
        except SiteFrozen:
            assert self.frozen
        except InvariantBroken:
            assert word in self.charged
        else:
            assert word not in self.charged
            self.refused.add(word)
            self.heads.append(kept.entry.head)

    @rule(word=WORDS)
    def hold(self, word: str) -> None:
        try:
            state = self.bench.ledger.hold(task(word, coordinator=self.bench.coordinator), summary=word)
        except SiteFrozen:
            assert self.frozen
        else:
            # Nobody is to decide about what was answered.
            if word not in self.charged and word not in self.refused:
                self.held.setdefault(word, RequestState.PENDING)
            assert state is self.held.get(word, RequestState.PENDING)

    @rule(word=WORDS, approve=st.booleans())
    def decide(self, word: str, approve: bool) -> None:
        answered = word in self.charged or word in self.refused
        chosen = RequestState.APPROVED if approve else RequestState.DENIED
        try:
            self.bench.ledger.decide(plan_id(word), approve=approve, by="ann")
        except SiteFrozen:
            assert self.frozen
        except Mistaken:
            assert answered or self.held.get(word, chosen) is chosen
        else:
            assert not answered
            self.held[word] = chosen
            if not approve:
                self.refused.add(word)

    @rule()
    def deliver(self) -> None:
        for kept in self.bench.ledger.undelivered():
            assert not self.frozen
            self.bench.ledger.delivered(kept.plan_id, self.bench.receipt(kept))
            self.acknowledged.add(kept.plan_id)

    @rule()
    def reopen(self) -> None:
        self.bench.reopen()

    @rule(epsilon=st.sampled_from([1.0, 3.0, 5.0]))
    def recap(self, epsilon: float) -> None:
        self.bench.ledger.set_cap(Cap(epsilon, 1e-6))
        if not self.frozen:
            self.cap = Cap(epsilon, 1e-6)

    @precondition(lambda self: not self.frozen)
    @rule(sequence=st.integers(0, 60), digest=st.sampled_from(["1" * 64, "0" * 64]), stranger=st.booleans())
    def meet_a_foreign_head(self, sequence: int, digest: str, stranger: bool) -> None:
        """A place that anybody can invent, alone or with an entry that somebody else signed: it changes nothing."""
        proof = forgotten(Identity.generate(), sequence).proof if stranger and sequence else None
        head = Head(sequence, digest) if proof is None else proof.head
        before = self.bench.ledger.head()
        try:
            self.bench.ledger.reconcile(Standing(head, proof))
        except UnprovedHead:
            assert self.bench.ledger.head() == before
        else:
            assert head == EMPTY

    @precondition(lambda self: not self.frozen)
    @rule(sequence=st.integers(2, 60))
    def meet_an_entry_that_it_has_lost(self, sequence: int) -> None:
        with pytest.raises(SiteFrozen):
            self.bench.ledger.reconcile(forgotten(self.bench.identity, sequence))
        self.frozen = True

    @invariant()
    def the_ledger_agrees_with_the_model(self) -> None:
        if not hasattr(self, "bench"):
            return
        ledger = self.bench.ledger
        assert ledger.spent() == self.cost()
        assert ledger.cap() == self.cap
        assert {word for word in "abcde" if ledger.charged(plan_id(word))} == self.charged
        assert (ledger.frozen() is not None) == self.frozen
        if not self.frozen:
            assert {word: kept.payload for word in self.sent if (kept := ledger.find(plan_id(word)))} == self.sent
        answered = {plan_id(word) for word in {*self.sent, *self.refused}}
        owed = set() if self.frozen else answered - self.acknowledged
        assert {kept.plan_id for kept in ledger.undelivered()} == owed
        assert {line.plan_id for line in ledger.history()} == answered
        assert {request.summary: request.state for request in ledger.requests()} == self.held
        due = {w for w, s in self.held.items() if s is RequestState.APPROVED and w not in {*self.sent, *self.refused}}
        due |= {w for w, s in self.held.items() if s is RequestState.DENIED and plan_id(w) not in self.acknowledged}
        decided = {signed.task.plan.plan_id for signed in ledger.decided()}
        assert decided == (set() if self.frozen else {plan_id(word) for word in due})


TestSiteLedgerMachine = SiteLedgerMachine.TestCase
TestSiteLedgerMachine.settings = hypothesis.settings(max_examples=40, stateful_step_count=25, deadline=None)
