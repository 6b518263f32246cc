"""SUM(x): the values of rows, of each unit at most so many, added up on a grid that holds the column's steps."""

from __future__ import annotations

from wardround.federation.forms.definition import Definition, Function, need_numbers
from wardround.federation.forms.grids import sum_quantiser
from wardround.federation.forms.parts import Frame, Part, Records, Sums, Tally
from wardround.federation.question.query import Aggregate, Statistic
from wardround.federation.statistics.count import estimates


def part(aggregates: tuple[Aggregate, ...], frame: Frame) -> Part:
    """Σq over the rows that count: a unit moves it by so many times the largest level."""
    quantiser = sum_quantiser(frame.column(aggregates[0]))
    largest = max(abs(quantiser.low), abs(quantiser.high))
    norm = frame.rows * largest
    return frame.part(
        aggregates,
        Records.ROWS,
        Sums.LEVELS,
        coordinates=1,
        grid=1 / quantiser.per_unit,
        increment=1,
        l1_sensitivity=norm,
        l2_sensitivity_squared=norm**2,
        largest=largest,
        quantisers=(quantiser,),
    )


def coordinates(part: Part, tally: Tally) -> Tally:  # noqa: ARG001
    """The sum itself."""
    return tally


SUM = Definition(
    statistic=Statistic.SUM,
    functions=(Function("SUM"),),
    check=need_numbers,
    part=part,
    coordinates=coordinates,
    estimates=estimates,
    never_below_nought=lambda part: [part.quantisers[0].low >= 0],
)
