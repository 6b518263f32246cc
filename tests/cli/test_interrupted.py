"""A command that is stopped says so: silence after Ctrl-C leaves open whether it was heard."""

from __future__ import annotations

import array
import fcntl
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import IO

STUDY = """
name = "cardio"
unit = "patient"
overlap = 1
min_sites = 1
[budget]
epsilon = 3.0
delta = 1e-6
[tables.visits]
unit_key = "patient_id"
max_rows_per_unit = 1
[tables.visits.columns]
age = { type = "integer", lower = 0, upper = 110 }
"""


def await_full(pipe: IO[str]) -> None:
    """Wait until whoever writes waits for us: interrupted inside a finaliser, Python would not hear it."""
    waiting = [-1, *[0] * 10]
    while len(set(waiting)) > 1:
        time.sleep(0.1)
        told = array.array("i", [0])
        fcntl.ioctl(pipe, termios.FIONREAD, told)
        waiting = [*waiting[1:], told[0]]


def test_an_interrupted_command_says_so_and_leaves_with_its_code(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    (tmp_path / "tables" / "st-mary").mkdir(parents=True)
    (tmp_path / "tables" / "st-mary" / "visits.csv").write_text("patient_id,age\n1,40\n", encoding="utf-8")
    words = ["simulate", "--study", "study.toml", "--tables", "tables", "--epsilon", "1", "--repeat", "1000"]
    # Whoever runs tests in the background may have made Ctrl-C mean nothing to all that they start.
    heard = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = f"{heard}; from wardround.cli.main import main; main(sys.argv[1:])"
    with subprocess.Popen(
        [sys.executable, "-c", program, *words, "SELECT COUNT(*) FROM visits"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        pipesize=4096,
    ) as running:
        if running.stdout is None or running.stderr is None:
            raise AssertionError
        # An answer has been printed, so that nothing depends on how fast it began.
        while "Answered" not in running.stdout.readline():
            assert running.poll() is None, running.stderr.read()
        await_full(running.stdout)
        running.send_signal(signal.SIGINT)
        _, told = running.communicate()
    assert running.returncode == 130
    assert told.endswith("wardround: interrupted.\n")
    assert "Traceback" not in told
