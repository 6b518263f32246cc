"""COUNT(*) and COUNT(DISTINCT key): events, or patients.

A patient has so many events at most, and is in so many groups at most; the noised total is the answer itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from wardround.federation.errors import QueryMistaken
from wardround.federation.forms.definition import Definition, Function, MeasuredIn, as_counted
from wardround.federation.forms.parts import Frame, Part, Records, Sums
from wardround.federation.forms.totals import Estimated, Total, estimate
from wardround.federation.question.answer import Estimate
from wardround.federation.question.query import Aggregate, Statistic
from wardround.federation.study.study import Table, Unit

EVENTS = Aggregate(Statistic.COUNT)


def counting(key: str) -> Aggregate:
    """The aggregate that counts each unit once, by its key."""
    return Aggregate(Statistic.COUNT, key)


def units(table: Table, unit: Unit = Unit.PATIENT) -> Aggregate:
    """The aggregate that counts what the study protects: patients by their key, or events."""
    return counting(table.unit_key) if unit is Unit.PATIENT else EVENTS


def check(aggregate: Aggregate, table: Table) -> None:
    """No column, or the unit key."""
    if aggregate.column not in (None, table.unit_key):
        column = table.column(aggregate.column or "")
        way = (
            f"to see which values it has, ask COUNT(*) with GROUP BY {column.name}."
            if column.domain or column.open
            else f"use COUNT(DISTINCT {table.unit_key})."
        )
        raise QueryMistaken(f"only {table.unit_key!r} can be counted as COUNT(DISTINCT …), not {column.name!r}; {way}")


def part(aggregates: tuple[Aggregate, ...], frame: Frame) -> Part:
    """Rows or patients by group."""
    if aggregates[0].column is None:
        norm = frame.rows * frame.one
        records, squared = Records.ROWS, norm**2
    else:
        norm = frame.max_groups * frame.one
        records, squared = Records.UNITS, norm * frame.one
    return frame.part(aggregates, records, Sums.COUNT, l1_sensitivity=norm, l2_sensitivity_squared=squared, columns=())


def estimates(total: Total) -> Iterator[Estimate]:
    """The total of each group; its error is the noise's alone and the same for all."""
    grid = total.part.grid
    error = total.noise.deviation * float(grid)
    reach = total.noise.critical * error
    for group, (number,) in total.groups:
        # Python's division of integers is correctly rounded, so a noiseless total is exact.
        value = number * grid.numerator / grid.denominator
        found = Estimated(value, error, (value - reach, value + reach))
        yield estimate(total.part.aggregates[0], group, found, place=total.place)


def typical(part: Part, number: float) -> list[int]:
    """All in the first of several counts."""
    return [round(number * part.increment), *([0] * (part.coordinates - 1))]


def counted(column: str | None, name: str) -> str:
    """`COUNT(*)` or `COUNT(DISTINCT key)`."""
    return f"{name}(*)" if column is None else f"{name}(DISTINCT {column})"


COUNT = Definition(
    statistic=Statistic.COUNT,
    functions=(Function("COUNT", "COUNT(*)"),),
    check=check,
    part=part,
    coordinates=as_counted,
    estimates=estimates,
    columns=(0, 1),
    text=lambda aggregate, name, _: counted(aggregate.column, name),
    label_of_column=counted,
    measure=MeasuredIn.RECORDS,
)
