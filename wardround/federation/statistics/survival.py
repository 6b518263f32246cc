"""KAPLAN_MEIER(time, event): S(t) from noised counts, a band that holds sampling and noise, R(t), and the median.

A unit has one record in a group, its latest time and whether the event happened then, and so moves one count by one.
The curve is the product of 1 − d/R over the times, R being all that are still there. Its noise is carried through the
product to first order, because one noised count changes R at every earlier time (PROOFS.md#survival).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from wardround.federation.errors import QueryMistaken
from wardround.federation.forms.definition import (
    ORDERED,
    Definition,
    Drawing,
    Function,
    MeasuredIn,
    Number,
    TermKind,
    TermLayout,
    as_counted,
    half_of_interval,
    need_number,
)
from wardround.federation.forms.grids import Quantiser, time_coding
from wardround.federation.forms.parts import Frame, Part, Records
from wardround.federation.forms.totals import Estimated, Floats, Total, TotalNoise, Unknown, estimate, number_text
from wardround.federation.question.answer import Estimate, NoEstimate
from wardround.federation.question.query import Aggregate, Statistic
from wardround.federation.study.study import ColumnType, Table

_LARGEST_LOG = 700.0
_HALF = 0.5
_MEDIAN = "median"
_AT_RISK = "at risk"
_ALMOST = 0.999
_BELOW, _ABOVE = 0.5, 0.2
"""How the two sides of a band change with 1 − g; bench/coverage.py says what they cover."""


def check(aggregate: Aggregate, table: Table) -> None:
    """A time with public bounds, and whether the event happened."""
    first, second = (table.column(name) for name in aggregate.columns)
    if first.type is ColumnType.BOOLEAN and second.type in ORDERED:
        raise QueryMistaken(f"the time comes first; write KAPLAN_MEIER({second.name}, {first.name}).")
    need_number(aggregate, aggregate.column or "", table, ORDERED, what="the time of a survival curve")
    event = table.column(aggregate.others[0])
    if event.type is not ColumnType.BOOLEAN:
        flags = [each.name for each in table.columns if each.type is ColumnType.BOOLEAN]
        known = f", such as {flags[0]}" if flags else ""
        raise QueryMistaken(f"{event.name!r} says whether the event happened; it must be a boolean column{known}.")


def part(aggregates: tuple[Aggregate, ...], frame: Frame) -> Part:
    """At each time, how many were cut off and how many had the event."""
    quantiser, coding = time_coding(frame.column(aggregates[0]), bins=aggregates[0].bins)
    event = Quantiser(Fraction(0), Fraction(1), 0, 1)
    return frame.coded(aggregates, (quantiser, event), coding, records=Records.LAST, coordinates=2 * coding.codes)


@dataclass(frozen=True, slots=True)
class SurvivalCurve:
    """The share still without the event after each time, its error and its band.

    From `lost` on nobody may be left, and there is only the band: a curve does not rise.
    """

    share: Floats
    error: Floats
    lower: Floats
    upper: Floats
    lost: int

    def at(self, place: int) -> Estimated | Unknown:
        """The share after one of the times."""
        ends = (float(self.lower[place]), float(self.upper[place]))
        # A curve that has come to nought stays there, whoever is left.
        if place < self.lost or (self.lost and self.share[place] <= 0.0):
            return Estimated(float(self.share[place]), float(self.error[place]), ends)
        return Unknown(NoEstimate.NOBODY_LEFT if self.lost else NoEstimate.TOO_FEW, ends)


def estimates(total: Total) -> Iterator[Estimate]:
    """The curve of each group, time by time, who is still at risk then, and the median time if the curve reaches it."""
    aggregate, times = total.part.aggregates[0], times_of(total.part)
    grid = float(total.part.grid)
    noise = total.noise.scaled(grid)
    names = [number_text(time) for time in times]
    alone = total.part.quantisers[0].high == len(times) - 1
    for group, line in zip(total.labels, total.matrix * grid, strict=True):
        curve = curve_of(line[0::2], line[1::2], noise)
        for number, name in enumerate(names):
            yield estimate(aggregate, group, curve.at(number), place=total.place, term=name, sampling=True)
        for name, left in zip(names, at_risk(line[0::2] + line[1::2], noise), strict=True):
            yield estimate(aggregate, group, left, place=total.place, term=f"{name} {_AT_RISK}")
        if (curve.share[: curve.lost] <= _HALF).any():
            early, middle, late = (_reached(line) for line in (curve.lower, curve.share, curve.upper))
            # A time of its own stands for itself; a longer one began where the one before it ended.
            ends = (times[early] if alone else times[max(early - 1, 0)], times[late])
            error = (ends[1] - ends[0]) / (2.0 * noise.wide)
            found = Estimated(times[middle], error, ends)
            yield estimate(aggregate, group, found, place=total.place, term=_MEDIAN, sampling=True)


def times_of(part: Part) -> list[float]:
    """The time each code stands for: the last one it holds."""
    quantiser, coding = part.quantisers[0], part.codes
    return [float(quantiser.value(min(place * coding.width, quantiser.high))) for place in range(coding.codes)]


def at_risk(leaving: Floats, noise: TotalNoise) -> list[Estimated]:
    """How many have not left before each time, from those who leave at it: no fewer than none, and of noise alone."""
    numbers, deviations = _staying(leaving, noise)
    return [
        Estimated(number, error, (max(number - noise.wide * error, 0.0), number + noise.wide * error))
        for number, error in zip(np.maximum(numbers, 0.0).tolist(), deviations.tolist(), strict=True)
    ]


def _staying(leaving: Floats, noise: TotalNoise) -> tuple[Floats, Floats]:
    """R at each time, all counts from it on, and its deviation: two noises for each of those times."""
    times = np.arange(len(leaving), 0, -1)
    return np.cumsum(leaving[::-1])[::-1], noise.deviation * np.sqrt(2.0 * times)


def curve_of(censored: Floats, events: Floats, noise: TotalNoise) -> SurvivalCurve:
    """The curve of one group from its counts at each time.

    Factors above 1 stay in the product: cutting each of them off would bend the whole curve downwards. Only what is
    shown is brought into order. From the first time on at which the noise may be all that is left, nothing is claimed.
    """
    risk, deviations = _staying(censored + events, noise)
    size = len(risk)
    sd, critical = noise.deviation, noise.wide
    unsure = risk <= critical * deviations
    lost = int(np.argmax(unsure)) if unsure.any() else size
    safe = np.where(np.arange(size) < lost, risk, 1.0)
    died = np.where(np.arange(size) < lost, events, 0.0)
    factor = np.clip(1.0 - died / safe, 0.0, 2.0)
    nobody = np.maximum.accumulate(factor <= 0.0)
    logs = np.cumsum(np.log(np.where(factor > 0.0, factor, 1.0)))
    share = np.where(nobody, 0.0, np.exp(np.clip(logs, -_LARGEST_LOG, _LARGEST_LOG)))
    # Fewer than one record is none; the error of a curve that has ended is that of its last step.
    left = np.maximum(safe - died, np.maximum(sd, 1.0))
    greenwood = np.cumsum(np.maximum(died, 0.0) / (safe * left))
    pull = np.cumsum(died / (safe * left))
    later = np.arange(size - 1, -1, -1)
    noised = np.cumsum((pull - 1.0 / left) ** 2 + pull**2) + 2.0 * later * pull**2
    relative = np.sqrt(greenwood + sd * sd * noised)
    return _shown(share, relative, lost, critical, _known(risk, deviations, lost, noise))


def _known(risk: Floats, deviations: Floats, lost: int, noise: TotalNoise) -> Floats:
    """1 − g at each time, g as in Fieller's interval of a ratio: 1 where those at risk are far clear of the noise.

    Where they are hardly clear, the curve is shown because noise made them more than they are, and so the curve higher
    than it is: its band reaches farther down, and less far up.
    """
    found = np.ones(len(risk))
    if noise.deviation > 0.0:
        clearances = np.minimum.accumulate(risk[:lost] / deviations[:lost])
        found[:lost] = 1.0 - np.minimum(noise.wide / clearances, _ALMOST) ** 2
    return found


def _shown(share: Floats, relative: Floats, lost: int, critical: float, known: Floats) -> SurvivalCurve:
    """The curve in order: falling, within [0, 1], and silent from `lost` on."""
    raw = np.minimum(share, 2.0)
    error = np.minimum(raw * relative, 0.5)
    reach = critical * raw * relative
    lower, upper = raw - reach * known**-_BELOW, raw + reach * known**_ABOVE
    falling = (np.minimum.accumulate(raw) + np.maximum.accumulate(raw[::-1])[::-1]) / 2
    falling, lower, upper = (np.clip(line, 0.0, 1.0) for line in (falling, lower, upper))
    # A curve at nought says nothing about how soon it got there: the band keeps its last upper end.
    ended = np.maximum.accumulate(share <= 0.0)
    silent = ended | (np.arange(len(share)) >= lost)
    first = int(np.argmax(silent)) if silent.any() else len(share)
    if first < len(share):
        upper[first:] = upper[first - 1] if first else 1.0
        lower[first:] = 0.0
        falling[lost:] = falling[lost - 1] if lost else 1.0
        error[first:] = np.maximum((upper[first:] - lower[first:]) / 2.0, error[first:])
        if lost:
            error[lost:] = np.minimum(error[lost:], 0.5)
    return SurvivalCurve(falling, error, lower, upper, lost)


def _reached(line: Floats) -> int:
    """The place of the first time at which half are gone; the last of all when that is never seen."""
    gone = line <= _HALF
    return int(np.argmax(gone)) if gone.any() else len(line) - 1


def typical(part: Part, number: float) -> list[int]:
    """Nobody cut off, and as many events at each time."""
    half = part.coordinates // 2
    return [count for _ in range(half) for count in (0, round(number * part.increment / half))]


def nearest_to_half(estimates: Sequence[Estimate], place: int) -> Estimate:  # noqa: ARG001
    """The share that is nearest to a half."""
    curve = [estimate for estimate in estimates if estimate.sampling and estimate.term != _MEDIAN]
    return min(curve, key=lambda estimate: math.inf if estimate.value is None else abs(estimate.value - _HALF))


def half_width(estimate: Estimate) -> float:
    """Half of the interval; none where it reaches from or to the end of what is possible, and so says hardly anything.

    Beyond, more noise would not make it wider.
    """
    low, high = estimate.interval
    return half_of_interval(estimate) if low > 0.0 and high < 1.0 else math.inf


SURVIVAL = Definition(
    statistic=Statistic.SURVIVAL,
    functions=(Function("KAPLAN_MEIER", "KAPLAN_MEIER({time}, {event}) or KAPLAN_MEIER({time}, {event}, 24)"),),
    check=check,
    part=part,
    coordinates=as_counted,
    estimates=estimates,
    columns=(2, 2),
    number=Number.BINS_IF_ANY,
    typical=typical,
    assumed="the time at which half are left, nobody censored, sampling included",
    stands_for=nearest_to_half,
    half_width=half_width,
    one_number=False,
    terms=TermLayout(kind=TermKind.NUMBER, summary=(_MEDIAN,), further=(_AT_RISK,)),
    drawing=Drawing.STEPS,
    measure=MeasuredIn.NOTHING,
    axis="share without the event",
    limits=(0.0, 1.0),
    aside=((_MEDIAN, "median"),),
    lacking="Numbers at risk are not in this answer.",
)
