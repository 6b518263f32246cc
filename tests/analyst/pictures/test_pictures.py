"""Every picture of the gallery is drawn once and looked at by a program: texts, their places, and the numbers."""

from __future__ import annotations

import dataclasses
import itertools
import math
import warnings
from collections.abc import Iterator

import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from tests.analyst.pictures.gallery import HOSTILE, LONG, PICTURES, answered, categories, drawn, survival
from wardround.federation.plain_text import is_plain
from wardround.federation.question.query import Statistic

Drawn = dict[str, Figure]


@pytest.fixture(scope="module")
def figures() -> Drawn:
    found = {}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")
        for name, picture in PICTURES.items():
            figure = picture().draw().get_figure(root=True)
            assert figure is not None
            figure.draw_without_rendering()
            found[name] = figure
    return found


@pytest.fixture(params=PICTURES)
def figure(request: pytest.FixtureRequest, figures: Drawn) -> Figure:
    return figures[request.param]


def texts(figure: Figure) -> Iterator[Text]:
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        if text.get_visible() and text.get_text().strip():
            yield text


def box(text: Text) -> Bbox:
    return text.get_window_extent()


def shown_ticks(ax: Axes, which: str) -> list[Text]:
    """The names on an axis; ticks beyond its ends are not drawn."""
    axis = getattr(ax, f"{which}axis")
    low, high = sorted(axis.get_view_interval())
    ticks = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high] if ax.axison else []
    found = [label for tick in ticks for label in (tick.label1, tick.label2)]
    return [label for label in found if label.get_text().strip() and label.get_visible()]


def all_ticks(figure: Figure) -> Iterator[Text]:
    for ax in figure.axes:
        for axis in (ax.xaxis, ax.yaxis):
            for tick in axis.get_major_ticks():
                yield from (tick.label1, tick.label2)


def test_no_text_leaves_the_figure(figure: Figure) -> None:
    outer = figure.bbox
    ticks = {id(each) for ax in figure.axes for which in "xy" for each in shown_ticks(ax, which)}
    undrawn = {id(each) for each in all_ticks(figure)} - ticks
    for text in texts(figure):
        if id(text) in undrawn:
            continue
        found = box(text)
        assert found.x0 >= outer.x0 - 1, text.get_text()
        assert found.y0 >= outer.y0 - 1, text.get_text()
        assert found.x1 <= outer.x1 + 1, text.get_text()
        assert found.y1 <= outer.y1 + 1, text.get_text()


def test_no_two_names_of_an_axis_touch(figure: Figure) -> None:
    for ax in figure.axes:
        for which in "xy":
            boxes = [box(text) for text in shown_ticks(ax, which)]
            for one, other in itertools.combinations(boxes, 2):
                assert not one.overlaps(other), (ax.get_title(loc="left"), which)


def test_no_title_touches_another_text(figure: Figure) -> None:
    for ax in figure.axes:
        titles = [text for text in (ax.title, ax._left_title, ax.xaxis.label, ax.yaxis.label) if text.get_text()]  # type: ignore[attr-defined]
        others = [text for text in texts(figure) if text not in titles]
        inside = {id(text) for each in figure.axes for which in "xy" for text in shown_ticks(each, which)}
        for title, other in itertools.product(titles, others):
            if id(other) in inside or other in ax.texts:
                assert not box(title).padded(-1).overlaps(box(other).padded(-1)), (title.get_text(), other.get_text())


def test_every_axis_has_a_title(figure: Figure) -> None:
    for ax in figure.axes:
        if not ax.axison:
            assert ax.get_title(loc="left") == "nothing to show"
            continue
        bar = ax.get_label() == "<colorbar>"
        assert ax.get_ylabel(), ax.get_title(loc="left")
        assert bar or ax.get_xlabel(), ax.get_title(loc="left")
        assert bar or ax.get_title(loc="left")


def test_no_text_is_read_as_a_formula_or_steers(figure: Figure) -> None:
    for text in texts(figure):
        words = text.get_text().replace("\n", " ")
        assert is_plain(words)
        assert "$" not in words or not text.get_parse_math()


