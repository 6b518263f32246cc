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

from wardround.analyst.sql.aggregates import aggregate
from wardround.analyst.sql.clauses import Listed, having, limit, order, ordered_by, position
from wardround.analyst.sql.groups import ReadGroup, group
from wardround.analyst.sql.offered_words import question_words
from wardround.analyst.sql.parse import NO_WITH, condition_tree, statement
from wardround.analyst.sql.terms import QuestionTable, describe, grammar, identifier, shown, unwrapped
from wardround.analyst.sql.where import cohort
from wardround.analyst.tables.presentation import BoundQuestion, Condition, Presentation
from wardround.federation.errors import QueryMistaken
from wardround.federation.limits import MAX_TEXT
from wardround.federation.plan.sql_text import label_text
from wardround.federation.question.cohort import Expression
from wardround.federation.question.query import Aggregate, Grouping, Query
from wardround.federation.study.study import Column, ColumnType, Study

_CLAUSES = {
    "with": NO_WITH,
    "distinct": "SELECT DISTINCT is not supported; use COUNT(DISTINCT {key}) to count patients, or GROUP BY {grouped}.",
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


def read(text: str, study: Study | None = None) -> BoundQuestion:
    """What `text` asks and how it wants the answer shown, or `QueryMistaken` in one sentence.

    The study decides nothing about what a question means; with it a mistake is told in its own names.
    """
    match statement(text, study):
        case exp.Select() as select:
            return _asked(select, study)
        case exp.SetOperation() as several:
            raise QueryMistaken(f"{several.key.upper()} is not supported; ask each SELECT as a question of its own.")
        case other:
            raise QueryMistaken(f"{describe(other)} is not supported; {grammar(study)}")


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


def _asked(select: exp.Select, study: Study | None) -> BoundQuestion:
    clauses = {key.rstrip("_"): value for key, value in select.args.items() if value}
    if study is None or "joins" in clauses or "with" in clauses or "laterals" in clauses:
        _only_known_clauses(clauses, select, QuestionTable("", ""))
    source = _source(clauses.get("from"), study)
    _only_known_clauses(clauses, select, source)
    listed = _listed(select.expressions, source)
    found, where = clauses.get("group"), clauses.get("where")
    groups = _groups(found, listed) if isinstance(found, exp.Group) else ()
    for item in listed.groups:
        if item not in groups:
            raise _not_grouped(item, listed)
    if not listed.aggregates:
        raise QueryMistaken(
            source.say("the question asks for no number; add COUNT(*), SUM({number}) or AVG({number}).")
        )
    query = Query(
        source.table,
        listed.aggregates,
        cohort(where.this, source) if isinstance(where, exp.Where) else None,
        tuple(item.grouping for item in groups),
    )
    return BoundQuestion(query, _view(clauses, listed))


def _only_known_clauses(clauses: Mapping[str, object], select: exp.Select, source: QuestionTable) -> None:
    for key, sentence in _CLAUSES.items():
        if key in clauses:
            raise QueryMistaken(source.say(sentence, *select.expressions))
    for key in sorted(clauses.keys() - _READ):
        raise QueryMistaken(f"{shown(key.upper())} is not supported; {grammar(source.study)}")


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
            raise QueryMistaken(f"GROUP BY {shown(key.upper())} is not supported; list the columns{_such(listed)}.")
    if not clause.expressions:
        raise QueryMistaken(f"GROUP BY names no column{_such(listed)}.")
    groups: list[ReadGroup] = []
    for item in clause.expressions:
        inner = unwrapped(item)
        groups.append(_grouped_by(inner, listed))
    return tuple(groups)


def _grouped_by(item: exp.Expr, listed: Listed) -> ReadGroup:
    """The group column that an item of GROUP BY names: itself, by its place in the SELECT list or by its alias."""
    if isinstance(item, exp.Literal) and not item.is_string:
        placed = position(item, listed.positions, clause="GROUP BY")
        if isinstance(placed, Aggregate):
            raise QueryMistaken(f"GROUP BY {item.name} is {label_text(placed)}; GROUP BY takes columns{_such(listed)}.")
        return placed
    own = ReadGroup(Grouping(item.name))
    if isinstance(item, exp.Column) and item.name in listed.aliases and own not in listed.groups:
        return _by_alias(own, item, listed)
    if isinstance(item, exp.Literal) and own in listed.groups:
        raise QueryMistaken(f"GROUP BY takes the names of columns without quotes; write GROUP BY {item.name}.")
    found = group(item, listed.source)
    if found is None:
        raise QueryMistaken(f"GROUP BY takes the names of columns, not {describe(item)}{_such(listed)}.")
    return found if found in listed.groups else _by_alias(found, item, listed)


def _such(listed: Listed) -> str:
    """The GROUP BY that fits the SELECT list, where the study is known."""
    if listed.source.known is None:
        return ""
    places = [str(place) for place, item in enumerate(listed.positions, start=1) if isinstance(item, ReadGroup)]
    return f", as in GROUP BY {', '.join(places)}" if places else listed.source.say(", as in GROUP BY {grouped}")


def _by_alias(found: ReadGroup, item: exp.Expr, listed: Listed) -> ReadGroup:
    """The group column that a GROUP BY names by its alias."""
    match listed.aliases.get(item.name) if isinstance(item, exp.Column) else None:
        case ReadGroup() as meant:
            return meant
        case Aggregate():
            raise QueryMistaken(f"{shown(item.name)!r} is an aggregate; GROUP BY takes columns{_such(listed)}.")
        case None:
            name = found.grouping.column
            if found.grouping == Grouping(name) and all(each.grouping.column != name for each in listed.groups):
                raise QueryMistaken(
                    f"GROUP BY names {name!r}, which the SELECT list does not; "
                    f"write SELECT {name}, {_aggregates(listed)}."
                )
            raise QueryMistaken(
                f"GROUP BY makes groups of {name!r} that the SELECT list does not name; "
                "give them an alias there and group by it."
            )


def _aggregates(listed: Listed) -> str:
    return ", ".join(label_text(each) for each in listed.aggregates) or "COUNT(*)"


def _not_grouped(item: ReadGroup, listed: Listed) -> QueryMistaken:
    name = item.grouping.column
    if item.grouping != Grouping(name):
        return QueryMistaken(
            f"the SELECT list makes groups of {name!r} that GROUP BY does not name; "
            f"add GROUP BY {listed.positions.index(item) + 1}."
        )
    ways = [f"add GROUP BY {name}", f"ask for one number, AVG({name})"]
    if (table := listed.source.known) is not None:
        ways = _ways_to_number(table.column(name), ways) or ["ask COUNT(*)"]
    return QueryMistaken(f"{name!r} is in the SELECT list but not in GROUP BY; {', or '.join(ways)}.")


def _ways_to_number(column: Column, ways: Sequence[str]) -> list[str]:
    """Of grouping by a column and averaging it, what the column is fit for."""
    if column.type is ColumnType.DATE:
        return [f"use DATE_TRUNC('month', {column.name}) with GROUP BY"] if column.lower is not None else []
    fit = (bool(column.domain) or column.open, column.numeric_bounds is not None)
    return [way for way, is_open in zip(ways, fit, strict=True) if is_open]


def _source(clause: object, study: Study | None) -> QuestionTable:
    if not isinstance(clause, exp.From):
        raise QueryMistaken(f"the question has no FROM; name the table, as in {_example(study)}.")
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
    name = identifier(table.name)
    if study is not None:
        study.table(name)
    return QuestionTable(name, table.alias, study)


def _example(study: Study | None) -> str:
    return "SELECT COUNT(*) FROM encounters" if study is None else question_words(study)
