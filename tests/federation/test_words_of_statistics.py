"""The words of the statistics: what the study allows, the one form of each question, and its grids."""

from __future__ import annotations

import dataclasses
import itertools
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wardround.federation import canonical
from wardround.federation.errors import QueryMistaken
from wardround.federation.forms.grids import (
    LEVELS,
    MOST_LEAVES,
    Coding,
    Quantiser,
    below_coding,
    histogram_coding,
    level_quantiser,
    time_coding,
    tree_coding,
)
from wardround.federation.forms.parts import Sums
from wardround.federation.plan.layout import shape
from wardround.federation.plan.plan import Plan, price
from wardround.federation.plan.typed import typed
from wardround.federation.question.query import (
    Aggregate,
    Clip,
    GroupBy,
    Grouping,
    Query,
    Statistic,
    domain,
    interval_names,
    month_name,
)
from wardround.federation.study.study import Column, ColumnType
from wardround.federation.study.study_file import parse_study
from wardround.privacy.noise.distribution import Mechanism

STUDY = parse_study("""
name = "cardio"
overlap = 1
[budget]
epsilon = 3.0
delta = 1e-6
[tables.stays]
unit_key = "patient_id"
max_rows_per_unit = 4
[tables.stays.columns]
age       = { type = "integer", lower = 0, upper = 110 }
sbp       = { type = "number", lower = 80, upper = 200, step = 0.1 }
score     = { type = "number", lower = -5, upper = 3 }
free      = { type = "number" }
seen      = { type = "date" }
admitted  = { type = "date", lower = 2023-11-15, upper = 2024-02-01 }
ages      = { type = "date", lower = 1800-01-01, upper = 2024-12-31 }
ill       = { type = "boolean" }
died      = { type = "boolean" }
diagnosis = { type = "category", values = ["E11", "I10", "C50", "I25"] }
reason    = { type = "category" }
""")
TABLE = STUDY.table("stays")
COUNT = Aggregate(Statistic.COUNT)
S = Statistic


def ask(*aggregates: Aggregate, by: tuple[Grouping, ...] = ()) -> Query:
    return typed(Query("stays", aggregates, None, by), STUDY)


CLIPPED = Aggregate(S.MEAN, "sbp", clips=(Clip("sbp", 100.0, 180.0),))


