"""Which trainings a site has paid for, and which of their rounds are taken.

A training is charged whole by the first of its rounds that is admitted, and each round is taken by one plan: the
same round with other numbers would be a release that nobody paid for. Every function works inside the caller's
transaction.
"""

from __future__ import annotations

import sqlite3

from wardround.federation.errors import PlanRefused
from wardround.federation.plan import Charge

TAKEN = "this round of the training was taken before, with other numbers."


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
    return charge.continued() if begun(connection, charge.block) else charge


def take(connection: sqlite3.Connection, charge: Charge) -> None:
    """Write down that a charged plan has its round."""
    if charge.block:
        row = (charge.block, charge.place, charge.plan_id)
        connection.execute("INSERT INTO steps (block, place, plan_id) VALUES (?, ?, ?)", row)
