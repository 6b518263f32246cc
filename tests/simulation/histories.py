"""Random histories of a federation, with a copy of every role after each of their steps."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

from coordinator.members.enrolment import make_invitation
from coordinator.members.folder import open_folder
from coordinator.members.roster import Roster
from tests.roles.enrolled import NOW
from tests.simulation.recovering import AGES, COUNT, TRUTH, Restored
from wardround.federation.errors import FederationError

QUESTIONS = (COUNT, AGES, "SELECT code, COUNT(*) FROM visits GROUP BY code")
STEWARD = "three"


@dataclass
class History:
    """What happened, step by step; `copies` are of all roles, after each step."""

    stage: Restored
    chance: random.Random
    log: list[str] = field(default_factory=list)
    copies: list[dict[str, Path]] = field(default_factory=list)
    revoked: set[str] = field(default_factory=set)
    newcomer: str = "eve"
    analysts: int = 0

    def run(self, steps: int) -> None:
        kinds = (*[self.ask] * 5, self.decide, self.decide, self.revoke, self.invite)
        for _ in range(steps):
            self.chance.choice(kinds)()
            self.copies.append({name: self.stage.copy(name) for name in ("consortium", *TRUTH)})

    def ask(self) -> None:
        """A question, with somebody away more often than not; one in four costs more than a hospital allows."""
        self.stage.away = set(self.chance.sample(list(TRUTH), self.chance.choice((0, 0, 1, 1, 2))))
        epsilon = self.chance.choice((0.25, 0.5, 0.75, 6.0))
        question, fresh = self.chance.choice(QUESTIONS), self.chance.random() < 0.3
        self.log.append(f"ask {question!r} at {epsilon}, without {sorted(self.stage.away)}")
        try:
            self.stage.ask(question, epsilon=epsilon, fresh=fresh)
        except FederationError as error:
            self.log.append(f"  {error.code}")
        self.stage.away = set()
        if self.chance.random() < 0.5:
            self.stage.settle()

    def decide(self) -> None:
        """The steward says yes or no to what waits."""
        ledger = self.stage.agents[STEWARD].ledger
        for request in ledger.requests():
            if request.state.value == "pending" and self.chance.random() < 0.7:
                approve = self.chance.random() < 0.7
                ledger.decide(request.plan_id, approve=approve, by="mary")
                self.log.append(f"{'approve' if approve else 'deny'} {request.plan_id[:8]}")
        if self.chance.random() < 0.5:
            self.stage.settle()

    def revoke(self) -> None:
        """An analyst joins, and the one before is revoked."""
        roster = Roster(self.stage.coordinator.ledger)
        if self.analysts:
            self.revoked.add(f"{self.newcomer}{self.analysts}")
            roster.revoke(f"{self.newcomer}{self.analysts}")
        self.analysts += 1
        roster.add_analyst(f"{self.newcomer}{self.analysts}")

    def invite(self) -> None:
        """A hospital is invited and does not come."""
        make_invitation(open_folder(self.stage.folder / "consortium"), "four", now=NOW)
