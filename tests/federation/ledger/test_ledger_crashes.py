"""kill −9 of a real process between any two steps: the invariants hold, and the work goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from site_agent.store.ledger import SiteLedger
from tests.federation.ledger.crash_process import WORDS, scenario
from tests.federation.ledger.ledger_bench import plan_id
from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.forms.release import release_hash
from wardround.federation.ledger.verify.verify import verify
from wardround.federation.plan.task import Released
from wardround.federation.trust.identity import Identity


def crash(root: Path, *arguments: str) -> int:
    done = subprocess.run(
        [sys.executable, "-m", "tests.federation.ledger.crash_process", str(root), *arguments],
        check=True,
        capture_output=True,
        timeout=300,
    )
    return int(done.stdout)


def events(folder: Path) -> list[list[str]]:
    path = folder / "events"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def check(folder: Path) -> None:
    """What the outside world saw agrees with what is on the disk."""
    identity = Identity.load(folder / "identity.pem")
    try:
        ledger = SiteLedger(folder, identity=identity)
    except ConfigurationMistaken:
        assert events(folder) == [], "it died before it was opened, so it had said nothing"
        return
    assert verify(folder).problems == ()
    for event in events(folder):
        match event:
            case ["read", word]:
                assert ledger.charged(plan_id(word)), "rows were read before the charge was durable"
            case ["sent", plan, hashed]:
                kept = ledger.find(plan)
                assert kept is not None, "something was sent before it was durable"
                if isinstance(kept, Released):
                    assert release_hash(kept.payload) == hashed, "other bytes were sent than were committed"
    ledger.close()


def go_on(folder: Path, words: tuple[str, ...]) -> None:
    """Started again without faults, the site finishes, and everything it ever sent for a plan is one byte string."""
    scenario(folder, words=words)
    check(folder)
    assert events(folder)[-1] == ["done"]
    sent: dict[str, set[str]] = {}
    for event in events(folder):
        if event[0] == "sent":
            sent.setdefault(event[1], set()).add(event[2])
    assert {plan_id(word) for word in words} <= sent.keys()
    assert all(len(hashes) == 1 for hashes in sent.values())


def test_a_death_before_any_statement_breaks_nothing(tmp_path: Path) -> None:
    deaths = crash(tmp_path, "statements")
    assert deaths > 60
    for number in range(1, deaths + 1):
        check(tmp_path / str(number))
        go_on(tmp_path / str(number), WORDS)


def random_deaths(root: Path, times: int) -> None:
    assert crash(root, "moments", str(times), "5") > 0
    for folder in sorted(root.iterdir()):
        check(folder)
        go_on(folder, tuple(f"{letter}0" for letter in "abcd"))


def test_thirty_deaths_at_random_moments_break_nothing(tmp_path: Path) -> None:
    random_deaths(tmp_path, 30)


@pytest.mark.slow
def test_five_hundred_deaths_at_random_moments_break_nothing(tmp_path: Path) -> None:
    random_deaths(tmp_path, 500)
