"""A SELECT over PostgreSQL that no row can fail.

PostgreSQL has no TRY. Whether a text is a value of a type can be asked, so a cast reads the text of what it
is given and only where that is one. Calculations are made with numbers of any size (`numeric`), which have no
end that sums and products of double-precision numbers could reach; days and times between the years 1 and
9999.
"""

from __future__ import annotations

import re

from sqlglot import exp

from site_agent.reading.relations.scopes import Unclear

_MOST_CALCULATIONS = 100
"""Products of more numbers of 308 digits could be beyond 131,072 digits."""

_NUMBER, _WHOLE, _COUNT, _REAL, _DAY, _MOMENT, _SPAN, _UNKNOWN = (
    "number", "whole", "count", "real", "day", "moment", "span", "",
)  # fmt: skip
_CERTAIN = (_UNKNOWN, _WHOLE, _NUMBER, _COUNT, _REAL, _SPAN, _DAY, _MOMENT)
"""Of several kinds in one expression the last: its values are looked at again before they are calculated with."""

_COUNTED = (_NUMBER, _WHOLE, _COUNT, _REAL)
_DATED = (_DAY, _MOMENT)
_RANGES = {
    exp.DType.SMALLINT: 2**15,
    exp.DType.INT: 2**31,
    exp.DType.BIGINT: 2**63,
}
_BEGINS = "^[0-9]{4}-[0-9]{2}-[0-9]{2}"
_OF_OUR_YEARS = f"{_BEGINS}[^B]*$"
_MOST_DAYS = 1_000_000
_SPANS = {"YEAR": 3, "MONTH": 4, "WEEK": 5, "DAY": 5, "HOUR": 5, "MINUTE": 5, "SECOND": 5}
"""How many digits an interval of each unit may have, so that no day leaves PostgreSQL's calendar."""

_ADDED = (exp.Sum, exp.Avg, exp.Stddev, exp.StddevSamp, exp.StddevPop, exp.Variance, exp.VariancePop)
_OF_NUMBERS = (exp.Abs, exp.Floor, exp.Ceil, exp.Sign, exp.Round, exp.Sqrt, exp.Ln)
_COUNTING = (exp.Extract, exp.Length, exp.StrPosition, exp.Count)
_CUT = (exp.Substring, exp.Left, exp.Right, exp.SplitPart)
_SAME_KIND = (
    exp.Coalesce, exp.Nullif, exp.Greatest, exp.Least, exp.Max, exp.Min, exp.Lag, exp.Lead, exp.FirstValue,
    exp.LastValue, exp.NthValue, exp.Paren, exp.Distinct, exp.Filter, exp.Window, exp.Case, exp.If,
)  # fmt: skip
_LONGEST = 1000


def make_unfailing(query: exp.Query) -> None:
    """Replace what could fail, in place.

    Raises:
        Unclear: it cannot be replaced.
    """
    calculations = sum(1 for _ in query.find_all(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod))
    if calculations > _MOST_CALCULATIONS:
        raise Unclear(f"may not have more than {_MOST_CALCULATIONS} calculations")
    _Rewriting().rewrite(query)