@pytest.mark.parametrize(
    ("aggregate", "said"),
    [
        (Aggregate(S.MEAN), "a mean needs a column."),
        (Aggregate(S.MEAN, "sbp", ("age",)), "a mean needs a column."),
        (Aggregate(S.COUNT, "patient_id", ("age",)), "a count needs no column or one."),
        (Aggregate(S.CHI_SQUARE, "ill"), "two different columns"),
        (Aggregate(S.CHI_SQUARE, "ill", ("ill",)), "two different columns"),
        (Aggregate(S.SURVIVAL, "age", ("died", "ill")), "two different columns"),
        (Aggregate(S.CORRELATION, "age"), "2 to 12 different columns"),
        (Aggregate(S.QUANTILE, "sbp"), "a quantile needs a level."),
        (Aggregate(S.MEAN, "sbp", level=0.5), "a mean takes no level."),
        (Aggregate(S.QUANTILE, "sbp", level=0.0), "the smallest and the largest value are one patient's own"),
        (Aggregate(S.QUANTILE, "sbp", level=1.0), "from 0.001 to 0.999, not 1"),
        (Aggregate(S.QUANTILE, "sbp", level=float("nan")), "must be a finite number"),
        (Aggregate(S.BELOW, "sbp", level=201.0), "201 is outside the bounds 80 to 200 of 'sbp'"),
        (Aggregate(S.BELOW, "sbp", level=190.0, clips=CLIPPED.clips), "outside the bounds 100 to 180"),
        (Aggregate(S.HISTOGRAM, "sbp"), "a histogram takes 1 to 4096 intervals"),
        (Aggregate(S.HISTOGRAM, "sbp", bins=0), "a histogram takes 1 to 4096 intervals"),
        (Aggregate(S.HISTOGRAM, "sbp", bins=4097), "a histogram takes 1 to 4096 intervals"),
        (Aggregate(S.MEAN, "sbp", bins=3), "a mean takes no number of intervals"),
        (Aggregate(S.HISTOGRAM, "ill", bins=2), "a histogram needs numbers"),
        (Aggregate(S.QUANTILE, "diagnosis", level=0.5), "a quantile needs numbers"),
        (Aggregate(S.VARIANCE, "free"), "must add lower and upper to the study"),
        (Aggregate(S.REGRESSION, "sbp", ("free",)), "must add lower and upper to the study"),
        (Aggregate(S.REGRESSION, "sbp", ("seen",)), "a regression needs numbers"),
        (Aggregate(S.SURVIVAL, "age", ("diagnosis",)), "it must be a boolean column"),
        (Aggregate(S.SURVIVAL, "ill", ("died",)), "the time of a survival curve needs numbers"),
        (Aggregate(S.CHOICE, "reason"), "with GROUP BY reason"),
        (Aggregate(S.CHOICE, "sbp"), "no public list of values"),
        (Aggregate(S.CHI_SQUARE, "ill", ("seen",)), "no public list of values"),
        (Aggregate(S.KEYS, "diagnosis"), "are public; ask COUNT"),
        (Aggregate(S.MEAN, "spb"), "did you mean 'sbp'?"),
        (Aggregate(S.MEAN, "sbp", clips=(Clip("sbp", 70.0, 180.0),)), "bounds can be narrowed, never widened"),
        (Aggregate(S.MEAN, "sbp", clips=(Clip("sbp", 100.0, 200.01),)), "bounds can be narrowed, never widened"),
        (Aggregate(S.MEAN, "sbp", clips=(Clip("sbp", 180.0, 100.0),)), "two finite numbers, the smaller one first"),
        (
            Aggregate(S.MEAN, "sbp", clips=(Clip("sbp", 100.0, float("inf")),)),
            "two finite numbers, the smaller one first",
        ),
        (Aggregate(S.MEAN, "sbp", clips=(Clip("sbp", 100.0, 100.000000001),)), "too close together"),
        (Aggregate(S.MEAN, "sbp", clips=(Clip("age", 1.0, 2.0),)), "only for columns of the aggregate"),
        (Aggregate(S.MEAN, "sbp", clips=CLIPPED.clips * 2), "given once for a column"),
        (Aggregate(S.MEAN, "ill", clips=(Clip("ill", 0.0, 0.5),)), "no bounds in the study that could be narrowed"),
    ],
)
def test_a_statistic_the_study_does_not_allow_is_one_sentence(aggregate: Aggregate, said: str) -> None:
    with pytest.raises(QueryMistaken) as caught:
        ask(aggregate)
    assert said in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("grouping", "said"),
    [
        (Grouping("reason"), "are not public; list keys for it"),
        (Grouping("reason", keys=("x" * 257,)), "of at most 256 characters"),
        (Grouping("reason", keys=("",)), "of at most 256 characters"),
        (Grouping("diagnosis", keys=("E11",)), "cannot be listed again"),
        (Grouping("seen", GroupBy.MONTH), "must add lower and upper to the study"),
        (Grouping("ages", GroupBy.MONTH), "at most 1200 months apart"),
        (Grouping("sbp", GroupBy.MONTH), "months need a date column"),
        (Grouping("diagnosis", GroupBy.BINS, edges=(1.0,)), "intervals need numbers"),
        (Grouping("sbp", GroupBy.BINS), "1 to 1024 finite numbers in rising order"),
        (Grouping("sbp", GroupBy.BINS, edges=(2.0, 1.0)), "in rising order"),
        (Grouping("sbp", GroupBy.BINS, edges=(1.0, 1.0)), "in rising order"),
        (Grouping("sbp", GroupBy.BINS, edges=(1.0, float("nan"))), "in rising order"),
        (Grouping("diagnosis", edges=(1.0,)), "is not grouped by intervals"),
        (Grouping("sbp"), "no public list of values"),
        (Grouping("admitted"), "no public list of values"),
    ],
)
def test_groups_without_public_keys_are_one_sentence(grouping: Grouping, said: str) -> None:
    with pytest.raises(QueryMistaken) as caught:
        ask(COUNT, by=(grouping,))
    assert said in caught.value.message


