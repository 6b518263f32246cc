"""The processor time of every benchmark was compared with that of the version before the source was laid out anew."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tools import compare
from tools.compare import SETTINGS, Comparison, measured

ROOT = Path(__file__).resolve().parents[2]
RECORDED = Path(__file__).parent / "measured" / "benchmarks.json"
# Each measures by itself: what is stored beside what was stored before, what a command takes beside its limit, what one
# call costs an idle coordinator, long answers beside short ones, and a long history beside a short one.
OF_ITS_OWN = {"answers", "history", "startup", "stored_words", "call"}


def recorded() -> dict[str, list[Comparison]]:
    found = json.loads(RECORDED.read_text(encoding="utf-8"))["benchmarks"]
    names = Comparison.__dataclass_fields__
    return {
        bench: [Comparison(**{key: value for key, value in one.items() if key in names}) for one in ones]
        for bench, ones in found.items()
    }


def test_every_benchmark_can_be_compared() -> None:
    assert {path.stem for path in (ROOT / "bench").glob("[!_]*.py")} == set(SETTINGS) | OF_ITS_OWN


def test_every_benchmark_was_compared_and_none_was_slower() -> None:
    assert set(recorded()) == set(SETTINGS)
    for bench, ones in recorded().items():
        for one in ones:
            assert one.setting == SETTINGS[bench]
            assert len(one.before) == len(one.after) >= 5
            assert one.allowed, f"{bench}: {one}"


def test_a_tenth_more_is_allowed_and_so_is_what_the_version_before_took_itself() -> None:
    still = [2.0, 2.0, 2.0]
    assert Comparison("", "", still, [9.0, 2.19, 0.1]).allowed
    assert not Comparison("", "", still, [2.3, 2.3, 0.1]).allowed
    assert Comparison("", "", [2.0, 2.0, 2.4], [2.3, 2.3, 0.1]).allowed


def checkout(folder: Path, bench: str) -> Path:
    """A folder with a Python and one benchmark."""
    (folder / ".venv/bin").mkdir(parents=True)
    (folder / ".venv/bin/python").symlink_to(sys.executable)
    (folder / "bench").mkdir()
    (folder / "bench/mine.py").write_text(bench, encoding="utf-8")
    return folder


def test_processor_time_of_what_a_benchmark_starts_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    monkeypatch.setattr(compare, "SETTINGS", {"mine": "--once 1"})
    started = f"""
import subprocess, sys
def main():
    assert sys.argv[1:] == ["--once", "1"]
    subprocess.run([sys.executable, "-c", {busy!r}], check=True)
"""
    assert measured(checkout(tmp_path / "busy", started), "mine")[compare.TOTAL] >= 0.3


def test_a_benchmark_that_fails_is_shown_not_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "SETTINGS", {"mine": "--once"})
    broken = checkout(tmp_path, "def main():\n    raise SystemExit('no disk')\n")
    with pytest.raises(SystemExit, match=r"no disk\n\nbench/mine.py --once failed in "):
        measured(broken, "mine")
