"""Ledgers of any length for the report's tests: real entries and rows, without asking anybody."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from coordinator.accounts.budget_report import Reporting
from coordinator.members.roster import Roster
from coordinator.store.ledger import Ledger, begin_ledger
from tests.coordinator.hospitals import study
from wardround.federation.ledger import accounts, chain
from wardround.federation.ledger.entry_body import cost_body, facts_body
from wardround.federation.ledger.sqlite_file import Durability
from wardround.federation.trust.identity import Identity, Purpose
from wardround.privacy.accounting.cost import Fact, total
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution

SITES = ("one", "two", "three")


def gaussian(z: int) -> Fact:
    """A count with discrete Gaussian noise of z times what one patient can change."""
    return Fact(NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, Fraction(64 * z)), 64, 64**2, 1)


def laplace(epsilon: Fraction | float) -> Fact:
    """A count with discrete Laplace noise, at a scale in whole 1024ths."""
    return Fact(NoiseDistribution(Mechanism.DISCRETE_LAPLACE, Fraction(round(1024 / Fraction(epsilon)), 1024)), 1, 1, 1)


@dataclass
class Books:
    """A coordinator's ledger whose charges are written down directly."""

    ledger: Ledger
    reporting: Reporting
    written: int = 0

    def charge(self, *facts: Fact, sites: Sequence[str] = SITES, date: float = 0.0) -> str:
        with self.ledger.database.transaction() as connection:
            return self._write(connection, facts, sites, date)

    def charge_many(self, charges: Iterable[tuple[Fact, ...]]) -> None:
        with self.ledger.database.transaction() as connection:
            for facts in charges:
                self._write(connection, facts, SITES, float(self.written))

    def void(self, plan_id: str, site: str) -> None:
        with self.ledger.database.transaction() as connection:
            facts = self.facts[plan_id]
            accounts.credit(connection, site, total(facts))
            chain.append(connection, self.ledger.identity, kind="voided", body={"plan_id": plan_id, "site": site})

    def __post_init__(self) -> None:
        self.facts: dict[str, tuple[Fact, ...]] = {}

    def _write(self, connection: sqlite3.Connection, facts: tuple[Fact, ...], sites: Sequence[str], date: float) -> str:
        plan_id, cost = f"{self.written:064x}", total(facts)
        self.written += 1
        self.facts[plan_id] = facts
        connection.execute(
            "INSERT INTO rounds"
            " (plan_id, plan, analyst, epsilon, delta, mu_squared, pure, slack, reserved_at, state)"
            " VALUES (?, ?, 'ada', 1, 0, ?, ?, ?, ?, 'reserved')",
            (plan_id, b"", cost.mu_squared, cost.pure, cost.slack, date),
        )
        for site in sites:
            accounts.debit(connection, site, cost)
        chain.append(
            connection,
            self.ledger.identity,
            kind="reserved",
            body={"plan_id": plan_id, "sites": tuple(sites), "facts": facts_body(facts), **cost_body(cost)},
        )
        return plan_id


def books(folder: Path, *, sites: Iterable[str] = SITES, **changes: object) -> Books:
    """An empty ledger with these sites enrolled, under the study of the coordinator's tests."""
    agreed = study(**changes)
    ledger = begin_ledger(folder, study=agreed, identity=Identity.generate(), keeping=Durability.FILE)
    for name in sites:
        identity = Identity.generate()
        Roster(ledger).enrol_site(
            name=name,
            identity=identity.public,
            patients=1000,
            dataset="ehr",
            study_signature=identity.sign(Purpose.STUDY, bytes.fromhex(agreed.study_hash)),
        )
    return Books(ledger, Reporting(ledger))
