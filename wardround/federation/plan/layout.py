"""The form of an answer: how many integers, on which grid, within which norms, and how its parts share one charge.

Sensitivity is never sent. Coordinator and site derive it here from the query and the study, so neither
can be talked into another number (PROOFS.md, "Counts, sums and means on the grid" and "Records and codes").

Parts share a charge by need, so that the sum of their squared errors is least. A part's need is how far one unit can
move it, counted in the largest single contribution of a unit: four counts for at most four rows, the root of the
levels for a tree (PROOFS.md#planning).
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

from wardround.federation.errors import QueryMistaken
from wardround.federation.forms.parts import AnswerLayout, Frame, Part
from wardround.federation.plan.typed import Typed, type_query
from wardround.federation.question.cohort import And, IsNull
from wardround.federation.question.query import MAX_CELLS, MAX_DIMENSION, Query, domain
from wardround.federation.statistics import together
from wardround.federation.statistics.count import units
from wardround.federation.study.study import Study, Table
from wardround.privacy.budget.facts import AnyMechanism
from wardround.privacy.noise.distribution import Mechanism

_UNIT = 4096
"""Needs are whole numbers of 1/4096, so that both sides reckon the same shares."""


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


def shares(form: AnswerLayout, mechanism: AnyMechanism) -> tuple[Fraction, ...]:
    """Each part's share of the charge: of μ² in proportion to Δ₂, of pure ε in proportion to Δ₁^(2/3)."""
    needs = [_need(part, mechanism) for part in form.parts]
    return tuple(Fraction(need, sum(needs)) for need in needs)


def _need(part: Part, mechanism: AnyMechanism) -> int:
    one = part.largest
    if mechanism is Mechanism.DISCRETE_GAUSSIAN:
        return max(math.isqrt(_UNIT**2 * part.l2_sensitivity_squared) // one, 1)
    # The cube root of a square, in whole numbers: a float could round one way here and another there.
    return max(_cube_root((_UNIT * part.l1_sensitivity // one) ** 2 * _UNIT), 1)


def _cube_root(number: int) -> int:
    """The largest whole number whose cube is at most `number`."""
    low, high = 0, 1 << (number.bit_length() // 3 + 1)
    while low < high:
        middle = (low + high + 1) // 2
        if middle**3 <= number:
            low = middle
        else:
            high = middle - 1
    return low
