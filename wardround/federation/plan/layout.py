"""The form of an answer: how many integers, on which grid, within which norms.

Sensitivity is never sent. Coordinator and site derive it here from the query and the study, so neither
can be talked into another number (PROOFS.md, "Counts, sums and means on the grid" and "Records and codes").
"""

from __future__ import annotations

import itertools
import math

from wardround.federation.errors import QueryMistaken
from wardround.federation.forms.parts import AnswerLayout, Frame
from wardround.federation.plan.typed import Typed, type_query
from wardround.federation.question.cohort import And, IsNull
from wardround.federation.question.grouping import domain
from wardround.federation.question.query import MAX_CELLS, MAX_DIMENSION, Query
from wardround.federation.statistics import together
from wardround.federation.statistics.count import units
from wardround.federation.study.study import Study, Table
from wardround.privacy.budget.facts import AnyMechanism


def shape(query: Query, study: Study, mechanism: AnyMechanism) -> AnswerLayout:
    """The form of the answer to `query`; `QueryMistaken` when the study does not allow it."""
    return layout(type_query(query, study), study, mechanism)


def layout(typed: Typed, study: Study, mechanism: AnyMechanism) -> AnswerLayout:
    """The same for a query that was typed already."""
    exact, table = typed.query, typed.table
    domains = [domain(grouping, table) for grouping in exact.group_by]
    cells = math.prod(len(keys) for keys in domains)
    if cells > MAX_CELLS:
        raise QueryMistaken(f"GROUP BY would make {cells} groups; at most {MAX_CELLS} are possible.")
    keys = tuple(itertools.product(*domains))
    parts = tuple(
        definition.part(found, Frame(exact, table, study.unit, len(keys), mechanism, definition.statistic))
        for definition, found in together(exact.aggregates)
    )
    form = AnswerLayout(exact, table, study.unit, keys, parts)
    if form.dimension > MAX_DIMENSION:
        raise QueryMistaken(
            f"the answer would hold {form.dimension} numbers; at most {MAX_DIMENSION} are possible; ask for less."
        )
    return form


def whole_table(table: Table) -> Query:
    """A question that touches every column of a table, for its schema's sake; it is never asked."""
    terms = tuple(IsNull(column.name) for column in table.columns)
    return Query(table.name, (units(table),), And(terms) if terms else None)
