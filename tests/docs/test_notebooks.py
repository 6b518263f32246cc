"""The notebooks are kept without outputs, and run from the first cell to the last in an empty folder."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, anchors
from tests.docs.run_notebook import cells
from tests.docs.walk import PATIENCE_SECONDS, environment

FOLDER = ROOT / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
TAUGHT = {"first-question", "reading-an-interval", "choosing-epsilon", "survival", "a-model", "a-stewards-day"}


def run(notebook: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", str(ROOT / "tests" / "docs" / "run_notebook.py"), str(notebook)]
    surroundings = environment() | {"MPLBACKEND": "agg", "MPLCONFIGDIR": os.environ.get("MPLCONFIGDIR", str(folder))}
    return subprocess.run(
        command, cwd=folder, env=surroundings, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )


def test_every_notebook_that_is_promised_is_there() -> None:
    assert {path.stem for path in NOTEBOOKS} == TAUGHT


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_start_to_end_in_an_empty_folder(notebook: Path, tmp_path: Path) -> None:
    done = run(notebook, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_a_notebook_that_fails_is_found(tmp_path: Path) -> None:
    cell = {"cell_type": "code", "source": ["one = 1\n", "one + unknown"]}
    (tmp_path / "broken.ipynb").write_text(json.dumps({"cells": [cell]}), "utf-8")
    done = run(tmp_path / "broken.ipynb", tmp_path)
    assert done.returncode == 1
    assert "name 'unknown' is not defined" in done.stderr


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs_and_begins_with_its_title(notebook: Path) -> None:
    book = json.loads(notebook.read_text("utf-8"))
    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert {(cell["execution_count"], len(cell["outputs"])) for cell in code} == {(None, 0)}
    assert len({cell["id"] for cell in book["cells"]}) == len(book["cells"])
    assert book["cells"][0]["source"][0].startswith("# ")
    # Whatever program saves it last, the file changes only where the notebook does.
    assert notebook.read_text("utf-8") == json.dumps(book, indent=1, ensure_ascii=False) + "\n"


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_link_of_a_notebook_leads_somewhere(notebook: Path) -> None:
    for place, text in cells(notebook, "markdown"):
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            file, _, anchor = target.partition("#")
            assert (FOLDER / file).exists(), f"{place} → {target}"
            assert not anchor or anchor in anchors(FOLDER / file), f"{place} → {target}"
