"""A command that is stopped says so: silence after Ctrl-C leaves open whether it was heard."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

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
    ) as running:
        if running.stdout is None or running.stderr is None:
            raise AssertionError
        # An answer has been printed, so that nothing depends on how fast it began.
        while "Answered" not in running.stdout.readline():
            pass
        running.send_signal(signal.SIGINT)
        _, told = running.communicate()
    assert running.returncode == 130
    assert told.endswith("wardround: interrupted.\n")
    assert "Traceback" not in told
