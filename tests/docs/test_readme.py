"""What the README says in numbers is computed, and its picture can be read in the dark and in the light."""

from __future__ import annotations

import math
import re
from pathlib import Path
from xml.etree import ElementTree

from tests.cli.calling import call
from tests.docs.pages import ROOT, prose
from tests.docs.test_notebooks import NOTEBOOKS
from tests.docs.walk import Walk
from wardround.privacy.report.compare import _ACCOUNTANTS

TEXT = " ".join(prose(ROOT / "README.md").split())
PICTURE = (ROOT / "docs" / "who-talks-to-whom.svg").read_text("utf-8")
WORDS = {6: "six", 7: "seven"}
# What people can read, by the guideline for text of this size (WCAG 2, AA).
CONTRAST = 4.5


def test_the_error_of_the_first_counts_is_the_one_that_the_question_has(tmp_path: Path) -> None:
    with Walk(tmp_path) as walk:
        walk.follow(ROOT / "README.md", until_the_first_command=True)
    sql = "SELECT diagnosis, COUNT(*), AVG(sbp) FROM encounters WHERE age >= 40 GROUP BY diagnosis"
    where = ("--study", tmp_path / "study.toml", "--tables", tmp_path / "hospitals", "--epsilon", "0.5")
    counts = re.compile(r"^[A-Z]\d\d +\d+ (± \d+)", re.MULTILINE)
    found = counts.findall(call("simulate", *where, sql).out)
    assert len(found) == 4
    assert counts.findall((ROOT / "README.md").read_text("utf-8")) == found


def test_the_belief_that_the_readme_promises_is_the_most_it_can_be() -> None:
    told = re.search(
        r"it (\d+) % likely .* ε = (\d) ever .* at most ([\d.]+) % likely; with ε = (\d), ([\d.]+) %", TEXT
    )
    assert told is not None
    before, *pairs = (float(number) for number in told.groups())
    for epsilon, after in zip(pairs[0::2], pairs[1::2], strict=True):
        odds = math.exp(epsilon) * before / (100 - before)
        assert after == round(100 * odds / (1 + odds), 1)


def test_what_the_readme_counts_is_so_many() -> None:
    assert f"{WORDS[len(NOTEBOOKS)]} notebooks" in TEXT
    assert f"{WORDS[len(_ACCOUNTANTS)]} other ways to add up losses".lower() in TEXT.lower()


def test_the_picture_is_on_the_readme_and_says_the_same_to_whoever_cannot_see_it() -> None:
    assert "](docs/who-talks-to-whom.svg)" in TEXT
    root = ElementTree.fromstring(PICTURE)  # noqa: S314 -- our own file
    names = {element.tag.rpartition("}")[2]: "".join(element.itertext()) for element in root}
    assert names["title"] == "Who talks to whom"
    assert "dial out" in names["desc"]


def test_nothing_of_the_picture_comes_from_elsewhere_or_lies_outside() -> None:
    assert re.findall(r"(?:href|src|url)\W*https?:", PICTURE) == []
    root = ElementTree.fromstring(PICTURE)  # noqa: S314 -- our own file
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for element in root.iter("{http://www.w3.org/2000/svg}text"):
        assert 0 < float(element.attrib["x"]) < width
        assert 0 < float(element.attrib["y"]) < height


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_the_picture_can_be_read_in_the_dark_and_in_the_light() -> None:
    light, dark = re.search(r"(?s)<style>(.*?)@media \(prefers-color-scheme: dark\)(.*?)</style>", PICTURE).groups()  # type: ignore[union-attr]
    for style in (light, dark):
        fills = dict(re.findall(r"(\.?\w+)\s+\{ fill: (#[0-9a-f]{6})", style))
        assert {".page", ".house", ".inner", ".other", "text"} <= fills.keys()
        for ground in (".page", ".house", ".inner", ".other"):
            dim, bright = sorted((luminance(fills["text"]), luminance(fills[ground])))
            assert (bright + 0.05) / (dim + 0.05) > CONTRAST, ground
