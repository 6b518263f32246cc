"""A hospital's own SELECT: which rows of its database are a table of the study.

A relation is a promise: each of its rows comes from one patient's own rows and from public tables. Whatever
lets one patient change another's rows (a limit, a rank over everybody, a total of everybody) makes one
patient's influence unbounded. What of that can be seen in the text is refused here; a join cannot be seen
through and stays the hospital's promise.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import sqlglot
from sqlglot import exp

from site_agent.dataset import FORMATS, TableSource, kind_of
from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.study import Table

_Found = TypeVar("_Found", bound=exp.Expr)
THIS = "this"
"""What a SELECT over files calls them."""

_DIALECTS = {"csv": "duckdb", "parquet": "duckdb", "duckdb": "duckdb", "sqlite": "sqlite", "postgresql": "postgres"}
_WRONG = "must be the name of a table or view, or one SELECT"
_NAME = re.compile(r'[A-Za-z_][A-Za-z0-9_$]*|"(?:[^"]|"")+"')
_NAMES = re.compile(rf"\s*(?:{_NAME.pattern})(?:\.(?:{_NAME.pattern}))*\s*")
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
_VOLATILE = frozenset(
    (
        "changes",
        "clock_timestamp",
        "curdate",
        "current_date",
        "current_setting",
        "current_time",
        "current_timestamp",
        "current_user",
        "currval",
        "curtime",
        "database_to_xml",
        "dblink",
        "dblink_exec",
        "gen_random_uuid",
        "get_current_timestamp",
        "getdate",
        "getenv",
        "getvariable",
        "last_insert_rowid",
        "lastval",
        "load_extension",
        "localtime",
        "localtimestamp",
        "newid",
        "nextval",
        "now",
        "query",
        "query_to_xml",
        "rand",
        "randn",
        "random",
        "randomblob",
        "readfile",
        "session_user",
        "set_config",
        "setseed",
        "setval",
        "statement_timestamp",
        "sysdate",
        "table_to_xml",
        "timeofday",
        "today",
        "total_changes",
        "transaction_timestamp",
        "txid_current",
        "user",
        "uuid",
        "uuid_generate_v4",
        "uuidv4",
        "uuidv7",
        "version",
        "writefile",
    )
)
_BARE = frozenset({"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp", "sysdate"})
"""Functions that are called without brackets, and so look like columns."""

_HIDDEN = ("pg_", "lo_", "read_", "sqlite_", "duckdb_", "pragma_")
_PHYSICAL = frozenset(
    {"rowid", "_rowid_", "oid", "ctid", "xmin", "xmax", "cmin", "cmax", "tableoid", "file_row_number"}
)
_AGGREGATES = frozenset((
    "arbitrary", "arg_max_null", "arg_max_nulls_last", "arg_min_null", "arg_min_nulls_last", "bitstring_agg",
    "combine_aggr", "count_star", "decimal_average", "entropy", "every", "favg", "fsum", "histogram",
    "histogram_exact", "json_arrayagg", "json_objectagg", "jsonb_group_array", "jsonb_group_object", "kahan_sum",
    "kurtosis_pop", "lttb", "mad", "mean", "percentile", "product", "range_agg", "range_intersect_agg",
    "reservoir_quantile", "sem", "sum_no_overflow", "sumkahan", "total", "variant_group_object", "xmlagg",
))  # fmt: skip
"""Aggregates of one database that the parser takes for functions of a row."""

_MOMENTS = frozenset({"now", "today", "tomorrow", "yesterday"})


def relation_query(table: Table, text: str, dialect: str, *, only: Collection[str] | None = None) -> exp.Query:
    """The relation as a query; a plain name of a table or view is all of it.

    `dialect` is the generator's name for the database. With `only`, no other table may be named.

    Raises:
        ConfigurationMistaken: one sentence about what a relation may not do.
    """
    reading = _Reading(table, text, dialect)
    query = reading.query()
    for fault in _faults(query, reading, only):
        raise reading.mistaken(fault)
    if dialect == "duckdb":
        # A cast that fails would fail on one patient's row.
        for cast in [found for found in query.find_all(exp.Cast) if type(found) is exp.Cast]:
            cast.replace(exp.TryCast(**cast.args))
    return query


def check_relation(table: Table, source: TableSource) -> None:
    """Refuse what `site.toml` says about a table before anything is opened.

    Raises:
        ConfigurationMistaken: see `relation_query`.
    """
    kind = kind_of(source.source)
    if source.relation is None or source.source in FORMATS or kind is None:
        return
    relation_query(table, source.relation, _DIALECTS[kind], only=(THIS,) if kind in FORMATS else None)


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

    def query(self) -> exp.Query:
        wrong = self.mistaken(_WRONG)
        if not self.text.strip() or len(self.text) > _MAX_TEXT or "\x00" in self.text:
            raise wrong
        try:
            if not self.text.lstrip(" \t\r\n(").lower().startswith(("select", "with")):
                return self._name()
            statements = [found for found in sqlglot.parse(self.text, dialect=self.dialect) if found is not None]
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


def _faults(query: exp.Query, reading: _Reading, only: Collection[str] | None) -> Iterator[str]:
    """What is wrong with it, the plainest first."""
    if query.find(*_NO_QUERY) is not None:
        yield "must be one SELECT that changes nothing"
    if query.find(*_CUTTING) is not None:
        yield "may not cut rows off (LIMIT, OFFSET, FETCH, TABLESAMPLE, PIVOT): one patient would push another out"
    for operation in query.find_all(exp.SetOperation):
        if not isinstance(operation, exp.Union) or operation.args.get("distinct") is not False:
            yield "may join queries by UNION ALL alone: other set operations compare patients with one another"
    for with_ in query.find_all(exp.With):
        if with_.args.get("recursive"):
            yield "may not be recursive"
    yield from _named_faults(query, only)
    keys = _key_names(query, reading.table.unit_key)
    for select in query.find_all(exp.Select):
        yield from _select_faults(select, keys)


def _named_faults(query: exp.Query, only: Collection[str] | None) -> Iterator[str]:
    """Tables, functions and columns by name."""
    own = {cte.alias_or_name.lower() for cte in query.find_all(exp.CTE)}
    if own & set(only or ()):
        yield f"may not call another query {' or '.join(only or ())}"
    for table in query.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier):
            yield "may read tables and views alone, no functions"
        elif only is not None and (table.name.lower() not in {*own, *only} or table.args.get("db")):
            yield f"may read {' and '.join(only)} alone"
    for function in query.find_all(exp.Func):
        name = _function_name(function)
        if name in _VOLATILE or name.startswith(_HIDDEN) or isinstance(function, exp.Rand | exp.CurrentDate):
            yield "may not use functions whose value is not the row's own, such as random() and now()"
    for column in query.find_all(exp.Column):
        if column.name.lower() in _PHYSICAL:
            yield f"may not use {column.name}: where a row lies depends on other patients' rows"
        elif not column.args.get("table") and not column.this.args.get("quoted") and column.name.lower() in _BARE:
            yield "may not use functions whose value is not the row's own, such as random() and now()"
    for literal in query.find_all(exp.Literal):
        if literal.is_string and literal.this.strip().lower() in _MOMENTS:
            yield f"may not use the moment {literal.this.strip()!r}; write a day"


def _key_names(query: exp.Query, unit_key: str) -> frozenset[str]:
    """The unit key, and the columns that some SELECT of the relation calls so."""
    names = {unit_key.lower()}
    for alias in query.find_all(exp.Alias):
        if alias.alias.lower() == unit_key.lower() and isinstance(alias.this, exp.Column):
            names.add(alias.this.name.lower())
    return frozenset(names)


def _select_faults(select: exp.Select, keys: frozenset[str]) -> Iterator[str]:
    key = "the unit key"
    for window in _own(select, exp.Window):
        if not _holds_key(window.args.get("partition_by") or [], keys):
            yield f"may use a window only with {key} in its PARTITION BY"
    distinct = select.args.get("distinct")
    if distinct is not None:
        on = distinct.args.get("on")
        compared = on.expressions if isinstance(on, exp.Tuple) else [on.this] if on is not None else select.expressions
        if not (_holds_key(compared, keys) or (on is None and select.is_star)):
            yield f"may use DISTINCT only with {key} among what is compared"
    group = select.args.get("group")
    if group is not None:
        if any(group.args.get(word) for word in ("grouping_sets", "cube", "rollup", "totals", "all")):
            yield "may group by plain columns alone"
        if not _holds_key([_meant(each, select) for each in group.expressions], keys):
            yield f"may use GROUP BY only with {key} in it"
    elif (_adds_up(select) or select.args.get("having")) and not _tied(select, keys):
        yield f"may use aggregates only with {key} in GROUP BY"


def _own(select: exp.Select, kind: type[_Found]) -> Iterator[_Found]:
    """What the SELECT itself says, without the queries inside it."""
    for found in select.find_all(kind):
        if found.find_ancestor(exp.Select) is select:
            yield found


def _adds_up(select: exp.Select) -> bool:
    """Whether an aggregate of its own stands in it; inside a window it is none."""
    return any(
        not (isinstance(found.parent, exp.Window) and found.arg_key == "this")
        and not (isinstance(found.parent, exp.Filter) and isinstance(found.parent.parent, exp.Window))
        for found in _own(select, exp.Func)
        if isinstance(found, exp.AggFunc) or _function_name(found) in _AGGREGATES
    )


def _function_name(function: exp.Func) -> str:
    return (function.name if isinstance(function, exp.Anonymous) else function.sql_name()).lower()


def _tied(select: exp.Select, keys: frozenset[str]) -> bool:
    """Whether an inner SELECT looks at rows with the outer row's key alone."""
    where = select.args.get("where")
    if where is None or select.find_ancestor(exp.Select) is None:
        return False
    terms = where.this.flatten() if isinstance(where.this, exp.And) else [where.this]
    return any(
        isinstance(term, exp.EQ) and all(_holds_key([side], keys) for side in (term.left, term.right)) for term in terms
    )


def _meant(term: exp.Expr, select: exp.Select) -> exp.Expr:
    """What a number in GROUP BY stands for."""
    if isinstance(term, exp.Literal) and term.is_int and 1 <= int(term.this) <= len(select.expressions):
        found: exp.Expr = select.expressions[int(term.this) - 1]
        return found
    return term


def _holds_key(terms: Sequence[exp.Expr], keys: frozenset[str]) -> bool:
    plain = (term.unalias() if isinstance(term, exp.Alias) else term for term in terms)
    return any(isinstance(term, exp.Column) and term.name.lower() in keys for term in plain)
