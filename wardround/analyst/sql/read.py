"""The analyst's SQL, read into a query and a view of its answer.

One SELECT over one table and nothing more: what the reader does not know it refuses in one sentence that
says what it found and what works instead. It never drops a clause, because a question answered without
one of its conditions is a wrong answer with a charge. Names are kept as written and matched exactly by
the study. Aliases, labels, HAVING, ORDER BY and LIMIT change how an answer is shown and not what is asked,
so equal questions stay equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from wardround.analyst.showing.presentation import BoundQuestion, Condition, Presentation
from wardround.analyst.sql.aggregates import aggregate
from wardround.analyst.sql.clauses import Listed, having, limit, order, ordered_by
from wardround.analyst.sql.groups import ReadGroup, group
from wardround.analyst.sql.parse import NO_WITH, condition_tree, statement
from wardround.analyst.sql.terms import GRAMMAR, QuestionTable, describe, identifier, shown, unwrapped
from wardround.analyst.sql.where import cohort
from wardround.federation.errors import QueryMistaken
from wardround.federation.limits import MAX_TEXT
from wardround.federation.plan.sql_text import label_text
from wardround.federation.question.cohort import Expression
from wardround.federation.question.query import Aggregate, Grouping, Query

_CLAUSES = {
    "with": NO_WITH,
    "distinct": "SELECT DISTINCT is not supported; use COUNT(DISTINCT key) to count patients, or GROUP BY.",
    "joins": "a question reads one table, so a JOIN or a second table is not supported; "
    "name one table of the study that holds the columns.",
    "laterals": "LATERAL is not supported; a question reads one table of the study.",
    "qualify": "QUALIFY is not supported; use HAVING with an aggregate of the SELECT list.",
    "offset": "OFFSET is not supported; LIMIT counts from the first group, and all of them are in the answer.",
    "sort": "SORT BY is not supported; use ORDER BY.",
    "windows": "window functions are not supported; use an aggregate with GROUP BY.",
    "into": "SELECT INTO is not supported; a question writes nothing.",
    "locks": "FOR UPDATE and FOR SHARE are not supported; a question writes nothing.",
    "hint": "hints are not supported; remove the /*+ … */.",
}
_READ = {"expressions", "from", "where", "group", "having", "order", "limit"}


def read(text: str) -> BoundQuestion:
    """What `text` asks and how it wants the answer shown, or `QueryMistaken` in one sentence."""
    match statement(text):
        case exp.Select() as select:
            return _asked(select)
        case exp.SetOperation() as several:
            raise QueryMistaken(f"{several.key.upper()} is not supported; ask each SELECT as a question of its own.")
        case other:
            raise QueryMistaken(f"{describe(other)} is not supported; {GRAMMAR}")


def parse(text: str) -> Query:
    """The query that `text` asks, or `QueryMistaken` in one sentence."""
    return read(text).query


def condition(text: str) -> Expression:
    """The cohort of a WHERE condition written without its WHERE, or `QueryMistaken` in one sentence."""
    return cohort(condition_tree(text), QuestionTable("", ""))


def shown_condition(text: str, query: Query) -> Condition:
    """A HAVING condition, written without its HAVING, on the aggregates of a query."""
    return having(condition_tree(text), _listed_in(query))


def shown_order(text: str, query: Query) -> int | str:
    """What a query's groups are ordered by: the place of an aggregate, or a group column."""
    return ordered_by(condition_tree(text), _listed_in(query))


def _listed_in(query: Query) -> Listed:
    groups = tuple(ReadGroup(grouping) for grouping in query.group_by)
    return Listed(QuestionTable(query.table, ""), query.aggregates, groups, (*groups, *query.aggregates), {})


def _asked(select: exp.Select) -> BoundQuestion:
    clauses = {key.rstrip("_"): value for key, value in select.args.items() if value}
    for key, sentence in _CLAUSES.items():
        if key in clauses:
            raise QueryMistaken(sentence)
    for key in sorted(clauses.keys() - _READ):
        raise QueryMistaken(f"{shown(key.upper())} is not supported; {GRAMMAR}")
    source = _source(clauses.get("from"))
    listed = _listed(select.expressions, source)
    found, where = clauses.get("group"), clauses.get("where")
    groups = _groups(found, listed) if isinstance(found, exp.Group) else ()
    for item in listed.groups:
        if item not in groups:
            raise _not_grouped(item)
    if not listed.aggregates:
        raise QueryMistaken("the question asks for no number; add COUNT(*), SUM(column) or AVG(column).")
    query = Query(
        source.table,
        listed.aggregates,
        cohort(where.this, source) if isinstance(where, exp.Where) else None,
        tuple(item.grouping for item in groups),
    )
    return BoundQuestion(query, _view(clauses, listed))


