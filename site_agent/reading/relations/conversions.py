"""Where a database converts values by itself, and whether a value could make that fail.

Branches of UNION ALL, results of CASE, operands of coalesce and both sides of a comparison become one type. Which
type that is the text does not show, so the database is asked for the types, without a row: they are the same whatever
rows there are. Where they differ and the conversion cannot take every value, the relation is refused, and the hospital
writes the cast, which is made so that it cannot fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from site_agent.reading.relations.scopes import Unclear
from wardround.federation.errors import SchemaRefused

Types = tuple[str, ...]
Asked = Callable[[exp.Query], Types | None]
"""The types of a query's columns as the database names them; None when it does not take the query."""

_CHOOSING = (exp.Case, exp.If, exp.Coalesce, exp.Greatest, exp.Least)
_COMPARING = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Nullif, exp.In, exp.Between)


@dataclass(frozen=True, slots=True)
class Merging:
    """What a database makes of values of several types in one place."""

    # Whether it can take every value of the types into one; a comparison may know more pairs than a choice.
    chooses: Callable[[frozenset[str]], bool]
    compares: Callable[[frozenset[str]], bool]
    # Expressions inside `guards` cannot fail, whatever they convert, those apart that are `unguarded`: DuckDB makes a
    # join of a list behind IN, outside of any TRY.
    guards: tuple[type[exp.Expr], ...] = ()
    unguarded: tuple[type[exp.Expr], ...] = ()


def require_total_conversions(query: exp.Query, asked: Asked, merging: Merging, *, table: str) -> None:
    """Refuse the relation of a table in which a value could fail a conversion that nobody wrote.

    Raises:
        SchemaRefused: one sentence, made of types and of the relation's own words.
    """
    fault = ""
    try:
        _check(query, asked, merging)
    except Unclear as unclear:
        fault = str(unclear)
    if fault:
        raise SchemaRefused(f"tables.{table}.relation {fault}.")


def _check(query: exp.Query, asked: Asked, merging: Merging) -> None:
    for united in query.find_all(exp.SetOperation):
        if not isinstance(united.parent_select, exp.SetOperation):
            _check_union(united, asked, merging)
    for select in query.find_all(exp.Select):
        _check_select(select, asked, merging)


def _check_union(united: exp.SetOperation, asked: Asked, merging: Merging) -> None:
    branches = [asked(_alone(branch, united)) for branch in _branches(united)]
    known = [found for found in branches if found is not None]
    if len(known) < len(branches):
        raise Unclear("has a UNION ALL whose types the database does not tell: name it in a query in WITH")
    for kinds in zip(*known, strict=False):
        if not merging.chooses(frozenset(kinds)):
            raise _mixed("UNION ALL", frozenset(kinds))


def _branches(query: exp.Expr) -> Iterator[exp.Query]:
    inner = query.unnest()
    if isinstance(inner, exp.SetOperation):
        yield from _branches(inner.this)
        yield from _branches(inner.expression)
    elif isinstance(inner, exp.Query):
        yield inner


def _check_select(select: exp.Select, asked: Asked, merging: Merging) -> None:
    places = [(node, operands) for node in _own_merges(select, merging) if len(operands := _operands(node)) > 1]
    if not places:
        return
    # All at once, which nearly always works; else one by one.
    kinds = asked(_probe(select, [operand for _, operands in places for operand in operands], ()))
    for node, operands in places:
        found = _types(select, operands, asked) if kinds is None else kinds[: len(operands)]
        kinds = None if kinds is None else kinds[len(operands) :]
        compares = isinstance(node, _COMPARING)
        if not (merging.compares if compares else merging.chooses)(frozenset(found)):
            raise _mixed("a comparison" if compares else node.key.upper(), frozenset(found))


