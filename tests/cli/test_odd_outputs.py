"""Where an answer goes that is no modern terminal: other letters, a full disk, no reader. It is never an accident."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.calling import call
from tests.simulation.hospitals_on_disk import random_rows, study_text, write_site
from wardround.analyst.pictures import picture_files

COMMAND = (sys.executable, "-m", "wardround", "calibrate", "--epsilon", "0.5", "--delta", "1e-6")


def test_letters_that_an_output_lacks_are_spelt() -> None:
    done = subprocess.run(
        COMMAND, capture_output=True, check=True, env=os.environ | {"PYTHONIOENCODING": "ascii"}, timeout=60
    )
    whole = subprocess.run(
        COMMAND, capture_output=True, check=True, env=os.environ | {"PYTHONIOENCODING": "utf-8"}, timeout=60
    )
    assert "ε" in whole.stdout.decode("utf-8")
    assert "epsilon = 0.5" in done.stdout.decode("ascii")
    assert done.stderr == b""


@pytest.mark.parametrize("form", [(), ("--json",)])
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is full")
def test_a_full_disk_is_named_in_one_sentence(form: tuple[str, ...]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*COMMAND, *form], stdout=full, stderr=subprocess.PIPE, check=False, text=True, timeout=60
        )
    assert done.returncode == 3
    assert done.stderr == (
        "wardround: The output cannot be written (No space left on device); make room or write it elsewhere.\n"
    )


def test_a_closed_output_is_no_failure() -> None:
    words = " ".join(COMMAND)
    done = subprocess.run(["/bin/sh", "-c", f"{words} >&-"], stderr=subprocess.PIPE, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_choice_of_words_is_listed_in_one_line() -> None:
    assert call("completion").sentence().startswith("Missing argument 'bash|zsh|fish'. Choose from: bash, zsh, fish.")


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory: pytest.TempPathFactory) -> tuple[object, ...]:
    """What asks two hospitals on this disk."""
    folder = tmp_path_factory.mktemp("hospitals")
    (folder / "study.toml").write_text(study_text(), encoding="utf-8")
    for number, site in enumerate(("north", "south")):
        write_site(folder / "sites" / site, random_rows(number))
    asked = ("--study", folder / "study.toml", "--tables", folder / "sites", "SELECT COUNT(*) FROM encounters")
    return ("simulate", *asked, "--epsilon", 1)


def test_an_answer_is_read_also_where_the_disk_is_full_for_its_picture(
    hospitals: tuple[object, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(path: Path, content: bytes, *, mode: int) -> None:
        raise OSError(errno.ENOSPC, f"{path}, {len(content)}, {mode}")

    monkeypatch.setattr(picture_files, "write_whole", full)
    done = call(*hospitals, "--plot", tmp_path / "late.svg")
    assert (done.code, "COUNT(*)" in done.out) == (2, True)
    assert done.err.endswith("late.svg cannot be written; name a file in a folder that exists and is yours.\n")


def test_a_name_too_long_for_a_picture_is_seen_before_anything_is_asked(
    hospitals: tuple[object, ...], tmp_path: Path
) -> None:
    done = call(*hospitals, "--plot", tmp_path / f"{'x' * 260}.svg")
    assert (done.code, done.out) == (2, "")
    assert "cannot be written" in done.sentence()
