"""A federation whose every caller has a faulty network of its own, in this process, and patience of a second."""

from __future__ import annotations

import dataclasses
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from coordinator.members.authority import CLOCK_LAG
from protos import calls, chunked_release, statuses
from site_agent.serving import agent
from tests.endurance import in_process
from tests.endurance.founding import found
from tests.endurance.in_process import ServedCoordinator, ServedSite
from tests.endurance.invariants import Oracle
from tests.endurance.schedules.relay import Fault, Relay
from tests.integration.terms import Terms
from tests.roles import enrolled
from wardround.analyst.asking.client import Client
from wardround.analyst.link import grpc_link, link
from wardround.analyst.link.signing import Signer, own_identity
from wardround.federation.trust.enrolment import read_profile

ANALYSTS = ("ada", "bob")
# Some of ours would wait for half a minute; what they do then is the same after a second.
_POLL_SECONDS = 0.5
_CALL_SECONDS = 1.5


def hurry(monkeypatch: pytest.MonkeyPatch, relays: dict[int, Relay]) -> None:
    """Shorten every wait, and tell the relay of each call's channel that the call comes."""
    monkeypatch.setattr(agent, "POLL_SECONDS", _POLL_SECONDS)
    monkeypatch.setattr(agent, "LONGEST_PAUSE_SECONDS", 0.3)
    # What is not known of a site's chain is shown in a call of its own.
    monkeypatch.setattr(agent, "MAX_CHAIN", 0)
    monkeypatch.setattr(link, "POLL_SECONDS", _POLL_SECONDS)
    monkeypatch.setattr(grpc_link, "LONGEST_PAUSE_SECONDS", 0.3)

    def call(
        method: grpc.UnaryUnaryMultiCallable[object, object], request: object, *, deadline_seconds: float
    ) -> object:
        port = int(method._channel.target().decode().rpartition(":")[2])  # type: ignore[attr-defined]
        if (relay := relays.get(port)) is not None:
            relay.call_comes(method._method.decode().rpartition("/")[2])  # type: ignore[attr-defined]
        return statuses.call(method, request, deadline_seconds=min(deadline_seconds, _CALL_SECONDS))

    monkeypatch.setattr(calls, "call", call)
    monkeypatch.setattr(chunked_release, "call", call)


def renew_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Certificates of which half is over as soon as they are issued: each turn of a site begins with a new one."""
    for place in (in_process, enrolled):
        monkeypatch.setattr(place, "LIFE", CLOCK_LAG)


class FaultyFederation:
    """A coordinator, three sites and two analysts, with a relay before each of these five."""

    def __init__(self, folder: Path, relays: dict[int, Relay]) -> None:
        self.stage = found(folder, Terms(), analysts=ANALYSTS)
        self.oracle = Oracle(self.stage)
        self.coordinator = ServedCoordinator(self.stage.consortium)
        self.relays = {
            name: Relay(self.coordinator.address, random.Random()) for name in (*self.stage.sites, *ANALYSTS)
        }
        relays.update({relay.port: relay for relay in self.relays.values()})
        for name in self.stage.sites:
            note = self.stage.site(name) / "coordinator.json"
            note.write_text(json.dumps(json.loads(note.read_text()) | {"address": self.relays[name].address}))
        self.sites = {name: ServedSite(self.stage.site(name)) for name in self.stage.sites}
        self.analysts = {name: self._analyst(name) for name in ANALYSTS}

    def _analyst(self, name: str) -> Client:
        path = self.stage.profile(name)
        profile = dataclasses.replace(read_profile(path), address=self.relays[name].address)
        return Client(grpc_link.GrpcAnalystLink(profile), signer=Signer(name, lambda: own_identity(path)))

    def break_network(self, chance: random.Random, *, faulty: float) -> None:
        for name, relay in self.relays.items():
            relay.chance, relay.faulty = random.Random(f"{chance.random()} {name}"), faulty

    def heal(self) -> None:
        for relay in self.relays.values():
            relay.heal()

    def done(self) -> Counter[tuple[str, Fault]]:
        """How often each fault has hit each call."""
        return sum((relay.done for relay in self.relays.values()), Counter())

    def close(self) -> None:
        ending: list[Callable[[], None]] = [client.close for client in self.analysts.values()]
        ending += [self.heal, *(site.stop for site in self.sites.values()), self.coordinator.stop]
        for end in (*ending, *(relay.close for relay in self.relays.values())):
            end()