def test_groups_differ_without_colour(figure: Figure) -> None:
    for ax in figure.axes:
        legend = ax.get_legend()
        if legend is None:
            continue
        signs = [(each.get_marker(), each.get_linestyle(), each.is_dashed()) for each in legend.get_lines()]
        assert len(set(signs)) == len(signs), ax.get_title(loc="left")


def test_every_statistic_has_a_picture() -> None:
    asked = set()
    for name in PICTURES:
        asked |= {each for each in Statistic if name.startswith(PREFIXES[each])}
    assert asked == set(Statistic)


PREFIXES = {
    **{each: each.value for each in Statistic},
    Statistic.BELOW: "share-below",
    Statistic.CHI_SQUARE: "crosstab",
    Statistic.CHOICE: "mode",
}


def segments(ax: Axes) -> list[tuple[tuple[float, float], ...]]:
    found = [each for each in ax.collections if isinstance(each, LineCollection)]
    return [tuple((float(x), float(y)) for x, y in part) for each in found for part in each.get_segments()]


def marks(ax: Axes) -> list[tuple[float, float]]:
    """Every sign that stands for a number."""
    return [
        (float(x), float(y))
        for line in ax.lines
        if line.get_marker() not in ("None", "x") and len(line.get_xdata()) and line.get_transform() == ax.transData
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    ]


def test_points_stand_where_the_released_numbers_are(figures: Drawn) -> None:
    (ax,) = figures["count-by-diagnosis"].axes
    expected = [(100 * (1 + math.sin(n)), n) for n in range(7) if n != 2]
    assert marks(ax) == [pytest.approx(each) for each in expected]
    assert segments(ax) == [((pytest.approx(x - 15.68), y), (pytest.approx(x + 15.68), y)) for x, y in expected]
    assert [text.get_text() for text in shown_ticks(ax, "y")] == [f"C0{n}" for n in range(7)]
    assert [(text.get_text(), text.get_position()[1]) for text in ax.texts] == [("× no estimate", 2.0)]
    assert ax.get_xlabel() == "COUNT(*) [rows]"
    assert ax.get_ylabel() == "diagnosis"
    assert ax.get_title(loc="left").split("\n") == [
        "Without south (missing), east (missing), west (left out)",
        "COUNT(*)",
    ]
    (foot,) = [text for text in texts(figures["count-by-diagnosis"]) if "ε" in text.get_text()]
    assert "No estimate for 1 of 7 numbers. Bars and bands: 95% intervals of the noise." in foot.get_text()


def test_a_series_is_broken_where_nothing_is_known(figures: Drawn) -> None:
    (ax,) = figures["months"].axes
    assert marks(ax) == [pytest.approx((n, 100 * (1 + math.sin(n)))) for n in range(7) if n != 2]
    lines = [tuple(line.get_xdata()) for line in ax.lines if line.get_linestyle() != "None"]
    assert lines == [(0, 1), (3, 4), (4, 5), (5, 6)]
    crosses = [line for line in ax.lines if line.get_marker() == "x"]
    assert [list(line.get_xdata()) for line in crosses] == [[2.0]]
    assert ax.get_xlabel() == "admitted"


def test_bars_stand_on_the_edges_of_their_intervals(figures: Drawn) -> None:
    (ax,) = figures["histogram"].axes
    assert [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in ax.patches] == [
        (80 + 10 * n, 90 + 10 * n) for n in range(12)
    ]
    assert ax.patches[-1].get_height() < 0, "noise below nought is shown"
    edges = [tick.get_text() for tick in shown_ticks(ax, "x")]
    assert edges
    assert set(edges) <= {str(80 + 10 * n) for n in range(13)}
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("sbp [mmHg]", "HISTOGRAM(sbp) [patients]")


