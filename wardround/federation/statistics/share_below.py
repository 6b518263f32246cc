"""SHARE_BELOW(x, v): the share of units whose own means are at or below a value.

A record has one of two codes, so a unit moves a group by one count. A share is a mean of ones and noughts. A search for
a single quantile asks it again and again.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from wardround.federation.errors import QueryMistaken
from wardround.federation.forms.definition import (
    AT_A_BOUND,
    Definition,
    Function,
    MeasuredIn,
    Number,
    as_counted,
    down_to_interval,
    need_ordered,
)
from wardround.federation.forms.grids import below_coding
from wardround.federation.forms.parts import Frame, Part, exact_number, narrowed
from wardround.federation.forms.totals import Total, estimate, number_text
from wardround.federation.question.answer import Estimate
from wardround.federation.question.query import Aggregate, Statistic
from wardround.federation.statistics.count import typical
from wardround.federation.statistics.mean import two_sided
from wardround.federation.statistics.quantile import finite_level
from wardround.federation.study.study import Table


def check(aggregate: Aggregate, table: Table) -> None:
    """One column of numbers, and a value within its bounds."""
    need_ordered(aggregate, table)
    level = finite_level(aggregate)
    lower, upper = narrowed(table.column(aggregate.column or ""), aggregate).numeric_bounds or (0, 0)
    if not lower <= exact_number(level) <= upper:
        raise QueryMistaken(
            f"{level:g} is outside the bounds {float(lower):g} to {float(upper):g} of {aggregate.column!r}; "
            "write a number between them."
        )


def part(aggregates: tuple[Aggregate, ...], frame: Frame) -> Part:
    """How many are at or below the value, and how many above."""
    column, value = frame.column(aggregates[0]), aggregates[0].level or 0.0
    quantiser, coding = below_coding(column, rows=frame.rows, value=value)
    return frame.coded(aggregates, (quantiser,), coding)


def estimates(total: Total) -> Iterator[Estimate]:
    """The share of records at or below the question's value."""
    aggregate = total.part.aggregates[0]
    for group, (below, above) in total.groups:
        found = two_sided(below, above, Fraction(0), Fraction(1), total.noise)
        yield estimate(aggregate, group, found, place=total.place, term=number_text(aggregate.level or 0.0))


SHARE_BELOW = Definition(
    statistic=Statistic.BELOW,
    functions=(Function("SHARE_BELOW", "SHARE_BELOW({number}, {middle})"),),
    check=check,
    part=part,
    coordinates=as_counted,
    estimates=estimates,
    number=Number.LEVEL,
    typical=typical,
    assumed=f"a share {AT_A_BOUND}",
    half_width=down_to_interval,
    text=lambda aggregate, name, operands: f"{name}({operands}, {aggregate.level!r})",
    measure=MeasuredIn.NOTHING,
    axis="share of patients",
)
