"""The tally of a part in one statement, and its lines as an array; and the keys of an open category.

The statement adds up records where no unit has too many of them; where a unit may, a choice comes between: by the
database, or outside it over whole numbers. Both are the choice of `site_agent.reading.bounding.contribution_bounding`:
a unit's n records in the order of what they hold, of which those at ⌊(j·n + beginning) / cap⌋ count. Place p is one of
them exactly if a multiple of n lies between p·cap − beginning and p·cap − beginning + cap − 1.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import assert_never

import numpy as np
from sqlglot import exp

from site_agent.reading.bounding.tally import is_weighed, tally_width
from site_agent.reading.statements.dialect import Dialect, RowDialect
from site_agent.reading.statements.records import (
    CELL,
    RECORDS,
    UNIT,
    WEIGHT,
    TypedRows,
    column_name,
    condition,
    value_names,
    with_records,
)
from site_agent.reading.statements.sql_trees import (
    counted,
    grouped,
    integer,
    minus,
    named,
    paren,
    plus,
    present,
    ref,
    relation,
    times,
)
from wardround.federation.forms.parts import AnswerLayout, Part, Sums, Tally
from wardround.federation.forms.release import showable
from wardround.federation.limits import MAX_TEXT
from wardround.federation.study.study import Unit

_LARGEST = 2**63
_AT_ONCE = 2**14
KEY = "key"
_RANKED, _COUNTING = "ranked", "counting"
_PLACE, _NUMBER = "place", "number"


def tally_statement(form: AnswerLayout, part: Part, rows: TypedRows, dialect: Dialect) -> exp.Select:
    """The tally over all records: right where `record_cap` is None."""
    return with_records(tally_of(RECORDS, form, part, dialect), form, part, rows, dialect)


def is_coded(part: Part) -> bool:
    """Whether records are counted by code, so that a line of the tally is (cell, code, number)."""
    return part.sums is Sums.CODES


def tally_of(source: str, form: AnswerLayout, part: Part, dialect: Dialect) -> exp.Select:
    """The lines of the tally over an earlier part of the statement that holds records; see `read_tally`."""
    if is_coded(part):
        return grouped(relation(source), [ref(CELL), ref(value_names(part)[0])], [named(counted(), "n")])
    sums = [named(total, f"t{place}") for place, total in enumerate(_totals(form, part, dialect))]
    return grouped(relation(source), [ref(CELL)], [*sums])


def _totals(form: AnswerLayout, part: Part, dialect: Dialect) -> list[exp.Expression]:
    names = value_names(part)
    sums = [dialect.total(ref(name)) for name in names]
    match part.sums:
        case Sums.COUNT if is_weighed(form, part):
            return [dialect.total(ref(WEIGHT))]
        case Sums.COUNT | Sums.CODES:
            return [counted()]
        case Sums.LEVELS:
            return sums
        case Sums.COUNTED_LEVELS:
            return [counted(), *sums]
        case Sums.PRODUCTS:
            pairs = itertools.combinations_with_replacement(names, 2)
            return [counted(), *sums, *(dialect.total(times(ref(left), ref(right))) for left, right in pairs)]
        case _:
            assert_never(part.sums)


def read_tally(part: Part, lines: Iterable[Sequence[object]]) -> Tally:
    """The tally from the statement's lines: (cell, code, number) or (cell, sums); groups without a line are empty."""
    tally: Tally = np.zeros((part.groups, tally_width(part)), dtype=np.int64)
    every = iter(lines)
    # Some at a time: a number of Python's own takes five times the memory of an array's.
    while some := [[int(str(number)) for number in line] for line in itertools.islice(every, _AT_ONCE)]:
        if is_coded(part):
            cells, codes, numbers = np.array(some, dtype=np.int64).T
            tally[cells, codes] = numbers
            continue
        if any(not -_LARGEST <= number < _LARGEST for line in some for number in line):
            tally = tally.astype(np.object_)
        tally[[line[0] for line in some]] = np.array([line[1:] for line in some], dtype=tally.dtype)
    return tally


def tally_from(part: Part, cells: Tally, codes: Tally, numbers: Tally) -> Tally:
    """The tally of records with codes from its lines."""
    tally = np.zeros((part.groups, tally_width(part)), dtype=np.int64)
    tally[cells.astype(np.intp), codes.astype(np.intp)] = numbers
    return tally