def test_a_survival_curve_falls_in_steps_inside_its_band_and_ends(figures: Drawn) -> None:
    (ax,) = figures["survival-by-diagnosis"].axes
    curves = [line for line in ax.lines if line.get_drawstyle() == "steps-post"]
    assert len(curves) == len(ax.collections) == 4
    assert list(curves[0].get_ydata()) == pytest.approx([math.exp(-0.03 * n) for n in range(25)])
    assert len(curves[3].get_xdata()) < 25, "a curve ends where nothing is known"
    band = ax.collections[0].get_paths()[0].vertices
    assert max(band[:, 1]) == pytest.approx(1.0 + 1.96 * 0.01)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("days [days]", "share without the event")
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names[0] == "C00: median 150.0 ± 8.0"
    ended = next(ax for ax in figures["survival-long-names"].axes if ax.get_legend())
    assert [line.get_xdata()[0] for line in ended.lines if line.get_marker() == "x"] == [360, 300, 255]
    assert names[-1] == "no estimate from here on"


def below(ax: Axes) -> list[Text]:
    """The texts under the title of the axis."""
    return [text for text in ax.texts if text.get_text() and box(text).y1 <= box(ax.xaxis.label).y0]


def test_numbers_at_risk_stand_below_their_times_a_row_for_each_group(figures: Drawn) -> None:
    (ax,) = figures["survival-by-sex"].axes
    ticks = {text.get_text(): box(text) for text in shown_ticks(ax, "x")}
    heading, *rest = below(ax)
    assert heading.get_text() == "at risk (± 20 at most)"
    # Every third of its times, because no round numbers of days are among them all.
    assert list(ticks) == [str(days) for days in range(0, 361, 45)]
    for name, fall, row in (("F", 0.05, rest[:10]), ("M", 0.07, rest[10:])):
        numbers = [f"{12_400 * math.exp(-fall * place) - 60:,.0f}" for place in range(0, 25, 3)]
        assert [text.get_text() for text in row] == [name, *numbers]
        for tick, text in zip(ticks.values(), row[1:], strict=True):
            assert box(text).x0 + box(text).x1 == pytest.approx(tick.x0 + tick.x1, abs=2.0)
    assert "at risk" not in " ".join(text.get_text() for text in figures["survival-by-sex"].texts)


def test_numbers_at_risk_never_touch_and_leave_ticks_out_where_they_would() -> None:
    for groups, most in ((1, 1.0), (6, 1.0), (6, 1e8)):
        found = [
            dataclasses.replace(each, value=each.value * most) if "risk" in each.term and each.value else each
            for each in survival(categories(groups, "{:03d}" if most == 1.0 else LONG))
        ]
        figure = drawn(answered(*found)).draw().get_figure(root=True)
        assert figure is not None
        figure.draw_without_rendering()
        (ax,) = figure.axes
        heading, *texts = below(ax)
        assert len({round(box(text).y1) for text in texts}) == groups
        assert (len(texts) < groups * (1 + len(shown_ticks(ax, "x")))) == (most > 1.0)
        for one, other in itertools.combinations([heading, *texts], 2):
            assert not box(one).padded(-0.5).overlaps(box(other).padded(-0.5)), (one.get_text(), other.get_text())
        test_no_text_leaves_the_figure(figure)


def test_an_answer_of_before_says_that_it_has_no_numbers_at_risk(figures: Drawn) -> None:
    (ax,) = figures["survival-of-before"].axes
    assert not below(ax)
    assert "Numbers at risk are not in this answer." in figures["survival-of-before"].texts[-1].get_text()


def test_a_figure_that_nobody_lays_out_has_no_rows_below_its_axes() -> None:
    mine = Figure(figsize=(6.4, 4.8))
    PICTURES["survival-by-sex"]().draw(mine.subplots())
    mine.draw_without_rendering()
    assert not below(mine.axes[0])


def test_coefficients_leave_out_the_intercept_and_tell_it(figures: Drawn) -> None:
    (ax,) = figures["regression"].axes
    assert [text.get_text() for text in shown_ticks(ax, "y")] == ["age", "smoker", "cost"]
    assert [x for x, _ in marks(ax)] == pytest.approx([0.4, -0.1, -0.6])
    assert "intercept 98.0 ± 2.0; R² 0.3100 ± 0.0062;" in ax.get_title(loc="left").replace("\n", " ")
    assert ax.get_xlabel() == "change in sbp [mmHg] for one more unit of each column"


