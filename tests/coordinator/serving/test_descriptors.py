"""Connections get what the ledger does not need, and never more."""

from __future__ import annotations

import subprocess
import sys

import pytest

from coordinator.members.folder import parse_coordinator
from coordinator.serving.descriptors import KEPT_BACK, connections_within
from wardround.federation.errors import ConfigurationMistaken

RAISE = "from coordinator.serving.descriptors import raise_limit; print(raise_limit())"


@pytest.mark.parametrize(
    ("limit", "wanted", "allowed"),
    [(1024, None, 768), (1024, 500, 500), (1024, 768, 768), (65_536, None, 2048), (65_536, 10_000, 10_000)],
)
def test_connections_leave_descriptors_for_everything_else(limit: int, wanted: int | None, allowed: int) -> None:
    assert connections_within(limit, wanted=wanted, enrolment=256) == allowed
    assert allowed + KEPT_BACK <= limit


@pytest.mark.parametrize(
    ("limit", "wanted", "enrolment", "named"),
    [
        (1024, 769, 256, "769 connections"),
        (1024, 5000, 256, "5000 connections"),
        (271, None, 16, "16 connections"),
        (1024, None, 961, "enrolment_connections = 961"),
    ],
)
def test_what_cannot_be_had_is_said_before_anything_is_served(
    limit: int, wanted: int | None, enrolment: int, named: str
) -> None:
    with pytest.raises(ConfigurationMistaken, match=named) as caught:
        connections_within(limit, wanted=wanted, enrolment=enrolment)
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
        256,
        5.0,
        8,
    )


@pytest.mark.parametrize(
    "line", ["connections = 0", "connections = true", "calls_at_once = 0", "handshake_seconds = 0"]
)
def test_what_makes_no_sense_is_refused_by_name(line: str) -> None:
    with pytest.raises(ConfigurationMistaken, match=line.partition(" ")[0]):
        parse_coordinator(line)
