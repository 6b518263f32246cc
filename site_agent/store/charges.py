"""What a site's ledger says it has charged, plan by plan: what a shared account must hold of it."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from wardround.federation.ledger import chain
from wardround.federation.ledger.body import cost_in, decode_body, facts_in, text_in
from wardround.privacy.blocks import BlockFact, StepFact
from wardround.privacy.loss import Cost


@dataclass(frozen=True, slots=True)
class Charged:
    """One charge; a round of a training has its block and its place, and costs nothing but for the first."""

    plan_id: str
    block: str
    place: int
    cost: Cost


def charged(connection: sqlite3.Connection) -> list[Charged]:
    """Every charge in the chain, in order."""
    return [_charged(decode_body(entry.body)) for entry in chain.of_kind(connection, "charged")]


def _charged(body: dict[str, object]) -> Charged:
    plan_id, cost = text_in(body, "plan_id"), cost_in(body)
    for fact in facts_in(body):
        if isinstance(fact, BlockFact | StepFact):
            return Charged(plan_id, fact.block, fact.place, cost)
    return Charged(plan_id, "", 0, cost)
