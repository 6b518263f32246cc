"""The table of statistics and sources: every cell is a test that exists."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.docs.pages import ROOT
from tests.docs.walk import environment
from tests.site_agent.sources.conformance.sources import SOURCES
from wardround.federation.question.query import Statistic

PAGE = ROOT / "docs" / "sources.md"
SUITE = "tests/site_agent/sources/conformance"


def cells(text: str) -> dict[str, list[str]]:
    """The tests of every row of the table, by its statistic."""
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line[:3] == "| `"]
    return {row[0].strip("| `"): [cell.strip("| `") for cell in row[2:]] for row in rows}


def missing(table: dict[str, list[str]], tests: list[str], collected: set[str]) -> set[str]:
    """The tests that the page promises and nobody has."""
    promised = {f"{test}[{cell}]" for row in table.values() for cell in row for test in tests}
    return promised - collected


@pytest.fixture(scope="module")
def collected() -> set[str]:
    """The names of all tests of the suite, as pytest finds them."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", "-p", "no:cacheprovider", SUITE],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return set(re.findall(r"::(test_\w+\[[^\]]+\])", done.stdout))


def test_every_statistic_is_a_row_and_every_source_a_column() -> None:
    table = cells(PAGE.read_text("utf-8"))
    assert set(table) == {statistic.value for statistic in Statistic}
    for statistic, row in table.items():
        assert {cell.removeprefix(f"{statistic}-") for cell in row} == set(SOURCES)


def test_every_cell_is_a_test_that_exists(collected: set[str]) -> None:
    text = PAGE.read_text("utf-8")
    named = re.findall(r"(?m)^(test_\w+)\[", text)
    assert len(named) == 3
    assert missing(cells(text), named, collected) == set()


def test_a_cell_without_a_test_is_found(collected: set[str]) -> None:
    lie = {"histogram": ["histogram-parquet", "histogram-abacus"]}
    assert missing(lie, ["test_same_integers"], collected) == {"test_same_integers[histogram-abacus]"}


def test_the_page_and_the_suite_name_the_same_folder() -> None:
    assert f"`{SUITE}`" in PAGE.read_text("utf-8")
