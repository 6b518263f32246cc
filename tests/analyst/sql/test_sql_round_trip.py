"""Random words, written as SQL in the test's own hand, are read back as the same words."""

from __future__ import annotations

import datetime

from hypothesis import given
from hypothesis import strategies as st

from wardround.analyst.sql.read import condition, parse
from wardround.federation.plain_text import is_plain
from wardround.federation.plan.sql_text import query_text
from wardround.federation.question.cohort import And, Between, Comparison, Expression, IsNull, Not, Operator, Or, Within
from wardround.federation.question.query import Aggregate, Clip, GroupBy, Grouping, Query, Statistic, interval_names
from wardround.federation.study.study import Value

# Every name is written in quotes, so that "order" and "select" are names too.
names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,62}", fullmatch=True)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30).filter(is_plain)
values: st.SearchStrategy[Value] = st.one_of(
    st.booleans(),
    st.integers(-(2**63) + 1, 2**63 - 1),
    st.floats(-1e18, 1e18, allow_nan=False),
    texts,
    st.dates(),
)
leaves: st.SearchStrategy[Expression] = st.one_of(
    st.builds(Comparison, names, st.sampled_from(Operator), values),
    st.builds(Within, names, st.lists(values, min_size=1, max_size=4).map(tuple)),
    st.builds(Between, names, values, values),
    st.builds(IsNull, names),
)


def flat(kind: type[And | Or], terms: list[Expression]) -> Expression:
    """The one form of a chain: terms of the same kind are never nested."""
    inner = [each for term in terms for each in (term.terms if isinstance(term, kind) else (term,))]
    return kind(tuple(inner))


expressions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        inner.map(Not),
        st.lists(inner, min_size=2, max_size=3).map(lambda terms: flat(And, terms)),
        st.lists(inner, min_size=2, max_size=3).map(lambda terms: flat(Or, terms)),
    ),
    max_leaves=12,
)
numbers = st.floats(-1e18, 1e18, allow_nan=False).map(lambda number: number + 0.0)
edges = st.lists(numbers, min_size=1, max_size=5, unique=True).map(lambda found: tuple(sorted(found)))


def told_apart(found: tuple[float, ...]) -> bool:
    """Whether the intervals have names of their own, which is all that text can carry."""
    return len(set(interval_names(found))) == len(found) + 1


groupings = st.one_of(
    st.builds(Grouping, names),
    st.builds(Grouping, names, st.just(GroupBy.MONTH)),
    st.builds(Grouping, names, st.just(GroupBy.BINS), edges.filter(told_apart)),
)
SEVERAL = (Statistic.CORRELATION, Statistic.REGRESSION)
PAIRS = (Statistic.CHI_SQUARE, Statistic.SURVIVAL)


@st.composite
def aggregates(draw: st.DrawFn) -> Aggregate:
    statistic = draw(st.sampled_from(Statistic))
    if statistic is Statistic.COUNT:
        return Aggregate(statistic, draw(st.one_of(st.none(), names)))
    most = 2 if statistic in PAIRS else 6 if statistic in SEVERAL else 1
    least = 2 if statistic in (*PAIRS, *SEVERAL) else 1
    columns = draw(st.lists(names, min_size=least, max_size=most, unique=True))
    clipped = draw(st.lists(st.sampled_from(columns), unique=True))
    return Aggregate(
        statistic,
        columns[0],
        tuple(columns[1:]),
        draw(numbers) if statistic in (Statistic.QUANTILE, Statistic.BELOW) else None,
        draw(st.integers(1, 4096)) if statistic in (Statistic.HISTOGRAM, Statistic.SURVIVAL) else None,
        tuple(Clip(name, draw(numbers), draw(numbers)) for name in sorted(clipped)),
    )


queries = st.builds(
    Query,
    names,
    st.lists(aggregates(), min_size=1, max_size=5, unique=True).map(tuple),
    st.one_of(st.none(), expressions),
    st.lists(groupings, max_size=3, unique_by=lambda grouping: grouping.column).map(tuple),
)


def literal(value: Value) -> str:
    match value:
        case bool():
            return str(value).upper()
        case datetime.date():
            return f"DATE '{value.isoformat()}'"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case _:
            return repr(value)


def written(term: Expression) -> str:
    match term:
        case Comparison(column, operator, value):
            return f'"{column}" {operator.value} {literal(value)}'
        case Within(column, found):
            return f'"{column}" IN ({", ".join(map(literal, found))})'
        case Between(column, lower, upper):
            return f'"{column}" BETWEEN {literal(lower)} AND {literal(upper)}'
        case IsNull(column):
            return f'"{column}" IS NULL'
        case Not(inner):
            return f"NOT ({written(inner)})"
        case And(terms):
            return " AND ".join(f"({written(inner)})" for inner in terms)
        case Or(terms):
            return " OR ".join(f"({written(inner)})" for inner in terms)


