"""An item of the SELECT list, read into an aggregate.

A function is known by its name alone. What another database would mean by a name that is not ours is never
guessed: it is refused with the nearest thing that works.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from sqlglot import exp

from wardround.analyst.sql.terms import FORMS, INSTEAD, OWN, QuestionTable, column_name, describe, shown, unwrapped
from wardround.analyst.sql.where import number
from wardround.federation.errors import QueryMistaken
from wardround.federation.forms.definition import Definition, Function, Number
from wardround.federation.question.query import Aggregate, Clip
from wardround.federation.statistics import ALL
from wardround.federation.statistics.count import EVENTS, counting

_COUNTS = "use COUNT(*) to count events or COUNT(DISTINCT {key}) to count patients."
_WORKS = "use COUNT(*), COUNT(DISTINCT {key}), SUM({number}), AVG({number}), STDDEV({number}) or MEDIAN({number})."
_ROWS = "SELECT * would return rows, and rows never leave a hospital; use COUNT(*), SUM({number}) or AVG({number})."
_CLOSE = 0.75
_FUNCTIONS = {function.name: (definition, function) for definition in ALL for function in definition.functions}
_QUANTILE = _FUNCTIONS["PERCENTILE_CONT"][1].form


def aggregate(item: exp.Expr, source: QuestionTable) -> Aggregate:
    """The aggregate that an item of a SELECT list asks for, or `QueryMistaken` in one sentence."""
    match item:
        case exp.Count():
            return _count(item, source)
        case exp.Sum():
            return _named("SUM", [item.this, *item.expressions], source)
        case exp.Avg():
            return _named("AVG", [item.this, *item.expressions], source)
        case exp.WithinGroup():
            return _within_group(item, source)
        case exp.Anonymous():
            return _named(item.name.upper(), item.expressions, source)
        case exp.Star() | exp.Column(this=exp.Star()):
            raise QueryMistaken(source.say(_ROWS))
        case exp.Window():
            raise QueryMistaken("window functions (OVER) are not supported; use an aggregate with GROUP BY.")
        case exp.Filter():
            raise QueryMistaken("FILTER is not supported; put the condition into WHERE.")
        case exp.Subquery():
            raise QueryMistaken("a subquery in SELECT is not supported; ask it as a question of its own.")
        case exp.Func() if (instead := INSTEAD.get(item.sql_name())) is not None:
            raise QueryMistaken(f"{shown(item.sql_name())} is not supported{source.say(instead, item)}")
        case _:
            raise QueryMistaken(f"{describe(item)} is not supported in SELECT; {source.say(_WORKS, item)}")


def _named(name: str, operands: Sequence[exp.Expr], source: QuestionTable) -> Aggregate:
    match name:
        case "MIN" | "MAX":
            word, level = ("smallest", 0.01) if name == "MIN" else ("largest", 0.99)
            instead = source.say(f"PERCENTILE_CONT({level}) WITHIN GROUP (ORDER BY {{number}})", *operands)
            raise QueryMistaken(f"the {word} value {OWN}; use {instead}.")
        case "PERCENTILE_CONT":
            raise QueryMistaken(
                f"PERCENTILE_CONT is written with its column behind it: {source.say(_QUANTILE, *operands)}."
            )
        case _ if name in _FUNCTIONS:
            definition, function = _FUNCTIONS[name]
            if definition.number is Number.NONE or function.level is not None:
                return _of_columns(definition, function, operands, source)
            return _with_number(definition, function, operands, source)
        case _ if name in INSTEAD:
            raise QueryMistaken(f"{name} is not supported{source.say(INSTEAD[name], *operands)}")
        case _:
            guess = difflib.get_close_matches(name, FORMS, n=1, cutoff=_CLOSE)
            works = f"did you mean {FORMS[guess[0]]}?" if guess else _WORKS
            raise QueryMistaken(
                f"the function {shown(name)} is not supported in SELECT; {source.say(works, *operands)}"
            )


def _count(count: exp.Count, source: QuestionTable) -> Aggregate:
    if count.expressions:
        raise QueryMistaken(f"COUNT of several columns is not supported; {source.say(_COUNTS)}")
    match count.this:
        case exp.Star() as star if not any(star.args.values()):
            return EVENTS
        case exp.Distinct(expressions=[only]) as distinct if not distinct.args.get("on"):
            match unwrapped(only):
                case exp.Column(this=exp.Identifier()) as column:
                    return counting(column_name(column, source, key=True))
                case other:
                    raise QueryMistaken(f"COUNT(DISTINCT {describe(other)}) is not supported; {source.say(_COUNTS)}")
        case exp.Distinct():
            raise QueryMistaken(f"COUNT(DISTINCT …) takes one column; {source.say(_COUNTS)}")
        case exp.Column() as column:
            name = column_name(column, source, key=True)
            if (table := source.known) is not None and name == table.unit_key:
                raise QueryMistaken(f"COUNT({name}) is not supported; {source.say(_COUNTS)}")
            raise QueryMistaken(f"COUNT({name}) is not supported; use COUNT(*) with WHERE {name} IS NOT NULL.")
        case _:
            raise QueryMistaken(f"this form of COUNT is not supported; {source.say(_COUNTS)}")


def _of_columns(
    definition: Definition, function: Function, operands: Sequence[exp.Expr], source: QuestionTable
) -> Aggregate:
    least, most = definition.columns
    if not least <= len(operands) <= most:
        wanted = {(1, 1): "one column", (2, 2): "two columns"}.get((least, most), f"{least} to {most} columns")
        example = source.say(FORMS[function.name], *operands)
        raise QueryMistaken(
            f"{function.name} takes {wanted} of the study, and here are {len(operands)}; write {example}."
        )
    return _aggregate(function.name, definition, operands, source, level=function.level)


def _with_number(
    definition: Definition, function: Function, operands: Sequence[exp.Expr], source: QuestionTable
) -> Aggregate:
    name, columns = function.name, definition.columns[0]
    form = source.say(FORMS[name], *operands)
    mistaken = f"{name} is written as {form}."
    if len(operands) == columns and definition.number is Number.BINS_IF_ANY:
        return _aggregate(name, definition, operands, source)
    if len(operands) != columns + 1:
        raise QueryMistaken(mistaken)
    given = _plain_number(operands[columns], mistaken)
    if definition.number is Number.LEVEL:
        return _aggregate(name, definition, operands[:columns], source, level=float(given))
    if isinstance(given, float):
        raise QueryMistaken(f"{name} takes a whole number of intervals; it is written as {form}.")
    return _aggregate(name, definition, operands[:columns], source, bins=given)


def _within_group(item: exp.WithinGroup, source: QuestionTable) -> Aggregate:
    form = source.say(_QUANTILE, item)
    match item.this, item.args.get("expression"):
        case exp.Anonymous(expressions=levels) as call, exp.Order(expressions=[exp.Ordered() as ordered]):
            name = call.name.upper()
        case _:
            raise QueryMistaken(f"this form of WITHIN GROUP is not supported; use {form}.")
    match name:
        case "PERCENTILE_CONT" if len(levels) == 1:
            if ordered.args.get("desc"):
                raise QueryMistaken(f"a quantile is counted from below; leave DESC out, as in {form}.")
            level = _plain_number(levels[0], f"the level of a quantile is a number; use {form}.")
            return _aggregate(name, _FUNCTIONS[name][0], [ordered.this], source, level=float(level))
        case "MODE":
            raise QueryMistaken(f"MODE is written as {source.say(FORMS[name], item)}.")
        case _ if name in INSTEAD:
            raise QueryMistaken(f"{name} is not supported{source.say(INSTEAD[name], item)}")
        case _:
            raise QueryMistaken(f"this form of WITHIN GROUP is not supported; use {form}.")


def _aggregate(
    name: str,
    definition: Definition,
    operands: Sequence[exp.Expr],
    source: QuestionTable,
    *,
    level: float | None = None,
    bins: int | None = None,
) -> Aggregate:
    found = [_operand(name, operand, source) for operand in operands]
    column, *others = (column for column, _ in found)
    clips = sorted({clip for _, clip in found if clip is not None}, key=lambda clip: clip.column)
    return Aggregate(definition.statistic, column, tuple(others), level, bins, tuple(clips))


def _operand(name: str, operand: exp.Expr, source: QuestionTable) -> tuple[str, Clip | None]:
    """A column, and the narrower bounds that the question gives it."""
    match unwrapped(operand):
        case exp.Column(this=exp.Identifier()) as column:
            return column_name(column, source), None
        case exp.Anonymous() as call if call.name.upper() in ("CLAMP", "LEAST", "GREATEST"):
            return _clamped(call, source)
        case exp.Distinct():
            raise QueryMistaken(f"{name}(DISTINCT …) is not supported; use {source.say(FORMS[name], operand)}.")
        case exp.IgnoreNulls() | exp.RespectNulls():
            raise QueryMistaken(f"absent values are always left out; use {source.say(FORMS[name], operand)}.")
        case other:
            columns = "columns" if _FUNCTIONS[name][0].columns[1] > 1 else "one column"
            if isinstance(other, exp.Case | exp.If):
                raise QueryMistaken(
                    f"{name} takes {columns} of the study, not CASE; use COUNT(*) and put the condition into WHERE."
                )
            near = exp.column(other.name) if isinstance(other, exp.Literal) else other
            raise QueryMistaken(
                f"{name} takes {columns} of the study, not {describe(other)}; write {source.say(FORMS[name], near)}."
            )


def _clamped(call: exp.Anonymous, source: QuestionTable) -> tuple[str, Clip]:
    """CLAMP(x, lower, upper) or LEAST(GREATEST(x, lower), upper), either way round."""
    form = source.say("narrower bounds are written as CLAMP({number}, {low}, {high}).", call)
    operands = [unwrapped(each) for each in call.expressions]
    match call.name.upper(), operands:
        case "CLAMP", [exp.Column(this=exp.Identifier()) as column, lower, upper]:
            return _clip(column_name(column, source), _plain_number(lower, form), _plain_number(upper, form))
        case ("LEAST" | "GREATEST") as outer, [exp.Anonymous(expressions=[first, near]) as within, far]:
            inner = unwrapped(first)
            both = {outer, within.name.upper()} == {"LEAST", "GREATEST"}
            if both and isinstance(inner, exp.Column) and isinstance(inner.this, exp.Identifier):
                low, high = (near, far) if outer == "LEAST" else (far, near)
                return _clip(column_name(inner, source), _plain_number(low, form), _plain_number(high, form))
        case _:
            pass
    raise QueryMistaken(form)


def _clip(column: str, lower: float, upper: float) -> tuple[str, Clip]:
    return column, Clip(column, float(lower), float(upper))


def _plain_number(tree: exp.Expr, otherwise: str) -> int | float:
    inner = unwrapped(tree)
    while isinstance(inner, exp.Neg):
        inner = unwrapped(inner.this)
    if not isinstance(inner, exp.Literal) or inner.is_string:
        raise QueryMistaken(otherwise)
    return number(unwrapped(tree))
