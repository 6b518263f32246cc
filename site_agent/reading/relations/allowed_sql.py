"""The parts of SQL that a relation may be made of; whatever is not listed is refused.

A list of what is known to be harmless ends; a list of what is harmful does not. What is left out: functions
whose value is not the row's own, aggregates that depend on the order of rows or break ties by it, and
functions nobody looked at.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

_PARTS: frozenset[type[exp.Expr]] = frozenset((
    exp.Select, exp.From, exp.Join, exp.Where, exp.Group, exp.Having, exp.Qualify, exp.Order, exp.Ordered,
    exp.Subquery, exp.CTE, exp.With, exp.Table, exp.TableAlias, exp.Identifier, exp.Column, exp.Star,
    exp.Alias, exp.Union, exp.Tuple,
    exp.Values, exp.Distinct, exp.Window, exp.WindowSpec, exp.Filter, exp.Literal, exp.Boolean, exp.Null, exp.Paren,
    exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ,
    exp.Is, exp.In, exp.Between, exp.Like, exp.Case, exp.If, exp.Cast, exp.TryCast, exp.DataType, exp.DataTypeParam,
    exp.Exists, exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.DPipe, exp.Var,
))  # fmt: skip
_FUNCTIONS: frozenset[type[exp.Expr]] = frozenset((
    exp.Coalesce, exp.Nullif, exp.Lower, exp.Upper, exp.Trim, exp.Length, exp.Substring, exp.Replace, exp.Abs,
    exp.Round, exp.StrPosition, exp.Greatest, exp.Least,
))  # fmt: skip
_DAYS: frozenset[type[exp.Expr]] = frozenset((exp.Extract, exp.TimestampTrunc, exp.Interval))
_TYPED: frozenset[type[exp.Expr]] = frozenset((
    *_DAYS, exp.ILike, exp.Any, exp.All, exp.Left, exp.Right, exp.Concat, exp.SplitPart, exp.Floor, exp.Ceil, exp.Sign,
    exp.Sqrt, exp.Ln,
))  # fmt: skip
_DUCKDB: frozenset[type[exp.Expr]] = frozenset((
    exp.IntDiv, exp.Try, exp.DateDiff, exp.Year, exp.Month, exp.Day, exp.Quarter, exp.Week, exp.DayOfWeek,
    exp.DayOfYear, exp.TimeToStr, exp.StartsWith, exp.EndsWith, exp.Contains, exp.Pow, exp.Exp, exp.Pad,
    exp.LastDay, exp.RegexpLike,
    exp.RegexpExtract, exp.MD5, exp.Escape, exp.DateFromParts, exp.ToDays,
))  # fmt: skip
_SQLITE: frozenset[type[exp.Expr]] = frozenset((
    exp.Date, exp.TimeToStr, exp.TsOrDsToTimestamp, exp.Typeof, exp.Escape, exp.Glob, exp.Sign, exp.Floor, exp.Ceil,
))  # fmt: skip
_NAMED: dict[str, frozenset[str]] = {
    "duckdb": frozenset({"date_part", "isfinite"}),
    "sqlite": frozenset({"julianday", "unixepoch", "datetime", "date", "time"}),
    "postgres": frozenset(),
}
"""Functions that the parser knows by their name alone."""

_TOTALS: frozenset[type[exp.Expr]] = frozenset((exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max))
_SPREADS: frozenset[type[exp.Expr]] = frozenset((
    exp.Stddev, exp.StddevSamp, exp.StddevPop, exp.Variance, exp.VariancePop, exp.LogicalAnd, exp.LogicalOr,
))  # fmt: skip
AGGREGATES: dict[str, frozenset[type[exp.Expr]]] = {
    "duckdb": _TOTALS | _SPREADS | {exp.Median, exp.PercentileCont},
    "sqlite": _TOTALS,
    "postgres": _TOTALS | _SPREADS,
}
"""Aggregates that are the same in whatever order their rows come."""

NAMED_AGGREGATES: dict[str, frozenset[str]] = {
    "duckdb": frozenset(),
    "sqlite": frozenset({"total"}),
    "postgres": frozenset(),
}
PEERS: frozenset[type[exp.Expr]] = frozenset((exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist))
"""Window functions that are the same for rows that are equal in ORDER BY."""

ORDERED: frozenset[type[exp.Expr]] = frozenset((
    exp.RowNumber, exp.Ntile, exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue, exp.NthValue,
))  # fmt: skip
"""Window functions for which such rows must be put into an order."""

ALLOWED: dict[str, frozenset[type[exp.Expr]]] = {
    dialect: _PARTS | _FUNCTIONS | own | AGGREGATES[dialect] | PEERS | ORDERED
    for dialect, own in {"duckdb": _TYPED | _DUCKDB, "sqlite": _SQLITE, "postgres": _TYPED}.items()
}
_TYPES = frozenset((
    exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT, exp.DType.FLOAT, exp.DType.DOUBLE,
    exp.DType.DECIMAL, exp.DType.TEXT, exp.DType.VARCHAR, exp.DType.DATE, exp.DType.TIMESTAMP, exp.DType.BOOLEAN,
    exp.DType.TIMESTAMPNTZ,
))  # fmt: skip

_UNITS = frozenset({"year", "quarter", "month", "week", "day", "dow", "isodow", "doy", "isoyear"})
"""What both a day and a moment have; PostgreSQL fails on the hour of a day."""

_LONGEST = 100


def is_aggregate(node: exp.Expr, dialect: str) -> bool:
    """Whether `node` adds up several rows."""
    return type(node) in AGGREGATES[dialect] or _name(node) in NAMED_AGGREGATES[dialect]


def unknown_word(node: exp.Expr, dialect: str) -> str | None:
    """How `node` is called if a relation may not use it."""
    if isinstance(node, exp.DataType) and (node.this not in _TYPES or node.args.get("nested")):
        return f"the type {node.sql(dialect=dialect)}"
    if isinstance(node, exp.Anonymous):
        known = _NAMED[dialect] | NAMED_AGGREGATES[dialect]
        return None if _name(node) in known and node.expressions else f"{node.name.lower()}()"
    if type(node) in ALLOWED[dialect] or isinstance(node, exp.DType):
        return None
    return f"{node.sql_name().lower()}()" if isinstance(node, exp.Func) else f"{node.key.upper()}"


def shape_faults(query: exp.Query) -> Iterator[str]:
    """Words that are known, but not with what is written behind them."""
    for node in query.find_all(exp.In, exp.Max, exp.Min, exp.Extract, exp.TimestampTrunc, exp.Replace, exp.Pad):
        match node:
            case exp.In() if node.args.get("field") is not None or node.args.get("unnest") is not None:
                # To SQLite a name there is a whole table.
                yield "must have brackets after IN: a list of values, or a SELECT"
            case exp.Max() | exp.Min() if node.expressions or node.args.get("count") is not None:
                yield f"may give {node.key}() only one value: for the largest or smallest of several write CASE WHEN"
            case exp.Extract() | exp.TimestampTrunc() if _unit(node) not in _UNITS:
                yield f"may not take {_unit(node)} from a date, only {', '.join(sorted(_UNITS))}"
            case exp.Replace() | exp.Pad() if not _is_short(node):
                yield (
                    f"must give {node.key}() quoted texts and plain numbers of at most {_LONGEST} characters: values "
                    "from a row could make a text too large for memory"
                )


def _unit(node: exp.Expr) -> str:
    found = node.this if isinstance(node, exp.Extract) else node.args["unit"]
    return str(found.name).lower()


def _is_short(node: exp.Expr) -> bool:
    given = (value for name in ("expression", "replacement", "fill_pattern") if (value := node.args.get(name)))
    return all(
        isinstance(value, exp.Literal)
        and (len(value.this) <= _LONGEST if value.is_string else value.is_int and int(value.this) <= _LONGEST)
        for value in given
    )


def _name(node: exp.Expr) -> str:
    return node.name.lower() if isinstance(node, exp.Anonymous) else ""
