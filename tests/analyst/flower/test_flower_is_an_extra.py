"""Everything but strategies and apps of Flower's works without it, and with it nothing is told to anybody."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.rules import ROOT

HIDDEN = """
import sys

class Hide:
    def find_spec(self, name, path=None, target=None):
        if name == "flwr" or name.startswith("flwr."):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Hide())
"""
WITHOUT = """
import sys
from pathlib import Path

import coordinator.serving.serve
import site_agent.serving.serve
import wardround.cli.main
from tests.analyst.learning.clinics import federation, request, study, write
from wardround.federation.errors import ConfigurationMistaken
from wardround.simulation.sites import find_sites

folder = Path(sys.argv[1])
clinics = federation(folder / "federation", find_sites(write(folder / "tables", sizes={"a": 30, "b": 40}), study()))
clinics.client.train(request(rounds=2))
try:
    clinics.client.train(request(rounds=2, strategy="fedadam"))
except ConfigurationMistaken as mistake:
    print(mistake.message)
clinics.close()
assert not any(name.partition(".")[0] == "flwr" for name in sys.modules)
"""
QUIET = """
import socket

def refuse(*arguments):
    raise AssertionError("somebody was to be told something")

socket.socket.connect = socket.socket.connect_ex = socket.create_connection = socket.getaddrinfo = refuse
FIRST
import os
import numpy as np
from wardround.analyst.flower.strategies import combine_by
import wardround.analyst.flower.run_app
from flwr.supercore import telemetry

combine_by("FedAdam")(np.zeros(2), {"a": np.ones(2), "b": np.zeros(2)}, {"a": 1.0, "b": 2.0})
future = telemetry.event(telemetry.EventType.PING)
print(os.environ["FLWR_TELEMETRY_ENABLED"], telemetry.FLWR_TELEMETRY_ENABLED, future.result())
"""


def run(program: str, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *map(str, arguments)],
        cwd=ROOT,
        env={"PATH": "", "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_sites_coordinators_and_trainings_work_with_flower_absent(tmp_path: Path) -> None:
    assert run(HIDDEN + WITHOUT, tmp_path) == (
        "the strategy 'fedadam' is one of Flower's, which is not installed; "
        "install it with pip install 'wardround[flower]', or use strategy = \"fedavg\".\n"
    )


@pytest.mark.skipif(importlib.util.find_spec("flwr") is None, reason="flwr is not installed")
@pytest.mark.parametrize("first", ["", "import flwr.serverapp.strategy"], ids=["ours first", "flwr first"])
def test_flower_tells_nobody_that_it_is_used(first: str) -> None:
    assert run(QUIET.replace("FIRST", first)) == "0 0 disabled\n"