class _Rewriting:
    """Children first; each expression gives the kind of value that it is known to have."""

    def rewrite(self, node: exp.Expr) -> str:
        kinds: dict[int, str] = {}
        for child in list(node.iter_expressions()):
            place = (child.arg_key, child.index)
            kind = self.rewrite(child)
            kinds[id(_at(node, place))] = kind
        return self._rewritten(node, kinds)

    def _rewritten(self, node: exp.Expr, kinds: dict[int, str]) -> str:
        def kind_of(child: exp.Expr | None) -> str:
            return kinds.get(id(child), _UNKNOWN)

        if isinstance(node, exp.Neg | exp.Add | exp.Sub | exp.Mul | exp.Div | exp.Mod):
            return self._calculation(node, kind_of(node.this), kind_of(node.args.get("expression")))
        if isinstance(node, exp.Literal):
            return _UNKNOWN if node.is_string else _WHOLE if node.is_int else _NUMBER
        if isinstance(node, exp.Interval):
            return _span(node)
        if isinstance(node, exp.Cast):
            return _cast(node)
        if isinstance(node, _COUNTING):
            return _COUNT
        if isinstance(node, _ADDED):
            added = node.this.expressions[0] if isinstance(node.this, exp.Distinct) else node.this
            added.replace(_numeric(added.copy(), kind_of(node.this)))
            return _NUMBER
        if isinstance(node, _OF_NUMBERS):
            return _function(node, kind_of(node.this))
        if isinstance(node, _SAME_KIND):
            found = [kind_of(child) for child in node.iter_expressions() if child.arg_key not in _BESIDE]
            return max(found, key=_CERTAIN.index, default=_UNKNOWN)
        self._of_unknown_kind(node)
        return _UNKNOWN

    def _of_unknown_kind(self, node: exp.Expr) -> None:
        if isinstance(node, exp.Like | exp.ILike):
            _check_pattern(node)
        elif isinstance(node, _CUT):
            _check_places(node)
        elif isinstance(node, exp.TimestampTrunc):
            # A day is made a moment first, and days go further.
            node.replace(_when(_matches(node.this, _OF_OUR_YEARS), node.copy()))

    def _calculation(self, node: exp.Expr, left: str, right: str) -> str:
        match node:
            case exp.Neg():
                return self._numbers(node, (left,), ("this",))
            case exp.Add() | exp.Sub():
                return self._sum(node, left, right)
            case exp.Div():
                return self._quotient(node, left, right)
            case _:
                return self._numbers(node, (left, right), ("this", "expression"))

    def _numbers(self, node: exp.Expr, kinds: tuple[str, ...], places: tuple[str, ...]) -> str:
        if any(kind in {*_DATED, _SPAN} for kind in kinds):
            raise Unclear(
                "may calculate with dates only by adding or subtracting days or an INTERVAL, or one date from another"
            )
        for place, kind in zip(places, kinds, strict=True):
            value = _numeric(node.args[place].copy(), kind)
            if place == "expression" and isinstance(node, exp.Div | exp.Mod):
                value = exp.Nullif(this=value, expression=exp.Literal.number(0))
            node.set(place, value)
        if isinstance(node, exp.Neg) and kinds == (_WHOLE,):
            return _WHOLE
        node.replace(exp.Paren(this=node.copy()))
        return _NUMBER

    def _sum(self, node: exp.Expr, left: str, right: str) -> str:
        numbers = {left, right} & set(_COUNTED)
        if numbers and {left, right} <= {*_COUNTED, _UNKNOWN}:
            return self._numbers(node, (left, right), ("this", "expression"))
        if left in _DATED and right == _SPAN:
            node.replace(exp.Paren(this=node.copy()))
            # Not within the calendar's years any more: to calculate on, cast it again.
            return _UNKNOWN
        if left in _DATED and right in _DATED and isinstance(node, exp.Sub):
            node.replace(exp.Paren(this=node.copy()))
            return _COUNT if left == right == _DAY else _SPAN
        if left == _DAY and right in _COUNTED:
            days = _numeric(node.expression.copy(), right)
            near = exp.Between(this=days, low=exp.Literal.number(-_MOST_DAYS), high=exp.Literal.number(_MOST_DAYS))
            node.set("expression", _plain_cast(days.copy(), "INT"))
            node.replace(_when(near, node.copy()))
            return _UNKNOWN
        written = node.sql(dialect="postgres") if left == right == _UNKNOWN else "a sum"
        raise Unclear(
            f"must give the type of {written}, so that no row can make it fail: CAST(… AS numeric) or CAST(… AS date)"
        )

    def _quotient(self, node: exp.Expr, left: str, right: str) -> str:
        if not {left, right} & {_NUMBER, _REAL}:
            raise Unclear(
                f"must say how {node.sql(dialect='postgres')} is divided: CAST(… AS numeric) / …, with floor(…) "
                "for whole numbers"
            )
        return self._numbers(node, (left, right), ("this", "expression"))


_BESIDE = frozenset({"expression", "partition_by", "order", "spec", "default", "offset"})
"""Parts of an expression that are not its value."""


def _at(node: exp.Expr, place: tuple[str | None, int | None]) -> object:
    """What stands now where a child stood."""
    name, index = place
    found = node.args[str(name)]
    return found[index] if index is not None and isinstance(found, list) else found


def _text(node: exp.Expr) -> exp.Expr:
    return _plain_cast(node, "TEXT")


