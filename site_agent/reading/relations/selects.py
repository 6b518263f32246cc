"""What can be seen in a SELECT whose names are resolved."""

from __future__ import annotations

from sqlglot import exp

from site_agent.reading.relations.allowed_sql import is_aggregate
from site_agent.reading.relations.scopes import Place, Scope, Unclear, own


def beyond(node: exp.Expr, known: frozenset[str]) -> str:
    """The first part of `node` that is not among the known ones."""
    return next((name for name, value in node.args.items() if value and name not in known), "")


def both(left: exp.Expr | None, right: exp.Expr) -> exp.Expr:
    """A condition that holds where both do."""
    return right if left is None else exp.And(this=left, expression=right)


def equal_columns(column: exp.Identifier, scope: Scope, earlier: list[str], name: str) -> exp.Expr:
    """What USING says of one column, as a condition."""
    folded = scope.folding.of(column)
    if folded not in scope.merged:
        if len(earlier) != 1:
            raise Unclear(f"must write ON instead of USING ({column.name}) where several tables come before")
        scope.merged[folded] = earlier[0]
    sides = [
        exp.Column(this=column.copy(), table=scope.sources[alias].identifier.copy())
        for alias in (scope.merged[folded], name)
    ]
    return exp.EQ(this=sides[0], expression=sides[1])


def write_positions(select: exp.Select) -> None:
    """Write in GROUP BY what a number stands for."""
    group = select.args.get("group")
    for term in list(group.expressions) if group is not None else ():
        if isinstance(term, exp.Literal):
            if not term.is_int or not 1 <= int(term.this) <= len(select.expressions):
                raise Unclear("may group only by columns, expressions and their numbers")
            meant = select.expressions[int(term.this) - 1]
            if meant.is_star or any(each.is_star for each in select.expressions):
                raise Unclear("may not group by a number when SELECT has a star: list the columns")
            term.replace(meant.unalias().copy())


def condition_of(select: exp.Select, part: str) -> exp.Expr | None:
    """The condition of WHERE or HAVING."""
    found = select.args.get(part)
    return None if found is None else found.this


def equal_pair(term: exp.Expr, scope: Scope) -> tuple[exp.EQ, Place, Place] | None:
    """Two columns that a condition says are equal."""
    if isinstance(term, exp.EQ) and isinstance(term.left, exp.Column) and isinstance(term.right, exp.Column):
        return term, scope.place(term.left)[0], scope.place(term.right)[0]
    return None


def meets(pair: tuple[exp.EQ, Place, Place], keys: set[Place], tied: set[Place]) -> bool:
    """Whether a pair of equal columns ties a source's key to one that is tied."""
    _, left, right = pair
    return (left in keys and right in tied) or (right in keys and left in tied)


def key_places(scope: Scope, name: str) -> set[Place]:
    """The columns of a source that hold the unit key."""
    return {(scope.depth, name, key) for key in scope.sources[name].keys}


def identifier_of(item: exp.Expr) -> exp.Expr:
    """What a table in FROM is called."""
    alias = item.args.get("alias")
    found: exp.Expr = alias.this if alias is not None and alias.this is not None else item.this
    return found


def is_left_out(column: exp.Expr) -> bool:
    """Whether it is a name after EXCLUDE."""
    return isinstance(column.parent, exp.Star) and column.arg_key == "except_"


def is_windowed(node: exp.Expr) -> bool:
    """Whether an aggregate is a window's."""
    whole = node.parent if isinstance(node.parent, exp.Filter) else node
    return isinstance(whole.parent, exp.Window) and node.arg_key == whole.arg_key == "this"


def is_own(column: exp.Column, scope: Scope) -> bool:
    """Whether a column is of the SELECT itself, not of one outside."""
    return scope.place(column)[0][0] == scope.depth


def loose_column(node: exp.Expr, grouped: list[exp.Expr], scope: Scope, dialect: str) -> str | None:
    """A column of a grouped SELECT that is of no group."""
    if node in grouped or is_aggregate(node, dialect) or isinstance(node, exp.Filter):
        return None
    if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and (node.is_star or is_own(node, scope))):
        return node.sql(dialect=dialect)
    if isinstance(node, exp.Column):
        return None
    return next(
        (found for child in node.iter_expressions() if (found := loose_column(child, grouped, scope, dialect))), None
    )


def is_one_row(query: exp.Query, dialect: str) -> bool:
    """Whether a query gives one row whatever it reads."""
    select = query.unnest()
    if (
        not isinstance(select, exp.Select)
        or select.args.get("group")
        or select.args.get("having")
        or len(select.selects) != 1
    ):
        return False
    term = select.selects[0].unalias()
    return any(is_aggregate(node, dialect) and not is_windowed(node) for node in (term, *own(term)))


def part_of(node: exp.Expr, select: exp.Select) -> str:
    """In which part of a SELECT a node of its own stands."""
    while node.parent is not None and node.parent is not select:
        node = node.parent
    return str(node.arg_key)
