"""Every statistic and every kind of group: the SQL, the same as a draft in Python, and the words both become."""

from __future__ import annotations

import math

import pytest

from wardround.analyst.asking.builder import Draft, bins, month, query
from wardround.analyst.sql.read import parse, read
from wardround.analyst.tables.presentation import Compared, Every, Ordering, Presentation, Some
from wardround.federation.errors import QueryMistaken
from wardround.federation.plan.sql_text import query_text
from wardround.federation.question.cohort import Operator
from wardround.federation.question.query import Aggregate, Clip, GroupBy, Grouping, Query, Statistic

Q = query("t")
CLIP = {"x": (90.0, 180.0)}
X = (Clip("x", 90.0, 180.0),)

STATISTICS = [
    ("COUNT(*)", Q.count(), Aggregate(Statistic.COUNT)),
    ("COUNT(DISTINCT id)", Q.count(distinct="id"), Aggregate(Statistic.COUNT, "id")),
    ("SUM(x)", Q.sum("x"), Aggregate(Statistic.SUM, "x")),
    ("AVG(x)", Q.mean("x"), Aggregate(Statistic.MEAN, "x")),
    ("VARIANCE(x)", Q.variance("x"), Aggregate(Statistic.VARIANCE, "x")),
    ("VAR_SAMP(x)", Q.variance("x"), Aggregate(Statistic.VARIANCE, "x")),
    ("VAR_POP(x)", Q.variance("x"), Aggregate(Statistic.VARIANCE, "x")),
    ("STDDEV(x)", Q.std("x"), Aggregate(Statistic.STD, "x")),
    ("STDDEV_SAMP(x)", Q.std("x"), Aggregate(Statistic.STD, "x")),
    ("stddev_pop(x)", Q.std("x"), Aggregate(Statistic.STD, "x")),
    ("MEDIAN(x)", Q.median("x"), Aggregate(Statistic.QUANTILE, "x", level=0.5)),
    ("QUANTILE(x, 0.9)", Q.quantile("x", 0.9), Aggregate(Statistic.QUANTILE, "x", level=0.9)),
    (
        "PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY x)",
        Q.quantile("x", 0.25),
        Aggregate(Statistic.QUANTILE, "x", level=0.25),
    ),
    (
        "percentile_cont(1e-2) within group (order by t.x asc)",
        Q.quantile("x", 0.01),
        Aggregate(Statistic.QUANTILE, "x", level=0.01),
    ),
    ("HISTOGRAM(x, 20)", Q.histogram("x", 20), Aggregate(Statistic.HISTOGRAM, "x", bins=20)),
    ("SHARE_BELOW(x, 140)", Q.share_below("x", 140), Aggregate(Statistic.BELOW, "x", level=140.0)),
    ("SHARE_BELOW(x, -1.5)", Q.share_below("x", -1.5), Aggregate(Statistic.BELOW, "x", level=-1.5)),
    ("CHI_SQUARE(a, b)", Q.chi_square("a", "b"), Aggregate(Statistic.CHI_SQUARE, "a", ("b",))),
    ("CORR(x, y)", Q.correlation("x", "y"), Aggregate(Statistic.CORRELATION, "x", ("y",))),
    ("CORR(x, y, z, w)", Q.correlation("x", "y", "z", "w"), Aggregate(Statistic.CORRELATION, "x", ("y", "z", "w"))),
    ("REGRESS(y, x1, x2)", Q.regression("y", "x1", "x2"), Aggregate(Statistic.REGRESSION, "y", ("x1", "x2"))),
    ("KAPLAN_MEIER(d, e)", Q.survival("d", "e"), Aggregate(Statistic.SURVIVAL, "d", ("e",))),
    ("KAPLAN_MEIER(d, e, 24)", Q.survival("d", "e", bins=24), Aggregate(Statistic.SURVIVAL, "d", ("e",), bins=24)),
    ("MODE(c)", Q.mode("c"), Aggregate(Statistic.CHOICE, "c")),
    ("KEYS(c)", Q.keys("c"), Aggregate(Statistic.KEYS, "c")),
    ("AVG(CLAMP(x, 90, 180))", Q.mean("x", within=CLIP), Aggregate(Statistic.MEAN, "x", clips=X)),
    ("AVG(LEAST(GREATEST(x, 90), 180))", Q.mean("x", within=CLIP), Aggregate(Statistic.MEAN, "x", clips=X)),
    ("AVG(GREATEST(LEAST(x, 180), 90))", Q.mean("x", within=CLIP), Aggregate(Statistic.MEAN, "x", clips=X)),
    ("SUM((CLAMP((x), 90.0, (180))))", Q.sum("x", within=CLIP), Aggregate(Statistic.SUM, "x", clips=X)),
    (
        "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY CLAMP(x, 90, 180))",
        Q.median("x", within=CLIP),
        Aggregate(Statistic.QUANTILE, "x", level=0.5, clips=X),
    ),
    (
        "REGRESS(y, CLAMP(x, 90, 180))",
        Q.regression("y", "x", within=CLIP),
        Aggregate(Statistic.REGRESSION, "y", ("x",), clips=X),
    ),
    (
        "CORR(CLAMP(x, 90, 180), CLAMP(b, -1, 1))",
        Q.correlation("x", "b", within={"x": (90, 180), "b": (-1, 1)}),
        Aggregate(Statistic.CORRELATION, "x", ("b",), clips=(Clip("b", -1.0, 1.0), *X)),
    ),
]