def test_a_table_shows_each_cell_with_its_error(figures: Drawn) -> None:
    (ax,) = figures["crosstab"].axes
    assert len(ax.texts) == 8
    assert ax.texts[0].get_text() == "40.0 ± 9.0"
    assert "p = 0.0021" in ax.get_title(loc="left")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("sex", "diagnosis")


def test_names_that_differ_at_their_end_stay_apart(figures: Drawn) -> None:
    (ax,) = figures["count-by-60-long-names"].axes
    names = [text.get_text() for text in shown_ticks(ax, "y")]
    assert len(names) == len(set(names)) == 60


def test_a_name_beginning_with_an_underscore_is_in_the_key(figures: Drawn) -> None:
    (ax,) = figures["hostile"].axes
    assert [text.get_text() for text in ax.get_legend().get_texts()][:2] == list(HOSTILE[:2])


def test_a_model_is_drawn_from_its_released_table(figures: Drawn) -> None:
    coefficients, calibration, curve = figures["model"].axes
    assert "(intercept)" not in [text.get_text() for text in shown_ticks(coefficients, "y")]
    assert [text.get_text() for text in shown_ticks(coefficients, "y")][:2] == ["age [years]", "sbp [mmHg]"]
    apart = [abs(x - y) for x, y in marks(calibration)]
    assert len(apart) == 8
    assert max(apart) < 0.05
    line = next(line for line in curve.lines if len(line.get_xdata()) == 33)
    assert (line.get_xdata()[0], line.get_ydata()[0], line.get_xdata()[-1], line.get_ydata()[-1]) == (0, 0, 1, 1)
    assert "auc 0.791 ± 0.012" in curve.get_title(loc="left")
    _, few, none = figures["model-few-patients"].axes
    assert not marks(few)
    assert [text.get_text() for text in none.texts] == ["× no estimate"]


def test_a_budget_has_a_step_for_each_charge_under_its_cap(figures: Drawn) -> None:
    over, sites, ways = figures["budget"].axes
    assert list(over.lines[0].get_ydata()) == pytest.approx([3.0 * math.sqrt(n / 40) for n in range(1, 13)])
    assert list(over.lines[1].get_ydata()) == [3.0, 3.0]
    assert [bar.get_width() for bar in sites.patches] == pytest.approx([0.2, 0.3, 0.4, 0.5])
    assert [bool(bar.get_hatch()) for bar in sites.patches] == [False, True, False, False]
    assert [text.get_text() for text in ways.texts] == ["× none"]


def test_a_picture_that_would_be_too_large_says_what_it_leaves_out(figures: Drawn) -> None:
    assert "the first 150 of 170 rows; the first 150 of 160 columns" in figures["crosstab-170"].axes[0].get_title(
        loc="left"
    ).replace("\n", " ")
    many = drawn(answered(*survival(categories(240, "{:03d}")))).draw().get_figure(root=True)
    assert many is not None
    assert many.get_size_inches()[1] < 250
    (foot,) = [text.get_text() for text in many.texts if "pictures" in text.get_text()]
    assert f"The first {len(many.axes)} of 40 pictures." in foot.replace("\n", " ")


@pytest.mark.parametrize(
    "name", ["count-by-60-long-names", "60-months-by-sex", "survival-long-names", "crosstab-60", "model"]
)
def test_axes_of_somebody_elses_are_not_overfilled(name: str) -> None:
    mine = Figure(figsize=(6.4, 4.8), layout="constrained")
    picture = PICTURES[name]()
    picture.draw(mine.subplots(), of=picture.panels[0].title)
    mine.draw_without_rendering()
    test_no_text_leaves_the_figure(mine)
    test_no_two_names_of_an_axis_touch(mine)
