"""The hospital's own rules, which no coordinator can change: a cap, a cap per plan, what may be asked, who decides."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from wardround.federation.query import Statistic
from wardround.privacy.filter import Cap

TRAINING = "training"
"""The word in `policy.statistics` that allows models to be trained."""


class Approval(StrEnum):
    """Whether a data steward sees every plan before anything is spent."""

    AUTOMATIC = "automatic"
    MANUAL = "manual"


@dataclass(frozen=True, slots=True)
class Policy:
    """What this hospital allows, per dataset and across studies."""

    cap: Cap
    max_epsilon_per_plan: float
    statistics: tuple[Statistic, ...]
    approval: Approval
    training: bool = True
