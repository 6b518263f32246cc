"""Why there is no estimate: a number that is not known is not shown as one.

All of it follows from released numbers and the public law of the noise, so saying it tells nothing more.
"""

from __future__ import annotations

from enum import StrEnum


class NoEstimate(StrEnum):
    """What happened; each member has a sentence that says so, and what to do."""

    TOO_FEW = "too_few"
    NO_SPREAD = "no_spread"
    PREDICTORS_ALIKE = "predictors_alike"
    NOBODY_LEFT = "nobody_left"

    @property
    def sentence(self) -> str:
        """What happened and what to do, for a person."""
        return _SENTENCES[self]


_SENTENCES = {
    NoEstimate.TOO_FEW: (
        "there are so few patients that the noise may be all there is; "
        "ask with a larger ε, widen the cohort, or ask for fewer groups."
    ),
    NoEstimate.NO_SPREAD: (
        "a column varies less than the noise may; "
        "ask with a larger ε, widen the cohort, or narrow the column's bounds (CLAMP)."
    ),
    NoEstimate.PREDICTORS_ALIKE: (
        "the noise hides how the predictors differ from each other; "
        "ask with a larger ε, widen the cohort, take fewer predictors, or narrow their bounds (CLAMP)."
    ),
    NoEstimate.NOBODY_LEFT: (
        "those still followed at that time may be fewer than the noise; "
        "ask with a larger ε, widen the cohort, or ask for fewer intervals of time."
    ),
}
