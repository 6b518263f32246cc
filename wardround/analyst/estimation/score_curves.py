"""Calibration and the ROC curve of a model, from one noised table of scores and outcomes, with their intervals.

Neighbouring scores are taken together for calibration, because a single cell is mostly noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from wardround.analyst.estimation.fitted import ScoreTable

_SURE = 1.959963984540054
_TOGETHER = 4

Ends = tuple[float, float]


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """A point of a curve with its 95 % interval upwards and across; without a value where the noise may be all."""

    across: float
    value: float | None
    ends: Ends
    across_ends: Ends


def calibration(table: ScoreTable) -> list[CurvePoint]:
    """For patients of similar scores: the chance that was predicted, and the share that had the outcome."""
    found = []
    for begin in range(0, len(table.predicted), _TOGETHER):
        some = slice(begin, begin + _TOGETHER)
        no, yes, cells = float(table.no[some].sum()), float(table.yes[some].sum()), len(table.predicted[some])
        predicted = float(table.predicted[some].mean())
        ends = (float(table.predicted[some].min()), float(table.predicted[some].max()))
        if no + yes <= max(_SURE * table.noise_sd * math.sqrt(2 * cells), 1.0):
            found.append(CurvePoint(predicted, None, (0.0, 1.0), ends))
            continue
        share, reach = _share(yes, no, cells, cells, table.noise_sd)
        found.append(CurvePoint(predicted, share, _within(share, reach), ends))
    return found


def receiver_operating(table: ScoreTable) -> list[CurvePoint]:
    """At each cut between scores, the share above it of those without and with the outcome; empty if unknown."""
    bins = len(table.predicted)
    without, with_outcome = float(table.no.sum()), float(table.yes.sum())
    if min(without, with_outcome) <= max(_SURE * table.noise_sd * math.sqrt(bins), 1.0):
        return []
    found = []
    for above in range(bins + 1):
        shares = []
        for cells, number in ((table.no, without), (table.yes, with_outcome)):
            upper = float(cells[bins - above :].sum()) if above else 0.0
            shares.append(_share(upper, number - upper, above, bins - above, table.noise_sd))
        (wrong, wrong_reach), (right, right_reach) = shares
        found.append(CurvePoint(wrong, right, _within(right, right_reach), _within(wrong, wrong_reach)))
    return found


def _share(part: float, rest: float, cells: int, others: int, noise_sd: float) -> tuple[float, float]:
    """The share of a part that so many noised cells add up to, and how far its interval reaches."""
    number = part + rest
    share = min(max(part / number, 0.0), 1.0)
    noise = noise_sd**2 * (cells * (1.0 - share) ** 2 + others * share**2) / number**2
    return share, _SURE * math.sqrt(noise + share * (1.0 - share) / number)


def _within(share: float, reach: float) -> Ends:
    return max(share - reach, 0.0), min(share + reach, 1.0)
