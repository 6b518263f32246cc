"""Queries and the public values in them, as messages and back.

A query is written by a person, so one that cannot travel is that person's mistake, said before anything is
sent; one that arrives and is not a query is the peer's fault. Texts that a query compares with may be any here, since
plans that an older version stored are read by the same functions: a question is refused for them in `codec_answer`,
and a task by the site's admission, as a refusal that is signed and lets the other tasks pass.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence

from protos import checks
from protos._generated import plan_pb2 as pb
from wardround.federation.errors import QueryMistaken
from wardround.federation.expressions import (
    MAX_DEPTH,
    MAX_TERMS,
    MAX_TEXT,
    MAX_VALUES,
    And,
    Between,
    Comparison,
    Expression,
    IsNull,
    Not,
    Operator,
    Or,
    Value,
    Within,
    depth,
    leaves,
)
from wardround.federation.query import (
    MAX_AGGREGATES,
    MAX_BINS,
    MAX_COLUMNS,
    MAX_EDGES,
    MAX_GROUP_COLUMNS,
    MAX_KEYS,
    Aggregate,
    Clip,
    GroupBy,
    Grouping,
    Query,
    Statistic,
)
from wardround.federation.study import parse_date

_OPERATORS = {
    Operator.EQUAL: pb.OPERATOR_EQUAL,
    Operator.UNEQUAL: pb.OPERATOR_UNEQUAL,
    Operator.LESS: pb.OPERATOR_LESS,
    Operator.LESS_OR_EQUAL: pb.OPERATOR_LESS_OR_EQUAL,
    Operator.GREATER: pb.OPERATOR_GREATER,
    Operator.GREATER_OR_EQUAL: pb.OPERATOR_GREATER_OR_EQUAL,
}
_OPERATORS_BACK = {int(number): operator for operator, number in _OPERATORS.items()}
STATISTICS = {
    Statistic.COUNT: pb.STATISTIC_COUNT,
    Statistic.SUM: pb.STATISTIC_SUM,
    Statistic.MEAN: pb.STATISTIC_MEAN,
    Statistic.VARIANCE: pb.STATISTIC_VARIANCE,
    Statistic.STD: pb.STATISTIC_STD,
    Statistic.HISTOGRAM: pb.STATISTIC_HISTOGRAM,
    Statistic.QUANTILE: pb.STATISTIC_QUANTILE,
    Statistic.BELOW: pb.STATISTIC_BELOW,
    Statistic.CHI_SQUARE: pb.STATISTIC_CHI_SQUARE,
    Statistic.CORRELATION: pb.STATISTIC_CORRELATION,
    Statistic.REGRESSION: pb.STATISTIC_REGRESSION,
    Statistic.SURVIVAL: pb.STATISTIC_SURVIVAL,
    Statistic.CHOICE: pb.STATISTIC_CHOICE,
    Statistic.KEYS: pb.STATISTIC_KEYS,
}
_GROUPS = {
    GroupBy.VALUE: pb.GROUP_BY_VALUE,
    GroupBy.MONTH: pb.GROUP_BY_MONTH,
    GroupBy.BINS: pb.GROUP_BY_BINS,
}
_GROUPS_BACK = {int(number): by for by, number in _GROUPS.items()}
_STATISTICS_BACK = {int(number): statistic for statistic, number in STATISTICS.items()}


def query_to_message(query: Query) -> pb.Query:
    """The query as a message; `QueryMistaken` when it is too large to be asked."""
    _allow(1 <= len(query.aggregates) <= MAX_AGGREGATES, f"a question asks for 1 to {MAX_AGGREGATES} aggregates.")
    _allow(len(query.group_by) <= MAX_GROUP_COLUMNS, f"GROUP BY takes at most {MAX_GROUP_COLUMNS} columns.")
    message = pb.Query(
        table=_sent_name(query.table),
        aggregates=[aggregate_to_message(aggregate) for aggregate in query.aggregates],
        group_by=[_grouping_to_message(grouping) for grouping in query.group_by],
    )
    if query.cohort is not None:
        message.cohort.CopyFrom(cohort_to_message(query.cohort))
    return message


def query_from_message(message: pb.Query) -> Query:
    """The query in a message."""
    checks.require(1 <= len(message.aggregates) <= MAX_AGGREGATES, "a query has too few or too many aggregates.")
    checks.require(len(message.group_by) <= MAX_GROUP_COLUMNS, "a query has too many group columns.")
    return Query(
        table=column_name(message.table),
        aggregates=tuple(aggregate_from_message(aggregate) for aggregate in message.aggregates),
        cohort=cohort_from_message(message.cohort) if message.HasField("cohort") else None,
        group_by=tuple(_grouping_from_message(grouping) for grouping in message.group_by),
    )


def cohort_to_message(cohort: Expression) -> pb.Expression:
    """A cohort as a message; `QueryMistaken` when it is too large to be asked about."""
    small = depth(cohort) <= MAX_DEPTH and sum(1 for _ in leaves(cohort)) <= MAX_TERMS
    _allow(small, f"a cohort has at most {MAX_TERMS} terms, nested at most {MAX_DEPTH} deep.")
    return _expression_to_message(cohort)


def cohort_from_message(message: pb.Expression) -> Expression:
    """The cohort in a message."""
    return _Reader().read(message)


def aggregate_to_message(aggregate: Aggregate) -> pb.Aggregate:
    """One aggregate as a message."""
    _allow(len(aggregate.others) < MAX_COLUMNS, f"an aggregate looks at no more than {MAX_COLUMNS} columns.")
    _allow(len(aggregate.clips) <= MAX_COLUMNS, "narrower bounds are given once for a column.")
    _allow(aggregate.bins is None or 1 <= aggregate.bins <= MAX_BINS, f"there are 1 to {MAX_BINS} intervals.")
    return pb.Aggregate(
        statistic=STATISTICS[aggregate.statistic],
        column=None if aggregate.column is None else _sent_name(aggregate.column),
        others=[_sent_name(name) for name in aggregate.others],
        level=None if aggregate.level is None else _sent_number(aggregate.level),
        bins=aggregate.bins,
        clips=[
            pb.Clip(column=_sent_name(clip.column), lower=_sent_number(clip.lower), upper=_sent_number(clip.upper))
            for clip in aggregate.clips
        ],
    )


def aggregate_from_message(message: pb.Aggregate) -> Aggregate:
    """The aggregate in a message."""
    checks.require(len(message.others) < MAX_COLUMNS, "an aggregate has too many columns.")
    checks.require(len(message.clips) <= MAX_COLUMNS, "an aggregate has too many bounds.")
    intervals = message.bins if message.HasField("bins") else None
    checks.require(intervals is None or 1 <= intervals <= MAX_BINS, "there are too few or too many intervals.")
    return Aggregate(
        statistic_from_number(message.statistic),
        column_name(message.column) if message.HasField("column") else None,
        tuple(column_name(name) for name in message.others),
        checks.finite(message.level, "a level") if message.HasField("level") else None,
        intervals,
        tuple(
            Clip(column_name(clip.column), checks.finite(clip.lower, "a bound"), checks.finite(clip.upper, "a bound"))
            for clip in message.clips
        ),
    )


def _grouping_to_message(grouping: Grouping) -> pb.Grouping:
    _allow(len(grouping.edges) <= MAX_EDGES, f"intervals have at most {MAX_EDGES} edges.")
    _allow(len(grouping.keys) <= MAX_KEYS, f"a question lists at most {MAX_KEYS} keys.")
    return pb.Grouping(
        column=_sent_name(grouping.column),
        by=_GROUPS[grouping.by],
        edges=[_sent_number(edge) for edge in grouping.edges],
        keys=[_sent_name(key) for key in grouping.keys],
    )


def _grouping_from_message(message: pb.Grouping) -> Grouping:
    checks.require(len(message.edges) <= MAX_EDGES, "intervals have too many edges.")
    checks.require(len(message.keys) <= MAX_KEYS, "a query lists too many keys.")
    return Grouping(
        column=column_name(message.column),
        by=checks.member(_GROUPS_BACK, message.by, "a kind of group"),
        edges=tuple(checks.finite(edge, "an edge") for edge in message.edges),
        keys=tuple(checks.foreign_text(key, "a key", longest=MAX_TEXT) for key in message.keys),
    )


def statistic_from_number(number: int) -> Statistic:
    """The statistic behind a number of the wire."""
    return checks.member(_STATISTICS_BACK, number, "a statistic")


def column_name(value: str) -> str:
    """The name of a table or column; whether the study declares it is for `typed` to say."""
    return checks.text(value, "the name of a table or column", longest=MAX_TEXT)


def value_to_message(value: Value) -> pb.Value:
    """A public value as a message; `QueryMistaken` when it cannot be compared with anything."""
    match value:
        case bool():
            return pb.Value(boolean=value)
        case int():
            _allow(-(2**63) <= value < 2**63, "a whole number in a question has at most 64 bits.")
            return pb.Value(integer=value)
        case float():
            _allow(math.isfinite(value), "a number in a question must be finite.")
            return pb.Value(number=value)
        case str():
            _allow(
                _sound(value, shortest=0), f"a text in a question has at most {MAX_TEXT} characters, none of them NUL."
            )
            return pb.Value(text=value)
        case datetime.date():
            return pb.Value(date=value.isoformat())


def value_from_message(message: pb.Value) -> Value:
    """The public value in a message."""
    match message.WhichOneof("kind"):
        case "boolean":
            return message.boolean
        case "integer":
            return message.integer
        case "number":
            return checks.finite(message.number, "a number in a query")
        case "text":
            return checks.foreign_text(message.text, "a text in a query", longest=MAX_TEXT, shortest=0)
        case "date":
            return _date(message.date)
        case None:
            raise checks.malformed("a value is empty.")


def _date(text: str) -> datetime.date:
    day = parse_date(text)
    # `fromisoformat` also reads other spellings of the same day; one day has one spelling here.
    if day is None or day.isoformat() != text:
        raise checks.malformed("a date in a query is not a calendar date.")
    return day


def _expression_to_message(term: Expression) -> pb.Expression:
    match term:
        case Comparison(column, operator, value):
            comparison = pb.Comparison(
                column=_sent_name(column), operator=_OPERATORS[operator], value=value_to_message(value)
            )
            return pb.Expression(comparison=comparison)
        case Within(column, values):
            _allow(1 <= len(values) <= MAX_VALUES, f"IN takes 1 to {MAX_VALUES} values.")
            sent = [value_to_message(value) for value in values]
            return pb.Expression(within=pb.Within(column=_sent_name(column), values=sent))
        case Between(column, lower, upper):
            between = pb.Between(
                column=_sent_name(column), lower=value_to_message(lower), upper=value_to_message(upper)
            )
            return pb.Expression(between=between)
        case IsNull(column):
            return pb.Expression(is_null=pb.IsNull(column=_sent_name(column)))
        case Not(inner):
            return pb.Expression(negation=_expression_to_message(inner))
        case And(terms):
            return pb.Expression(conjunction=_terms_to_message(terms))
        case Or(terms):
            return pb.Expression(disjunction=_terms_to_message(terms))


def _terms_to_message(terms: Sequence[Expression]) -> pb.Terms:
    _allow(len(terms) > 0, "AND and OR join at least one term.")
    return pb.Terms(terms=[_expression_to_message(term) for term in terms])


class _Reader:
    """Reads one cohort, counting as it goes: a hostile tree is left before it has cost anything."""

    def __init__(self) -> None:
        self._leaves = 0

    def read(self, message: pb.Expression, *, level: int = 1) -> Expression:
        checks.require(level <= MAX_DEPTH, "a cohort is nested too deep.")
        match message.WhichOneof("term"):
            case "negation":
                return Not(self.read(message.negation, level=level + 1))
            case "conjunction":
                return And(self._terms(message.conjunction, level=level + 1))
            case "disjunction":
                return Or(self._terms(message.disjunction, level=level + 1))
            case _:
                self._leaves += 1
                checks.require(self._leaves <= MAX_TERMS, "a cohort has too many terms.")
                return _leaf(message)

    def _terms(self, message: pb.Terms, *, level: int) -> tuple[Expression, ...]:
        # Each term holds at least one leaf, so more terms than leaves allowed need not be read.
        checks.require(1 <= len(message.terms) <= MAX_TERMS, "a cohort has too few or too many terms.")
        return tuple(self.read(term, level=level) for term in message.terms)


def _leaf(message: pb.Expression) -> Comparison | Within | Between | IsNull:
    match message.WhichOneof("term"):
        case "comparison":
            comparison = message.comparison
            operator = checks.member(_OPERATORS_BACK, comparison.operator, "an operator")
            return Comparison(column_name(comparison.column), operator, value_from_message(comparison.value))
        case "within":
            within = message.within
            checks.require(1 <= len(within.values) <= MAX_VALUES, "a list of values is empty or too long.")
            return Within(column_name(within.column), tuple(value_from_message(value) for value in within.values))
        case "between":
            between = message.between
            lower, upper = value_from_message(between.lower), value_from_message(between.upper)
            return Between(column_name(between.column), lower, upper)
        case "is_null":
            return IsNull(column_name(message.is_null.column))
        case _:
            raise checks.malformed("a term of a cohort is empty.")


def _allow(condition: bool, sentence: str) -> None:  # noqa: FBT001
    if not condition:
        raise QueryMistaken(sentence)


def _sent_name(value: str) -> str:
    _allow(_sound(value, shortest=1), f"the name of a table or column has 1 to {MAX_TEXT} characters.")
    return value


def _sent_number(value: float) -> float:
    _allow(math.isfinite(value), "a number in a question must be finite.")
    return value


def _sound(value: str, *, shortest: int) -> bool:
    """Whether a text can travel: not too long, no NUL, and no half of a surrogate pair."""
    return (
        shortest <= len(value) <= MAX_TEXT
        and "\x00" not in value
        and not any("\ud800" <= character <= "\udfff" for character in value)
    )
