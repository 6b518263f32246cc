"""A SELECT over DuckDB that no row can fail.

`TRY` makes a value that cannot be computed NULL. It takes no aggregate, window or query inside, so that
calculations with those are refused unless they cannot fail, and comparisons are made only between types that
need no conversion.
"""

from __future__ import annotations

import re
from datetime import date

from sqlglot import exp

from site_agent.reading.relations.allowed_sql import is_aggregate
from site_agent.reading.relations.scopes import Unclear

_COMPARED = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)
_PLAIN = (
    exp.Column, exp.Literal, exp.Null, exp.Boolean, exp.Paren, exp.And, exp.Or, exp.Not, exp.Is, exp.Identifier,
    exp.Star, exp.TryCast, exp.DataType, exp.DataTypeParam, exp.Try,
)  # fmt: skip
"""What cannot fail by itself."""

_NUMBERS = (
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "FLOAT", "DOUBLE",
)  # fmt: skip
_FRACTIONS = (exp.Sum, exp.Avg, exp.Stddev, exp.StddevSamp, exp.StddevPop, exp.Variance, exp.VariancePop)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_WHOLE = (exp.Count, exp.RowNumber, exp.Rank, exp.DenseRank, exp.Ntile)


def make_unfailing(query: exp.Query) -> None:
    """Replace what could fail, in place.

    Raises:
        Unclear: it cannot be replaced.
    """
    for cast in [found for found in query.find_all(exp.Cast) if type(found) is exp.Cast and not _is_tie(found)]:
        cast.replace(exp.TryCast(**cast.args))
    for select in list(query.find_all(exp.Select)):
        _Select(select).rewrite()


class _Select:
    def __init__(self, select: exp.Select) -> None:
        self._select = select
        group = select.args.get("group")
        self._groups = [term.copy() for term in group.expressions] if group is not None else []

    def rewrite(self) -> None:
        select = self._select
        for term in list(select.expressions):
            if term.is_star:
                star = term.this if isinstance(term, exp.Column) else term
                for replaced in star.args.get("replace") or ():
                    self._value(replaced.this)
            else:
                self._value(term.unalias())
        for part in ("where", "having", "qualify"):
            if (found := select.args.get(part)) is not None:
                self._value(found.this)
        for join in select.args.get("joins") or ():
            if join.args.get("on") is not None:
                self._value(join.args["on"])
        if (group := select.args.get("group")) is not None:
            for term in list(group.expressions):
                self._value(term)

    def _value(self, node: exp.Expr) -> None:
        """Make one expression total."""
        if isinstance(node, exp.Column | exp.Literal | exp.Null | exp.Boolean | exp.Star | exp.DataType):
            return
        if node in self._groups:
            # As a whole, so that it stays what the rows are grouped by.
            _try(node)
        elif isinstance(node, exp.And | exp.Or | exp.Not | exp.Paren):
            for child in list(node.iter_expressions()):
                self._value(child)
        elif _is_tie(node):
            return
        elif not _is_opaque_inside(node):
            if any(not isinstance(found, _PLAIN) for found in node.walk()):
                _try(node)
        else:
            self._around(node)

    def _around(self, node: exp.Expr) -> None:
        """Make an expression total that holds an aggregate, a window or a query."""
        if isinstance(node, exp.Window):
            self._window(node)
        elif isinstance(node, exp.Filter):
            self._value(node.this)
            self._value(node.expression.this)
        elif is_aggregate(node, "duckdb"):
            self._aggregate(node)
        elif isinstance(node, exp.Query | exp.Exists):
            return
        elif isinstance(node, exp.In) and node.args.get("query") is not None:
            self._value(node.this)
        elif isinstance(node, _COMPARED):
            self._compared(node)
        elif isinstance(node, exp.TryCast | exp.Is | exp.If | exp.Case | exp.Coalesce | exp.Alias):
            if isinstance(node, exp.Case | exp.Coalesce):
                _check_results(node)
            for child in list(node.iter_expressions()):
                self._value(child)
        else:
            raise Unclear(
                "must not calculate with an aggregate, a window or a subquery in the SELECT that has it: name it "
                "in a query in WITH, and calculate with that name"
            )

    def _aggregate(self, node: exp.Expr) -> None:
        distinct = node.this if isinstance(node.this, exp.Distinct) else None
        if distinct is not None and len(distinct.expressions) != 1:
            raise Unclear("may count DISTINCT values of only one expression")
        added = distinct.expressions[0] if distinct is not None else node.this
        if isinstance(added, exp.Star) or added is None:
            return
        if _is_opaque_inside(added):
            raise Unclear("must not have a subquery inside an aggregate")
        self._value(added)
        added = distinct.expressions[0] if distinct is not None else node.this
        if isinstance(node, _FRACTIONS):
            # Sums of whole and of decimal numbers end somewhere, those of fractions do not.
            added.replace(exp.TryCast(this=added.copy(), to=exp.DataType.build("DOUBLE")))

    def _window(self, window: exp.Window) -> None:
        function = window.this
        if is_aggregate(function, "duckdb") or isinstance(function, exp.Filter):
            self._around(function)
        elif function.args.get("this") is not None:
            self._value(function.this)
            if not isinstance(function.args.get("default") or exp.Null(), exp.Null):
                raise Unclear(
                    f"may not give {function.key}() a third value: name it in a query in WITH, and write "
                    "coalesce(…) around that name"
                )
        for term in list(window.args.get("partition_by") or ()):
            self._value(term)
        order = window.args.get("order")
        for ordered in order.expressions if order is not None else ():
            if not ordered.this.find(exp.Columns):
                self._value(ordered.this)

    def _compared(self, node: exp.Expr) -> None:
        left, right = node.this, node.expression
        for side, other in ((left, right), (right, left)):
            if isinstance(side, exp.Any | exp.All):
                # DuckDB converts nothing here: other types are refused when it reads the statement.
                return self._value(other)
            if isinstance(side, exp.Literal) or (isinstance(side, exp.Neg) and isinstance(side.this, exp.Literal)):
                self._value(other)
                value = node.expression if other is right else node.this
                if side.is_string:
                    # DuckDB makes the text one of the other side's type, and fails where it is none.
                    node.replace(_where_of_type(value, _read_as(side.name), node))
                elif not _is_whole(value):
                    value.replace(exp.TryCast(this=value.copy(), to=exp.DataType.build("DOUBLE")))
                return None
        self._value(left)
        self._value(right)
        left, right = node.this, node.expression
        kinds = [exp.Anonymous(this="typeof", expressions=[side.copy()]) for side in (left, right)]
        numbers = [
            exp.In(this=kind.copy(), expressions=[exp.Literal.string(name) for name in _NUMBERS]) for kind in kinds
        ]
        alike = exp.or_(exp.EQ(this=kinds[0], expression=kinds[1]), exp.and_(*numbers))
        node.replace(exp.Case(ifs=[exp.If(this=alike, true=node.copy())]))
        return None


