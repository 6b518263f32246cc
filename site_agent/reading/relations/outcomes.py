"""What is known about the rows of a query: whose they are, and in which columns the unit key is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from sqlglot import exp

from site_agent.reading.relations.scopes import Scope, Unclear, own


class Tie(IntEnum):
    """How a column goes with the patient whose row it is in; the least certain first."""

    OTHER = 0
    # Made of the patient's row.
    OWN = 1
    # Made of the unit key alone, such as its text.
    OF_KEY = 2
    # The unit key, unchanged.
    KEY = 3


@dataclass(frozen=True, slots=True)
class QueryRows:
    """The rows of a query."""

    patients: bool
    columns: tuple[tuple[str, Tie], ...]
    # Beside `columns` it has all those of a table, which are not known.
    open: bool = False
    rowwise: bool = False
    # A query inside reads patients.
    reads: bool = False

    def tie(self, name: str) -> Tie | None:
        """How the column called `name` goes with its patient; None where there is none."""
        found = [tie for column, tie in self.columns if column == name]
        return min(found) if found else None

    def renamed(self, names: Sequence[str]) -> QueryRows:
        """The same rows with names of their own for the first columns.

        Raises:
            Unclear: not all columns are known.
        """
        if not names:
            return self
        if self.open or len(names) > len(self.columns):
            raise Unclear("must name columns inside the query, not after its alias")
        kept = self.columns[len(names) :]
        renamed = tuple((name, tie) for name, (_, tie) in zip(names, self.columns, strict=False))
        return QueryRows(self.patients, renamed + kept, self.open, self.rowwise, self.reads)

    def followed_by(self, other: QueryRows) -> QueryRows:
        """The rows of both, one after the other.

        Raises:
            Unclear: not all columns are known.
        """
        if self.open or other.open or len(self.columns) != len(other.columns):
            raise Unclear("must list the columns, in the same order, in queries combined with UNION ALL")
        if self.patients != other.patients:
            raise Unclear("may not mix rows of public tables with patients' rows in UNION ALL")
        columns = tuple(
            (name, min(tie, its)) for (name, tie), (_, its) in zip(self.columns, other.columns, strict=True)
        )
        rowwise, reads = self.rowwise and other.rowwise, self.reads or other.reads
        return QueryRows(self.patients, columns, rowwise=rowwise, reads=reads)


def outcome_of(select: exp.Select, scope: Scope, *, rowwise: bool, reads: bool) -> QueryRows:
    """The columns of a SELECT whose names are resolved."""
    columns: list[tuple[str, Tie]] = []
    keys: list[exp.Expr] = []
    is_open = False
    for term in select.expressions:
        if term.is_star:
            found, more = _starred(term, scope)
            columns += found
            is_open = is_open or more
        else:
            alias = term.args["alias"] if isinstance(term, exp.Alias) else None
            named = term.this if isinstance(term, exp.Column) else alias
            tie = tie_of(term.unalias(), scope)
            columns.append(("" if named is None else scope.folding.of(named), tie))
            keys += [term] if tie is Tie.KEY else []
    names = [name for name, _ in columns]
    for name, tie in columns:
        if tie is Tie.KEY and names.count(name) > 1:
            raise Unclear(f"must not have two columns called {name!r}")
    if is_open:
        # A table's own column may be called as the key is here; of two with one name databases take the first.
        select.set("expressions", [*keys, *(term for term in select.expressions if term not in keys)])
    return QueryRows(bool(scope.patients), tuple(columns), is_open, rowwise, reads)


def tie_of(term: exp.Expr, scope: Scope) -> Tie:
    """How an expression goes with the patient whose row it is in."""
    while isinstance(term, exp.Paren):
        term = term.this
    if isinstance(term, exp.Column):
        place, source = scope.place(term)
        return Tie.KEY if place in scope.keys else Tie.OWN if source.patients else Tie.OTHER
    ties = [tie_of(column, scope) for column in own(term, exp.Column)]
    if not ties:
        return Tie.OTHER
    of_key = min(ties) is Tie.KEY and term.find(exp.Query, exp.Window, exp.AggFunc) is None
    return Tie.OF_KEY if of_key else Tie.OWN if max(ties) >= Tie.OWN else Tie.OTHER


def _starred(term: exp.Expr, scope: Scope) -> tuple[list[tuple[str, Tie]], bool]:
    """The known columns of a star, and whether there are others."""
    star = term.this if isinstance(term, exp.Column) else term
    if any(value for name, value in star.args.items() if name not in {"except_", "replace"}):
        raise Unclear("may use only EXCLUDE and REPLACE after a star")
    if isinstance(term, exp.Column):
        alias = scope.folding.of(term.args["table"])
        if alias not in scope.sources:
            raise Unclear(f"uses {term.sql()}, but no table in its FROM is called {term.table!r}")
    elif len(scope.sources) != 1:
        names = [source.identifier.name for source in scope.sources.values()]
        first = names[0] if names else "t"
        raise Unclear(f"must say which table a star means when FROM does not have exactly one: {first}.* instead of *")
    else:
        alias = next(iter(scope.sources))
    source = scope.sources[alias]
    known = source.columns if source.columns is not None else tuple(sorted(source.keys))
    left_out = {
        scope.folding.of(each.this if isinstance(each, exp.Column) else each) for each in star.args.get("except_") or ()
    }
    replaced = {
        scope.folding.of(each.args["alias"]): tie_of(each.this, scope) for each in star.args.get("replace") or ()
    }
    columns = []
    for name in dict.fromkeys((*known, *replaced)):
        key = (scope.depth, alias, name) in scope.keys
        if name not in left_out:
            columns.append((name, replaced.get(name, Tie.KEY if key else Tie.OWN if source.patients else Tie.OTHER)))
    return columns, source.columns is None
