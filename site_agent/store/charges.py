"""What a site has paid for: plans, and trainings with the rounds that are taken; and whether it is frozen.

A training is charged whole by the first of its rounds that is admitted, and each round is taken by one plan: the
same round with other numbers would be a release that nobody paid for. Once a ledger is proved to lack an entry that it
signed, it is frozen and signs nothing any more. Every function works inside the caller's transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

from wardround.federation.errors import ConfigurationMistaken, LedgerCorrupt, PlanRefused, SiteFrozen, UnprovedHead
from wardround.federation.ledger import chain
from wardround.federation.ledger.entry_body import (
    Plain,
    cap_in,
    cost_body,
    cost_in,
    decode_body,
    facts_body,
    facts_in,
    text_in,
)
from wardround.federation.plan.plan import Charge
from wardround.federation.trust.entry import Entry, Head
from wardround.federation.trust.identity import Identity
from wardround.privacy.accounting.cost import Cost
from wardround.privacy.budget.facts import AnyFact, BlockFact, StepFact
from wardround.privacy.budget.filter import Cap

TAKEN = "this round of the training was already charged with other numbers."


@dataclass(frozen=True, slots=True)
class Charged:
    """One charge; a round of a training has its block and its place, and costs nothing but for the first."""

    plan_id: str
    block: str
    place: int
    cost: Cost


LOST = (
    "this training began before the site's ledger was recovered, so its rounds may be used up; start it again with "
    "--fresh, which is charged again."
)


def charged(connection: sqlite3.Connection) -> list[Charged]:
    """Every charge in the chain, in order, and after them what recoveries charged for plans that nobody knows."""
    known = [_charged(decode_body(entry.body)) for entry in chain.of_kind(connection, "charged")]
    recovered = chain.of_kind(connection, "recovered")
    return known + [Charged(f"recovered {e.sequence}", "", 0, cost_in(decode_body(e.body))) for e in recovered]


def cap_in_force(connection: sqlite3.Connection) -> Cap:
    """The site's cap; `ConfigurationMistaken` before the first."""
    entry = chain.last(connection, "capped")
    if entry is None:
        raise ConfigurationMistaken("the site has no budget yet; [policy] in site.toml sets it.")
    return cap_in(decode_body(entry.body))


def is_abandoned(connection: sqlite3.Connection, plan_id: str) -> bool:
    """Whether a plan was paid before a recovery: its release may have left, and noise is not drawn twice for it."""
    recovered = chain.last(connection, "recovered")
    row = connection.execute("SELECT sequence FROM charges WHERE plan_id = ?", (plan_id,)).fetchone()
    return recovered is not None and row is not None and int(row[0]) < recovered.sequence


def is_paid(connection: sqlite3.Connection, plan_id: str) -> bool:
    """Whether a plan was paid for."""
    return _paid(connection, plan_id) is not None


def facts_paid(connection: sqlite3.Connection, plan_id: str) -> tuple[AnyFact, ...] | None:
    """The facts that were paid for, or None when nothing was."""
    body = _paid(connection, plan_id)
    return None if body is None else facts_in(body)


def begun(connection: sqlite3.Connection, block: str) -> bool:
    """Whether the training is paid for."""
    return connection.execute("SELECT 1 FROM steps WHERE block = ? LIMIT 1", (block,)).fetchone() is not None


def due(connection: sqlite3.Connection, charge: Charge) -> Charge:
    """What is still to pay for a plan: of a training that is paid for, nothing.

    Raises:
        PlanRefused: another plan has taken this round.
    """
    if not charge.block:
        return charge
    key = (charge.block, charge.place)
    if connection.execute("SELECT 1 FROM steps WHERE block = ? AND place = ?", key).fetchone() is not None:
        raise PlanRefused(TAKEN)
    first = connection.execute("SELECT plan_id FROM steps WHERE block = ?", (charge.block,)).fetchall()
    if any(is_abandoned(connection, plan_id) for (plan_id,) in first):
        raise PlanRefused(LOST)
    return charge.continued() if begun(connection, charge.block) else charge


def store_charge(
    connection: sqlite3.Connection, identity: Identity, charge: Charge, *, account: str, asked: Mapping[str, Plain]
) -> None:
    """Write a signed charge with who `asked` and approved it, and that a round of a training has its plan."""
    body: dict[str, Plain] = {
        "plan_id": charge.plan_id,
        "account": account,
        "facts": facts_body(charge.facts),
        **cost_body(charge.cost),
        **asked,
    }
    entry = chain.append(connection, identity, kind="charged", body=body)
    connection.execute("INSERT INTO charges (plan_id, sequence) VALUES (?, ?)", (charge.plan_id, entry.sequence))
    if charge.block:
        row = (charge.block, charge.place, charge.plan_id)
        connection.execute("INSERT INTO steps (block, place, plan_id) VALUES (?, ?, ?)", row)


def entry_about(
    connection: sqlite3.Connection, plan_id: str, sequence: int, *, kind: str
) -> tuple[Entry, Mapping[str, object]]:
    """The entry that a plan's row names, and what it says."""
    entry = chain.entry_at(connection, sequence)
    if entry is not None and entry.kind == kind:
        body = decode_body(entry.body)
        if body.get("plan_id") == plan_id:
            return entry, body
    raise LedgerCorrupt(private=f"entry {sequence} is not about the plan that its row names")


def _paid(connection: sqlite3.Connection, plan_id: str) -> Mapping[str, object] | None:
    """What the entry says that paid for a plan, if one did."""
    row = connection.execute("SELECT sequence FROM charges WHERE plan_id = ?", (plan_id,)).fetchone()
    return None if row is None else entry_about(connection, plan_id, row[0], kind="charged")[1]


def _charged(body: dict[str, object]) -> Charged:
    plan_id, cost = text_in(body, "plan_id"), cost_in(body)
    for fact in facts_in(body):
        if isinstance(fact, BlockFact | StepFact):
            return Charged(plan_id, fact.block, fact.place, cost)
    return Charged(plan_id, "", 0, cost)


def frozen_reason(connection: sqlite3.Connection) -> str | None:
    """Why the ledger is frozen, or None."""
    entry = chain.last(connection, "frozen")
    return None if entry is None else text_in(decode_body(entry.body), "reason")


def refuse_if_frozen(connection: sqlite3.Connection) -> None:
    """`SiteFrozen` where the ledger is."""
    if frozen_reason(connection) is not None:
        raise SiteFrozen


def refuse_unless_contained(connection: sqlite3.Connection, head: Head) -> None:
    """`UnprovedHead` where the chain lacks a place that a task names; nothing follows from that alone."""
    refuse_if_frozen(connection)
    if not chain.contains(connection, head):
        raise UnprovedHead


def freeze_if_proved(connection: sqlite3.Connection, identity: Identity, proof: Entry) -> bool:
    """Freeze the ledger if its chain lacks an entry under its own signature; whether it is frozen now.

    The caller commits before it raises. Anybody can name a place; only this site could sign the entry there.
    """
    if frozen_reason(connection) is not None:
        return True
    if chain.contains(connection, proof.head) or not proof.signed_by(identity.public):
        return False
    reason = "the chain does not contain an entry that this site signed and the coordinator holds"
    body: dict[str, Plain] = {"reason": reason, "sequence": proof.sequence, "digest": proof.digest}
    chain.append(connection, identity, kind="frozen", body=body)
    return True
