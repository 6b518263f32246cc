"""What a question wants shown, applied to numbers that were already released."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from tests.analyst.stored import ANSWER, estimate, stored
from wardround.analyst.asking.builder import query
from wardround.analyst.showing.result import Result
from wardround.analyst.sql.read import read
from wardround.analyst.tables.presentation import BoundQuestion, owners, places_of, statistic_label
from wardround.federation.plan.sql_text import aggregate_text, label_text
from wardround.federation.question.answer import Estimate
from wardround.federation.question.query import Aggregate, Clip, Query, Statistic
from wardround.federation.study.study import Value

COUNTS = (("E11", 50.0), ("I10", 70.0), ("C50", 10.0), ("Z99", 60.0))
MEANS = (("E11", 3.0), ("I10", 1.0), ("C50", 2.0), ("Z99", 1.0))


def by_code() -> tuple[Estimate, ...]:
    """Two aggregates of four groups, aggregate by aggregate."""
    counts = [estimate("count", None, value, 3.0, group=(("code", key),)) for key, value in COUNTS]
    return (*counts, *(estimate("mean", "x", value, 0.5, group=(("code", key),)) for key, value in MEANS))


def shown(clauses: str, listed: str = "code, COUNT(*), AVG(x)") -> Result:
    return Result(stored(*by_code()), read(f"SELECT {listed} FROM t GROUP BY code {clauses}"))


def keys(result: Result, statistic: str = "count") -> list[Value]:
    return [each.group[0][1] for each in result if each.statistic == statistic]


@pytest.mark.parametrize(
    ("clauses", "expected"),
    [
        ("", ["E11", "I10", "C50", "Z99"]),
        ("HAVING COUNT(*) > 50", ["I10", "Z99"]),
        ("HAVING COUNT(*) >= 50", ["E11", "I10", "Z99"]),
        ("HAVING COUNT(*) <> 50", ["I10", "C50", "Z99"]),
        ("HAVING COUNT(*) = 50 OR AVG(x) = 2", ["E11", "C50"]),
        ("HAVING COUNT(*) BETWEEN 10 AND 50", ["E11", "C50"]),
        ("HAVING COUNT(*) < 0", []),
        ("ORDER BY COUNT(*)", ["C50", "E11", "Z99", "I10"]),
        ("ORDER BY COUNT(*) DESC", ["I10", "Z99", "E11", "C50"]),
        ("ORDER BY AVG(x), COUNT(*) DESC", ["I10", "Z99", "C50", "E11"]),
        ("ORDER BY AVG(x), COUNT(*)", ["Z99", "I10", "C50", "E11"]),
        ("ORDER BY AVG(x) DESC", ["E11", "C50", "I10", "Z99"]),
        ("ORDER BY code", ["C50", "E11", "I10", "Z99"]),
        ("ORDER BY code DESC", ["Z99", "I10", "E11", "C50"]),
        ("LIMIT 2", ["E11", "I10"]),
        ("ORDER BY COUNT(*) DESC LIMIT 2", ["I10", "Z99"]),
        ("HAVING AVG(x) < 3 ORDER BY COUNT(*) LIMIT 9", ["C50", "Z99", "I10"]),
    ],
)
def test_groups_are_chosen_and_ordered(clauses: str, expected: list[str]) -> None:
    result = shown(clauses)
    assert keys(result) == keys(result, "mean") == expected
    assert len(result) == 2 * len(expected)
    # Everything that was released and paid for is still there.
    assert result.answer.estimates == by_code()


def test_an_ordered_answer_goes_group_by_group() -> None:
    assert [each.statistic for each in shown("ORDER BY code LIMIT 2")] == ["count", "mean"] * 2


def test_a_top_k_says_how_far_the_next_one_is() -> None:
    result = shown("ORDER BY COUNT(*) DESC LIMIT 3")
    assert result.gap is not None
    assert (result.gap.value, result.gap.standard_error) == (40.0, math.hypot(3.0, 3.0))
    assert "1 group more was answered and is not shown." in str(result)
    assert "The last group shown and the next one differ by 40.0 ± 4.2" in str(result)
    assert result.document()["gap"] == {"value": 40.0, "standard_error": math.hypot(3.0, 3.0)}


@pytest.mark.parametrize("clauses", ["ORDER BY COUNT(*) DESC", "LIMIT 2", "ORDER BY code LIMIT 2", "LIMIT 9"])
def test_without_a_cut_by_a_number_there_is_no_gap(clauses: str) -> None:
    result = shown(clauses)
    assert result.gap is None
    assert "gap" not in result.document()


def test_groups_of_an_integer_and_of_intervals_have_their_own_order() -> None:
    ages = [estimate("count", None, 1.0, 1.0, group=(("age", age),)) for age in (10, 9, 2)]
    result = Result(stored(*ages), read("SELECT age, COUNT(*) FROM t GROUP BY age ORDER BY age"))
    assert [each.group[0][1] for each in result] == [2, 9, 10]
    names = ("< 40", "[40, 65)", ">= 65")
    bands = [estimate("count", None, 1.0, 1.0, group=(("age", name),)) for name in names]
    case = "CASE WHEN age < 40 THEN 'young' WHEN age < 65 THEN 'middle' ELSE 'aged' END AS band"
    result = Result(stored(*bands), read(f"SELECT {case}, COUNT(*) FROM t GROUP BY band ORDER BY band DESC"))
    assert [each.group for each in result] == [(("band", label),) for label in ("aged", "middle", "young")]


def test_aliases_and_labels_are_what_is_read() -> None:
    result = shown("HAVING n > 55", "code AS diagnosis, COUNT(*) AS n, AVG(x)")
    lines = str(result).splitlines()
    assert lines[0].split() == ["diagnosis", "n", "AVG(x)"]
    assert [line.split()[0] for line in lines[2:4]] == ["I10", "Z99"]
    first, second, *_ = json.loads(json.dumps(result.document()))["estimates"]
    assert (first["name"], first["group"]) == ("n", {"diagnosis": "I10"})
    assert "name" not in second
    assert list(result.to_pandas()["diagnosis"]) == ["I10", "Z99"]
    assert list(result.to_pandas()["n"]) == [70.0, 60.0]
    assert list(result.to_pandas(long=True)["diagnosis"]) == ["I10", "I10", "Z99", "Z99"]


def test_an_answer_to_nothing_is_shown_as_nothing() -> None:
    empty = Result(stored(), read("SELECT code, COUNT(*) FROM t GROUP BY code ORDER BY 2 LIMIT 3"), note="No keys.")
    assert len(empty) == 0
    assert str(empty).startswith("statistic  estimate  95 % interval")
    assert "No keys." in str(empty)
    assert empty.gap is None


# --- Whose estimate is it ------------------------------------------------------------------------------------


def places(question: Query, *estimates: Estimate) -> tuple[int | None, ...]:
    return owners(estimates, question)


def test_the_same_statistic_within_other_bounds_is_told_apart_by_its_order() -> None:
    asked = query("t").group_by("c").mean("x").mean("x", within={"x": (1, 2)}).query
    cells = [estimate("mean", "x", value, 1.0, group=(("c", key),)) for value in (5.0, 1.5) for key in "ab"]
    assert places(asked, *cells) == (0, 0, 1, 1)
    # And HAVING means the one it names.
    having = query("t").group_by("c").mean("x").mean("x", within={"x": (1, 2)}).having("AVG(CLAMP(x, 1, 2)) > 4")
    assert len(Result(stored(*cells), BoundQuestion(having.query, having.view))) == 0


def test_statistics_with_several_numbers_keep_them_together() -> None:
    asked = Query(
        "t",
        (
            Aggregate(Statistic.HISTOGRAM, "x", bins=2),
            Aggregate(Statistic.HISTOGRAM, "x", bins=3),
            Aggregate(Statistic.REGRESSION, "y", ("a",)),
            Aggregate(Statistic.REGRESSION, "y", ("b",)),
            Aggregate(Statistic.CORRELATION, "a", ("b", "c")),
            Aggregate(Statistic.QUANTILE, "x", level=0.25),
            Aggregate(Statistic.QUANTILE, "x", level=0.5),
        ),
    )
    terms = [("histogram", "x", name) for name in ("[0, 3)", "[3, 6]", "[0, 2)", "[2, 4)", "[4, 6]")]
    terms += [("regression", "y", name) for name in ("intercept", "a", "r_squared", "intercept", "b", "r_squared")]
    terms += [("correlation", "a", "b"), ("correlation", "a", "c"), ("correlation", "b", "c")]
    terms += [("quantile", "x", "0.25"), ("quantile", "x", "0.5"), ("mean", "x", "")]
    estimates = [estimate(statistic, column, 1.0, 1.0, term=term) for statistic, column, term in terms]
    assert places(asked, *estimates) == (0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 6, None)


def test_an_estimate_that_says_its_place_is_believed() -> None:
    asked = query("t").mean("x").mean("x", within={"x": (1, 2)}).query
    swapped = [dataclasses.replace(estimate("mean", "x", 5.0, 1.0), place=place) for place in (1, 0)]
    assert places_of(swapped, asked) == (1, 0)
    labels = [line.label for line in Result(stored(*swapped), BoundQuestion(asked)).shown.lines]
    assert labels == ["AVG(CLAMP(x, 1.0, 2.0))", "AVG(x)"]


def test_an_estimate_beyond_the_question_has_no_place_in_it() -> None:
    """A cell of a table is no aggregate; and a coordinator may say what it likes."""
    asked = query("t").count().query
    of_none, beyond, own = (
        estimate("count", "x", 1.0, 1.0),
        estimate("mean", "x", 2.0, 1.0),
        estimate("count", None, 3, 1),
    )
    told = [of_none, dataclasses.replace(beyond, place=1), dataclasses.replace(own, place=0)]
    assert places_of(told, asked) == (None, None, 0)
    labels = [line.label for line in Result(stored(*told), BoundQuestion(asked)).shown.lines]
    assert labels == ["COUNT(DISTINCT x)", "AVG(x)", "COUNT(*)"]


def test_an_answer_of_before_is_shown_by_its_order() -> None:
    asked = query("t").mean("x").mean("x", within={"x": (1, 2)}).query
    before = [estimate("mean", "x", 5.0, 1.0), estimate("mean", "x", 1.5, 1.0)]
    assert places_of(before, asked) == (0, 1)


# --- Words over a number -------------------------------------------------------------------------------------


def test_a_label_is_sql() -> None:
    clips = (Clip("x", 1.0, 2.0),)
    assert label_text(Aggregate(Statistic.QUANTILE, "x", level=0.5)) == "MEDIAN(x)"
    assert label_text(Aggregate(Statistic.QUANTILE, "x", level=0.9, clips=clips)) == "QUANTILE(CLAMP(x, 1.0, 2.0), 0.9)"
    regression = Aggregate(Statistic.REGRESSION, "y", ("a", "b"))
    assert label_text(regression) == aggregate_text(regression) == "REGRESS(y, a, b)"


@pytest.mark.parametrize("statistic", Statistic)
def test_every_statistic_has_a_label_without_its_question(statistic: Statistic) -> None:
    assert statistic_label(statistic.value, "x").endswith("x)")
    assert "None" not in statistic_label(statistic.value, "x")


def test_terms_and_sampling_are_shown_where_they_are() -> None:
    several = stored(
        estimate("regression", "y", 1.0, 0.1, term="age", sampling=True),
        estimate("regression", "y", 2.0, 0.1, term="intercept", sampling=True),
    )
    text = Result(several).text(long=True)
    assert text.splitlines()[0].split() == ["statistic", "term", "estimate", "95", "%", "interval"]
    assert "The error and the interval cover the noise and sampling error." in text
    both = dataclasses.replace(several, estimates=(*several.estimates, estimate("count", None, 1.0, 1.0)))
    assert "those of REGRESS(y) also sampling error." in Result(both).text(long=True)
    assert "it covers the noise; that of REGRESS(y) also sampling error." in str(Result(both))
    documents = json.loads(json.dumps(Result(both).document()))["estimates"]
    assert [each["term"] for each in documents] == ["age", "intercept", None]
    assert [each["sampling"] for each in documents] == [True, True, False]
    table = Result(both).to_arrow(long=True)
    assert table.column("term").to_pylist() == ["age", "intercept", None]
    assert "term" not in Result(ANSWER).text(long=True).splitlines()[0]


def test_a_bound_without_an_error_is_rounded_and_an_exact_number_is_not() -> None:
    bound = dataclasses.replace(
        estimate("choice", "c", 2.49467430005, 0.0, term="regret"), interval=(0.0, 2.49467430005)
    )
    result = Result(stored(bound, estimate("choice", "c", 123456789.5, 0.0, term="gap")))
    lines = result.text(long=True).splitlines()
    assert lines[2].split()[-3:] == ["2.495", "[0,", "2.495]"]
    assert lines[3].split()[-3:] == ["123456789.5", "[123456789.5,", "123456789.5]"]


def test_cells_of_a_table_have_groups_that_its_test_has_not() -> None:
    cells = [estimate("count", "id", 5.0, 1.0, group=(("a", "x"), ("b", False)))]
    result = Result(stored(estimate("chi_square", "a", 3.0, 1.0, term="statistic"), *cells))
    assert result.text(long=True).splitlines()[0].split()[:4] == ["a", "b", "statistic", "term"]
    assert list(result.to_pandas(long=True)["a"].isna()) == [True, False]


def test_shares_of_a_charge_are_told() -> None:
    result = Result(ANSWER, shares=(("COUNT(*)", 0.8), ("AVG(sbp)", 0.2)))
    assert "Split by need: COUNT(*) 80 %, AVG(sbp) 20 %." in result.explain()
    assert result.document()["shares"] == [
        {"aggregate": "COUNT(*)", "share": 0.8},
        {"aggregate": "AVG(sbp)", "share": 0.2},
    ]
