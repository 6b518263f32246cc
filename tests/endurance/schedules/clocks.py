"""A federation in this process, each of whose roles has a wall clock of its own that can be set.

TLS itself looks at the machine's clock, which stays right: what a clock that is wrong issued is known for it.
"""

from __future__ import annotations

import datetime
import threading
import types
from collections import defaultdict
from pathlib import Path

import pytest

from coordinator.clock import RealClock
from coordinator.serving import site_service
from site_agent.serving import agent, link
from site_agent.serving import serve as site_serve
from site_agent.store import askers
from tests.endurance.founding import found
from tests.endurance.in_process import Aside, ServedCoordinator, ServedSite
from tests.endurance.invariants import Oracle
from tests.integration.terms import Terms
from wardround.federation.errors import NotAuthorized

COORDINATOR = "consortium"


class Walls:
    """How many seconds each role's clock is wrong by; a role is known by the name of the thread that looks."""

    def __init__(self) -> None:
        self.wrong: defaultdict[str, float] = defaultdict(float)

    def now(self, zone: datetime.tzinfo | None = None) -> datetime.datetime:
        thread = threading.current_thread().name
        name = COORDINATOR if thread.startswith("wire") else thread
        return datetime.datetime.now(zone) + datetime.timedelta(seconds=self.wrong[name])

    def hang(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let every module of a role that asks for the time look here; what waits for a second waits for less."""
        shown = types.SimpleNamespace(datetime=types.SimpleNamespace(now=self.now), UTC=datetime.UTC)
        for module in (site_service, link, askers):
            monkeypatch.setattr(module, "datetime", shown)
        monkeypatch.setattr(site_serve, "utc_today", lambda: self.now(datetime.UTC).date())
        monkeypatch.setattr(agent, "POLL_SECONDS", 0.3)
        monkeypatch.setattr(agent, "LONGEST_PAUSE_SECONDS", 0.3)


class WrongClock(RealClock):
    """The coordinator's clock, whose date is what its wall says."""

    def __init__(self, aside: Aside, walls: Walls) -> None:
        super().__init__(aside)
        self._walls = walls

    def date(self) -> float:
        return super().date() + self._walls.wrong[COORDINATOR]


class ClockedFederation:
    """A coordinator and three sites, with walls."""

    def __init__(self, folder: Path, walls: Walls) -> None:
        self.walls = walls
        self.stage = found(folder, Terms())
        self.oracle = Oracle(self.stage)
        self.coordinator = self._served()
        self.sites = {name: ServedSite(self.stage.site(name)) for name in self.stage.sites}

    def restart_coordinator(self) -> None:
        self.coordinator.stop()
        self.coordinator = self._served()

    def start_again(self) -> list[str]:
        """Whoever ended because a certificate seemed to have expired is started by its steward; who did."""
        ended = [name for name, site in self.sites.items() if not site.serves]
        for name in ended:
            with pytest.raises(NotAuthorized, match="expired on"):
                self.sites[name].stop()
            self.sites[name] = ServedSite(self.stage.site(name))
        return ended

    def close(self) -> None:
        for site in self.sites.values():
            site.stop()
        self.coordinator.stop()

    def _served(self) -> ServedCoordinator:
        return ServedCoordinator(self.stage.consortium, lambda aside: WrongClock(aside, self.walls))