@pytest.mark.parametrize(
    "alone",
    [Aggregate(S.CHOICE, "diagnosis"), Aggregate(S.KEYS, "reason"), Aggregate(S.CHI_SQUARE, "ill", ("diagnosis",))],
)
def test_a_table_of_its_own_takes_no_company(alone: Aggregate) -> None:
    assert ask(alone).aggregates == (alone,)
    for company in (((alone, COUNT), ()), ((alone,), (Grouping("ill"),))):
        with pytest.raises(QueryMistaken, match="is a question of its own"):
            ask(*company[0], by=company[1])


# --- Equal questions are one plan ---------------------------------------------------------------------------


def test_clips_that_say_what_the_study_says_are_left_out_and_the_rest_are_sorted() -> None:
    same = Aggregate(S.MEAN, "sbp", clips=(Clip("sbp", 80, 200),))
    assert ask(same) == ask(Aggregate(S.MEAN, "sbp"))
    pair = (Clip("sbp", 100, 180), Clip("age", 18, 90))
    ways = [Aggregate(S.CORRELATION, "sbp", ("age",), clips=clips) for clips in (pair, pair[::-1])]
    assert len({canonical.encode(ask(way)) for way in ways}) == 1
    assert ask(ways[0]) != ask(Aggregate(S.CORRELATION, "sbp", ("age",)))


def test_numbers_of_a_question_have_one_form() -> None:
    whole, real = (ask(Aggregate(S.BELOW, "age", level=level)) for level in (40, 40.0))
    assert canonical.encode(whole) == canonical.encode(real)
    edges = [(Grouping("sbp", GroupBy.BINS, edges=edges),) for edges in ((0, 120), (0.0, 120.0), (-0.0, 120.0))]
    assert len({canonical.encode(ask(COUNT, by=by)) for by in edges}) == 1
    keys = [(Grouping("reason", keys=keys),) for keys in (("a", "b"), ("b", "a", "a"))]
    assert len({canonical.encode(ask(COUNT, by=by)) for by in keys}) == 1


def test_different_questions_are_different_plans() -> None:
    questions = [
        ask(Aggregate(S.QUANTILE, "sbp", level=0.5)),
        ask(Aggregate(S.QUANTILE, "sbp", level=0.25)),
        ask(Aggregate(S.HISTOGRAM, "sbp", bins=10)),
        ask(Aggregate(S.HISTOGRAM, "sbp", bins=20)),
        ask(Aggregate(S.SURVIVAL, "age", ("died",))),
        ask(Aggregate(S.SURVIVAL, "age", ("ill",))),
        ask(Aggregate(S.REGRESSION, "sbp", ("age",))),
        ask(Aggregate(S.REGRESSION, "age", ("sbp",))),
        ask(COUNT, by=(Grouping("sbp", GroupBy.BINS, edges=(120.0,)),)),
        ask(COUNT, by=(Grouping("sbp", GroupBy.BINS, edges=(121.0,)),)),
        ask(COUNT, by=(Grouping("admitted", GroupBy.MONTH),)),
        ask(CLIPPED),
        ask(Aggregate(S.MEAN, "sbp")),
    ]
    plans = [
        Plan(STUDY.study_hash, question, Mechanism.DISCRETE_GAUSSIAN, (Fraction(2**48),), ("a",))
        for question in questions
    ]
    assert len({plan.plan_id for plan in plans}) == len(plans)
    assert all(price(plan, STUDY).cost.mu_squared > 0 for plan in plans)


