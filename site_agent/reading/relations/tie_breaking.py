"""Windows whose rows have one order, whatever else lies in the table.

Which of two rows that are equal in ORDER BY comes first depends, in databases that read in parallel, on the
rows of others. Ordered by everything they hold, rows that are still equal are the same row twice. SQLite
reads in one order.
"""

from __future__ import annotations

import sqlglot
from sqlglot import exp

from site_agent.reading.relations.allowed_sql import ORDERED
from site_agent.reading.relations.scopes import Unclear, own

_ENDS = frozenset({"UNBOUNDED", "CURRENT ROW"})


def order_windows(query: exp.Query, dialect: str) -> None:
    """Complete the ORDER BY of windows in place.

    Raises:
        Unclear: a window says what is not known here.
    """
    for select in query.find_all(exp.Select):
        for window in [found for found in own(select, exp.Window) if isinstance(found, exp.Window)]:
            spec, function = window.args.get("spec"), window.this
            by_rows = spec is not None and str(spec.args.get("kind")).upper() == "ROWS"
            if spec is not None:
                _check(spec, by_rows=by_rows)
            if type(function) in ORDERED:
                _check_arguments(function)
            if dialect != "sqlite" and (by_rows or type(function) in ORDERED):
                order = window.args.get("order") or exp.Order(expressions=[])
                rows = [
                    exp.Ordered(this=_whole_row(name, dialect, window), nulls_first=False) for name in _names(select)
                ]
                window.set("order", exp.Order(expressions=[*order.expressions, *rows]))


def _check(spec: exp.Expr, *, by_rows: bool) -> None:
    for place in ("start", "end"):
        bound = spec.args.get(place)
        counted = isinstance(bound, exp.Literal) and bound.is_int and by_rows
        if bound is not None and not counted and str(bound).upper() not in _ENDS:
            raise Unclear("must give the ends of a window as UNBOUNDED, CURRENT ROW, or numbers of ROWS")
    if spec.args.get("exclude"):
        raise Unclear("may not use EXCLUDE in a window")


def _check_arguments(function: exp.Expr) -> None:
    first = () if isinstance(function, exp.Ntile) else ("this",)
    for name, value in function.args.items():
        positive = isinstance(function, exp.Ntile | exp.NthValue)
        numbered = isinstance(value, exp.Literal) and value.is_int and (int(value.this) > 0 or not positive)
        if (
            name not in first
            and value
            and not numbered
            and not (name == "default" and isinstance(value, exp.Literal | exp.Null))
        ):
            raise Unclear(f"must give plain numbers and values to {function.key}() after its first argument")


def _names(select: exp.Select) -> list[exp.Identifier]:
    items = [item.this for item in (select.args.get("from_"), *(select.args.get("joins") or ())) if item is not None]
    return [item.args["alias"].this if item.args.get("alias") is not None else item.this for item in items]


def _whole_row(name: exp.Identifier, dialect: str, window: exp.Window) -> exp.Expr:
    if dialect == "duckdb" and window.find_ancestor(exp.Qualify, exp.Select).__class__ is exp.Qualify:
        # DuckDB takes no star there; a table's name is its whole row.
        return exp.Column(this=name.copy())
    written = name.sql(dialect=dialect)
    text = f"ROW(*COLUMNS({written}.*))" if dialect == "duckdb" else f'CAST({written}.* AS TEXT) COLLATE "C"'
    return sqlglot.parse_one(text, dialect=dialect)