def capped_tally_statement(
    form: AnswerLayout, part: Part, rows: TypedRows, dialect: Dialect, *, cap: int
) -> exp.Select:
    """The tally over at most `cap` records of each unit, chosen by windows over the unit's own records."""
    held = (CELL, *value_names(part))
    statement = tally_of(_COUNTING, form, part, dialect)
    return with_choice(with_records(statement, form, part, rows, dialect), held, dialect, cap=cap)


def with_choice(statement: exp.Select, held: Sequence[str], dialect: Dialect, *, cap: int) -> exp.Select:
    """`statement` over `counting`: of each unit's `records` at most `cap`, in the order of what they hold."""
    own = [ref(UNIT)]
    order = exp.Order(expressions=[exp.Ordered(this=ref(name)) for name in held])
    place = exp.Window(this=exp.RowNumber(), partition_by=own, order=order)
    number = exp.Window(this=counted(), partition_by=[ref(UNIT)])
    ranked = exp.select(
        ref(UNIT), *(ref(name) for name in held), named(minus(place, integer(1)), _PLACE), named(number, _NUMBER)
    ).from_(relation(RECORDS))
    few = exp.LTE(this=ref(_NUMBER), expression=integer(cap))
    counting = exp.select(ref(UNIT), *(ref(name) for name in held)).from_(relation(_RANKED))
    counting = counting.where(exp.Or(this=paren(few), expression=paren(_counts(dialect, cap))), copy=False)
    return statement.with_(_RANKED, as_=ranked, copy=False).with_(_COUNTING, as_=counting, copy=False)


def _counts(dialect: Dialect, cap: int) -> exp.Expression:
    """Whether a multiple of n lies in reach of a place; n is added so that nothing is below zero."""
    number = ref(_NUMBER)
    beginning = dialect.beginning(ref(UNIT), number)
    before = minus(plus(times(ref(_PLACE), integer(cap)), number), plus(beginning, integer(1)))
    reach = dialect.quotient(plus(before, integer(cap)), number.copy())
    return exp.GT(this=reach, expression=dialect.quotient(before.copy(), number.copy()))


# --- Keys -------------------------------------------------------------------------------------------------


def key_rows(form: AnswerLayout, rows: TypedRows, dialect: RowDialect) -> exp.Select:
    """(unit, key): the rows of the cohort that hold a text of the open column which may be asked for."""
    named_key = named(ref(column_name(form.parts[0].columns[0])), KEY)
    inner = exp.select(ref(UNIT), named_key).from_(rows.query.subquery("typed"), copy=False)
    if form.query.cohort is not None:
        inner = inner.where(condition(form.query.cohort, dialect), copy=False)
    short = exp.LTE(this=exp.Length(this=ref(KEY)), expression=integer(MAX_TEXT))
    chosen = exp.select(ref(UNIT), ref(KEY)).from_(inner.subquery("chosen", copy=False), copy=False)
    return chosen.where(present(ref(UNIT)), present(ref(KEY)), paren(short), copy=False)


def keys_statement(form: AnswerLayout, rows: TypedRows, dialect: Dialect) -> exp.Select:
    """(key, number): how many units hold each text of the open column, of each unit at most so many texts."""
    chosen = key_rows(form, rows, dialect)
    by_patient = form.unit is Unit.PATIENT
    statement = grouped(relation(_COUNTING if by_patient else RECORDS), [ref(KEY)], [named(counted(), "n")])
    if not by_patient:
        return statement.with_(RECORDS, as_=chosen, copy=False)
    once = chosen.group_by(ref(UNIT), ref(KEY), copy=False)
    return with_choice(statement.with_(RECORDS, as_=once, copy=False), (KEY,), dialect, cap=form.parts[0].max_groups)


def read_keys(lines: Iterable[Sequence[object]]) -> dict[str, int]:
    """The keys that can be shown at all, each with its number."""
    return {str(key): int(str(number)) for key, number in lines if showable(str(key))}


def both_keys(left: dict[str, int], right: Mapping[str, int]) -> dict[str, int]:
    """The keys of two shares of the units; `left` is used up."""
    for key, number in right.items():
        left[key] = left.get(key, 0) + number
    return left