# --- Parts --------------------------------------------------------------------------------------------------


def test_aggregates_that_need_the_same_integers_share_a_part() -> None:
    together = ask(
        Aggregate(S.QUANTILE, "sbp", level=0.5),
        Aggregate(S.MEAN, "sbp"),
        Aggregate(S.QUANTILE, "sbp", level=0.9),
        Aggregate(S.STD, "sbp"),
        Aggregate(S.VARIANCE, "sbp"),
        Aggregate(S.MEAN, "age"),
        CLIPPED,
    )
    parts = shape(together, STUDY, Mechanism.DISCRETE_GAUSSIAN).parts
    assert [(part.sums, part.tree is not None, len(part.aggregates)) for part in parts] == [
        (Sums.CODES, True, 2),
        (Sums.PRODUCTS, False, 3),
        (Sums.COUNTED_LEVELS, False, 1),
        (Sums.COUNTED_LEVELS, False, 1),
    ]


def test_tables_of_their_own_have_cells_of_their_own() -> None:
    crossed = shape(ask(Aggregate(S.CHI_SQUARE, "ill", ("diagnosis",))), STUDY, Mechanism.DISCRETE_LAPLACE).parts[0]
    assert (crossed.groups, crossed.max_groups, crossed.l1_sensitivity) == (8, 1, 1)
    chosen = shape(ask(Aggregate(S.CHOICE, "ill")), STUDY, Mechanism.DISCRETE_LAPLACE).parts[0]
    assert (chosen.groups, chosen.max_groups) == (2, 2)


def test_an_answer_of_too_many_numbers_is_refused() -> None:
    many = ask(Aggregate(S.HISTOGRAM, "sbp", bins=4096), by=(Grouping("age"), Grouping("diagnosis"), Grouping("ill")))
    with pytest.raises(QueryMistaken, match="ask for less"):
        shape(dataclasses.replace(many, group_by=(*many.group_by, Grouping("died"))), STUDY, Mechanism.DISCRETE_LAPLACE)


# --- Public keys --------------------------------------------------------------------------------------------


def test_months_are_all_months_between_the_first_and_the_last_day() -> None:
    assert domain(Grouping("admitted", GroupBy.MONTH), TABLE) == ("2023-11", "2023-12", "2024-01", "2024-02")
    assert domain(Grouping("seen", GroupBy.MONTH), TABLE) == ()
    assert month_name(9999 * 12 + 11) == "9999-12"


def test_intervals_are_named_by_their_edges() -> None:
    assert interval_names((40.0, 65.5)) == ("< 40", "[40, 65.5)", ">= 65.5")
    assert interval_names(()) == ()


@given(st.lists(st.floats(-1e15, 1e15), min_size=1, max_size=8, unique=True).map(sorted))
def test_there_is_one_name_for_every_interval_of_whole_numbers(edges: list[float]) -> None:
    whole = tuple(sorted({float(round(edge)) for edge in edges}))
    names = interval_names(whole)
    assert len(set(names)) == len(names) == len(whole) + 1


# --- Grids --------------------------------------------------------------------------------------------------

steps = st.sampled_from([None, Fraction(1), Fraction(1, 10), Fraction(1, 100), Fraction(3, 10)])
widths = st.sampled_from([Fraction(1), Fraction(3), Fraction(30), Fraction(120), Fraction(20_000)])


def column(lower: Fraction, width: Fraction, step: Fraction | None) -> Column:
    fitting = None if step is None or step > width else step
    return Column("x", ColumnType.NUMBER, lower, lower + width, fitting)


