"""Histograms, survival curves, series and quantiles as pictures: every number where it belongs, with its interval."""

from __future__ import annotations

import re
from xml.etree import ElementTree as Tree

import pytest

from tests.analyst.stored import estimate, stored
from wardround.analyst.showing.plot import MOST_ROWS, picture
from wardround.federation.question.answer import Estimate


def drawn(*estimates: Estimate) -> Tree.Element:
    return Tree.fromstring(picture(stored(*estimates)))  # noqa: S314 -- our own text


def nodes(tree: Tree.Element, tag: str) -> list[Tree.Element]:
    return [node for node in tree.iter() if node.tag.endswith(f"}}{tag}")]


def texts(tree: Tree.Element) -> list[str]:
    return [node.text or "" for node in nodes(tree, "text")]


def points(path: Tree.Element) -> list[tuple[float, float]]:
    numbers = [float(number) for number in re.findall(r"-?\d+\.\d+", path.attrib["d"])]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def test_a_histogram_is_a_bar_for_each_interval_also_below_zero() -> None:
    names = ("[80, 100)", "[100, 120)", "[120, 140]")
    tree = drawn(
        *(estimate("histogram", "x", value, 2.0, term=name) for value, name in zip((5, 40, -3), names, strict=True))
    )
    bars = nodes(tree, "rect")[1:]
    heights = [float(bar.attrib["height"]) for bar in bars]
    assert heights[1] == pytest.approx(8 * heights[0], rel=0.02)
    # What is below zero hangs from the line that the others stand on.
    foot = float(bars[0].attrib["y"]) + heights[0]
    assert float(bars[2].attrib["y"]) == pytest.approx(foot, abs=0.2)
    assert {"80", "100", "120"} <= set(texts(tree))


def test_a_survival_curve_falls_in_steps_inside_its_band() -> None:
    curve = [
        estimate("survival", "t", value, 0.05, term=term) for term, value in (("0", 1.0), ("10", 0.8), ("20", 0.4))
    ]
    tree = drawn(*curve, estimate("survival", "t", 17.0, 1.0, term="median"))
    band, line = nodes(tree, "path")
    corners = points(line)
    assert len(corners) == 5
    # To the side, then down: a share holds until the next time.
    assert [corners[1][1], corners[3][1]] == [corners[0][1], corners[2][1]]
    assert corners[0][1] < corners[2][1] < corners[4][1]
    assert min(y for _, y in points(band)) <= corners[0][1]
    assert max(y for _, y in points(band)) > corners[4][1]


def test_a_series_is_a_line_through_its_months_in_order() -> None:
    months = ("2025-03", "2025-01", "2025-02")
    tree = drawn(*(estimate("count", None, float(n), 1.0, group=(("m", name),)) for n, name in enumerate(months)))
    band, line = nodes(tree, "path")
    corners = points(line)
    # January is 1, February 2 and March 0.
    assert corners[1][1] < corners[0][1] < corners[2][1]
    assert len(points(band)) == 6
    assert [text for text in texts(tree) if text.startswith("2025")] == sorted(months)


def test_groups_beside_the_months_have_panels_of_their_own() -> None:
    cells = [
        estimate("count", None, 1.0, 1.0, group=(("m", month), ("sex", sex)))
        for month in ("2025-01", "2025-02")
        for sex in ("f", "m")
    ]
    assert {"COUNT(*), f", "COUNT(*), m"} <= set(texts(drawn(*cells)))


def test_quantiles_of_a_column_are_in_one_panel() -> None:
    tree = drawn(*(estimate("quantile", "x", 10.0 * level, 0.2, term=f"{level}") for level in (0.25, 0.5, 0.75)))
    found = texts(tree)
    assert found.count("quantiles of x") == 1
    assert {"0.25", "0.5", "0.75"} <= set(found)
    places = [float(node.attrib["cx"]) for node in nodes(tree, "circle")]
    assert places == sorted(places)


def test_a_picture_of_nothing_and_of_too_much_says_so() -> None:
    assert "nothing to show" in texts(drawn())
    many = [estimate("count", None, 1.0, 1.0, group=(("age", age),)) for age in range(MOST_ROWS + 7)]
    tree = drawn(*many)
    assert len(nodes(tree, "circle")) == MOST_ROWS
    assert any(text.endswith(f"the first {MOST_ROWS} of {MOST_ROWS + 7} numbers") for text in texts(tree))


@pytest.mark.parametrize("statistic", ["histogram", "survival", "count", "correlation"])
def test_a_single_flat_number_can_be_drawn(statistic: str) -> None:
    assert drawn(estimate(statistic, "x", 0.0, 0.0, term="0")).tag.endswith("svg")


def test_a_correlation_names_both_columns() -> None:
    pairs = (("a", "b"), ("a", "c"), ("b", "c"))
    tree = drawn(*(estimate("correlation", one, 0.5, 0.1, term=other) for one, other in pairs))
    assert {"a, b", "a, c", "b, c"} <= set(texts(tree))


@pytest.mark.parametrize(
    ("months", "lines"),
    [(("2025-11", "2025-12", "2026-01"), 1), (("2026-01", "2025-12"), 1), (("2025-01", "2025-03"), 0)],
)
def test_no_line_is_drawn_over_months_that_are_not_shown(months: tuple[str, ...], lines: int) -> None:
    tree = drawn(*(estimate("count", None, 5.0, 1.0, group=(("month", month),)) for month in months))
    assert len(nodes(tree, "path")) == 2 * lines
    assert set(months) <= set(texts(tree))
