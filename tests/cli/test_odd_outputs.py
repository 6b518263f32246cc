"""Where an answer goes that is no modern terminal: other letters, a full disk, no reader. It is never an accident."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.calling import call

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
