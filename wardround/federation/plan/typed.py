"""A query checked against the study, with every literal brought to its column's type.

Every side does this once and carries the `Typed` on: the coordinator so that a mistake costs nothing, the site so that
nothing the study does not describe ever reaches its tables. Equal questions become equal words here, and therefore
one plan id.
"""

from __future__ import annotations

from dataclasses import dataclass

from wardround.federation.errors import QueryMistaken
from wardround.federation.plan.typed_aggregates import typed_aggregate, typed_groups
from wardround.federation.question.query import MAX_AGGREGATES, Query
from wardround.federation.question.typed_cohort import typed_cohort
from wardround.federation.statistics import find
from wardround.federation.study.study import Study, Table


@dataclass(frozen=True, slots=True)
class Typed:
    """A query with typed literals, and the table that it asks; made by `type_query`."""

    query: Query
    table: Table


def type_query(query: Query, study: Study) -> Typed:
    """The query checked against the study, or `QueryMistaken` in one sentence."""
    return Typed(typed(query, study), study.table(query.table))


def typed(query: Query, study: Study) -> Query:
    """The same query with typed literals, or `QueryMistaken` in one sentence."""
    table = study.table(query.table)
    if not 1 <= len(query.aggregates) <= MAX_AGGREGATES:
        raise QueryMistaken(
            f"a question asks for 1 to {MAX_AGGREGATES} aggregates; this one asks for {len(query.aggregates)}."
        )
    aggregates = tuple(typed_aggregate(aggregate, table) for aggregate in query.aggregates)
    if len(set(aggregates)) != len(aggregates):
        raise QueryMistaken("a question names each aggregate once; remove the repeated one.")
    asked = [find(each.statistic) for each in aggregates]
    alone = next((definition for definition in asked if definition.alone), None)
    if alone is not None and (len(aggregates) > 1 or query.group_by):
        word = alone.functions[0].name
        raise QueryMistaken(f"{word} is a question of its own; ask it without other aggregates and without GROUP BY.")
    groups = typed_groups(query.group_by, table)
    cohort = None if query.cohort is None else typed_cohort(query.cohort, table)
    return Query(query.table, aggregates, cohort, groups)
