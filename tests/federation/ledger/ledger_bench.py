"""A site's ledger on a bench: real files, real keys, plans named by a word."""

from __future__ import annotations

import datetime
import functools
import hashlib
import secrets
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import numpy as np

from site_agent.store.askers import Asking
from site_agent.store.ledger import SiteLedger
from site_agent.store.outbox import Kept
from tests.fixtures.asking import asked_by
from wardround.federation.forms.release import Release, release_hash
from wardround.federation.ledger.entry_body import encode_body
from wardround.federation.ledger.sqlite_file import Durability
from wardround.federation.plan.plan import Charge, Plan
from wardround.federation.plan.task import Released, SignedTask, Task, sign_task
from wardround.federation.question.query import Aggregate, Query, Statistic
from wardround.federation.trust.enrolment import Standing
from wardround.federation.trust.entry import EMPTY, Entry, Head, make_entry
from wardround.federation.trust.identity import Identity
from wardround.privacy.accounting.cost import Fact
from wardround.privacy.budget.facts import BlockFact, StageFact
from wardround.privacy.budget.filter import Cap
from wardround.privacy.mechanisms.partition_selection import SelectionFact
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution

CAP = Cap(epsilon=3.0, delta=1e-6)
VALUES = 3
DATE = datetime.date(2026, 3, 1)


@functools.cache
def plan(word: str) -> Plan:
    query = Query("encounters", (Aggregate(Statistic.COUNT, None),), None, ())
    nonce = hashlib.sha256(word.encode()).hexdigest()[:32]
    return Plan("0" * 64, query, Mechanism.DISCRETE_GAUSSIAN, (Fraction(400),), ("st-mary",), nonce)


def plan_id(word: str) -> str:
    return plan(word).plan_id


def forgotten(identity: Identity, sequence: int) -> Standing:
    """What a coordinator holds of a site that signed an entry at this place and has lost it."""
    entry = make_entry(identity, after=Head(sequence - 1, "f" * 64), kind="charged", body="{}")
    return Standing(entry.head, entry)


@functools.cache
def asking(word: str) -> Asking:
    """The plan that a word names, asked by somebody who signed it."""
    return Asking(plan(word), asked_by(plan(word)))


def spend(ledger: SiteLedger, word: str, charged: Charge | None = None, *, head: Head = EMPTY, table: str = "") -> None:
    """Charge what the word names, or something else in its name."""
    ledger.spend(charge(word) if charged is None else charged, asking(word), head=head, table=table)


def fact(scale: int = 400, *, dimension: int = VALUES, mechanism: Mechanism = Mechanism.DISCRETE_GAUSSIAN) -> Fact:
    return Fact(NoiseDistribution(mechanism, Fraction(scale)), 64, 64**2, dimension)


SELECTION = SelectionFact(NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, Fraction(640)), 4500, max_keys=2, steps=64)


BLOCK = "b" * 64
ROUNDS = 3


def step_charge(word: str, place: int, *, block: str = BLOCK, scale: int = 400) -> Charge:
    """A round of a training of three."""
    stage = StageFact(NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, Fraction(scale)), 64**2, VALUES, ROUNDS)
    return Charge(plan_id(word), (BlockFact(block, place, ROUNDS, VALUES, (stage,)),), block, place, dimension=VALUES)


def charge(word: str, scale: int = 400) -> Charge:
    """What a plan costs; one whose word begins with "keys" selects keys, and with "step" takes that round."""
    if word.startswith("step"):
        return step_charge(word, int(word[4]), scale=scale)
    return Charge(plan_id(word), (SELECTION if word.startswith("keys") else fact(scale),))


def task(word: str, *, coordinator: Identity) -> SignedTask:
    return sign_task(Task(plan(word), "st-mary", EMPTY), coordinator, asking(word).asked_by)


@dataclass
class Bench:
    """One site with its coordinator's key."""

    folder: Path
    keeping: Durability = Durability.FILE
    identity: Identity = field(default_factory=Identity.generate)
    coordinator: Identity = field(default_factory=Identity.generate)
    ledger: SiteLedger = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.identity.save(self.folder / "identity.pem")
        self.ledger = SiteLedger.create(
            self.folder,
            identity=self.identity,
            name="st-mary",
            study_hash="0" * 64,
            dataset="ehr-2026",
            coordinator_key=self.coordinator.public.key,
            keeping=self.keeping,
            today=lambda: DATE,
        )
        self.ledger.set_cap(CAP)

    def reopen(self) -> SiteLedger:
        self.ledger.close()
        self.ledger = SiteLedger(self.folder, identity=self.identity, keeping=self.keeping, today=lambda: DATE)
        return self.ledger

    def release(self, word: str, *, size: int = VALUES) -> Release:
        values = np.array([secrets.randbelow(2**40) for _ in range(size)], dtype=np.int64)
        if word.startswith("keys"):
            keys = tuple(f"E{place:02d}" for place in range(size))
            return Release(plan_id(word), "st-mary", DATE.isoformat(), values + SELECTION.threshold + 1, keys)
        return Release(plan_id(word), "st-mary", DATE.isoformat(), values)

    def answer(self, word: str, scale: int = 400) -> Released:
        spend(self.ledger, word, charge(word, scale))
        return self.ledger.keep(self.release(word))

    def receipt(self, kept: Kept, *, signer: Identity | None = None, **changed: str) -> Entry:
        body: dict[str, str | int] = {
            "plan_id": kept.plan_id,
            "site": "st-mary",
            "sequence": kept.entry.sequence,
            "digest": kept.entry.digest,
        }
        if isinstance(kept, Released):
            body["release_hash"] = release_hash(kept.payload)
        else:
            body["code"] = kept.code
        body.update(changed)
        kind = "received" if isinstance(kept, Released) else "declined"
        return make_entry(signer or self.coordinator, after=EMPTY, kind=kind, body=encode_body(body))