def _read_as(text: str) -> tuple[str, ...]:
    """The types of which a text is a value for certain."""
    try:
        date.fromisoformat(text)
    except ValueError:
        return ("VARCHAR",)
    return ("VARCHAR", "DATE", "TIMESTAMP") if _DAY.fullmatch(text) else ("VARCHAR",)


def _where_of_type(value: exp.Expr, types: tuple[str, ...], then: exp.Expr) -> exp.Case:
    kind = exp.Anonymous(this="typeof", expressions=[value.copy()])
    known = exp.In(this=kind, expressions=[exp.Literal.string(name) for name in types])
    return exp.Case(ifs=[exp.If(this=known, true=then.copy())])


def _check_results(node: exp.Expr) -> None:
    results = [each.args["true"] for each in node.args.get("ifs") or ()] + [node.args.get("default")]
    if isinstance(node, exp.Coalesce):
        results = [node.this, *node.expressions]
    elif node.args.get("this") is not None:
        raise Unclear("must write CASE WHEN … = … when a CASE has an aggregate, a window or a subquery")
    kinds = {type(found) for found in results if found is not None and not isinstance(found, exp.Null | exp.Literal)}
    if kinds and any(isinstance(found, exp.Literal) and found.is_string for found in results):
        raise Unclear(
            "must not mix a text with an aggregate, a window or a subquery in one CASE or coalesce(): name it "
            "in a query in WITH first"
        )
    for found in results:
        if isinstance(found, exp.Literal) and not found.is_string and not found.is_int:
            # DuckDB would make whole numbers decimals with its digits, and fails where there is no room for them.
            found.replace(exp.TryCast(this=found.copy(), to=exp.DataType.build("DOUBLE")))
    made = {_made_of(found) for found in results if type(found) in kinds}
    if len(kinds) > 1 or (len(made) > 1 and not kinds <= {*_FRACTIONS, *_WHOLE}):
        raise Unclear(
            "must not mix an aggregate, a window or a subquery with another one or with columns in one CASE "
            "or coalesce(): use WITH"
        )


def _made_of(node: exp.Expr | None) -> exp.Expr | None:
    """The column or calculation of which an aggregate or a window has the type."""
    while isinstance(node, exp.Window | exp.Filter | exp.AggFunc | exp.Distinct):
        node = node.this if node.this is not None else next(iter(node.expressions), None)
    return node


def _try(node: exp.Expr) -> None:
    # A TRY_CAST fails where what it casts does.
    casts_a_plain_value = isinstance(node, exp.TryCast) and all(isinstance(found, _PLAIN) for found in node.this.walk())
    if not isinstance(node, exp.Column | exp.Try) and not casts_a_plain_value:
        node.replace(exp.Try(this=node.copy()))


def _is_opaque(node: exp.Expr) -> bool:
    return isinstance(node, exp.Query | exp.Window | exp.Exists | exp.Filter) or is_aggregate(node, "duckdb")


def _is_opaque_inside(node: exp.Expr) -> bool:
    return any(_is_opaque(found) for found in node.walk(prune=lambda found: isinstance(found, exp.Query)))


def _is_whole(node: exp.Expr) -> bool:
    found = node.this if isinstance(node, exp.Window | exp.Filter) else node
    return isinstance(found, _WHOLE)


def _is_tie(node: exp.Expr) -> bool:
    """Whether it compares texts of columns, as keys are compared; a text can always be made."""
    if isinstance(node, exp.EQ):
        return _is_tie(node.left) and _is_tie(node.right)
    return type(node) is exp.Cast and isinstance(node.this, exp.Column) and bool(node.to.is_type("TEXT"))
