"""The analyst's SQL, read into a query.

One SELECT over one table and nothing more: what the reader does not know it refuses in one sentence that
says what it found and what works instead. It never drops a clause, because a question answered without
one of its conditions is a wrong answer with a charge. Names are kept as written and matched exactly by
the study; aliases change only how a question reads, so they are dropped and equal questions stay equal.
"""

from __future__ import annotations

from sqlglot import exp

from wardround.analyst.sql_cohort import cohort
from wardround.analyst.sql_reader import NO_WITH, condition_tree, statement
from wardround.analyst.sql_terms import GRAMMAR, Source, column_name, describe, identifier, shown, unwrapped
from wardround.federation.errors import QueryMistaken
from wardround.federation.expressions import Expression
from wardround.federation.query import Aggregate, Grouping, Query, Statistic

_CLAUSES = {
    "with": NO_WITH,
    "distinct": "SELECT DISTINCT is not supported; use COUNT(DISTINCT key) to count patients, or GROUP BY.",
    "joins": "a question reads one table, so a JOIN or a second table is not supported; "
    "name one table of the study that holds the columns.",
    "laterals": "LATERAL is not supported; a question reads one table of the study.",
    "having": "HAVING is not supported; every public group is answered, so filter the result afterwards.",
    "qualify": "QUALIFY is not supported; every public group is answered, so filter the result afterwards.",
    "order": "ORDER BY is not supported; sort the result afterwards.",
    "limit": "LIMIT is not supported; every public group is answered, so shorten the result afterwards.",
    "offset": "OFFSET is not supported; every public group is answered, so shorten the result afterwards.",
    "windows": "window functions are not supported; use COUNT, SUM or AVG with GROUP BY.",
    "into": "SELECT INTO is not supported; a question writes nothing.",
    "locks": "FOR UPDATE and FOR SHARE are not supported; a question writes nothing.",
    "hint": "hints are not supported; remove the /*+ … */.",
}
_SYNONYMS = {"MEAN": "AVG", "AVERAGE": "AVG", "TOTAL": "SUM"}


def parse(text: str) -> Query:
    """The query that `text` asks, or `QueryMistaken` in one sentence."""
    match statement(text):
        case exp.Select() as select:
            return _query(select)
        case exp.SetOperation() as several:
            raise QueryMistaken(f"{several.key.upper()} is not supported; ask each SELECT as a question of its own.")
        case other:
            raise QueryMistaken(f"{describe(other)} is not supported; {GRAMMAR}")


def condition(text: str) -> Expression:
    """The cohort of a WHERE condition written without its WHERE, or `QueryMistaken` in one sentence."""
    return cohort(condition_tree(text), Source("", ""))


def _query(select: exp.Select) -> Query:
    clauses = {key.rstrip("_"): value for key, value in select.args.items() if value}
    for key, sentence in _CLAUSES.items():
        if key in clauses:
            raise QueryMistaken(sentence)
    for key in sorted(clauses.keys() - {"expressions", "from", "where", "group"}):
        raise QueryMistaken(f"{shown(key.upper())} is not supported; {GRAMMAR}")
    source = _source(clauses.get("from"))
    aggregates: list[Aggregate] = []
    listed: dict[str, str] = {}
    for item in select.expressions:
        alias = item.alias if isinstance(item, exp.Alias) else ""
        inner = unwrapped(item.this if isinstance(item, exp.Alias) else item)
        if isinstance(inner, exp.Column) and not isinstance(inner.this, exp.Star):
            name = column_name(inner, source)
            if name in listed:
                raise QueryMistaken(f"the SELECT list names {name!r} twice; remove one.")
            listed[name] = alias
        else:
            aggregates.append(_aggregate(inner, source))
    where, group = select.args.get("where"), select.args.get("group")
    groups = _groups(group, source) if isinstance(group, exp.Group) else ()
    _agree(listed, groups)
    if not aggregates:
        raise QueryMistaken("the question asks for no number; add COUNT(*), SUM(column) or AVG(column).")
    return Query(
        source.table,
        tuple(aggregates),
        cohort(where.this, source) if isinstance(where, exp.Where) else None,
        tuple(Grouping(name) for name in groups),
    )


def _source(clause: object) -> Source:
    if not isinstance(clause, exp.From):
        raise QueryMistaken("the question has no FROM; name the table, as in SELECT COUNT(*) FROM encounters.")
    match clause.this:
        case exp.Table(this=exp.Identifier()) as table:
            pass
        case exp.Subquery() | exp.Select():
            raise QueryMistaken("a subquery in FROM is not supported; name one table of the study.")
        case other:
            raise QueryMistaken(f"FROM takes the name of one table of the study, not {describe(other)}.")
    alias = table.args.get("alias")
    if any(table.args.get(part) for part in ("db", "catalog")):
        raise QueryMistaken(
            f"a table is named as the study names it, without a schema; write FROM {shown(table.name)}."
        )
    for key, value in table.args.items():
        if value and key not in ("this", "alias"):
            raise QueryMistaken(f"{shown(key.upper())} after a table is not supported; write only the table's name.")
    if isinstance(alias, exp.TableAlias) and alias.args.get("columns"):
        raise QueryMistaken("renaming columns in FROM is not supported; use the study's names.")
    return Source(identifier(table.name), table.alias)


