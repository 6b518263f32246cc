"""A command starts with what every command needs: what questions and models are made of loads when it is asked for."""

from __future__ import annotations

import subprocess
import sys

LATER = ("wardround.federation.statistics", "wardround.federation.models", "wardround.federation.forms")


def test_starting_loads_no_statistic_and_no_model() -> None:
    look = "import sys, wardround.cli.main; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True, timeout=300)
    assert [name for name in done.stdout.split() if name.startswith(LATER)] == []
    assert "wardround.cli.study_commands" in done.stdout.split()
