"""From what SQLite holds to the five types of a study, without one value that can raise.

Any row of any column may hold a whole number, a double, text, bytes or nothing, whatever the column was
declared to be. What is not a value of the declared type is NULL, as from a file (`typed_columns`): text that
is no number, infinity, a fraction in an integer column, bytes, days that are not written as 2026-01-31, and text
whose bytes are no text.
"""

from __future__ import annotations

from sqlglot import exp

from site_agent.reading.sources.sqlite.dialect import IS_TEXT, literal, number
from site_agent.reading.statements.sql_trees import call, cast, is_null, joined, minus, paren, text
from wardround.federation.study.study import Column, ColumnType

THIS = "this"
"""How the statement calls the hospital's table; SQLite reads a missing column without a prefix as a text."""

_TRUE = ("true", "t", "yes", "y", "1", "1.0")
_FALSE = ("false", "f", "no", "n", "0", "0.0")
_NUMERIC = exp.DataType(this=exp.DataType.Type.USERDEFINED, kind="NUMERIC")
_BEYOND_WHOLE = 2.0**63
_DIGIT = "[0-9]"
_DAY = "-".join((_DIGIT * 4, _DIGIT * 2, _DIGIT * 2))
_BLANK = " \t\n\v\f\r"


def typed_key(name: str) -> exp.Expression:
    """The unit key; only equality matters.

    A whole number, its text and its double are one key; bytes are the key that is the text of their literal,
    so that text and bytes need not be told apart by whoever reads them.
    """
    value = stored(name)
    own, whole = _plain(value), cast(value, "BIGINT")
    written = exp.EQ(this=_plain(whole), expression=own)
    from_text = exp.Case().when(written, whole).else_(_unless_empty(own))
    fraction = exp.Case().when(_is_whole(value), cast(value, "BIGINT")).else_(value.copy())
    real = exp.Case().when(_is_finite(value), fraction)
    return _by_kind(value, integer=value.copy(), text=from_text, real=real, blob=call("QUOTE", value.copy()))


def typed_column(name: str, column: Column) -> exp.Expression:
    """The column's value in the study's type, its default in place of NULL."""
    value = _typed(stored(name), column)
    if column.default is None:
        return value
    default = float(column.default) if column.type is ColumnType.NUMBER else column.default  # type: ignore[arg-type]
    return exp.Coalesce(this=value, expressions=[literal(default)])


def stored(name: str) -> exp.Column:
    """A column of the hospital's table, as it is stored."""
    return exp.column(name, table=THIS, quoted=True)


def _typed(value: exp.Expression, column: Column) -> exp.Expression:
    double = cast(value, "DOUBLE")
    match column.type:
        case ColumnType.CATEGORY:
            return _by_kind(value, integer=_plain(value), text=_unless_empty(_plain(value)))
        case ColumnType.NUMBER:
            from_text = exp.Case().when(_both(_is_number(value), _is_finite(double)), double)
            from_real = exp.Case().when(_is_finite(value), value.copy())
            return _by_kind(value, integer=double, real=from_real, text=from_text)
        case ColumnType.INTEGER:
            return _integer(value)
        case ColumnType.BOOLEAN:
            word = call("LOWER", call("TRIM", _plain(value), text(_BLANK)))
            truth = _boolean(value, (literal(1),), (literal(0),))
            words = _boolean(word, tuple(map(text, _TRUE)), tuple(map(text, _FALSE)))
            return _by_kind(value, integer=truth, real=truth, text=words)
        case ColumnType.DATE:
            return _by_kind(value, text=_day(value.copy()))


def _integer(value: exp.Expression) -> exp.Expression:
    parsed = _numeric(value)
    kept = exp.EQ(this=_kind(parsed), expression=text("integer"))
    whole = exp.Case().when(kept, parsed.copy()).when(_is_whole(parsed), cast(parsed, "BIGINT"))
    return _by_kind(
        value,
        integer=value.copy(),
        real=exp.Case().when(_is_whole(value), cast(value, "BIGINT")),
        text=exp.Case().when(_is_number(value), whole),
    )


