"""Pictures as files and in other people's axes: refused in a sentence beforehand, and written whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from tests.analyst.stored import estimate, stored
from wardround.analyst.pictures.picture_files import check_place, need_matplotlib, write_picture
from wardround.analyst.showing.result import PreviewResult, Result
from wardround.federation.errors import ConfigurationMistaken, Mistaken

RESULT = Result(stored(estimate("count", None, 100.0, 5.0), estimate("mean", "sbp", 131.0, 0.5)))
BEGINNINGS = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}


@pytest.mark.parametrize("form", BEGINNINGS)
def test_a_picture_is_written_whole_and_the_same_again(form: str, tmp_path: Path) -> None:
    path = tmp_path / f"answer.{form}"
    write_picture(RESULT.plot(), path)
    first = path.read_bytes()
    assert first.startswith(BEGINNINGS[form])
    write_picture(RESULT.plot(), path)
    assert path.read_bytes() == first
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("answer.jpg", "name a file ending in .svg, .png or .pdf, not 'answer.jpg'"),
        ("answer", "ending in"),
        ("nowhere/answer.svg", "cannot be written"),
        ("folder.svg", "cannot be written"),
    ],
)
def test_a_wrong_place_is_refused_in_a_sentence(name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(Mistaken) as caught:
        check_place(tmp_path / name)
    assert said in caught.value.message


def test_without_matplotlib_the_way_to_get_it_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    for call in (need_matplotlib, RESULT.plot, lambda: check_place(tmp_path / "x.svg")):
        with pytest.raises(ConfigurationMistaken, match=r"pip install 'wardround\[plot\]'"):
            call()


def test_one_of_several_is_drawn_into_axes_of_ones_own() -> None:
    ax = Figure().subplots()
    assert RESULT.plot(ax, of="AVG(sbp)") is ax
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("AVG(sbp)", "whole cohort")
    with pytest.raises(Mistaken, match=r"of=, which is 'COUNT\(\*\)' or 'AVG\(sbp\)'"):
        RESULT.plot(ax)
    with pytest.raises(Mistaken, match=r"there is no picture of 'SUM\(x\)'; of= is 'COUNT\(\*\)'"):
        RESULT.plot(of="SUM(x)")
    with pytest.raises(Mistaken, match="savefig"):
        RESULT.plot("answer.svg")  # type: ignore[arg-type]


def test_a_figure_of_its_own_has_a_panel_for_each_aggregate() -> None:
    ax = RESULT.plot()
    assert [each.get_title(loc="left") for each in ax.figure.axes] == ["COUNT(*)", "AVG(sbp)"]
    assert not hasattr(PreviewResult, "plot")


SHOWN = """
import os, sys
from tests.analyst.stored import estimate, stored
from wardround.analyst.showing.result import Result
result = Result(stored(estimate("count", None, 100.0, 5.0)))
result.plot()
assert "matplotlib.pyplot" not in sys.modules
os.environ["MPLBACKEND"] = sys.argv[1]
import matplotlib.pyplot as plt
result.plot()
assert len(plt.get_fignums()) == 1
"""


def test_a_figure_is_pyplots_only_where_pyplot_is_in_use() -> None:
    subprocess.run([sys.executable, "-c", SHOWN, "agg"], check=True, timeout=120)


def test_asking_without_a_picture_loads_no_matplotlib() -> None:
    look = "import sys, wardround.analyst.asking.client, wardround.analyst.learning.trained_model, wardround.cli.main"
    look += "; print(*[name for name in sys.modules if name.startswith('matplotlib')])"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == []
