"""What a hospital says in public about the questions it answers: some words of its site.toml, and nothing of a row.

They help analysts to ask what will be answered. They never decide whether a plan runs: the site asks its own policy,
and a coordinator that changes these words changes no answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from wardround.federation.limits import Finite, Many, Whole, name_of, word_of

TRAINING = "training"
"""The word among statistics that allows models to be trained."""

MAX_STATISTICS = 64


@dataclass(frozen=True, slots=True)
class PublicLimits:
    """Which statistics a hospital allows, the largest ε of one question, and whether a person decides on each.

    The ε of a question is measured at `delta`, the hospital's own δ. Statistics are words, so that one that only a
    later version knows can be said to an earlier one.
    """

    statistics: Annotated[
        tuple[Annotated[str, word_of("a statistic")], ...], Many("a site allows too many statistics.", MAX_STATISTICS)
    ]
    max_epsilon: Annotated[float, Finite("the largest ε a question", lower=0.0)]
    delta: Annotated[float, Finite("δ", lower=0.0, upper=1.0)]
    by_person: bool


@dataclass(frozen=True, slots=True)
class PublicSite:
    """A hospital as analysts see it; without limits where it has not said any.

    One that is not `active` is not asked: its ledger lacks an entry that it once signed.
    """

    name: Annotated[str, name_of("the site's name")]
    patients: Annotated[int, Whole("the number of patients")]
    active: bool
    limits: PublicLimits | None = None
