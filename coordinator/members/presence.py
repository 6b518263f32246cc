"""Which sites are there: when each last called, by which version, and until when its certificate lasts.

It is kept in memory and, as a hint for `wardround status`, in a file beside the ledger. It decides nothing but whether
a question is begun: what was asked and paid for goes on whoever is there.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from coordinator.clock import Clock
from protos.words import LONGEST_WAIT_SECONDS
from wardround.federation.errors import FederationError
from wardround.federation.private_files import write_private

POLL_SECONDS = LONGEST_WAIT_SECONDS
LIVE_SECONDS = 2 * POLL_SECONDS
"""Whoever has not called for two polls is away."""

PRESENCE_FILE = "presence.json"
CALLED = "a site called"
"""What is announced when a site calls that was away."""


@dataclass(frozen=True, slots=True)
class Seen:
    """When a site last called and until when its certificate lasts, in seconds since 1970, and its version.

    An earlier version does not tell it; it is empty then.
    """

    date: float
    version: str = ""
    certificate_ends: float | None = None


class Presence:
    """The sites that call one coordinator."""

    def __init__(self, before: Mapping[str, Seen] | None = None) -> None:
        self._guard = threading.Lock()
        self._seen = dict(before or {})
        self._heard: dict[str, float] = {}
        self._begun = 0.0

    def begin(self, clock: Clock) -> None:
        """From now on sites may call; whoever called the coordinator before has yet to call this one."""
        self._clock, self._begun = clock, clock.now()

    def heard(self, site: str) -> None:
        """A call of this site came in, whatever it says."""
        now = self._clock.now()
        with self._guard:
            back = now - self._heard.get(site, -LIVE_SECONDS) >= LIVE_SECONDS
            self._heard[site] = now
            self._seen[site] = replace(self._seen.get(site, Seen(0.0)), date=self._clock.date())
        if back:
            self._clock.announce(CALLED)

    def note_version(self, site: str, version: str) -> None:
        """By which version a site calls."""
        with self._guard:
            self._seen[site] = replace(self._seen.get(site, Seen(self._clock.date())), version=version)

    def note_certificate(self, site: str, ends: float) -> None:
        """Until when a site's certificate lasts."""
        with self._guard:
            self._seen[site] = replace(self._seen.get(site, Seen(self._clock.date())), certificate_ends=ends)

    def live(self) -> frozenset[str]:
        """Who called within two polls."""
        since = self._clock.now() - LIVE_SECONDS
        with self._guard:
            return frozenset(site for site, at in self._heard.items() if at > since)

    def first_poll_seconds(self) -> float:
        """How long sites may still take for their first call since the start."""
        return max(self._begun + POLL_SECONDS - self._clock.now(), 0.0)

    def write(self, folder: Path, *, at_work: Collection[str]) -> None:
        """Write the hint down, with those `at_work` as seen now; where there is no room it stays what it was."""
        date = self._clock.date()
        with self._guard:
            known = {site: replace(seen, date=date) if site in at_work else seen for site, seen in self._seen.items()}
        content = json.dumps({"served": date, "sites": {site: astuple(seen) for site, seen in sorted(known.items())}})
        with suppress(FederationError):
            write_private(folder / PRESENCE_FILE, content.encode())


def read_presence(folder: Path) -> tuple[float, dict[str, Seen]]:
    """When the hint was last written, and who had called by then; 0 and nobody where there is none that can be read."""
    try:
        document = json.loads((folder / PRESENCE_FILE).read_bytes())
        found = {
            str(site): Seen(float(date), str(version), None if ends is None else float(ends))
            for site, (date, version, ends) in document["sites"].items()
        }
        return float(document["served"]), found
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return 0.0, {}
