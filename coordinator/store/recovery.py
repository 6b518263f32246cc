"""A coordinator that came back from a backup: who is to rejoin, what sites recalled, and which answers are lost.

A `recovered` entry begins an incarnation. From then on a site rejoins before anything else it does: it shows its ledger
and recalls its plans, and each that is not known to be charged there is `imported`. What such a plan's answer was, only
its analyst knows; where it cannot be made again for certain, the plan is `lost`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from coordinator.store.members import MemberState
from coordinator.store.rounds import Question, insert_round
from wardround.federation.errors import InvariantBroken
from wardround.federation.ledger import accounts, chain
from wardround.federation.ledger.entry_body import Body, Plain, cost_body, cost_in, decode_body, facts_body, number_in
from wardround.federation.ledger.sqlite_file import Database
from wardround.federation.plan.plan import Plan
from wardround.federation.trust.entry import Entry, Head
from wardround.federation.trust.identity import Identity
from wardround.privacy.accounting.cost import Cost
from wardround.privacy.budget.facts import AnyFact

TAKEN = "taken"
"""What an imported answer's receipt says of one that the lost ledger is proved to have held in time."""


class RejoinState(StrEnum):
    """How far a site has come back since the last recovery."""

    AWAITED = "awaited"
    ABSENT = "absent"
    REJOINED = "rejoined"


@dataclass(frozen=True, slots=True)
class Confirmed:
    """Whom an operator confirms: sites that are waited for, sites that may come back later, and analysts."""

    sites: tuple[str, ...]
    without: tuple[str, ...] = ()
    analysts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ImportedCharge:
    """What a site was charged for a plan that was forgotten; a round of a training has its block."""

    facts: tuple[AnyFact, ...]
    cost: Cost
    block: str = ""


_AWAIT = (
    "INSERT INTO rejoins (site, state, sequence, digest)"
    " SELECT name, ?, head_sequence, head_digest FROM sites WHERE name = ?"
)

NOTHING = ImportedCharge((), Cost.zero())


@dataclass(frozen=True, slots=True)
class ImportingSite:
    """A site inside the transaction that may import a plan of it."""

    site: str
    state: RejoinState | None
    _connection: sqlite3.Connection
    _identity: Identity

    def knows(self, plan_id: str) -> bool:
        """Whether the plan was reserved or imported for this site."""
        return has_charge(self._connection, plan_id, self.site) or self._imported(plan_id)

    def was_shown(self, entry: Entry) -> bool:
        """Whether the site showed this entry as one of its chain."""
        row = self._connection.execute(
            "SELECT digest FROM site_entries WHERE site = ? AND sequence = ?", (self.site, entry.sequence)
        ).fetchone()
        return row is not None and bool(row[0] == entry.digest)

    def paid_block(self, block: str) -> bool:
        """Whether this training is charged here already: whole, or as one that was forgotten."""
        statement = (
            "SELECT 1 FROM steps WHERE block = ?1"
            " UNION ALL SELECT 1 FROM imports WHERE site = ?2 AND block = ?1 AND charged LIMIT 1"
        )
        return bool(block) and self._connection.execute(statement, (block, self.site)).fetchone() is not None

    def fits(self, cost: Cost) -> bool:
        """Whether the site's account can hold this, too."""
        return accounts.fits(self._connection, self.site, cost)

    def keep(self, plan_id: str, charge: ImportedCharge, question: Question | None, *, at: float) -> bool:
        """Charge a forgotten plan at this site; whether it is a round again, with the question that came with it."""
        asks = question is not None and not self.is_round(plan_id)
        body: dict[str, Plain] = {
            "plan_id": plan_id,
            "site": self.site,
            "incarnation": incarnation(self._connection),
            "facts": facts_body(charge.facts),
            **cost_body(charge.cost),
        }
        if charge.cost != Cost.zero():
            accounts.debit(self._connection, self.site, charge.cost)
        if question is not None and asks:
            body |= question.facts()
            insert_round(self._connection, question, charge.cost, at=at)
            self._open(question.plan)
        entry = chain.append(self._connection, self._identity, kind="imported", body=body)
        self._connection.execute(
            "INSERT INTO imports (plan_id, site, sequence, charged, asks, block) VALUES (?, ?, ?, ?, ?, ?)",
            (plan_id, self.site, entry.sequence, bool(charge.facts), asks, charge.block),
        )
        return asks

    def is_forgotten_block(self, block: str) -> bool:
        """Whether this training began in what was forgotten."""
        row = self._connection.execute("SELECT 1 FROM steps WHERE block = ? LIMIT 1", (block,)).fetchone()
        return bool(block) and row is None

    def is_taken(self, block: str, place: int) -> bool:
        """Whether a plan has this round of a training."""
        row = self._connection.execute("SELECT 1 FROM steps WHERE block = ? AND place = ?", (block, place)).fetchone()
        return row is not None

    def take_place(self, block: str, place: int, plan_id: str) -> None:
        """Write down that a forgotten plan has this round of a training that is known."""
        row = (block, place, plan_id)
        self._connection.execute(
            "INSERT INTO steps (block, place, plan_id) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", row
        )

    def is_round(self, plan_id: str) -> bool:
        """Whether the plan was reserved, or imported with its question."""
        return self._connection.execute("SELECT 1 FROM rounds WHERE plan_id = ?", (plan_id,)).fetchone() is not None

    def _imported(self, plan_id: str) -> bool:
        row = self._connection.execute("SELECT 1 FROM imports WHERE plan_id = ? AND site = ?", (plan_id, self.site))
        return row.fetchone() is not None

    def _open(self, plan: Plan) -> None:
        """A task for each participant that is on the roster, so that each can hand in what it has."""
        known = {name for (name,) in self._connection.execute("SELECT name FROM sites")}
        self._connection.executemany(
            "INSERT INTO tasks (plan_id, site, number, state, opened_after)"
            " SELECT plan_id, ?, number, 'open', 0 FROM rounds WHERE plan_id = ?",
            [(site, plan.plan_id) for site in plan.participants if site in known],
        )


