"""What a statistic is: everything that is particular to one of them, in one record.

The SQL reader, the builder, the wording, the form of an answer, the site's tally, the coordinator's estimates, the dry
run and the pictures read these records and know no statistic by name. A hospital loads all of a statistic's file and
runs what it needs before rows are read (`check`, `part`) and after (`coordinates`); the rest sees noised totals only
and is run by the coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from wardround.federation.errors import QueryMistaken
from wardround.federation.forms.parts import AnswerLayout, Frame, Part, Tally
from wardround.federation.forms.release import Release
from wardround.federation.forms.totals import NoiseSetting, Total
from wardround.federation.question.answer import Estimate
from wardround.federation.question.query import Aggregate, Grouping, Statistic
from wardround.federation.study.study import ColumnType, Table
from wardround.privacy.budget.facts import AnyFact

EVEN = "values spread evenly over their bounds"
AT_A_BOUND = "near a bound, where the error is largest"


class Number(StrEnum):
    """What a number behind the columns of an aggregate is."""

    NONE = "none"
    LEVEL = "level"
    BINS = "bins"
    BINS_IF_ANY = "bins_if_any"


class Drawing(StrEnum):
    """What a picture makes of the numbers of an aggregate."""

    POINTS = "points"
    BARS = "bars"
    STEPS = "steps"
    TABLE = "table"


class MeasuredIn(StrEnum):
    """What a number is measured in: its column's unit or the square of it, records, or nothing."""

    COLUMN = "column"
    SQUARE = "square"
    RECORDS = "records"
    NOTHING = "nothing"


class TermKind(StrEnum):
    """What tells the numbers of one group apart."""

    NAME = "name"
    NUMBER = "number"
    INTERVAL = "interval"


@dataclass(frozen=True, slots=True)
class TermLayout:
    """How the numbers of one group are laid out where there are several: a row for each term.

    `heading` stands over the terms; where it is empty, the statistic's own column does. The terms of `summary` are of
    another kind and stand beside each other. With `crossed`, counts of its two columns against each other follow. A
    term that ends in one of `further` is one more number of the row before it: with `at risk`, `24 at risk` of `24`.
    """

    heading: str = ""
    kind: TermKind = TermKind.NAME
    summary: tuple[str, ...] = ()
    crossed: bool = False
    further: tuple[str, ...] = ()

    def parted(self, term: str) -> tuple[str, str]:
        """The row of a term, and which further number of that row it is, if any."""
        return next(
            ((term.removesuffix(f" {each}"), each) for each in self.further if term.endswith(f" {each}")), (term, "")
        )


@dataclass(frozen=True, slots=True)
class Function:
    """A name that SQL has for a statistic; `level` is the number behind its columns where the name says it already.

    `form` is how it is written, where that is more than one number between brackets: with places for names of a study
    such as `{number}`, `{grouped}` or `{time}`, which the SQL reader fills.
    """

    name: str
    form: str = ""
    level: float | None = None


@dataclass(frozen=True, slots=True)
class Received:
    """Releases that are no vectors to add up: keys that passed a threshold, or votes, by the fact that paid for them.

    `patients` are the numbers that the sites declared.
    """

    form: AnswerLayout
    releases: Sequence[Release]
    fact: AnyFact
    setting: NoiseSetting
    patients: Mapping[str, int]


def written(aggregate: Aggregate, name: str, operands: str) -> str:
    """`NAME(columns)`, with the number of intervals where there is one."""
    return f"{name}({operands})" if aggregate.bins is None else f"{name}({operands}, {aggregate.bins})"


def by_itself(aggregate: Aggregate) -> Hashable:
    """The key of an aggregate that shares its integers with no other."""
    return aggregate


def as_counted(part: Part, tally: Tally) -> Tally:
    """Counts on their grid."""
    return part.increment * tally


def all_counts(part: Part) -> list[bool]:
    """Every coordinate adds up what is never below nought."""
    return [True] * part.coordinates


def at_place(estimates: Sequence[Estimate], place: int) -> Estimate:
    """Where every aggregate of a part has one number."""
    return estimates[place]


def half_of_interval(estimate: Estimate) -> float:
    """Where the interval lies around the number."""
    return (estimate.interval[1] - estimate.interval[0]) / 2


def down_to_interval(estimate: Estimate) -> float:
    """Where the number is at its upper bound, which cuts the interval off: as far as it goes below."""
    return (estimate.value or 0.0) - estimate.interval[0]


def the_first(estimates: Sequence[Estimate], place: int) -> Estimate:  # noqa: ARG001
    """Where the first of several numbers stands for all."""
    return estimates[0]