def _plain_cast(node: exp.Expr, kind: str) -> exp.Cast:
    return exp.Cast(this=node, to=exp.DataType.build(kind, dialect="postgres"))


def _valid(node: exp.Expr, kind: str) -> exp.Expr:
    return exp.Anonymous(this="pg_input_is_valid", expressions=[_text(node.copy()), exp.Literal.string(kind)])


def _matches(node: exp.Expr, pattern: str) -> exp.Expr:
    return exp.RegexpLike(this=_text(node.copy()), expression=exp.Literal.string(pattern))


def _when(condition: exp.Expr, value: exp.Expr) -> exp.Case:
    return exp.Case(ifs=[exp.If(this=condition, true=value)])


def _numeric(node: exp.Expr, kind: str) -> exp.Expr:
    """A number of any size, or NULL; as a double-precision number it would be one too."""
    if kind in {_NUMBER, _WHOLE}:
        return node
    both = exp.and_(_valid(node, "double precision"), _valid(node, "numeric"))
    return _when(both, _plain_cast(_text(node.copy()), "NUMERIC"))


def _cast(node: exp.Cast) -> str:
    """Read the text of what is cast where it is one of the type."""
    value, to = node.this, node.to
    written = to.sql(dialect="postgres")
    if to.this in {exp.DType.TEXT, exp.DType.VARCHAR}:
        return _UNKNOWN
    if to.this in _RANGES:
        number = exp.Round(this=_numeric(value.copy(), _UNKNOWN))
        most = _RANGES[to.this]
        within = exp.Between(this=number, low=exp.Literal.number(-most), high=exp.Literal.number(most - 1))
        node.replace(_when(within, exp.Cast(this=number.copy(), to=to.copy())))
        return _COUNT
    if to.this in {exp.DType.DATE, exp.DType.TIMESTAMP}:
        begins = _matches(value, _BEGINS)
        node.replace(_when(exp.and_(begins, _valid(value, written)), exp.Cast(this=_text(value.copy()), to=to.copy())))
        return _DAY if to.this is exp.DType.DATE else _MOMENT
    if to.this is exp.DType.DECIMAL:
        valid = exp.and_(_valid(value, "double precision"), _valid(value, written))
        node.replace(_when(valid, exp.Cast(this=_text(value.copy()), to=to.copy())))
        return _NUMBER
    node.replace(_when(_valid(value, written), exp.Cast(this=_text(value.copy()), to=to.copy())))
    return _REAL if to.this in {exp.DType.DOUBLE, exp.DType.FLOAT} else _UNKNOWN


def _function(node: exp.Expr, kind: str) -> str:
    value = _numeric(node.this.copy(), kind)
    node.set("this", value)
    if isinstance(node, exp.Round) and (places := node.args.get("decimals")) is not None and not _is_small(places):
        raise Unclear("must give a plain number of digits to round()")
    if isinstance(node, exp.Sqrt | exp.Ln):
        least = exp.GTE if isinstance(node, exp.Sqrt) else exp.GT
        node.replace(_when(least(this=value.copy(), expression=exp.Literal.number(0)), node.copy()))
    return _NUMBER


def _span(node: exp.Interval) -> str:
    digits = _SPANS.get(str(node.args.get("unit") or "").upper().removesuffix("S"), 0)
    if (
        not isinstance(node.this, exp.Literal)
        or re.fullmatch(rf"[0-9]{{1,{digits}}}", node.this.name) is None
        or not digits
    ):
        raise Unclear("must write intervals as INTERVAL '30 day': a plain number and one unit from second to year")
    return _SPAN


def _check_pattern(node: exp.Expr) -> None:
    pattern = node.args["expression"]
    if not isinstance(pattern, exp.Literal) or not pattern.is_string or "\\" in pattern.this:
        raise Unclear("may use LIKE only with a quoted text without a backslash: anything else could fail on a row")


def _check_places(node: exp.Expr) -> None:
    """A negative length fails."""
    for name, value in node.args.items():
        if name not in {"this", "delimiter"} and value is not None and not _is_small(value):
            raise Unclear(f"must give {node.key}() plain numbers of at least 1: anything else could fail on a row")


def _is_small(node: object) -> bool:
    return isinstance(node, exp.Literal) and node.is_int and 0 < int(node.this) <= _LONGEST