def has_charge(connection: sqlite3.Connection, plan_id: str, site: str) -> bool:
    """Whether the plan is charged at a site: it was imported so, or it was reserved and opened for it."""
    imported = connection.execute(
        "SELECT charged FROM imports WHERE plan_id = ? AND site = ?", (plan_id, site)
    ).fetchone()
    if imported is not None:
        return bool(imported[0])
    row = connection.execute(
        "SELECT 1 FROM tasks WHERE plan_id = ?1 AND site = ?2"
        " AND NOT EXISTS (SELECT 1 FROM imports WHERE plan_id = ?1 AND asks)",
        (plan_id, site),
    ).fetchone()
    return row is not None


def imported_cost(connection: sqlite3.Connection, plan_id: str, site: str) -> Cost | None:
    """What a plan was charged at a site by an import; None where it was reserved."""
    row = connection.execute(
        "SELECT body FROM imports JOIN entries USING (sequence) WHERE plan_id = ? AND site = ?", (plan_id, site)
    ).fetchone()
    return None if row is None else cost_in(decode_body(row[0]))


def incarnation(connection: sqlite3.Connection) -> int:
    """How often this coordinator was recovered."""
    entry = chain.last(connection, "recovered")
    return 0 if entry is None else number_in(decode_body(entry.body), "incarnation")


@dataclass(frozen=True, slots=True)
class Participant:
    """What is known of one site's part in a round.

    `certain` is whether the lost ledger is proved to have held the same.
    """

    released: bool
    certain: bool


