"""The hospital's own rules, which no coordinator can change.

Caps, what may be asked, in what company, who decides, and how much memory a question may take.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from site_agent.answering.memory_check import Room
from wardround.federation.question.query import Statistic
from wardround.privacy.budget.filter import Cap

TRAINING = "training"
"""The word in `policy.statistics` that allows models to be trained."""


class Approval(StrEnum):
    """Whether a data steward sees every plan before anything is spent."""

    AUTOMATIC = "automatic"
    MANUAL = "manual"


@dataclass(frozen=True, slots=True)
class Policy:
    """What this hospital allows, per dataset and across studies.

    `min_sites` is the least number of participants that a plan must name for this site to be one of them.
    """

    cap: Cap
    max_epsilon_per_plan: float
    statistics: tuple[Statistic, ...]
    approval: Approval
    training: bool = True
    min_sites: int = 1
    room: Room = field(default_factory=Room)

    def text(self) -> str:
        """What one plan is held to, in a few words."""
        sites = "1 site" if self.min_sites == 1 else f"{self.min_sites} sites"
        return f"{self.max_epsilon_per_plan:g} a plan, with {sites} or more, approval {self.approval.value}"