FUNCTIONS = {
    Statistic.SUM: "SUM",
    Statistic.MEAN: "AVG",
    Statistic.VARIANCE: "VAR_SAMP",
    Statistic.STD: "STDDEV_POP",
    Statistic.HISTOGRAM: "HISTOGRAM",
    Statistic.QUANTILE: "QUANTILE",
    Statistic.BELOW: "SHARE_BELOW",
    Statistic.CHI_SQUARE: "CHI_SQUARE",
    Statistic.CORRELATION: "CORR",
    Statistic.REGRESSION: "REGRESS",
    Statistic.SURVIVAL: "KAPLAN_MEIER",
    Statistic.CHOICE: "MODE",
    Statistic.KEYS: "KEYS",
}


def counted(aggregate: Aggregate) -> str:
    if aggregate.statistic is Statistic.COUNT:
        return "COUNT(*)" if aggregate.column is None else f'COUNT(DISTINCT "{aggregate.column}")'
    clips = {clip.column: clip for clip in aggregate.clips}
    operands = [
        f'LEAST(GREATEST("{name}", {clips[name].lower!r}), {clips[name].upper!r})' if name in clips else f'"{name}"'
        for name in aggregate.columns
    ]
    operands += [repr(number) for number in (aggregate.level, aggregate.bins) if number is not None]
    return f"{FUNCTIONS[aggregate.statistic]}({', '.join(operands)})"


def grouped(grouping: Grouping) -> str:
    match grouping.by:
        case GroupBy.VALUE:
            return f'"{grouping.column}"'
        case GroupBy.MONTH:
            return f"DATE_TRUNC('month', \"{grouping.column}\")"
        case GroupBy.BINS:
            # From above, in the test's own labels.
            cases = [
                f"WHEN \"{grouping.column}\" >= {edge!r} THEN 'interval {number}'"
                for number, edge in reversed(list(enumerate(grouping.edges)))
            ]
            return f"CASE {' '.join(cases)} ELSE 'lowest' END"


def asked(query: Query) -> str:
    groups = [grouped(grouping) for grouping in query.group_by]
    text = f'SELECT {", ".join([*groups, *map(counted, query.aggregates)])} FROM "{query.table}"'
    if query.cohort is not None:
        text += f" WHERE {written(query.cohort)}"
    if query.group_by:
        text += " GROUP BY " + ", ".join(groups)
    return text


@given(queries)
def test_a_query_written_down_is_read_back(query: Query) -> None:
    # repr too, because True == 1 == 1.0 in Python and not in a study.
    found = parse(asked(query))
    assert found == query
    assert repr(found) == repr(query)


@given(expressions)
def test_a_condition_written_down_is_read_back(expression: Expression) -> None:
    assert repr(condition(written(expression))) == repr(expression)


def renamed(term: Expression) -> Expression:
    """The same tree about one plain column: the steward's text writes names without quotes."""
    match term:
        case Comparison(_, operator, value):
            return Comparison("age", operator, value)
        case Within(_, found):
            return Within("age", found)
        case Between(_, lower, upper):
            return Between("age", lower, upper)
        case IsNull(_):
            return IsNull("age")
        case Not(inner):
            return Not(renamed(inner))
        case And(terms) | Or(terms):
            return type(term)(tuple(renamed(inner) for inner in terms))


def plainly(query: Query, renamed_to: dict[str, str]) -> Query:
    """The same query with plain names, the cohort about one plain column."""

    def name(column: str) -> str:
        return renamed_to.setdefault(column, f"q{len(renamed_to)}")

    return Query(
        "encounters",
        tuple(
            Aggregate(
                each.statistic,
                None if each.column is None else name(each.column),
                tuple(name(other) for other in each.others),
                each.level,
                each.bins,
                tuple(sorted((Clip(name(c.column), c.lower, c.upper) for c in each.clips), key=lambda c: c.column)),
            )
            for each in query.aggregates
        ),
        None if query.cohort is None else renamed(query.cohort),
        tuple(Grouping(name(each.column), each.by, each.edges) for each in query.group_by),
    )


@given(queries.map(lambda query: plainly(query, {})))
def test_what_a_steward_reads_is_what_was_asked(query: Query) -> None:
    found = parse(query_text(query))
    assert found == query
    assert repr(found) == repr(query)