def _own_merges(select: exp.Select, merging: Merging) -> Iterator[exp.Expr]:
    """The expressions of this SELECT itself in which several types become one."""
    for node in select.walk(prune=lambda node: node is not select and isinstance(node, exp.Query)):
        guarded = node.find_ancestor(exp.Query, *merging.guards)
        inside = isinstance(guarded, merging.guards) and not isinstance(node, merging.unguarded)
        if isinstance(node, (*_CHOOSING, *_COMPARING)) and not inside:
            yield node


def _operands(node: exp.Expr) -> list[exp.Expr]:
    match node:
        case exp.Case():
            results = [each.args["true"] for each in node.args["ifs"]] + [node.args.get("default")]
        case exp.If():
            # The branches of a CASE are its own.
            results = [] if isinstance(node.parent, exp.Case) else [node.args["true"], node.args.get("false")]
        case exp.In():
            results = [node.this, *node.expressions, node.args.get("query")]
        case exp.Between():
            results = [node.this, node.args["low"], node.args["high"]]
        case exp.Coalesce() | exp.Greatest() | exp.Least():
            results = [node.this, *node.expressions]
        case _:
            results = [node.this, node.args.get("expression")]
    return [found for found in results if found is not None and not _takes_any_type(found)]


def _takes_any_type(node: exp.Expr) -> bool:
    """NULL, and a quoted text, which is read as the others' type when the statement is and not when a row is."""
    inner = node.unnest()
    return inner.is_string or isinstance(inner, exp.Null | exp.Any | exp.All)


def _types(select: exp.Select, operands: Sequence[exp.Expr], asked: Asked) -> Types:
    """The types of expressions of a SELECT, of its rows or of its groups, alone or with the queries around it."""
    around: list[exp.Expr] = []
    outer: exp.Expr | None = select
    while isinstance(outer, exp.Select):
        if outer is not select:
            around += [item.this for item in (outer.args["from_"], *(outer.args.get("joins") or ()))]
        for group in (None, select.args.get("group")):
            if (found := asked(_probe(select, operands, around, group=group))) is not None:
                return found
        outer = outer.parent_select
    raise Unclear(
        "has a CASE, coalesce or comparison whose types the database does not tell: name its parts in a query in WITH"
    )


def _probe(
    select: exp.Select, operands: Sequence[exp.Expr], around: Sequence[exp.Expr], *, group: exp.Expr | None = None
) -> exp.Query:
    """The operands as columns of a query that is asked for its types alone."""
    parts = {name: _copied(select.args.get(name)) for name in ("from_", "joins")}
    probe = exp.Select(**parts, group=_copied(group))
    probe = probe.select(*(exp.alias_(each.copy(), f"c{place}") for place, each in enumerate(operands)), copy=False)
    for item in around:
        probe = probe.join(item.copy(), join_type="CROSS", copy=False)
    return _alone(probe, select)


def _alone(query: exp.Query, place: exp.Expr) -> exp.Query:
    """A copy that can be asked by itself: with the queries in WITH that it sees from its place."""
    found = query.copy()
    own = found.args.pop("with_", None)
    seen: dict[str, exp.CTE] = {cte.alias: cte for cte in (own.expressions if own is not None else ())}
    node: exp.Expr | None = place
    while node is not None:
        with_ = node.args.get("with_") if isinstance(node, exp.Query) else None
        for cte in reversed(with_.expressions if with_ is not None else ()):
            if not any(above is cte for above in _above(place)) and cte.alias not in seen:
                seen = {cte.alias: cte.copy(), **seen}
        node = node.parent
    if seen:
        found.set("with_", exp.With(expressions=list(seen.values())))
    return found


def _above(node: exp.Expr) -> Iterator[exp.Expr]:
    above: exp.Expr | None = node
    while above is not None:
        yield above
        above = above.parent


def _copied(part: object) -> object:
    if isinstance(part, list):
        return [each.copy() for each in part]
    return part.copy() if isinstance(part, exp.Expr) else part


def _mixed(where: str, kinds: frozenset[str]) -> Unclear:
    return Unclear(
        f"has {' and '.join(sorted(kinds))} in {where}, which the database converts by itself and some value could "
        "fail: write CAST(… AS …) so that they have one type"
    )
