"""Whether each row of a hospital's SELECT is made of one patient's own rows and of public tables.

Every table that is not public holds patients, each row under its unit key. A SELECT may look at several such
tables only where equality of their keys ties them to one patient, and may put rows together (groups, windows,
DISTINCT, aggregates) only patient by patient. What cannot be resolved with certainty is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sqlglot import exp

from site_agent.reading.relations.allowed_sql import is_aggregate
from site_agent.reading.relations.outcomes import QueryRows, Tie, outcome_of, tie_of
from site_agent.reading.relations.scopes import Folding, Place, Promise, Relation, Scope, Unclear, conjuncts, own
from site_agent.reading.relations.selects import (
    beyond,
    both,
    condition_of,
    equal_columns,
    equal_pair,
    identifier_of,
    is_left_out,
    is_one_row,
    is_own,
    is_windowed,
    key_places,
    loose_column,
    meets,
    part_of,
    write_positions,
)

_SELECT = frozenset(
    {"with_", "expressions", "from_", "joins", "where", "group", "having", "qualify", "distinct", "order"}
)
_UNION = frozenset({"with_", "this", "expression", "distinct", "order"})
_TABLE = frozenset({"this", "db", "catalog", "alias"})
_INSTEAD = {"WINDOWS": " with names; write each one where it is used, OVER (PARTITION BY …)"}
_JOIN = frozenset({"this", "side", "kind", "on", "using"})
_DERIVED = frozenset({"this", "alias"})
_BRACKETS = frozenset({"this"})
_WINDOW = frozenset({"this", "partition_by", "order", "spec", "over"})
_UNNAMED = "wardround_query"


@dataclass(slots=True)
class Ownership:
    """The check of one relation; it also writes out what every bare name means."""

    dialect: str
    promise: Promise
    unnamed: int = 0

    @property
    def folding(self) -> Folding:
        """How the database compares names."""
        return Folding(self.dialect)

    def check(self, query: exp.Query) -> None:
        """Refuse what is not certain.

        Raises:
            Unclear: one sentence.
        """
        outcome = self.query(query, {}, None)
        key = self.folding.of_text(self.promise.unit_key)
        tie = outcome.tie(key)
        if not outcome.patients or tie is None or tie is Tie.OTHER:
            raise Unclear(f"must have the unit key among its columns, as {self.promise.unit_key!r}")
        if tie is Tie.OWN and (self.promise.keys or not outcome.rowwise):
            raise Unclear(f"must return the unit key unchanged, as {self.promise.unit_key!r}{self._hint(query)}")

    def query(
        self, query: exp.Query, ctes: Mapping[str, QueryRows], parent: Scope | None, *, tie: bool = True
    ) -> QueryRows:
        """The rows of any query; with `parent` and `tie`, those of the patient of the row outside."""
        inner = query
        while isinstance(inner, exp.Subquery):
            # What stands beside the query in its brackets, such as a join, would not be looked at.
            if beyond(inner, _BRACKETS if inner is not query else _DERIVED):
                raise Unclear("may have only one SELECT inside brackets: write joins and WITH inside the SELECT")
            inner = inner.this
        if isinstance(inner, exp.Select):
            return self._select(inner, ctes, parent, tie=tie)
        if not isinstance(inner, exp.Union) or inner.args.get("distinct") is not False or beyond(inner, _UNION):
            raise Unclear("may combine queries only with UNION ALL: all else compares patients with each other")
        known = self._ctes(inner, ctes)
        inner.set("order", None)
        left, right = (self.query(side, known, parent, tie=tie) for side in (inner.left, inner.right))
        return left.followed_by(right)

    # --- One SELECT ---------------------------------------------------------------------------------------

    def _select(
        self, select: exp.Select, ctes: Mapping[str, QueryRows], parent: Scope | None, *, tie: bool
    ) -> QueryRows:
        if part := beyond(select, _SELECT):
            word = part.rstrip("_").upper()
            raise Unclear(f"may not use {word}{_INSTEAD.get(word, '')}")
        # Without LIMIT nothing depends on it.
        select.set("order", None)
        known = self._ctes(select, ctes)
        scope = Scope(self.folding, parent)
        self._from(select, scope, known)
        write_positions(select)
        self._names(select, scope)
        self._ties(select, scope, needed=parent is not None and tie)
        reads_patients = self._subqueries(select, scope, known)
        puts_together = self._rows_together(select, scope, select.args.get("group"))
        single = [source for source in scope.sources.values() if source.patients]
        rowwise = len(single) == 1 and single[0].rowwise and not reads_patients and not puts_together
        outcome = outcome_of(select, scope, rowwise=rowwise, reads=reads_patients)
        if select.args.get("distinct") is not None:
            self._distinct(select, scope, outcome)
        return outcome

    def _ctes(self, query: exp.Query, ctes: Mapping[str, QueryRows]) -> dict[str, QueryRows]:
        known, with_ = dict(ctes), query.args.get("with_")
        own_queries = list(with_.expressions) if with_ is not None else []
        names = [self.folding.of(cte.args["alias"].this) for cte in own_queries]
        for place, (cte, name) in enumerate(zip(own_queries, names, strict=True)):
            # SQLite also finds a query that WITH names further on.
            later = {self.folding.of(each.this) for each in cte.find_all(exp.Table)} & set(names[place:])
            if later or name in known:
                raise Unclear(f"must give each query of WITH a new name; {cte.alias!r} is used twice")
            if not isinstance(cte.this, exp.Query):
                raise Unclear("may have only queries in WITH")
            found = self.query(cte.this, known, None)
            known[name] = found.renamed([self.folding.of(each) for each in cte.args["alias"].args.get("columns") or ()])
        return known

    def _from(self, select: exp.Select, scope: Scope, ctes: Mapping[str, QueryRows]) -> None:
        from_ = select.args.get("from_")
        if from_ is None:
            return
        scope.add(self._source(from_.this, ctes))
        for join in select.args.get("joins") or ():
            side, kind = (str(join.args.get(word) or "").upper() for word in ("side", "kind"))
            if beyond(join, _JOIN) or side not in {"", "LEFT"} or kind not in {"", "INNER", "OUTER", "CROSS"}:
                said = " ".join(word for word in (str(join.args.get("method") or "").upper(), side, kind) if word)
                what = f"may use only JOIN, LEFT JOIN and CROSS JOIN, not {said or 'another'} JOIN"
                raise Unclear(f"{what}; put the table that keeps all its rows first and write LEFT JOIN")
            earlier = list(scope.sources)
            name = scope.add(self._source(join.this, ctes, optional=side == "LEFT"))
            for column in join.args.get("using") or ():
                join.set("on", both(join.args.get("on"), equal_columns(column, scope, earlier, name)))
            join.set("using", None)

    def _source(self, item: exp.Expr, ctes: Mapping[str, QueryRows], *, optional: bool = False) -> Relation:
        alias = item.args.get("alias")
        columns = [self.folding.of(each) for each in (alias.args.get("columns") if alias is not None else None) or ()]
        if isinstance(item, exp.Table) and isinstance(item.this, exp.Identifier) and not beyond(item, _TABLE):
            name = self.folding.of(item.this)
            found = ctes.get(name) if not item.args.get("db") else None
            called = alias.this if alias is not None and alias.this is not None else item.this
            if found is None:
                return self._table(item, called, columns, optional=optional)
        elif isinstance(item, exp.Subquery) and isinstance(item.this, exp.Query) and not beyond(item, _DERIVED):
            called, found = self._called(item), self.query(item.this, ctes, None)
        elif isinstance(item, exp.Values) and columns and not beyond(item, frozenset({"expressions", "alias"})):
            if any(
                not isinstance(each, exp.Literal | exp.Null | exp.Neg | exp.Boolean)
                for line in item.expressions
                for each in line.expressions
            ):
                raise Unclear("may have only plain values in VALUES")
            identifier: exp.Identifier = item.args["alias"].this
            return Relation(identifier, patients=False, columns=tuple(columns), optional=optional)
        else:
            raise Unclear("may read only tables, views and queries in FROM, no functions, LATERAL, samples or brackets")
        found = found.renamed(columns)
        keys = frozenset(column for column, tie in found.columns if tie is Tie.KEY)
        names = None if found.open else tuple(column for column, _ in found.columns)
        return Relation(called, found.patients, names, keys, rowwise=found.rowwise, optional=optional)

    def _table(self, item: exp.Table, called: exp.Identifier, columns: Collection[str], *, optional: bool) -> Relation:
        written = ".".join(part.name for part in item.parts)
        if columns:
            raise Unclear(f"must name the columns of {written!r} in SELECT, not after its alias")
        if self.promise.only is not None and (written.lower() not in self.promise.only):
            raise Unclear(f"may read only {' and '.join(self.promise.only)}")
        if self._is_public(item):
            return Relation(called, patients=False, optional=optional)
        keys = self.promise.keys_of(written, self.folding)
        return Relation(called, patients=True, keys=keys, rowwise=True, optional=optional, written=written)

    def _is_public(self, item: exp.Table) -> bool:
        parts = tuple(self.folding.of(part) for part in item.parts)
        return any(
            tuple(self.folding.of_text(part) for part in name.split(".")) == parts for name in self.promise.public
        )

    def _called(self, item: exp.Subquery) -> exp.Identifier:
        if not item.alias:
            self.unnamed += 1
            item.set("alias", exp.TableAlias(this=exp.to_identifier(f"{_UNNAMED}_{self.unnamed}")))
        found: exp.Identifier = item.args["alias"].this
        return found

    def _names(self, select: exp.Select, scope: Scope) -> None:
        """Write the table before every column; a name that SELECT itself gives is refused: it could be a column."""
        given = {
            scope.folding.of(term.args["alias"]): {
                scope.folding.of(column.this) for column in term.find_all(exp.Column)
            }
            for term in select.expressions
            if isinstance(term, exp.Alias)
        }
        for column in list(own(select, exp.Column)):
            if not isinstance(column, exp.Column) or isinstance(column.this, exp.Star) or is_left_out(column):
                continue
            name = scope.folding.of(column.this)
            if column.args.get("table") is None and name in given and name not in given[name]:
                raise Unclear(
                    f"must not use {column.name!r}, a name that the same SELECT defines: repeat its expression, or "
                    "use its number in GROUP BY; if it is also a column, write its table before it"
                )
            scope.qualify(column)

    # --- Ties ---------------------------------------------------------------------------------------------

    def _ties(self, select: exp.Select, scope: Scope, *, needed: bool) -> None:
        """See that all patients' tables are tied to one patient; `needed`: the one of the row outside."""
        equal = [
            pair for each in conjuncts(condition_of(select, "where")) if (pair := equal_pair(each, scope)) is not None
        ]
        optional: dict[str, list[tuple[exp.EQ, Place, Place]]] = {}
        for join in select.args.get("joins") or ():
            if any(found is not join.this for found in own(join, exp.Query)):
                raise Unclear("may use a subquery in SELECT and in WHERE, not in ON")
            found = [pair for each in conjuncts(join.args.get("on")) if (pair := equal_pair(each, scope)) is not None]
            name = scope.folding.of(identifier_of(join.this))
            if scope.sources[name].optional:
                optional[name] = found
            else:
                equal += found
        waiting, tied = scope.patients, scope.outer_keys() if needed else set()
        scope.tied = needed or not waiting
        if not needed and waiting:
            first = next((name for name in waiting if not scope.sources[name].optional), None)
            if first is None:
                raise Unclear("must put a table of patients first where public tables are joined by LEFT JOIN")
            waiting.remove(first)
            tied |= key_places(scope, first)
        while waiting:
            for name in waiting:
                ties = [pair for pair in optional.get(name, equal) if meets(pair, key_places(scope, name), tied)]
                if ties:
                    self._tie_safely([pair[0] for pair in ties])
                    tied |= key_places(scope, name)
                    waiting.remove(name)
                    break
            else:
                raise Unclear(self._untied(scope, waiting[0], needed=needed))
        scope.keys = {
            place for name in scope.patients if not scope.sources[name].optional for place in key_places(scope, name)
        }

    def _tie_safely(self, ties: list[exp.EQ]) -> None:
        """Compare keys as the agent does, byte by byte, and without a conversion that a row could fail."""
        for equal in ties:
            for side in ("this", "expression"):
                value = equal.args[side]
                if self.dialect == "duckdb" and not isinstance(value, exp.Cast):
                    equal.set(side, exp.cast(value, "TEXT"))
                elif self.dialect == "sqlite" and not isinstance(value, exp.Collate):
                    equal.set(side, exp.Collate(this=value, expression=exp.var("BINARY")))

    def _untied(self, scope: Scope, name: str, *, needed: bool) -> str:
        source = scope.sources[name]
        called, key = source.identifier.name, next(iter(sorted(source.keys)), self.promise.unit_key)
        holder = scope.parent if needed else scope
        others = [place for place in sorted(holder.keys or set()) if place[1] != name] if holder is not None else []
        if not others and holder is scope:
            others = [place for each in scope.patients if each != name for place in sorted(key_places(scope, each))]
        other = f"{others[0][1]}.{others[0][2]}" if others else f"t.{key}, where t is a patient's table outside,"
        where = "inside its WHERE" if needed else "in ON or WHERE"
        return (
            f"must tie {called!r} to one patient: write {called}.{key} = {other} {where}; if your tables have another "
            f'name for the unit key, add key = ["COLUMN"] to the table in site.toml, and '
            f'public = ["{source.written or "TABLE"}"] if no patient is in {called!r}'
        )

    # --- Queries inside -----------------------------------------------------------------------------------

    def _subqueries(self, select: exp.Select, scope: Scope, ctes: Mapping[str, QueryRows]) -> bool:
        """Check the queries in expressions; whether one of them reads patients."""
        reads = False
        items = {id(item.this) for item in (select.args.get("from_"), *(select.args.get("joins") or ())) if item}
        direct = {id(each) for each in conjuncts(condition_of(select, "where"))}
        for query in [found for found in own(select, exp.Query) if id(found) not in items]:
            holder = query.parent
            if not isinstance(query, exp.Query) or isinstance(holder, exp.CTE):
                continue
            if part_of(query, select) not in {"expressions", "where"}:
                raise Unclear("may use a subquery only in SELECT and in WHERE")
            # Where only such rows stay, a key that is found is the row's own.
            found_by_key = isinstance(holder, exp.In) and id(holder) in direct and tie_of(holder.this, scope) is Tie.KEY
            found = self.query(query, ctes, scope, tie=not found_by_key)
            if found_by_key and holder is not None:
                self._compare_bytes(holder.this, scope)
            reads = reads or found.patients or found.reads
            if found_by_key and found.patients and [tie for _, tie in found.columns] != [Tie.KEY]:
                raise Unclear("must select the unit key in a subquery after IN, or use EXISTS tied to the patient")
            if not isinstance(holder, exp.In | exp.Any | exp.All | exp.Exists) and not is_one_row(query, self.dialect):
                raise Unclear("may use a subquery as a value only if it is one aggregate without GROUP BY, as max(…)")
        return reads

    # --- Rows put together --------------------------------------------------------------------------------

    def _rows_together(self, select: exp.Select, scope: Scope, group: exp.Group | None) -> bool:
        windows = [found for found in own(select, exp.Window) if isinstance(found, exp.Window)]
        totals = [found for found in own(select) if is_aggregate(found, self.dialect) and not is_windowed(found)]
        for window in windows:
            if beyond(window, _WINDOW):
                raise Unclear("must write each window in full: OVER (PARTITION BY … ORDER BY …)")
            if not scope.tied and not any(
                tie_of(term, scope) is Tie.KEY for term in window.args.get("partition_by") or ()
            ):
                raise Unclear(f"may use a window only with the unit key in its PARTITION BY{self._hint(select)}")
        if group is not None:
            if any(value for name, value in group.args.items() if name != "expressions"):
                raise Unclear("may group only by plain columns")
            if not scope.tied and not any(tie_of(term, scope) is Tie.KEY for term in group.expressions):
                raise Unclear(f"may use GROUP BY only with the unit key in it{self._hint(select)}")
        elif (totals or select.args.get("having")) and not scope.tied:
            raise Unclear(f"may use aggregates only with the unit key in GROUP BY{self._hint(select)}")
        if group is not None or totals:
            if windows or any(part_of(query, select) == "expressions" for query in own(select, exp.Query)):
                raise Unclear("must put aggregates into their own query in WITH where a window or a subquery is beside")
            self._added_up(select, scope, group, totals)
        for term in (
            *(group.expressions if group is not None else ()),
            *(t for w in windows for t in w.args.get("partition_by") or ()),
        ):
            self._compare_bytes(term, scope)
        return bool(windows or totals or group is not None or select.args.get("distinct"))

    def _added_up(self, select: exp.Select, scope: Scope, group: exp.Group | None, totals: list[exp.Expr]) -> None:
        """A column that is neither grouped by nor added up would be of whichever row came first."""
        # A FILTER's column decides as well whose aggregate it is.
        counted = [total.parent if isinstance(total.parent, exp.Filter) else total for total in totals]
        for column in (column for total in counted for column in own(total, exp.Column)):
            # Databases add up such a column over the rows outside.
            if isinstance(column, exp.Column) and not column.is_star and not is_own(column, scope):
                raise Unclear(f"may not aggregate {column.sql()}, a column of the outer query")
        terms = list(group.expressions) if group is not None else []
        having = condition_of(select, "having")
        for term in (*select.expressions, *([having] if having is not None else ())):
            loose = loose_column(term.unalias(), terms, scope, self.dialect)
            if loose is not None:
                raise Unclear(
                    f"must put {loose} into GROUP BY or an aggregate: else it is that of whichever row is first"
                )

    def _distinct(self, select: exp.Select, scope: Scope, outcome: QueryRows) -> None:
        if select.args["distinct"].args.get("on") is not None:
            raise Unclear(
                "may not use DISTINCT ON: which row stays would depend on where it is stored; use a window or max(…)"
            )
        if not scope.tied and not any(tie is Tie.KEY for _, tie in outcome.columns):
            raise Unclear(f"may use DISTINCT only with the unit key among its columns{self._hint(select)}")

        for term in select.expressions:
            if self.dialect == "sqlite" and term.is_star:
                raise Unclear("must list the columns after DISTINCT")
            name = (
                exp.alias_(term.copy(), term.this.copy()) if isinstance(term, exp.Column) and not term.is_star else term
            )
            if self.dialect == "sqlite" and name is not term:
                term.replace(name)
            self._compare_bytes(name.unalias(), scope)

    def _compare_bytes(self, term: exp.Expr, scope: Scope) -> None:
        """SQLite compares as a column was declared, perhaps without capitals; the agent compares keys byte by byte."""
        if self.dialect == "sqlite" and isinstance(term, exp.Column) and tie_of(term, scope) is Tie.KEY:
            term.replace(exp.Collate(this=term.copy(), expression=exp.var("BINARY")))

    def _hint(self, query: exp.Query) -> str:
        """What to add where a column is called the unit key, and nobody said that it is one."""
        key = self.folding.of_text(self.promise.unit_key)
        for alias in query.find_all(exp.Alias):
            if (
                self.folding.of(alias.args["alias"]) == key
                and isinstance(alias.this, exp.Column)
                and not self.promise.keys
            ):
                add = f'add key = ["{alias.this.name}"] to the table in site.toml'
                return f", which is {self.promise.unit_key!r}; if your tables have another name for it, {add}"
        said = " or ".join(self.promise.keys) or self.promise.unit_key
        return f", which the tables call {said!r}"
