"""What a terminal shows while a training runs: little, but never nothing for long."""

from __future__ import annotations

import time

import pytest

from wardround.analyst.learning.driver import TrainingRound
from wardround.cli.terminal import round_lines
from wardround.cli.terminal.round_lines import TrainingLines
from wardround.federation.question.answer import Progress, Remaining, SiteState

ROUND = TrainingRound(1, 9, "gradients", Remaining(2.0, 0.5))
AWAITED = Progress(3, (("lakeside", SiteState.OPEN), ("st-mary", SiteState.RELEASED)))


def shown(capsys: pytest.CaptureFixture[str], wanted: str) -> str:
    """Standard error once it holds what is wanted, or after a while without it."""
    told = ""
    for _ in range(6000):
        told += capsys.readouterr().err
        if wanted in told:
            break
        time.sleep(0.02)
    return told


def test_a_slow_round_says_whom_it_waits_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(round_lines, "_SLOW_SECONDS", 0.05)
    lines = TrainingLines()
    lines.begin(ROUND)
    lines.show(AWAITED)
    told = shown(capsys, "waiting for the site")
    lines.close()
    assert "round 1 of 9: gradients (ε = 2 is left)" in told
    assert "  lakeside  waiting for the site\n" in told
    assert "st-mary" not in told


def test_a_quick_round_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    # Quick, however long this machine stands still between two lines.
    monkeypatch.setattr(round_lines, "_SLOW_SECONDS", 3600.0)
    lines = TrainingLines()
    lines.begin(ROUND)
    lines.show(AWAITED)
    lines.close()
    assert capsys.readouterr().err == "round 1 of 9: gradients (ε = 2 is left)\n"


def round_with(lines: TrainingLines, capsys: pytest.CaptureFixture[str], **states: SiteState) -> list[str]:
    """What a round shows below its title."""
    lines.begin(ROUND)
    lines.show(Progress(1, tuple(states.items())))
    lines.close()
    return [line.strip() for line in capsys.readouterr().err.splitlines()[1:]]


def test_what_a_site_refused_is_said_once_and_not_in_every_round(capsys: pytest.CaptureFixture[str]) -> None:
    lines = TrainingLines()
    refused, missing, released = SiteState.REFUSED, SiteState.MISSING, SiteState.RELEASED
    assert round_with(lines, capsys, east=refused, west=released) == ["east  refused"]
    assert round_with(lines, capsys, east=refused, west=missing) == ["west  missing"]
    assert round_with(lines, capsys, east=refused, west=missing) == []
    assert round_with(lines, capsys, east=refused, west=released) == []
    assert round_with(lines, capsys, east=refused, west=missing) == ["west  missing"], "it was back meanwhile"


def test_a_site_that_waits_for_its_steward_is_said_once_until_it_does_something_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = TrainingLines()
    assert round_with(lines, capsys, east=SiteState.PENDING) == ["east  waiting for a data steward"]
    assert round_with(lines, capsys, east=SiteState.PENDING) == []
    assert round_with(lines, capsys, east=SiteState.MISSING) == ["east  missing"]