@pytest.mark.parametrize(("text", "draft", "aggregate"), STATISTICS, ids=[text for text, _, _ in STATISTICS])
def test_a_statistic_is_asked_by_its_word_too(text: str, draft: Draft, aggregate: Aggregate) -> None:
    within = {clip.column: (clip.lower, clip.upper) for clip in aggregate.clips}
    word = aggregate.statistic.value
    built = Q.of(word, *aggregate.columns, level=aggregate.level, bins=aggregate.bins, within=within)
    assert built == draft


def test_a_word_that_is_no_statistic_is_refused_with_the_nearest() -> None:
    with pytest.raises(QueryMistaken, match="there is no statistic 'meen'; did you mean 'mean'"):
        Q.of("meen", "x")


@pytest.mark.parametrize(("text", "draft", "aggregate"), STATISTICS, ids=[text for text, _, _ in STATISTICS])
def test_a_statistic_is_read_and_has_a_twin_in_python(text: str, draft: Draft, aggregate: Aggregate) -> None:
    asked = parse(f"SELECT {text} FROM t")
    assert asked == Query("t", (aggregate,))
    assert repr(asked) == repr(draft.query)
    assert parse(query_text(asked)) == asked


def test_every_statistic_can_be_written() -> None:
    assert {aggregate.statistic for _, _, aggregate in STATISTICS} == set(Statistic)


UP = math.nextafter
GROUPS = [
    ("c", "c", Grouping("c"), ()),
    ("DATE_TRUNC('month', d)", month("d"), Grouping("d", GroupBy.MONTH), ()),
    ("DATE_TRUNC('MONTH', t.d)", month("d"), Grouping("d", GroupBy.MONTH), ()),
    ("WIDTH_BUCKET(x, 0, 1, 4)", bins("x", 0, 0.25, 0.5, 0.75, 1), None, ()),
    ("WIDTH_BUCKET(x, -0.3, 0.6, 3)", bins("x", -0.3, 0.0, 0.3, 0.6), None, ()),
    ("CASE WHEN x < 40 THEN 'a' WHEN x < 65 THEN 'b' ELSE 'c' END", bins("x", 40, 65), None, ("a", "b", "c")),
    ("CASE WHEN x >= 65 THEN 'c' WHEN x >= 40 THEN 'b' ELSE 'a' END", bins("x", 40, 65), None, ("a", "b", "c")),
    ("CASE WHEN 40 > x THEN 'a' WHEN x >= 40 THEN 'b' END", bins("x", 40), None, ("a", "b")),
    (
        "CASE WHEN x >= 40 AND x < 65 THEN 'b' WHEN x < 40 THEN 'a' ELSE 'c' END",
        bins("x", 40, 65),
        None,
        ("a", "b", "c"),
    ),
    (
        "CASE WHEN x <= 40 THEN 'a' WHEN x <= 65 THEN 'b' ELSE 'c' END",
        bins("x", UP(40, 99), UP(65, 99)),
        None,
        ("a", "b", "c"),
    ),
    (
        "CASE WHEN x BETWEEN 40 AND 65 THEN 'b' ELSE 'other' END",
        bins("x", 40, UP(65, 99)),
        None,
        ("other", "b", "other"),
    ),
    ("CASE WHEN x < 40 THEN '< 40' ELSE '>= 40' END", bins("x", 40), None, ()),
    ("CASE WHEN x < 40 THEN 1 ELSE 2 END", bins("x", 40), None, ("1", "2")),
]