def code(quantiser: Quantiser, coding: Coding, value: Fraction) -> int:
    exact = (value - quantiser.origin) * quantiser.per_unit + Fraction(1, 2)
    level = min(max(exact.__floor__(), quantiser.low), quantiser.high)
    return min((level + coding.offset) // coding.width, coding.codes - 1)


@given(width=widths, step=steps, rows=st.integers(1, 12), bins=st.integers(1, 200))
@settings(deadline=None)
def test_a_histogram_s_intervals_have_equal_width_and_hold_their_lower_edge(
    width: Fraction, step: Fraction | None, rows: int, bins: int
) -> None:
    x = column(Fraction(-7), width, step)
    quantiser, coding = histogram_coding(x, rows=rows, bins=bins)
    assert coding.codes == bins
    assert coding.width * bins == quantiser.high <= LEVELS
    edges = [Fraction(-7) + width * place / bins for place in range(bins)]
    assert [code(quantiser, coding, edge) for edge in edges] == list(range(bins))
    assert code(quantiser, coding, Fraction(-7) + width) == bins - 1


@given(width=widths, step=steps, rows=st.integers(1, 12))
@settings(deadline=None)
def test_a_tree_has_a_leaf_for_every_step_or_few_of_them(width: Fraction, step: Fraction | None, rows: int) -> None:
    x = column(Fraction(80), width, step)
    quantiser, coding, tree = tree_coding(x, rows=rows)
    assert coding.codes <= min(tree.leaves, MOST_LEAVES)
    assert tree.branching ** (tree.levels - 1) < coding.codes or tree.levels == 1
    assert (code(quantiser, coding, Fraction(80)), code(quantiser, coding, Fraction(80) + width)) == (
        0,
        coding.codes - 1,
    )
    if x.step is not None and (width / x.step).denominator == 1 and width / x.step < 500:
        on_steps = [code(quantiser, coding, Fraction(80) + x.step * n) for n in range(int(width / x.step) + 1)]
        assert on_steps == list(range(coding.codes))


@given(value=st.integers(0, 1200), rows=st.integers(1, 12))
@settings(deadline=None)
def test_a_share_counts_what_is_at_the_value_and_not_what_is_above_it(value: int, rows: int) -> None:
    x = column(Fraction(80), Fraction(120), Fraction(1, 10))
    at = Fraction(80) + Fraction(value, 10)
    quantiser, coding = below_coding(x, rows=rows, value=float(at))
    assert code(quantiser, coding, at) == 0
    assert code(quantiser, coding, Fraction(80)) == 0
    if value < 1200:
        one_level = 1 / quantiser.per_unit
        assert code(quantiser, coding, at + one_level) == 1


@given(bins=st.none() | st.integers(1, 150), upper=st.integers(1, 4000))
@settings(deadline=None)
def test_times_rise_with_their_codes_and_a_code_s_own_time_has_it(bins: int | None, upper: int) -> None:
    x = column(Fraction(0), Fraction(upper), Fraction(1))
    quantiser, coding = time_coding(x, bins=bins)
    codes = [code(quantiser, coding, Fraction(time)) for time in range(upper + 1)]
    assert all(left <= right for left, right in itertools.pairwise(codes))
    assert (codes[0], codes[-1]) == (0, coding.codes - 1)
    assert bins is None or coding.codes <= bins + 1
    own = [min(quantiser.value(place * coding.width), Fraction(upper)) for place in range(coding.codes)]
    assert [code(quantiser, coding, time) for time in own] == list(range(coding.codes))


@given(width=widths, step=steps, rows=st.integers(1, 12), most=st.sampled_from([LEVELS, 2**17, 2**15]))
def test_levels_are_a_multiple_that_fits(width: Fraction, step: Fraction | None, rows: int, most: int) -> None:
    quantiser = level_quantiser(column(Fraction(0), width, step), rows=rows, most=most, multiple=4)
    assert 0 < quantiser.high <= most
    assert quantiser.high % 4 == 0
    assert quantiser.value(quantiser.high) == width
