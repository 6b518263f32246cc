"""The table of statistics is whole and says nothing twice: what reads it relies on that."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest

from wardround.federation.forms.definition import Definition, Number
from wardround.federation.forms.parts import Part, Records, Sums
from wardround.federation.plan.layout import shape
from wardround.federation.question.query import Aggregate, Query, Statistic
from wardround.federation.statistics import ALL, ALLOWED_BY_DEFAULT, find, together
from wardround.federation.study.study import Cap, Column, ColumnType, Study, Table, Unit
from wardround.privacy.noise.distribution import Mechanism

COLUMNS = (
    Column("x", ColumnType.NUMBER, Fraction(0), Fraction(10), Fraction(1)),
    Column("y", ColumnType.INTEGER, Fraction(0), Fraction(10), Fraction(1)),
    Column("b", ColumnType.BOOLEAN),
    Column("c", ColumnType.CATEGORY, values=("u", "v")),
    Column("k", ColumnType.CATEGORY),
)
ASKED = {
    Statistic.COUNT: (),
    Statistic.CORRELATION: ("x", "y"),
    Statistic.REGRESSION: ("x", "y"),
    Statistic.SURVIVAL: ("x", "b"),
    Statistic.CHI_SQUARE: ("b", "c"),
    Statistic.CHOICE: ("c",),
    Statistic.KEYS: ("k",),
}


def a_study(unit: Unit = Unit.PATIENT) -> Study:
    return Study("s", unit, 1, Cap(1.0, 1e-6), (Table("t", "p", 4, 3, COLUMNS),), 1, 60.0, 60.0)


def an_aggregate(definition: Definition) -> Aggregate:
    columns = ASKED.get(definition.statistic, ("x",))
    level = 0.5 if definition.number is Number.LEVEL else None
    bins = 4 if definition.number is Number.BINS else None
    return Aggregate(definition.statistic, *(columns[:1] or (None,)), columns[1:], level, bins)


def its_part(definition: Definition, unit: Unit = Unit.PATIENT) -> Part:
    (part,) = shape(Query("t", (an_aggregate(definition),)), a_study(unit), Mechanism.DISCRETE_GAUSSIAN).parts
    return part


def test_every_statistic_is_in_the_table_under_its_own_name() -> None:
    assert [definition.statistic for definition in ALL] == list(Statistic)
    assert all(find(statistic).statistic is statistic for statistic in Statistic)


def test_a_function_names_one_statistic() -> None:
    names = Counter(function.name for definition in ALL for function in definition.functions)
    assert set(names.values()) == {1}
    assert all(name == name.upper() for name in names)


@pytest.mark.parametrize("definition", ALL, ids=lambda definition: definition.statistic.value)
def test_a_part_belongs_to_the_statistic_that_reads_it(definition: Definition) -> None:
    part = its_part(definition)
    assert part.owner is definition.statistic
    assert len(definition.never_below_nought(part)) == part.coordinates
    assert definition.typical is None or len(definition.typical(part, 100.0)) == part.coordinates
    # Somebody reads what is released where that is not a vector to add up.
    special = definition.selects_keys or definition.votes
    assert special == (definition.from_releases is not None) == (definition.promise is not None)


def test_a_mean_beside_a_spread_is_answered_from_its_integers() -> None:
    mean, other = Aggregate(Statistic.MEAN, "x"), Aggregate(Statistic.MEAN, "y")
    std, median = Aggregate(Statistic.STD, "x"), Aggregate(Statistic.QUANTILE, "x", level=0.5)
    found = [(definition.statistic, asked) for definition, asked in together((mean, median, other, std))]
    assert found == [
        (Statistic.STD, (mean, std)),
        (Statistic.QUANTILE, (median,)),
        (Statistic.MEAN, (other,)),
    ]


def test_only_a_count_of_patients_counts_each_once_where_events_are_protected() -> None:
    tables = (Statistic.CHI_SQUARE, Statistic.CHOICE, Statistic.KEYS)
    for statistic in tables:
        assert its_part(find(statistic)).records is Records.UNITS
        assert its_part(find(statistic), Unit.EVENT).records is Records.ROWS
    patients = Query("t", (Aggregate(Statistic.COUNT, "p"),))
    for unit in Unit:
        (part,) = shape(patients, a_study(unit), Mechanism.DISCRETE_GAUSSIAN).parts
        assert (part.records, part.sums) == (Records.UNITS, Sums.COUNT)


def test_a_table_of_its_own_names_what_makes_its_cells() -> None:
    crossed = its_part(find(Statistic.CHI_SQUARE))
    assert [grouping.column for grouping in crossed.groupings] == ["b", "c"]
    assert its_part(find(Statistic.MEAN)).groupings == ()


def test_all_but_texts_of_a_table_are_allowed_by_default() -> None:
    assert set(Statistic) - set(ALLOWED_BY_DEFAULT) == {Statistic.KEYS}


def test_some_statistics_give_one_number_for_each_group() -> None:
    several = {definition.statistic.value for definition in ALL if not definition.one_number}
    assert several == {"histogram", "chi_square", "correlation", "regression", "survival", "choice"}


@pytest.mark.parametrize("definition", ALL, ids=lambda definition: definition.statistic.value)
def test_a_part_says_the_largest_number_that_one_record_adds(definition: Definition) -> None:
    """What a part's need is counted in, when several share a charge."""
    part = its_part(definition)
    match part.sums:
        case Sums.LEVELS:
            assert part.largest == max(abs(part.quantisers[0].low), abs(part.quantisers[0].high))
        case Sums.COUNTED_LEVELS:
            assert part.largest == part.quantisers[0].high
        case Sums.PRODUCTS if len(part.columns) == 1:
            assert part.largest == (part.quantisers[0].high // 2) ** 2
        case Sums.PRODUCTS:
            assert part.largest == 29 * part.increment**2
        case Sums.COUNT | Sums.CODES:
            assert part.largest == part.increment == 64
