"""The numbers in the prose are those that the programs beside it assert, or that the library computes."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from wardround.privacy.report.posterior_beliefs import posterior_bound, worst_bits

WHY_NOT = ROOT / "docs" / "why-not.md"
WRONG_SQL = ROOT / "docs" / "wrong-sql.md"
TUTORIAL = ROOT / "docs" / "tutorial-privacy.md"
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_POWER = re.compile(r"(?:(\d+(?:\.\d+)?) ?· ?)?10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)")
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e-?\d+)?(?![\w.]*\d)")


def sections(page: Path) -> list[tuple[str, str, str]]:
    """Every section: its title, its prose and its programs."""
    found = []
    for part in re.split(r"(?m)^## ", page.read_text("utf-8"))[1:]:
        programs = "\n".join(re.findall(r"(?ms)^```python\n(.*?)^```$", part))
        title, prose = re.sub(r"(?ms)^```.*?^```$", "", part).split("\n", 1)
        found.append((title, prose, programs))
    return found


def plain(text: str) -> str:
    """Powers of ten as programs write them, and without years, links and powers of two."""
    text = re.sub(r"\]\([^)]*\)|\([A-Z][\w ]+, \d{4}\)|2[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+", "", text)
    return _POWER.sub(lambda found: f"{found[1] or 1}e{found[2].translate(_SUPERSCRIPTS)}", text)


def numbers(text: str) -> set[float]:
    """What a reader would check: everything but the smallest whole numbers, which are also words."""
    found = {float(number) for number in _NUMBER.findall(text.replace(",", "").replace("_", ""))}
    return {number for number in found if number > 3 or number % 1}


@pytest.mark.parametrize(
    ("title", "prose", "programs"), [*sections(WHY_NOT), *sections(WRONG_SQL)], ids=lambda text: text[:30]
)
def test_every_number_of_a_section_is_in_its_program(title: str, prose: str, programs: str) -> None:
    computed = numbers(programs) | {100 * number for number in numbers(programs)}
    told = {number for number in numbers(plain(prose)) if not any(math.isclose(number, one) for one in computed)}
    assert told == set(), title


def test_a_number_that_no_program_computes_is_found() -> None:
    assert numbers(plain("is 1.378 · 10⁻³ (Mironov, 2012), 91 % of 2⁵²; 20,000")) == {1.378e-3, 91.0, 20000.0}
    assert numbers("assert x == 0.91 and y == 20_000") == {0.91, 20000.0}


def test_every_mistake_has_what_is_taught_why_it_is_wrong_what_is_done_and_a_program() -> None:
    assert len(sections(WHY_NOT)) == 13
    for title, prose, programs in sections(WHY_NOT):
        assert re.findall(r"(?m)^\*\*(Taught|Wrong|Here)\b", prose) == ["Taught", "Wrong", "Here"], title
        assert "assert " in programs, title


def test_every_statement_is_shown_as_written_with_its_leak_and_what_is_done_here() -> None:
    assert len(sections(WRONG_SQL)) == 10
    for title, prose, programs in sections(WRONG_SQL):
        assert re.findall(r"(?m)^\*\*(Usually|Leak|Here)\b", prose) == ["Usually", "Leak", "Here"], title
        assert re.search(r"leak|bound\(|possible|remaining|with_it", programs), title
        assert "assert " in programs, title


def test_the_table_at_the_top_tells_the_sections_numbers() -> None:
    head, *rest = WRONG_SQL.read_text("utf-8").split("\n## ")
    lines = [line for line in head.splitlines() if line.startswith("| [")]
    assert len(lines) == len(rest) == 10
    for line, section in zip(lines, rest, strict=True):
        told = numbers(plain(line))
        assert told <= numbers(plain(section)) | {100 * number for number in numbers(section)}, line


def test_the_table_of_beliefs_is_computed_and_rounded_up() -> None:
    lines = [line for line in TUTORIAL.read_text("utf-8").splitlines() if line.startswith("| ")]
    head, *beliefs, bits = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    epsilons = [float(cell.removeprefix("ε = ")) for cell in head[1:]]
    assert len(beliefs) == 4
    for prior, *cells in beliefs:
        bounds = [posterior_bound(float(prior), epsilon) for epsilon in epsilons]
        assert cells == [f"{math.ceil(bound * 10_000) / 10_000:.4f}" for bound in bounds]
    assert bits[1:] == [f"{worst_bits(epsilon):.3f}" for epsilon in epsilons]
