"""Everything that ever left a site, as the hospital's own auditor reads it.

That a table is closed leaves the site too: its questions are not answered any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from site_agent.serving.folder import open_folder
from site_agent.serving.serve import open_ledger
from site_agent.store.closed_tables import Reason, Turn
from site_agent.store.outbox import HistoryLine
from wardround.privacy.accounting.cost import Cost
from wardround.privacy.budget.filter import epsilon_charged


@dataclass(frozen=True, slots=True)
class Departure:
    """One line: a date, a plan, what kind of thing, how many noised numbers, at what loss, received or not."""

    line: HistoryLine
    epsilon: float
    delta: float

    def document(self) -> dict[str, object]:
        """The line for machines."""
        return {
            "date": self.line.date,
            "plan_id": self.line.plan_id,
            "kind": self.line.kind,
            "values": self.line.values,
            "delivered": self.line.delivered,
            "charged": {"epsilon": self.epsilon, "delta": self.delta},
        }

    def text(self) -> str:
        """The line for people."""
        numbers = "number" if self.line.values == 1 else "numbers"
        what = f"{self.line.values} noised {numbers}" if self.line.kind == "released" else "a refusal"
        state = "received" if self.line.delivered else "not yet received"
        # Numbers that cost nothing would look like a leak.
        prepaid = self.line.kind == "released" and self.line.cost == Cost.zero()
        paid = ", paid with its training's first round" if prepaid else ""
        return f"{self.line.date}  {self.line.plan_id[:16]}  {what:<22} ε = {self.epsilon:<8.4g} {state}{paid}"


@dataclass(frozen=True, slots=True)
class TableTurn:
    """One line: a date, and a table that was closed, or opened again for a reason."""

    turn: Turn

    def document(self) -> dict[str, object]:
        """The line for machines."""
        reason = {"reason": self.turn.reason} if self.turn.reason else {}
        return {"date": self.turn.date, "kind": self.turn.kind, "table": self.turn.table, **reason}

    def text(self) -> str:
        """The line for people."""
        what = {
            "": "was closed: a question could not read it to the end",
            Reason.CHANGED: "was opened again: its source had changed",
            Reason.STEWARD: "was opened again by a steward",
        }
        return f"{self.turn.date}  the table {self.turn.table} {what[self.turn.reason]}"


def departures(path: Path) -> list[Departure | TableTurn]:
    """Everything that left the site in this folder, oldest first."""
    delta = open_folder(path).configuration().policy.cap.delta
    with open_ledger(path) as ledger:
        lines, turns = ledger.history(), ledger.tables.turns()
    found: dict[int, Departure | TableTurn] = {
        line.sequence: Departure(line, epsilon_charged(line.cost, delta=delta), delta if line.cost.mu_squared else 0.0)
        for line in lines
    }
    found |= {turn.sequence: TableTurn(turn) for turn in turns}
    return [found[sequence] for sequence in sorted(found)]
