"""HISTOGRAM(x, n): how many units' own means lie in each of n intervals, each count with the same noise.

A unit is in one interval of a group. Counts stay as they were released, below zero too: a sum over intervals is then
unbiased.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from wardround.federation.forms.definition import (
    Definition,
    Drawing,
    Function,
    MeasuredIn,
    Number,
    TermKind,
    TermLayout,
    as_counted,
    need_ordered,
)
from wardround.federation.forms.grids import histogram_coding
from wardround.federation.forms.parts import Frame, Part
from wardround.federation.forms.totals import Estimated, Total, estimate, number_text
from wardround.federation.question.answer import Estimate
from wardround.federation.question.query import Aggregate, Statistic


def part(aggregates: tuple[Aggregate, ...], frame: Frame) -> Part:
    """A count for each interval."""
    column, bins = frame.column(aggregates[0]), aggregates[0].bins or 1
    quantiser, coding = histogram_coding(column, rows=frame.rows, bins=bins)
    return frame.coded(aggregates, (quantiser,), coding)


def estimates(total: Total) -> Iterator[Estimate]:
    """The count of each interval of each group."""
    aggregate, grid = total.part.aggregates[0], total.part.grid
    names = interval_terms(total.part)
    error = total.noise.deviation * float(grid)
    reach = total.noise.critical * error
    for group, numbers in total.groups:
        for name, number in zip(names, numbers, strict=True):
            value = number * grid.numerator / grid.denominator
            found = Estimated(value, error, (value - reach, value + reach))
            yield estimate(aggregate, group, found, place=total.place, term=name)


def interval_terms(part: Part) -> list[str]:
    """`[80, 92)` and so on; the last interval holds its upper end."""
    quantiser, bins = part.quantisers[0], part.coordinates
    edges = [number_text(quantiser.value(quantiser.high * place // bins)) for place in range(bins + 1)]
    names = [f"[{lower}, {upper})" for lower, upper in itertools.pairwise(edges)]
    return [*names[:-1], names[-1][:-1] + "]"]


HISTOGRAM = Definition(
    statistic=Statistic.HISTOGRAM,
    functions=(Function("HISTOGRAM", "HISTOGRAM({number}, 20)"),),
    check=need_ordered,
    part=part,
    coordinates=as_counted,
    estimates=estimates,
    number=Number.BINS,
    of_each="of each interval",
    one_number=False,
    terms=TermLayout(kind=TermKind.INTERVAL),
    drawing=Drawing.BARS,
    measure=MeasuredIn.RECORDS,
)
