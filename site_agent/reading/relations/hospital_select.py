"""A hospital's own SELECT: which rows of its database are a table of the study.

A relation is a promise: each of its rows comes from one patient's own rows and from public tables. Whatever
lets one patient change another's rows (a limit, a rank over everybody, a total of everybody) makes one
patient's influence unbounded. So every name in it is resolved, what is not certain to keep the promise is refused
(`ownership`), and what a row could fail is replaced by what it cannot (`unfailing_*`). A view is
not seen through: what the hospital's own database says under its name stays the hospital's promise.

Which of two rows that are equal in a window's ORDER BY comes first depends, in databases that read in parallel, on the
rows of others. Ordered by everything they hold, rows that are still equal are the same row twice. SQLite
reads in one order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

import sqlglot
from sqlglot import exp

from site_agent.reading.dataset import FORMATS, Declared, TableSource, kind_of
from site_agent.reading.relations import unfailing_duckdb, unfailing_postgresql, unfailing_sqlite
from site_agent.reading.relations.allowed_sql import ORDERED, shape_faults, unknown_word
from site_agent.reading.relations.ownership import Ownership
from site_agent.reading.relations.scopes import Promise, Unclear, own
from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.study.study import Table

THIS = "this"
"""What a SELECT over files calls them."""

_DIALECTS = {"csv": "duckdb", "parquet": "duckdb", "duckdb": "duckdb", "sqlite": "sqlite", "postgresql": "postgres"}
_UNFAILING: Mapping[str, Callable[[exp.Query], None]] = {
    "duckdb": unfailing_duckdb.make_unfailing,
    "sqlite": unfailing_sqlite.make_unfailing,
    "postgres": unfailing_postgresql.make_unfailing,
}
_WRONG = "must be the name of a table or view, or one SELECT"
_NAME = re.compile(r'[A-Za-z_][A-Za-z0-9_$]*|"(?:[^"]|"")+"')
_NAMES = re.compile(rf"\s*(?:{_NAME.pattern})(?:\.(?:{_NAME.pattern}))*\s*")
_BEGINS = re.compile(r"[\s(]*(?:select|with|from)(?![A-Za-z0-9_$])", re.IGNORECASE)
"""How a SELECT begins; a table may be called withdrawals."""

_PLACES = ("this", "db", "catalog")
_MAX_TEXT = 100_000
_NO_QUERY = (
    exp.DML,
    exp.DDL,
    exp.Command,
    exp.Drop,
    exp.Alter,
    exp.Copy,
    exp.Attach,
    exp.Detach,
    exp.Pragma,
    exp.Set,
    exp.Use,
    exp.Transaction,
    exp.Into,
    exp.Lock,
    exp.Placeholder,
    exp.Parameter,
)
_CUTTING = (exp.Limit, exp.Offset, exp.Fetch, exp.TableSample, exp.Pivot)
_PHYSICAL = frozenset(
    {"rowid", "_rowid_", "oid", "ctid", "xmin", "xmax", "cmin", "cmax", "tableoid", "file_row_number", "file_index"}
)
_MOMENTS = frozenset({"now", "today", "tomorrow", "yesterday"})
_NOT_ITS_OWN = "may not use functions that depend on anything but the row, such as random() and now()"
_PRESENT = frozenset({"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp", "sysdate"})
"""Functions that are called without brackets, and so look like columns."""
_ENDS = frozenset({"UNBOUNDED", "CURRENT ROW"})


def relation_query(
    table: Table, text: str, dialect: str, *, only: Collection[str] | None = None, declared: Declared | None = None
) -> exp.Query:
    """The relation as a query that no row can fail; a plain name of a table or view is all of it.

    `dialect` is the generator's name for the database. With `only`, no other table may be named.

    Raises:
        ConfigurationMistaken: one sentence about what a relation may not do.
    """
    reading = _Reading(table, text, dialect)
    query, said = reading.query(), declared or Declared()
    for fault in _faults(query, dialect, only):
        raise reading.mistaken(fault)
    if reading.is_name():
        return query
    fault = ""
    try:
        promise = Promise(table.unit_key, keys=said.keys, public=said.public, only=only)
        Ownership(dialect, promise).check(query)
        order_windows(query, dialect)
        _UNFAILING[dialect](query)
    except Unclear as unclear:
        fault = str(unclear)
    except RecursionError:
        fault = "is nested too deeply"
    if fault:
        raise reading.mistaken(fault)
    return query


def check_relation(table: Table, source: TableSource) -> None:
    """Refuse what `site.toml` says about a table before anything is opened.

    Raises:
        ConfigurationMistaken: see `relation_query`.
    """
    kind = kind_of(source.source)
    if source.relation is None or source.source in FORMATS or kind is None:
        return
    only = (THIS,) if kind in FORMATS else None
    relation_query(table, source.relation, _DIALECTS[kind], only=only, declared=source.declared)


def placed(query: exp.Query, *, schema: str, catalog: str | None = None) -> exp.Query:
    """`query` with a schema before every table that names none, and with `catalog` before every table.

    A table of the hospital's may be called like a part of the statement, which has no schema.
    """
    own = {cte.alias_or_name.lower() for cte in query.find_all(exp.CTE)}
    for found in list(query.find_all(exp.Table)):
        if not found.args.get("db"):
            if found.name.lower() in own:
                continue
            found.set("db", exp.to_identifier(schema, quoted=True))
        if catalog is not None:
            found.set("catalog", exp.to_identifier(catalog, quoted=True))
    return query


@dataclass(frozen=True, slots=True)
class _Reading:
    table: Table
    text: str
    dialect: str

    def mistaken(self, fault: str) -> ConfigurationMistaken:
        return ConfigurationMistaken(f"tables.{self.table.name}.relation {fault}.")

    def is_name(self) -> bool:
        """Whether it is no SELECT but the name of a table or view."""
        return _BEGINS.match(self.text) is None

    def query(self) -> exp.Query:
        wrong = self.mistaken(_WRONG)
        if not self.text.strip() or len(self.text) > _MAX_TEXT or "\x00" in self.text:
            raise wrong
        try:
            if self.is_name():
                return self._name()
            statements = [found for found in sqlglot.parse(self.text, dialect=self.dialect) if found is not None]
            for node in (node for statement in statements for node in statement.walk()):
                # Written again they would lie elsewhere, and PostgreSQL and DuckDB nest them.
                node.pop_comments()
        except (sqlglot.errors.SqlglotError, RecursionError):
            raise wrong from None
        query = statements[0].unnest() if len(statements) == 1 else None
        if not isinstance(query, exp.Select | exp.SetOperation) or not query.selects:
            raise wrong
        return query

    def _name(self) -> exp.Query:
        parts = _NAME.findall(self.text)
        if _NAMES.fullmatch(self.text) is None or not 1 <= len(parts) <= len(_PLACES):
            raise self.mistaken(_WRONG)
        # A bare name stays bare: databases fold its capitals in their own way.
        named = {
            place: exp.to_identifier(part[1:-1].replace('""', '"') if part[0] == '"' else part, quoted=part[0] == '"')
            for place, part in zip(_PLACES, reversed(parts), strict=False)
        }
        return exp.select("*").from_(exp.Table(**named), copy=False)


def _faults(query: exp.Query, dialect: str, only: Collection[str] | None) -> Iterator[str]:
    """What can be seen without resolving a name, the plainest first."""
    if query.find(*_NO_QUERY) is not None:
        yield "must be one SELECT that changes nothing"
    if query.find(*_CUTTING) is not None:
        yield (
            "may not limit rows (LIMIT, OFFSET, FETCH, TABLESAMPLE, PIVOT): one patient's rows would push out another's"
        )
    for operation in query.find_all(exp.SetOperation):
        if not isinstance(operation, exp.Union) or operation.args.get("distinct") is not False:
            yield "may combine queries only with UNION ALL: all else compares patients with each other"
    for with_ in query.find_all(exp.With):
        if with_.args.get("recursive"):
            yield "may not be recursive"
    own = {cte.alias_or_name.lower() for cte in query.find_all(exp.CTE)}
    if own & set(only or ()):
        yield f"may not give a query in WITH the name {' or '.join(only or ())}"
    for table in query.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier):
            yield "may read only tables and views, no functions"
    yield from _value_faults(query)
    yield from shape_faults(query)
    for node in query.walk():
        if (word := unknown_word(node, dialect)) is not None:
            yield f"may not use {word}: only what is known to depend on the row alone, and never to fail, is allowed"


def _value_faults(query: exp.Query) -> Iterator[str]:
    """Columns and texts that are not the row's own."""
    for function in query.find_all(exp.Rand, exp.CurrentDate, exp.CurrentTimestamp, exp.CurrentTime):
        if function is not None:
            yield _NOT_ITS_OWN
    for column in query.find_all(exp.Column):
        if column.name.lower() in _PHYSICAL:
            yield f"may not use {column.name}: where a row is stored depends on other patients' rows"
        elif not column.args.get("table") and not column.this.args.get("quoted") and column.name.lower() in _PRESENT:
            yield _NOT_ITS_OWN
    for literal in query.find_all(exp.Literal):
        if literal.is_string and literal.this.strip().lower() in _MOMENTS:
            yield f"may not use the current time {literal.this.strip()!r}; write a date"


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
