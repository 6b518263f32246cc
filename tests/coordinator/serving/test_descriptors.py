"""Connections get what the ledger does not need, and never more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from coordinator.members.folder import parse_coordinator
from coordinator.serving.descriptors import MEMBERS, STRANGERS, Share, connections_within
from wardround.federation.errors import ConfigurationMistaken

RAISE = "from coordinator.serving.descriptors import raise_limit; print(raise_limit())"

READ = """
import os, resource, sys
from pathlib import Path
from coordinator.members.folder import read_coordinator
from wardround.federation.errors import FederationError
try:
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
    read_coordinator(Path(sys.argv[1]) / "coordinator.toml")
except FederationError as error:
    print(error.exit_code, error.message)
"""


@pytest.mark.parametrize(
    ("limit", "share", "wanted", "allowed"),
    [
        (1024, MEMBERS, None, 768),
        (1024, MEMBERS, 500, 500),
        (1024, MEMBERS, 768, 768),
        (65_536, MEMBERS, None, 2048),
        (65_536, MEMBERS, 10_000, 10_000),
        (300, STRANGERS, None, 236),
        (1024, STRANGERS, None, 256),
    ],
)
def test_connections_leave_descriptors_for_everything_else(
    limit: int, share: Share, wanted: int | None, allowed: int
) -> None:
    assert connections_within(limit, share, wanted=wanted) == allowed
    assert allowed + share.kept_back <= limit


@pytest.mark.parametrize(
    ("limit", "share", "wanted", "named"),
    [
        (1024, MEMBERS, 769, "connections = 769"),
        (1024, MEMBERS, 5000, "connections = 5000"),
        (271, MEMBERS, None, "connections = 16"),
        (1024, STRANGERS, 961, "enrolment_connections = 961"),
    ],
)
def test_what_cannot_be_had_is_said_before_anything_is_served(
    limit: int, share: Share, wanted: int | None, named: str
) -> None:
    with pytest.raises(ConfigurationMistaken, match=named) as caught:
        connections_within(limit, share, wanted=wanted)
    assert f"{limit}" in caught.value.message
    assert "LimitNOFILE" in caught.value.message


@pytest.mark.parametrize(("soft", "hard", "raised"), [(256, 1024, 1024), (700, 700, 700), (512, 900, 900)])
def test_a_process_allows_itself_what_the_system_lets_it(soft: int, hard: int, raised: int) -> None:
    command = ["bash", "-c", f'ulimit -Sn {soft} && ulimit -Hn {hard} && exec "$@"', "-", sys.executable, "-c", RAISE]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"{raised}\n"


def test_what_callers_may_take_can_be_configured() -> None:
    read = parse_coordinator(
        "connections = 100\nenrolment_connections = 8\nhandshake_seconds = 2\ncalls_at_once = 3\n"
        'certificate_hours = 1\nlisten = "127.0.0.1:7443"\nenrolment_listen = "127.0.0.1:7444"\n'
    )
    assert (read.connections, read.enrolment_connections, read.handshake_seconds, read.calls_at_once) == (
        100,
        8,
        2.0,
        3,
    )
    read = parse_coordinator("")
    assert (read.connections, read.enrolment_connections, read.handshake_seconds, read.calls_at_once) == (
        None,
        None,
        5.0,
        8,
    )


@pytest.mark.parametrize(
    "line", ["connections = 0", "connections = true", "calls_at_once = 0", "handshake_seconds = 0"]
)
def test_what_makes_no_sense_is_refused_by_name(line: str) -> None:
    with pytest.raises(ConfigurationMistaken, match=line.partition(" ")[0]):
        parse_coordinator(line)


def test_a_file_that_cannot_be_opened_for_lack_of_descriptors_is_no_mistake_in_it(tmp_path: Path) -> None:
    (tmp_path / "coordinator.toml").write_text("", encoding="utf-8")
    done = subprocess.run([sys.executable, "-c", READ, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == (
        f"3 {tmp_path / 'coordinator.toml'} cannot be read now: too many files are open; close some, or raise the "
        "limit on open files (ulimit -n), then try again.\n"
    )
