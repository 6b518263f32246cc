"""Which sites are there: by their calls, within two polls, and what is left of it for a probe."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.clock import RealClock
from coordinator.members.presence import LIVE_SECONDS, POLL_SECONDS, PRESENCE_FILE, Presence, Seen, read_presence


class SetClock(RealClock):
    """A clock that the test sets."""

    seconds = 100.0

    def now(self) -> float:
        return self.seconds

    def date(self) -> float:
        return 1.75e9 + self.seconds


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def presence(clock: SetClock) -> Presence:
    found = Presence({"old": Seen(1.7e9, "0.0.9", 1.8e9)})
    found.begin(clock)
    return found


def test_a_site_is_live_for_two_polls_after_each_call(presence: Presence, clock: SetClock) -> None:
    presence.heard("north")
    clock.seconds += LIVE_SECONDS - 0.1
    assert presence.live() == {"north"}
    clock.seconds += 0.2
    assert presence.live() == frozenset()
    presence.heard("north")
    assert presence.live() == {"north"}


def test_whoever_called_before_the_start_has_yet_to_call(presence: Presence, clock: SetClock) -> None:
    assert presence.live() == frozenset()
    assert presence.first_poll_seconds() == POLL_SECONDS
    clock.seconds += POLL_SECONDS + 1
    assert presence.first_poll_seconds() == 0.0


def test_the_hint_tells_who_was_seen_by_which_version_and_until_when(
    presence: Presence, clock: SetClock, tmp_path: Path
) -> None:
    presence.heard("north")
    presence.note_version("north", "0.2.0")
    presence.note_certificate("north", 1.9e9)
    seen_at = clock.date()
    clock.seconds += 7
    presence.write(tmp_path, at_work=("old",))
    served, sites = read_presence(tmp_path)
    assert served == clock.date()
    assert sites == {"north": Seen(seen_at, "0.2.0", 1.9e9), "old": Seen(served, "0.0.9", 1.8e9)}
    assert (tmp_path / PRESENCE_FILE).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("content", ["", "{", "[]", '{"served": 1}', '{"served": 1, "sites": {"x": 3}}'])
def test_a_hint_that_cannot_be_read_says_nothing(content: str, tmp_path: Path) -> None:
    assert read_presence(tmp_path) == (0.0, {})
    (tmp_path / PRESENCE_FILE).write_text(content, encoding="utf-8")
    assert read_presence(tmp_path) == (0.0, {})