class RecoveryStore:
    """What follows from a coordinator's recoveries."""

    def __init__(self, database: Database, identity: Identity) -> None:
        self._database = database
        self._identity = identity

    def recovered(self) -> Entry | None:
        """The entry about the last recovery, if there was one."""
        with self._database.reading() as connection:
            return chain.last(connection, "recovered")

    def incarnation(self) -> int:
        """How often this coordinator was recovered."""
        with self._database.reading() as connection:
            return incarnation(connection)

    def awaited(self) -> tuple[str, ...]:
        """The sites that have to rejoin before anything is served."""
        with self._database.reading() as connection:
            rows = connection.execute("SELECT site FROM rejoins WHERE state = 'awaited' ORDER BY site")
            return tuple(site for (site,) in rows)

    def state(self, site: str) -> RejoinState | None:
        """How far a site has come back; None where nothing is asked of it."""
        with self._database.reading() as connection:
            return _state(connection, site)

    def known_before(self, site: str) -> Head:
        """How far the chain of a site that is to rejoin was known when the ledger came back."""
        with self._database.reading() as connection:
            row = connection.execute("SELECT sequence, digest FROM rejoins WHERE site = ?", (site,)).fetchone()
        return Head(*row)

    def await_later(self, site: str) -> None:
        """A site that knows more than this ledger is to rejoin, too."""
        with self._database.transaction() as connection:
            if connection.execute(f"{_AWAIT} ON CONFLICT DO NOTHING", ("absent", site)).rowcount:
                body: Body = {"site": site, "incarnation": incarnation(connection)}
                chain.append(connection, self._identity, kind="absent", body=body)

    def is_lost(self, plan_id: str, block: str) -> bool:
        """Whether the answer of a plan, or a whole training, is lost."""
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT 1 FROM lost WHERE plan_id = ? OR (block <> '' AND block = ?) LIMIT 1", (plan_id, block)
            ).fetchone()
        return row is not None

    def recover(self, names: Confirmed, *, least: int) -> tuple[str, ...]:
        """Begin an incarnation: who was not confirmed is revoked, invitations end, and sites are to rejoin.

        `least` is the number of answers that make one, where a question does not require more: a round that was
        settled with fewer may have had more since, so it is open again. Returns whom it revoked.
        """
        with self._database.transaction() as connection:
            again = _settled_with_fewer(connection, least)
            number = 1 + max(incarnation(connection), _shown_incarnation(connection))
            body: Body = {
                "incarnation": number,
                "sites": names.sites,
                "without": names.without,
                "analysts": names.analysts,
                "again": (*again,),
            }
            chain.append(connection, self._identity, kind="recovered", body=body)
            revoked = self._revoke_others(connection, names)
            connection.execute("DELETE FROM invitations")
            connection.execute("DELETE FROM lacking")
            connection.execute("DELETE FROM rejoins")
            # Analysts have no row among the sites.
            absent = [("absent", name) for name in (*names.without, *revoked)]
            connection.executemany(_AWAIT, [*(("awaited", name) for name in names.sites), *absent])
            statement = "UPDATE rounds SET state = 'open', outcome = '' WHERE plan_id = ?"
            connection.executemany(statement, [(plan_id,) for plan_id in again])
            return revoked

    def _revoke_others(self, connection: sqlite3.Connection, names: Confirmed) -> tuple[str, ...]:
        confirmed = {*names.sites, *names.without, *names.analysts}
        active = connection.execute(
            "SELECT name FROM sites WHERE state = ?1 UNION SELECT name FROM analysts WHERE state = ?1 ORDER BY name",
            (MemberState.ACTIVE.value,),
        ).fetchall()
        revoked = [name for (name,) in active if name not in confirmed]
        for name in revoked:
            connection.execute("UPDATE sites SET state = 'revoked' WHERE name = ?", (name,))
            connection.execute("UPDATE analysts SET state = 'revoked' WHERE name = ?", (name,))
            chain.append(connection, self._identity, kind="revoked", body={"name": name})
        return tuple(revoked)

    @contextmanager
    def importing(self, site: str) -> Iterator[ImportingSite]:
        """Looking what is known of a site's plan and importing it, in one transaction."""
        with self._database.transaction() as connection:
            yield ImportingSite(site, _state(connection, site), connection, self._identity)

    def shown(self, site: str, after: Head, until: Head) -> list[Entry]:
        """What a site showed of its chain after one place and up to another, in order."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT sequence, previous, kind, body, signature FROM site_entries"
                " WHERE site = ? AND sequence > ? AND sequence <= ? ORDER BY sequence",
                (site, after.sequence, until.sequence),
            )
            return [Entry(*row) for row in rows]

    def undecided(self) -> tuple[str, ...]:
        """The rounds of which nobody can tell yet whether they were answered, oldest first."""
        with self._database.reading() as connection:
            rows = connection.execute("SELECT plan_id FROM rounds WHERE state IN ('reserved', 'open') ORDER BY number")
            return tuple(plan_id for (plan_id,) in rows)

    def parts(self, plan: Plan, *, rejoining: str) -> Mapping[str, Participant]:
        """What is known of each participant of a round, with `rejoining` as one that has come back."""
        with self._database.reading() as connection:
            recovered = chain.last(connection, "recovered")
            if recovered is None:
                raise InvariantBroken(private="a round is decided without a recovery")
            known = {name for (name,) in connection.execute("SELECT name FROM sites")}
            states = dict(connection.execute("SELECT site, state FROM rejoins")) | {rejoining: "rejoined"}
            rows = connection.execute(
                "SELECT site, code, receipt, body FROM submissions JOIN entries ON entries.sequence = receipt"
                " WHERE plan_id = ?",
                (plan.plan_id,),
            )
            handed_in = {
                site: Participant(not code, receipt < recovered.sequence or decode_body(body).get("before") == TAKEN)
                for site, code, receipt, body in rows
            }
        return {
            site: handed_in.get(site)
            or Participant(released=False, certain=site in known and states.get(site, "rejoined") == "rejoined")
            for site in plan.participants
        }

    def is_imported(self, plan_id: str) -> bool:
        """Whether a round is here because a site recalled it."""
        with self._database.reading() as connection:
            row = connection.execute("SELECT 1 FROM imports WHERE plan_id = ? AND asks", (plan_id,)).fetchone()
        return row is not None

    def unasked(self) -> list[tuple[str, str]]:
        """Imported plans that are no round, and those of trainings that are forgotten, with the training's block."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT plan_id, max(block) FROM imports WHERE charged AND plan_id NOT IN (SELECT plan_id FROM lost)"
                " GROUP BY plan_id HAVING max(block) <> '' OR plan_id NOT IN (SELECT plan_id FROM rounds)"
            )
            return rows.fetchall()

    def lacks_release(self, plan_id: str, site: str) -> bool:
        """Whether a plan has no answer yet, and not what a site released for it either."""
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT 1 FROM submissions WHERE plan_id = ?1 AND site = ?2"
                " UNION ALL SELECT 1 FROM answers WHERE plan_id = ?1",
                (plan_id, site),
            ).fetchone()
        return row is None

    def lose(self, plan_id: str, block: str) -> None:
        """Write down that a plan's answer is lost, and with a block the whole training."""
        with self._database.transaction() as connection:
            if connection.execute("SELECT 1 FROM lost WHERE plan_id = ?", (plan_id,)).fetchone() is None:
                body: Body = {"plan_id": plan_id, "block": block}
                entry = chain.append(connection, self._identity, kind="lost", body=body)
                row = (plan_id, block, entry.sequence)
                connection.execute("INSERT INTO lost (plan_id, block, sequence) VALUES (?, ?, ?)", row)

    def rejoined(self, site: str, head: Head) -> None:
        """Write down that a site has come back, and how far its chain is."""
        with self._database.transaction() as connection:
            body: Body = {
                "site": site,
                "incarnation": incarnation(connection),
                "sequence": head.sequence,
                "digest": head.digest,
            }
            statement = "UPDATE rejoins SET state = 'rejoined' WHERE site = ? AND state <> 'rejoined'"
            if connection.execute(statement, (site,)).rowcount:
                chain.append(connection, self._identity, kind="rejoined", body=body)


def _settled_with_fewer(connection: sqlite3.Connection, least: int) -> list[str]:
    """The plans that were settled with fewer answers than these, or than were required."""
    rows = connection.execute(
        "SELECT plan_id, outcome, coalesce(sites, 0) FROM rounds LEFT JOIN required USING (plan_id)"
        " WHERE state = 'settled' ORDER BY number"
    ).fetchall()
    return [plan_id for plan_id, outcome, required in rows if len(json.loads(outcome)[0]) < max(least, required)]


def _state(connection: sqlite3.Connection, site: str) -> RejoinState | None:
    row = connection.execute("SELECT state FROM rejoins WHERE site = ?", (site,)).fetchone()
    return None if row is None else RejoinState(row[0])


def _shown_incarnation(connection: sqlite3.Connection) -> int:
    """The highest incarnation of the receipts that this ledger was found to lack."""
    rows = connection.execute("SELECT body FROM lacking")
    return max((number_in(decode_body(body), "incarnation") for (body,) in rows), default=0)