def _aggregate(item: exp.Expr, source: Source) -> Aggregate:
    match item:
        case exp.Star() | exp.Column(this=exp.Star()):
            raise QueryMistaken(
                "SELECT * would return rows, and rows never leave a hospital; use COUNT(*), SUM(column) or AVG(column)."
            )
        case exp.Count():
            return _count(item, source)
        case exp.Sum():
            return Aggregate(Statistic.SUM, _operand("SUM", item, source))
        case exp.Avg():
            return Aggregate(Statistic.MEAN, _operand("AVG", item, source))
        case exp.Window():
            raise QueryMistaken("window functions (OVER) are not supported; use COUNT, SUM or AVG with GROUP BY.")
        case exp.Filter():
            raise QueryMistaken("FILTER is not supported; put the condition into WHERE.")
        case exp.Anonymous() if (better := _SYNONYMS.get(item.name.upper())) is not None:
            raise QueryMistaken(f"{item.name.upper()} is not supported; use {better}(column).")
        case exp.Subquery():
            raise QueryMistaken("a subquery in SELECT is not supported; ask it as a question of its own.")
        case _:
            raise QueryMistaken(
                f"{describe(item)} is not supported in SELECT; "
                "use COUNT(*), COUNT(DISTINCT key), SUM(column) or AVG(column)."
            )


def _count(count: exp.Count, source: Source) -> Aggregate:
    works = "use COUNT(*) to count events or COUNT(DISTINCT key) to count patients."
    if count.expressions:
        raise QueryMistaken(f"COUNT of several columns is not supported; {works}")
    match count.this:
        case exp.Star() as star if not any(star.args.values()):
            return Aggregate(Statistic.COUNT)
        case exp.Distinct(expressions=[only]) as distinct if not distinct.args.get("on"):
            match unwrapped(only):
                case exp.Column(this=exp.Identifier()) as column:
                    return Aggregate(Statistic.COUNT, column_name(column, source))
                case other:
                    raise QueryMistaken(f"COUNT(DISTINCT {describe(other)}) is not supported; {works}")
        case exp.Distinct():
            raise QueryMistaken(f"COUNT(DISTINCT …) takes one column; {works}")
        case exp.Column() as column:
            raise QueryMistaken(f"COUNT({shown(column.name)}) is not supported; {works}")
        case _:
            raise QueryMistaken(f"this form of COUNT is not supported; {works}")


def _operand(function: str, call: exp.Expr, source: Source) -> str:
    match unwrapped(call.this):
        case exp.Column(this=exp.Identifier()) as column if not call.expressions:
            return column_name(column, source)
        case exp.Distinct():
            raise QueryMistaken(f"{function}(DISTINCT …) is not supported; use {function}(column).")
        case other:
            raise QueryMistaken(f"{function} takes one column of the study, not {describe(other)}.")


def _groups(group: exp.Group, source: Source) -> tuple[str, ...]:
    for key, value in group.args.items():
        if value and key != "expressions":
            raise QueryMistaken(f"GROUP BY {shown(key.upper())} is not supported; list the columns.")
    names: list[str] = []
    for item in group.expressions:
        match unwrapped(item):
            case exp.Column(this=exp.Identifier()) as column:
                names.append(column_name(column, source))
            case exp.Literal():
                raise QueryMistaken("GROUP BY takes the names of columns, not their positions.")
            case other:
                raise QueryMistaken(f"GROUP BY takes the names of columns, not {describe(other)}.")
    return tuple(names)


def _agree(listed: dict[str, str], groups: tuple[str, ...]) -> None:
    """Refuse a SELECT list and a GROUP BY that do not name the same columns."""
    renamed = {alias: name for name, alias in listed.items() if alias}
    for name in groups:
        if name in listed:
            continue
        if name in renamed:
            raise QueryMistaken(f"{name!r} is an alias; write GROUP BY {renamed[name]}.")
        raise QueryMistaken(f"GROUP BY names {name!r}, which the SELECT list does not; write SELECT {name}, ….")
    for name in listed:
        if name not in groups:
            raise QueryMistaken(
                f"{name!r} is in the SELECT list but not in GROUP BY; add GROUP BY {name}, "
                f"or use AVG({name}) or SUM({name})."
            )
