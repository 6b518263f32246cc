"""A SELECT over a SQLite database that no row can fail.

SQLite converts whatever it is given and fails on very little: sums and absolute values beyond 64 bits, and
patterns that are too long.
"""

from __future__ import annotations

from sqlglot import exp

from site_agent.relating.scopes import Unclear


def make_unfailing(query: exp.Query) -> None:
    """Replace what could fail, in place.

    Raises:
        Unclear: it cannot be replaced.
    """
    for node in list(query.walk()):
        if isinstance(node, exp.Like | exp.Glob) and not (
            isinstance(node.expression, exp.Literal) and node.expression.is_string
        ):
            raise Unclear(
                "may compare by LIKE and GLOB with a text in quotation marks alone: another could be too long"
            )
        if isinstance(node, exp.Escape) and len(node.expression.name) != 1:
            raise Unclear("must give one character after ESCAPE")
        if isinstance(node, exp.Date) and node.args.get("this") is None:
            raise Unclear("may not use date() of the present moment")
        if isinstance(node, exp.Sum):
            distinct = node.this if isinstance(node.this, exp.Distinct) else None
            added = distinct.expressions[0] if distinct is not None else node.this
            # In fractions a sum has no end.
            added.replace(exp.Add(this=exp.Paren(this=added.copy()), expression=exp.Literal.number("0.0")))
        elif isinstance(node, exp.Abs):
            lowest = exp.EQ(this=node.this.copy(), expression=exp.Paren(this=_lowest()))
            node.replace(exp.Case(ifs=[exp.If(this=exp.Not(this=lowest), true=node.copy())]))


def _lowest() -> exp.Expr:
    # As a plain number its digits alone would be beyond the range.
    return exp.Sub(this=exp.Literal.number("-9223372036854775807"), expression=exp.Literal.number("1"))