def _view(clauses: Mapping[str, object], listed: Listed) -> Presentation:
    condition, ordering, cut = (clauses.get(key) for key in ("having", "order", "limit"))
    names = {item: alias for alias, item in listed.aliases.items()}
    called = tuple(names.get(item, "") for item in listed.aggregates)
    return Presentation(
        names=called if any(called) else (),
        renamed=tuple((item.grouping.column, names[item]) for item in listed.groups if item in names),
        labels=tuple((item.grouping.column, item.labels) for item in listed.groups if item.labels),
        having=having(condition.this, listed) if isinstance(condition, exp.Having) else None,
        order=order(ordering, listed) if isinstance(ordering, exp.Order) else (),
        limit=limit(cut) if isinstance(cut, exp.Expr) else None,
    )


def _listed(items: Sequence[exp.Expr], source: QuestionTable) -> Listed:
    positions: list[Aggregate | ReadGroup] = []
    aliases: dict[str, Aggregate | ReadGroup] = {}
    for item in items:
        inner = unwrapped(item.this if isinstance(item, exp.Alias) else item)
        found = group(inner, source) or aggregate(inner, source)
        if found in positions:
            what = label_text(found) if isinstance(found, Aggregate) else repr(found.grouping.column)
            raise QueryMistaken(f"the SELECT list names {what} twice; remove one.")
        positions.append(found)
        if isinstance(item, exp.Alias):
            if item.alias in aliases or not 0 < len(item.alias) <= MAX_TEXT:
                raise QueryMistaken(f"an alias is a name of its own; call {shown(item.alias)!r} otherwise.")
            aliases[item.alias] = found
    aggregates = tuple(item for item in positions if isinstance(item, Aggregate))
    groups = tuple(item for item in positions if isinstance(item, ReadGroup))
    return Listed(source, aggregates, groups, tuple(positions), aliases)


def _groups(clause: exp.Group, listed: Listed) -> tuple[ReadGroup, ...]:
    for key, value in clause.args.items():
        if value and key != "expressions":
            raise QueryMistaken(f"GROUP BY {shown(key.upper())} is not supported; list the columns.")
    groups: list[ReadGroup] = []
    for item in clause.expressions:
        inner = unwrapped(item)
        if isinstance(inner, exp.Literal):
            raise QueryMistaken("GROUP BY takes the names of columns, not their positions.")
        found = group(inner, listed.source)
        if found is None:
            raise QueryMistaken(f"GROUP BY takes the names of columns, not {describe(inner)}.")
        if found not in listed.groups:
            found = _by_alias(found, inner, listed)
        groups.append(found)
    return tuple(groups)


def _by_alias(found: ReadGroup, item: exp.Expr, listed: Listed) -> ReadGroup:
    """The group column that a GROUP BY names by its alias."""
    match listed.aliases.get(item.name) if isinstance(item, exp.Column) else None:
        case ReadGroup() as meant:
            return meant
        case Aggregate():
            raise QueryMistaken(f"{shown(item.name)!r} is an aggregate; GROUP BY takes columns.")
        case None:
            name = found.grouping.column
            if found.grouping == Grouping(name) and all(each.grouping.column != name for each in listed.groups):
                raise QueryMistaken(f"GROUP BY names {name!r}, which the SELECT list does not; write SELECT {name}, ….")
            raise QueryMistaken(
                f"GROUP BY makes groups of {name!r} that the SELECT list does not name; "
                "give them an alias there and group by it."
            )


def _not_grouped(item: ReadGroup) -> QueryMistaken:
    name = item.grouping.column
    if item.grouping != Grouping(name):
        return QueryMistaken(
            f"the SELECT list makes groups of {name!r} that GROUP BY does not name; give them an alias and group by it."
        )
    return QueryMistaken(
        f"{name!r} is in the SELECT list but not in GROUP BY; add GROUP BY {name}, or ask for one number, AVG({name})."
    )


def _source(clause: object) -> QuestionTable:
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
    return QuestionTable(identifier(table.name), table.alias)
