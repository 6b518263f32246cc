"""The choice among a unit's records made by the database itself, and the keys of an open category.

It is the choice of `contribution_bounding`: a unit's n records in the order of what they hold, of which those at
⌊(j·n + beginning) / cap⌋ count. Place p is one of them exactly if a multiple of n lies between p·cap − beginning
and p·cap − beginning + cap − 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sqlglot import exp

from site_agent.reading.statements.dialect import Dialect, RowDialect
from site_agent.reading.statements.records import (
    CELL,
    RECORDS,
    UNIT,
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
from site_agent.reading.statements.tally_sql import tally_of
from wardround.federation.forms.parts import AnswerLayout, Part
from wardround.federation.forms.release import showable
from wardround.federation.limits import MAX_TEXT
from wardround.federation.study.study import Unit

KEY = "key"
_RANKED, _COUNTING = "ranked", "counting"
_PLACE, _NUMBER = "place", "number"


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
