"""A question brought together with the study: labels of CASE on the column's own steps, keys that the question lists.

SQL is read without the study, so that its meaning does not depend on one; what only the study can decide is
decided here, before the question is typed.
"""

from __future__ import annotations

import dataclasses
import math

from wardround.analyst.tables.presentation import BoundQuestion
from wardround.federation.errors import QueryMistaken
from wardround.federation.plan.decided import require_undecided
from wardround.federation.question.cohort import MAX_VALUES, And, Comparison, Expression, Operator, Or, Within
from wardround.federation.question.query import GroupBy, Grouping
from wardround.federation.question.typed_cohort import typed_cohort
from wardround.federation.study.study import Column, ColumnType, Study


def settled(asked: BoundQuestion, study: Study) -> BoundQuestion:
    """The same question in the study's terms; `QueryMistaken` when its labels cannot be kept or bounds decide it."""
    table = study.table(asked.query.table)
    if asked.query.cohort is not None:
        require_undecided(typed_cohort(asked.query.cohort, table), table)
    labels = dict(asked.view.labels)
    groups: list[Grouping] = []
    for grouping in asked.query.group_by:
        column = table.column(grouping.column)
        if grouping.by is GroupBy.BINS and grouping.column in labels:
            edges, labels[grouping.column] = _fitted(grouping.edges, labels[grouping.column], column)
            groups.append(dataclasses.replace(grouping, edges=edges))
        elif grouping.by is GroupBy.VALUE and column.open and not grouping.keys:
            found = listed_keys(asked.query.cohort, grouping.column)
            groups.append(dataclasses.replace(grouping, keys=tuple(sorted(found or ()))))
        else:
            groups.append(grouping)
    return BoundQuestion(
        dataclasses.replace(asked.query, group_by=tuple(groups)),
        dataclasses.replace(asked.view, labels=tuple(labels.items())),
    )


def open_columns(asked: BoundQuestion, study: Study) -> tuple[str, ...]:
    """The group columns whose keys nobody has listed."""
    table = study.table(asked.query.table)
    return tuple(
        grouping.column
        for grouping in asked.query.group_by
        if grouping.by is GroupBy.VALUE and not grouping.keys and table.column(grouping.column).open
    )


def listed_keys(cohort: Expression | None, column: str) -> frozenset[str] | None:
    """The values that a cohort allows a column to have; None when it does not list them."""
    match cohort:
        case Comparison(name, Operator.EQUAL, str() as value) if name == column:
            return frozenset((value,))
        case Within(name, values) if name == column and all(isinstance(value, str) for value in values):
            return frozenset(str(value) for value in values)
        case And(terms):
            found = [keys for term in terms if (keys := listed_keys(term, column)) is not None]
            return frozenset.intersection(*found) if found else None
        case Or(terms):
            lists = [listed_keys(term, column) for term in terms]
            known = [keys for keys in lists if keys is not None]
            return frozenset.union(*known) if known and len(known) == len(lists) else None
        case _:
            return None


def with_keys(asked: BoundQuestion, column: str, keys: tuple[str, ...]) -> BoundQuestion:
    """The question with these keys for an open column, written as an analyst would: in its WHERE too."""
    lists = [Within(column, keys[start : start + MAX_VALUES]) for start in range(0, len(keys), MAX_VALUES)]
    term: Expression = lists[0] if len(lists) == 1 else Or(tuple(lists))
    match asked.query.cohort:
        case None:
            cohort = term
        case And(terms):
            cohort = And((*terms, term))
        case other:
            cohort = And((other, term))
    groups = tuple(
        dataclasses.replace(grouping, keys=keys) if grouping.column == column else grouping
        for grouping in asked.query.group_by
    )
    return dataclasses.replace(asked, query=dataclasses.replace(asked.query, cohort=cohort, group_by=groups))


def _fitted(
    edges: tuple[float, ...], labels: tuple[str, ...], column: Column
) -> tuple[tuple[float, ...], tuple[str, ...]]:
    """Edges on whole numbers where the column has only those, and no interval in which no value can be."""
    if column.type is ColumnType.INTEGER:
        edges, labels = _joined([float(math.ceil(edge)) for edge in edges], labels)
    if len(set(labels)) != len(labels) and (bounds := column.numeric_bounds) is not None:
        # Values are moved into the study's bounds, so what lies outside them is empty.
        low, high = float(bounds[0]), float(bounds[1])
        first = sum(1 for edge in edges if edge <= low)
        last = len(edges) - sum(1 for edge in edges if edge > high)
        edges, labels = edges[first:last], labels[first : last + 1]
        edges, labels = _joined(list(edges), labels)
    if not edges:
        raise QueryMistaken(f"this CASE gives every value of {column.name!r} the same label.")
    if len(set(labels)) != len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise QueryMistaken(
            f"this CASE calls two intervals of {column.name!r} {twice!r} that do not touch; "
            "write a WHEN with a label of its own for each."
        )
    return edges, labels


def _joined(edges: list[float], labels: tuple[str, ...]) -> tuple[tuple[float, ...], tuple[str, ...]]:
    """Without empty intervals, and with neighbours of the same label as one."""
    kept_edges: list[float] = []
    kept = [labels[0]]
    for place, edge in enumerate(edges):
        label = labels[place + 1]
        if kept_edges and kept_edges[-1] == edge:
            # The interval between two equal edges is empty: its label goes, the next one takes its place.
            kept[-1] = label
            if len(kept) > 1 and kept[-2] == label:
                kept.pop()
                kept_edges.pop()
        elif label != kept[-1]:
            kept_edges.append(edge)
            kept.append(label)
    return tuple(kept_edges), tuple(kept)
