"""What a page shows to import, a reader may keep: two doors, and deeper only where a page is about the inside."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

import wardround
import wardround.simulation
from tests.docs.pages import ROOT, Block, all_blocks
from tests.docs.run_notebook import cells

DOORS = {"wardround": wardround.__all__, "wardround.simulation": wardround.simulation.__all__}
# A door of its own, because it needs Flower.
FLOWER = "wardround.analyst.flower.run_app"
# What the mathematics and the ledger do, shown by running them.
ABOUT_THE_INSIDE = ("docs/guarantees.md", "docs/why-not.md", "docs/wrong-sql.md", "docs/tutorial-privacy.md")
OURS = ("wardround", "site_agent", "coordinator", "protos")
NOTEBOOKS = [
    Block(place, 1, "python", "", text)
    for notebook in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
    for place, text in cells(notebook)
]
PROGRAMS = [block for block in [*all_blocks("python"), *NOTEBOOKS] if any(package in block.text for package in OURS)]


def imports(text: str) -> Iterator[tuple[str, str]]:
    for found in ast.walk(ast.parse(text)):
        if isinstance(found, ast.ImportFrom) and str(found.module).partition(".")[0] in OURS:
            yield from ((str(found.module), name.name) for name in found.names)
        elif isinstance(found, ast.Import):
            yield from ((name.name, "") for name in found.names if name.name.partition(".")[0] in OURS)


def mistakes(block: Block) -> list[tuple[str, str]]:
    deep = block.page in ABOUT_THE_INSIDE
    return [
        (home, name)
        for home, name in imports(block.text)
        if home not in (*DOORS, FLOWER) and (not deep or any(name in names for names in DOORS.values()))
    ]


def test_the_simulation_offers_what_a_study_needs_to_be_tried() -> None:
    offered = ["SimulatedFederation", "SimulatedSite", "Trial", "find_sites", "parse_study", "read_study", "run_trials"]
    assert wardround.simulation.__all__ == offered
    for name in offered:
        assert getattr(wardround.simulation, name).__name__ == name
        assert name in dir(wardround.simulation)
    with pytest.raises(AttributeError, match=r"module 'wardround\.simulation' has no attribute 'nothing'"):
        _ = wardround.simulation.nothing


@pytest.mark.parametrize("block", PROGRAMS, ids=lambda block: block.place)
def test_a_program_on_a_page_comes_in_by_a_door(block: Block) -> None:
    assert mistakes(block) == []


def test_a_deep_import_is_found() -> None:
    deep = "from wardround.federation.study.study_file import read_study\nfrom wardround.privacy.loss import Cost\n"
    assert len(mistakes(Block("docs/simulation.md", 1, "python", "", deep))) == 2
    assert mistakes(Block("docs/why-not.md", 1, "python", "", deep)) == [
        ("wardround.federation.study.study_file", "read_study")
    ]


def test_the_reference_lists_every_public_name_once() -> None:
    text = (ROOT / "docs" / "api.md").read_text("utf-8")
    listed: dict[str, list[str]] = {door: [] for door in DOORS}
    door = ""
    for kind, name in re.findall(r"(?m)^\.\. (currentmodule|autoclass|autofunction):: ([\w.]+)$", text):
        if kind == "currentmodule":
            door = name
        else:
            listed[door].append(name)
    assert {door: sorted(names) for door, names in listed.items()} == DOORS
