"""A SELECT over a SQLite database that no row can fail.

SQLite converts whatever it is given and fails on very little: sums and absolute values beyond 64 bits, and
patterns that are too long. Its functions of time read the clock where a row says so.
"""

from __future__ import annotations

from sqlglot import exp

from site_agent.reading.relations.scopes import Unclear

_OF_TIME = frozenset({"julianday", "unixepoch", "datetime", "date", "time"})


def make_unfailing(query: exp.Query) -> None:
    """Replace what could fail, in place.

    Raises:
        Unclear: it cannot be replaced.
    """
    for node in list(query.walk()):
        if isinstance(node, exp.Like | exp.Glob) and not (
            isinstance(node.expression, exp.Literal) and node.expression.is_string
        ):
            raise Unclear("may use LIKE and GLOB only with a quoted text: another could be too long")
        if isinstance(node, exp.Escape) and len(node.expression.name) != 1:
            raise Unclear("must give one character after ESCAPE")
        if isinstance(node, exp.Date) and node.args.get("this") is None:
            raise Unclear("may not use date() without a value, which is the current date")
        if (moment := _moment_of(node)) is not None:
            _keep_the_clock_out(moment)
        if isinstance(node, exp.Sum):
            distinct = node.this if isinstance(node.this, exp.Distinct) else None
            added = distinct.expressions[0] if distinct is not None else node.this
            # In fractions a sum has no end.
            added.replace(exp.Add(this=exp.Paren(this=added.copy()), expression=exp.Literal.number("0.0")))
        elif isinstance(node, exp.Abs):
            lowest = exp.EQ(this=node.this.copy(), expression=exp.Paren(this=_lowest()))
            node.replace(exp.Case(ifs=[exp.If(this=exp.Not(this=lowest), true=node.copy())]))


def _moment_of(node: exp.Expr) -> exp.Expr | None:
    """What a function of time is of."""
    if isinstance(node, exp.Date | exp.TsOrDsToTimestamp):
        return node.this if isinstance(node.this, exp.Expr) else None
    if isinstance(node, exp.Anonymous) and node.name.lower() in _OF_TIME:
        if any(not isinstance(each, exp.Literal) for each in node.expressions[1:]):
            raise Unclear(f"must quote what changes a time in {node.name.lower()}(), as '+1 day'")
        found: exp.Expr = node.expressions[0]
        return found
    return None


def _keep_the_clock_out(moment: exp.Expr) -> None:
    """Read only what begins like a day, a time or a number: a row that holds the text 'now' would read the clock."""
    begins = exp.Glob(this=exp.Paren(this=moment.copy()), expression=exp.Literal.string("[-+0-9]*"))
    moment.replace(exp.Case(ifs=[exp.If(this=begins, true=moment.copy())]))


def _lowest() -> exp.Expr:
    # As a plain number its digits alone would be beyond the range.
    return exp.Sub(this=exp.Literal.number("-9223372036854775807"), expression=exp.Literal.number("1"))
