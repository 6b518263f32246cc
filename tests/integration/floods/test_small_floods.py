"""A minute's attack in a few seconds: what `test_floods` does, with a tenth of everything."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.integration.conftest import Make
from tests.integration.floods.siege import VICTIM, Siege
from tests.protos.fairness import most_ahead

# 44 for connections, and 256 for everything else.
DESCRIPTORS = 300
SILENT = 320
FLOODERS = ("mallory", "oscar", "trudy")


@pytest.fixture
def siege(make_federation: Make) -> Siege:
    made = Siege(make_federation(sites=("two",)), DESCRIPTORS)
    made.configure("handshake_seconds = 1")
    return made


def test_silent_connections_at_both_ports_stop_nobody(siege: Siege) -> None:
    siege.start()
    with siege.victim() as victim:
        victim.arrives()
        with siege.silent("address", SILENT, again=True), siege.silent("enrolment_address", SILENT, again=True):
            victim.calls_on("silent connections at both ports", times=200)
            # Nor do they keep it from starting again.
            siege.federation.stop("consortium")
            siege.start()
        victim.arrives()
        victim.calls_on("afterwards", times=20)
    assert siege.federation.stop("consortium") == 0


def test_of_each_flooder_one_call_is_taken_up_before_the_victims(siege: Siege) -> None:
    siege.start()
    with siege.victim() as victim, ExitStack() as floods:
        victim.arrives()
        victim.calls_on("alone", times=50)
        for name in FLOODERS:
            floods.enter_context(siege.flood(name))
        victim.calls_on("40 streams of three flooders each", times=50)
        victim.waits(10)
    events = siege.events()
    ahead = most_ahead(events, VICTIM)
    assert set(ahead) == set(FLOODERS)
    assert set(ahead.values()) == {1}
    assert siege.federation.stop("consortium") == 0
