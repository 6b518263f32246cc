"""A serving coordinator and the process that has its enrolment port: they end together, and one of them writes."""

from __future__ import annotations

import os
import signal
import socket

import pytest

from site_agent.serving.enrolment import enrol, prepare_enrolment
from tests.fixtures.processes import children, opened, runs
from tests.integration.building import invite
from tests.integration.conftest import Make
from tests.integration.stage import Federation, eventually
from tests.integration.terms import rows_of
from wardround.federation.errors import PeerUnreachable
from wardround.federation.strict_toml import split_address


@pytest.fixture
def served(make_federation: Make) -> Federation:
    federation = make_federation(sites=("two",))
    federation.start_coordinator()
    return federation


def enrolment_process(federation: Federation) -> int:
    (found,) = children(federation.running["consortium"].pid, running="forwarding_service")
    return found


def listens(federation: Federation) -> bool:
    address = split_address((federation.consortium / "enrolment_address").read_text(encoding="utf-8").strip())
    try:
        socket.create_connection(address, timeout=1.0).close()
    except OSError:
        return False
    return True


def enrols(federation: Federation, name: str) -> bool:
    """Whether a hospital is enrolled over the port as `site init` does it; called again, it goes on."""
    place = federation.site(name)
    if not place.exists():
        invite(federation, name)
        place.mkdir(mode=0o700)
        (place / "encounters.csv").write_text(rows_of("two"), encoding="utf-8")
    try:
        ready = prepare_enrolment(place, federation.folder / f"{name}.invitation", federation.folder / f"{name}.toml")
        enrol(ready)
    except PeerUnreachable:
        return False
    return True


def test_the_process_that_strangers_reach_has_no_file_of_the_coordinator_open(served: Federation) -> None:
    found = opened(enrolment_process(served))
    assert not any(f"{served.consortium}/" in each for each in found), found
    assert any(str(served.consortium / "ledger.sqlite") in each for each in opened(served.running["consortium"].pid))


def test_a_hospital_enrols_after_the_process_was_killed(served: Federation) -> None:
    killed = enrolment_process(served)
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: not runs(killed), what="the process is gone")
    eventually(lambda: enrols(served, "new"), what="another one enrols a hospital")
    assert [body["site"] for body in served.entries("consortium", "enrolled")].count("new") == 1
    assert "the enrolment process ended with code -9; it is started again in 0.5 s" in served.log("consortium")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_coordinator_that_ends_leaves_nobody_behind(served: Federation, number: int) -> None:
    process = enrolment_process(served)
    assert served.stop("consortium", number=number) == (-number if number == signal.SIGKILL else 0)
    if number == signal.SIGKILL:
        eventually(lambda: not runs(process), what="the process ends by itself")
    assert not runs(process)
    assert not listens(served)
    served.start_coordinator()
    assert enrols(served, "new")
