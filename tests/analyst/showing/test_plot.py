import dataclasses
from pathlib import Path
from xml.etree import ElementTree as Tree

import pytest

from wardround.analyst.showing.plot import picture
from wardround.analyst.showing.plot_series import ticks_around
from wardround.analyst.showing.result import Result
from wardround.federation.errors import ConfigurationMistaken, Mistaken
from wardround.federation.question.answer import Answer, Estimate, Loss, PrivacyStatement, Remaining

PRIVACY = PrivacyStatement("discrete_gaussian", Loss(0.5, 1e-6), Loss(0.5, 1e-6), Remaining(2.0, 0.7), 1, "parallel")


def estimate(value: float, *, group: str = "E11", column: str | None = None) -> Estimate:
    kind = "count" if column is None else "mean"
    return Estimate(kind, column, (("diagnosis", group),), value, 1.0, (value - 2, value + 2), 0.95)


ANSWER = Answer(
    plan_id="0" * 64,
    unit="patient",
    replayed=False,
    noiseless=False,
    answered=("a", "b"),
    refused=(),
    missing=(),
    estimates=(estimate(10), estimate(20, group="<b>&"), estimate(131.5, column="sbp")),
    privacy=PRIVACY,
)


def test_every_estimate_is_a_point_with_a_bar_and_text_is_escaped() -> None:
    tree = Tree.fromstring(picture(ANSWER))  # noqa: S314 -- our own text
    circles = [node for node in tree.iter() if node.tag.endswith("circle")]
    texts = [node.text for node in tree.iter() if node.tag.endswith("text")]
    assert len(circles) == 3
    assert "<b>&" in texts
    assert "COUNT(*)" in texts
    assert "AVG(sbp)" in texts


def test_a_larger_value_stands_further_to_the_right() -> None:
    tree = Tree.fromstring(picture(dataclasses.replace(ANSWER, estimates=ANSWER.estimates[:2])))  # noqa: S314
    first, second = (float(node.attrib["cx"]) for node in tree.iter() if node.tag.endswith("circle"))
    assert first < second


@pytest.mark.parametrize(("low", "high"), [(0, 1), (5, 5), (-3e-9, 4e-9), (1e12, 1e12 + 7), (-1e15, 1e15)])
def test_ticks_around_enclose_what_they_measure(low: float, high: float) -> None:
    ticks = ticks_around(low, high)
    assert ticks[0] <= low <= high <= ticks[-1]
    assert 2 <= len(ticks) <= 12


def test_a_picture_is_written_as_svg_or_refused_in_a_sentence(tmp_path: Path) -> None:
    Result(ANSWER).plot(tmp_path / "answer.svg")
    assert (tmp_path / "answer.svg").read_text().startswith("<svg")
    with pytest.raises(Mistaken, match="ending in"):
        Result(ANSWER).plot(tmp_path / "answer.png")
    with pytest.raises(ConfigurationMistaken, match="cannot be written"):
        Result(ANSWER).plot(tmp_path / "nowhere" / "answer.svg")