@dataclass(frozen=True, slots=True)
class Definition:
    """One statistic; the first of `functions` is the name that people see."""

    statistic: Statistic
    functions: tuple[Function, ...]
    # What it needs of its columns and its number: returns, or raises `QueryMistaken` in one sentence.
    check: Callable[[Aggregate, Table], None]
    # Which integers answer it, on which grid and within which norms; and they from what a source adds up.
    part: Callable[[tuple[Aggregate, ...], Frame], Part]
    coordinates: Callable[[Part, Tally], Tally]
    # From noised totals to numbers with their errors: aggregate by aggregate, group by group, term by term.
    estimates: Callable[[Total], Iterable[Estimate]]

    columns: tuple[int, int] = (1, 1)
    number: Number = Number.NONE
    # Whether it is a question of its own, without other aggregates and without groups.
    alone: bool = False
    # Aggregates with equal keys share their integers, and so do the statistics of the same column that it absorbs.
    together: Callable[[Aggregate], Hashable] = by_itself
    absorbs: tuple[Statistic, ...] = ()
    # Which coordinates of a group add up what is never below nought: of an honest site only noise is.
    never_below_nought: Callable[[Part], list[bool]] = all_counts

    # The dry run: the integers of so many records in one group, what they are like, and the one number that stands for
    # all. Without `typical` the error is the noise's alone, whatever the cohort, `of_each` of its numbers.
    typical: Callable[[Part, float], list[int]] | None = None
    assumed: str = ""
    of_each: str = ""
    half_width: Callable[[Estimate], float] = half_of_interval
    stands_for: Callable[[Sequence[Estimate], int], Estimate] = at_place

    # As SQL, from the aggregate, its name and its operands; over a number; over one of which only the column is known.
    text: Callable[[Aggregate, str, str], str] = written
    label: Callable[[Aggregate, str, str], str] | None = None
    label_of_column: Callable[[str | None, str], str] = lambda column, name: f"{name}({column})"
    # Whether groups can be compared by it; whether its term is a second column; how several numbers of a group are laid
    # out.
    one_number: bool = True
    pairs: bool = False
    terms: TermLayout = TermLayout()
    # How it is drawn, along which axis and within which limits; what its terms are, which numbers of a column are drawn
    # beside each other, and which of the last terms are only told, in which words.
    drawing: Drawing = Drawing.POINTS
    measure: MeasuredIn = MeasuredIn.COLUMN
    axis: str = ""
    limits: tuple[float, float] | None = None
    term_axis: str = ""
    beside: str = ""
    aside: tuple[tuple[str, str], ...] = ()
    # What to say where a picture lacks the further numbers that a reader looks for.
    lacking: str = ""

    # Releases that are no noised vector: keys above a threshold, or where `votes` a vote of each site. What makes one
    # plan better than another (the less the better), and the error and the note of a dry run.
    selects_keys: bool = False
    votes: bool = False
    from_releases: Callable[[Received], Iterable[Estimate]] | None = None
    merit: Callable[[AnyFact, Part, int], float] | None = None
    promise: Callable[[AnyFact, Part, int], str] | None = None


NUMERIC = (ColumnType.INTEGER, ColumnType.NUMBER, ColumnType.BOOLEAN)
ORDERED = (ColumnType.INTEGER, ColumnType.NUMBER)


def need_number(
    aggregate: Aggregate, name: str, table: Table, types: tuple[ColumnType, ...], *, what: str | None = None
) -> None:
    """Refuse a column that is no number with public bounds."""
    word, column = aggregate.statistic.value, table.column(name)
    if column.type not in types:
        fitting = [each.name for each in table.columns if each.type in types and each.numeric_bounds is not None]
        known = f", such as {fitting[0]}" if fitting else ""
        raise QueryMistaken(
            f"{column.name!r} is of type {column.type.value}; {what or f'a {word}'} needs numbers{known}."
        )
    if column.numeric_bounds is None:
        raise QueryMistaken(
            f"the study declares no bounds for {column.name!r}, so a {word} of it cannot be "
            "private; the consortium must add lower and upper to the study."
        )


def need_numbers(aggregate: Aggregate, table: Table) -> None:
    """Every column is a number, or yes and no, with public bounds."""
    for name in aggregate.columns:
        need_number(aggregate, name, table, NUMERIC)


def need_ordered(aggregate: Aggregate, table: Table) -> None:
    """One column of numbers with public bounds."""
    need_number(aggregate, aggregate.column or "", table, ORDERED)


def need_public_values(aggregate: Aggregate, table: Table) -> None:
    """Every column has a public list of values."""
    for name in aggregate.columns:
        if table.column(name).open:
            raise QueryMistaken(
                f"the values of {name!r} are not public; ask COUNT(DISTINCT {table.unit_key}) with GROUP BY {name}."
            )
        if not table.column(name).domain:
            raise QueryMistaken(f"{name!r} has no public list of values; {_with_values(table)}.")


def _with_values(table: Table) -> str:
    return f"columns that have one: {', '.join(each.name for each in table.columns if each.domain) or 'none'}"


def no_keys(grouping: Grouping, table: Table) -> QueryMistaken:
    """What to say of a column that has no public values."""
    if table.column(grouping.column).open:
        return QueryMistaken(
            f"the values of {grouping.column!r} are not public; list keys for it, or let them be selected first."
        )
    column = table.column(grouping.column)
    way = _with_values(table)
    if column.lower is not None and column.upper is not None:
        intervals = f"WIDTH_BUCKET({column.name}, {float(column.lower):.12g}, {float(column.upper):.12g}, 10)"
        way = f"use DATE_TRUNC('month', {column.name})" if column.type is ColumnType.DATE else f"use {intervals}"
    return QueryMistaken(f"{grouping.column!r} has no public list of values to group by; {way}.")