def _day(value: exp.Expression) -> exp.Expression:
    """The ten letters of a day in the calendar, alone or before a time; the function alone would know 'now'."""
    ten = call("SUBSTR", value, number(1), number(10))
    alone = exp.EQ(this=call("LENGTH", value.copy()), expression=number(10))
    rest = call("SUBSTR", value.copy(), number(11), number(6))
    timed = exp.Glob(this=rest, expression=text(f"[ T]{_DIGIT * 2}:{_DIGIT * 2}"))
    readable = paren(is_null(call("DATE", value.copy())).not_())
    conditions: list[exp.Expression] = [
        exp.Glob(this=ten, expression=text(_DAY)),
        exp.GT(this=ten.copy(), expression=text("0001")),
        # The thirtieth of February becomes a day in March once a day is worked out from it.
        exp.EQ(this=call("DATE", ten.copy(), text("+0 days")), expression=ten.copy()),
        paren(exp.Or(this=alone, expression=_both(timed, readable))),
    ]
    return exp.Case().when(joined(exp.And, conditions), ten.copy())


def _is_number(value: exp.Expression) -> exp.Expression:
    """Beside a number SQLite reads a text as one if all of it is, and leaves it a text otherwise."""
    return exp.EQ(this=value.copy(), expression=_numeric(value))


def _numeric(value: exp.Expression) -> exp.Expression:
    """What SQLite makes of a text: a whole number where it is one and has a place in 64 bits, else a double."""
    return exp.Cast(this=value.copy(), to=_NUMERIC.copy())


def _is_finite(value: exp.Expression) -> exp.Expression:
    """Infinity less itself is NULL."""
    return exp.EQ(this=paren(minus(value.copy(), value.copy())), expression=number(0))


def _is_whole(value: exp.Expression) -> exp.Expression:
    """Whether a double is a whole number of 64 bits."""
    inside = exp.LT(this=exp.Abs(this=value.copy()), expression=literal(_BEYOND_WHOLE))
    return _both(inside, exp.EQ(this=value.copy(), expression=cast(value, "BIGINT")))


def _plain(value: exp.Expression) -> exp.Expression:
    """As text, compared byte by byte: a column's own collation ends at an operator."""
    return paren(exp.DPipe(this=value.copy(), expression=text("")))


def _unless_empty(value: exp.Expression) -> exp.Expression:
    return call("NULLIF", value.copy(), text(""))


def _both(left: exp.Expression, right: exp.Expression) -> exp.Expression:
    return paren(exp.And(this=left, expression=right))


def _boolean(
    value: exp.Expression, true: tuple[exp.Expression, ...], false: tuple[exp.Expression, ...]
) -> exp.Expression:
    decided = exp.Case()
    for words, outcome in ((true, 1), (false, 0)):
        decided = decided.when(
            exp.In(this=value.copy(), expressions=[word.copy() for word in words]), literal(outcome), copy=False
        )
    return decided


def _kind(value: exp.Expression) -> exp.Expression:
    return call("TYPEOF", value.copy())


def _by_kind(value: exp.Expression, **kinds: exp.Expression) -> exp.Expression:
    """What to make of each of SQLite's own kinds; NULL of those that are not named."""
    decided = exp.Case(this=_kind(value))
    for kind, found in kinds.items():
        decided = decided.when(text(kind), _if_text(value, found) if kind == "text" else found, copy=False)
    return decided


def _if_text(value: exp.Expression, found: exp.Expression) -> exp.Expression:
    """By a function of ours: a tenth of a microsecond a value, which is less than any look of SQLite's own takes."""
    return exp.Case().when(call(IS_TEXT, cast(value, "BLOB")), found, copy=False)