@pytest.mark.parametrize(("text", "group", "expected", "labels"), GROUPS, ids=[text for text, *_ in GROUPS])
def test_a_group_is_read_and_has_a_twin_in_python(
    text: str, group: str | Grouping, expected: Grouping | None, labels: tuple[str, ...]
) -> None:
    twin = query("t").count().group_by(group)
    for asked in (
        read(f"SELECT {text}, COUNT(*) FROM t GROUP BY {text}"),
        read(f"SELECT {text} AS g, COUNT(*) FROM t GROUP BY g"),
        read(f"SELECT COUNT(*), ({text}) g FROM t GROUP BY g ORDER BY g"),
    ):
        assert asked.query == twin.query
        assert expected in (None, asked.query.group_by[0])
        assert [found for _, found in asked.view.labels] == ([labels] if labels else [])
    assert parse(query_text(twin.query)) == twin.query


def test_what_is_shown_is_no_part_of_the_question() -> None:
    plain = "SELECT c, COUNT(*), AVG(x) FROM t GROUP BY c"
    other = "SELECT c AS code, COUNT(*) AS n, AVG(x) FROM t GROUP BY code HAVING n > 5 ORDER BY n DESC LIMIT 3"
    assert parse(other) == parse(plain)
    assert read(plain).view == Presentation()


@pytest.mark.parametrize(
    ("clauses", "view"),
    [
        ("HAVING COUNT(*) > 5", Presentation(having=Compared(0, Operator.GREATER, 5.0))),
        ("HAVING 5 < COUNT(*)", Presentation(having=Compared(0, Operator.GREATER, 5.0))),
        ("HAVING (AVG(x)) <> -(2.5)", Presentation(having=Compared(1, Operator.UNEQUAL, -2.5))),
        (
            "HAVING COUNT(*) >= 5 AND (AVG(x) < 1 OR AVG(x) = 2)",
            Presentation(
                having=Every(
                    (
                        Compared(0, Operator.GREATER_OR_EQUAL, 5.0),
                        Some((Compared(1, Operator.LESS, 1.0), Compared(1, Operator.EQUAL, 2.0))),
                    )
                )
            ),
        ),
        (
            "HAVING COUNT(*) BETWEEN 5 AND 9",
            Presentation(
                having=Every((Compared(0, Operator.GREATER_OR_EQUAL, 5.0), Compared(0, Operator.LESS_OR_EQUAL, 9.0)))
            ),
        ),
        ("ORDER BY COUNT(*) DESC", Presentation(order=(Ordering(0, descending=True),))),
        ("ORDER BY 3, 1 DESC", Presentation(order=(Ordering(1), Ordering("c", descending=True)))),
        ("ORDER BY c NULLS LAST", Presentation(order=(Ordering("c"),))),
        ("ORDER BY t.c, AVG(t.x)", Presentation(order=(Ordering("c"), Ordering(1)))),
        ("ORDER BY 2 LIMIT 7", Presentation(order=(Ordering(0),), limit=7)),
        ("LIMIT 1", Presentation(limit=1)),
    ],
)
def test_a_view_is_read(clauses: str, view: Presentation) -> None:
    assert read(f"SELECT c, COUNT(*), AVG(x) FROM t GROUP BY c {clauses}").view == view


def test_aliases_name_what_is_shown_and_later_clauses_may_use_them() -> None:
    asked = read(
        'SELECT c AS code, COUNT(*) AS n, AVG(x) AS "mean of x" FROM t GROUP BY code '
        'HAVING n > 5 AND "mean of x" < 9 ORDER BY "mean of x", code DESC'
    )
    assert asked.view == Presentation(
        names=("n", "mean of x"),
        renamed=(("c", "code"),),
        having=Every((Compared(0, Operator.GREATER, 5.0), Compared(1, Operator.LESS, 9.0))),
        order=(Ordering(1), Ordering("c", descending=True)),
    )


def test_a_draft_has_the_same_view() -> None:
    draft = query("t").group_by("c", bins("x", 40)).count().mean("y")
    shown = draft.having("COUNT(*) > 5").having("AVG(y) < 9").order_by("COUNT(*)", descending=True)
    shown = shown.order_by("c", "x").limit(3)
    band = "CASE WHEN x < 40 THEN '< 40' ELSE '>= 40' END"
    asked = read(
        f"SELECT c, {band}, COUNT(*), AVG(y) FROM t GROUP BY c, {band} HAVING COUNT(*) > 5 AND AVG(y) < 9 "
        "ORDER BY COUNT(*) DESC, c, x LIMIT 3"
    )
    assert (shown.query, shown.view) == (asked.query, asked.view)
    assert draft.view == Presentation()
    for groups in (0, -1, True):
        with pytest.raises(QueryMistaken, match="limit takes a whole number"):
            draft.limit(groups)
