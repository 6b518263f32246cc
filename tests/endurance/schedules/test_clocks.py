"""Wall clocks that are set by minutes and by years, back and forth, at a coordinator and at sites, while questions run.

`make test-endurance ARGS="-k clocks"` runs two hundred schedules.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from coordinator.members.authority import CLOCK_LAG
from tests.endurance import in_process
from tests.endurance.schedules.clocks import COORDINATOR, ClockedFederation, Walls
from tests.endurance.seeds import say, schedules
from tests.integration.stage import AGES, PATIENTS, SHARP, eventually
from tests.roles import enrolled
from wardround.analyst.asking.client import connect
from wardround.federation.errors import Unavailable

PATIENCE_SECONDS = 60.0
BLUNT = 5.0
UNFIT = "not valid now by this machine's clock"


@dataclass(frozen=True)
class Question:
    sql: str
    nonce: str
    epsilon: float
    truth: int | None


def ask(federation: ClockedFederation, question: Question, *, limit_seconds: float) -> bool:
    """Whether an answer came; otherwise whoever asks was told to ask again."""
    with connect(federation.stage.profile("ada")) as client:
        try:
            answer = client.ask(
                question.sql, epsilon=question.epsilon, nonce=question.nonce, limit_seconds=limit_seconds
            )
        except Unavailable:
            return False
    federation.oracle.note(answer.document(), truth=question.truth)
    return True


def wrong_by(chance: random.Random) -> float:
    """From two minutes to ten years, forward or back."""
    return float(chance.choice([-1.0, 1.0]) * 10 ** chance.uniform(2.0, 8.5))


def run(federation: ClockedFederation, chance: random.Random) -> Counter[str]:
    """One schedule; how often which clock was set, and who ended because of it."""
    done: Counter[str] = Counter()
    asked = [
        Question(PATIENTS, f"{chance.getrandbits(128):032x}", SHARP, 111),
        Question(AGES, f"{chance.getrandbits(128):032x}", BLUNT, None),
    ]
    with ThreadPoolExecutor(len(asked)) as threads:
        under_way = [threads.submit(ask, federation, each, limit_seconds=chance.uniform(0.5, 2.0)) for each in asked]
        for _ in range(chance.randint(1, 4)):
            name = chance.choice([COORDINATOR, *federation.stage.sites])
            federation.walls.wrong[name] = wrong_by(chance)
            done[name] += 1
            time.sleep(chance.uniform(0.0, 0.3))
            if chance.random() < 0.2:
                federation.restart_coordinator()
        for each in under_way:
            done["answered meanwhile"] += each.result()
    federation.walls.wrong.clear()
    done["ended"] += len(federation.start_again())
    for each in asked:
        assert ask(federation, each, limit_seconds=PATIENCE_SECONDS), "no progress once the clocks are right"
    return done


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], ClockedFederation]:
    walls = Walls()
    walls.hang(monkeypatch)
    return lambda: ClockedFederation(tmp_path / "federation", walls)


def run_all(make: Callable[[], ClockedFederation], *, first: int = 0, count: int) -> None:
    done: Counter[str] = Counter()
    federation = make()
    for _, chance in schedules("clocks", first=first, count=count):
        done += run(federation, chance)
        federation.oracle.check()
    federation.close()
    federation.oracle.check()
    say(f"  {dict(done)}")


def test_a_site_takes_no_certificate_from_a_clock_that_is_wrong(
    make: Callable[[], ClockedFederation], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    renew_always(monkeypatch)
    federation = make()
    question = Question(PATIENTS, "00", SHARP, 111)
    for days in (-1.0, 1.0):
        federation.walls.wrong[COORDINATOR] = days * 86_400.0
        eventually(lambda: UNFIT in caplog.text, what="an unfit certificate", seconds=60.0)
        caplog.clear()
        federation.walls.wrong.clear()
        federation.restart_coordinator()
        assert ask(federation, replace(question, nonce=f"{days + 1:02.0f}"), limit_seconds=PATIENCE_SECONDS)
    assert federation.start_again() == []
    federation.close()
    federation.oracle.check()


def renew_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a certificate's life is over when it is issued, so that every clock issues some."""
    for place in (in_process, enrolled):
        monkeypatch.setattr(place, "LIFE", CLOCK_LAG)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4), ids="part{}".format)
def test_schedules_of_clocks_break_no_invariant(
    make: Callable[[], ClockedFederation], part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if part % 2:
        renew_always(monkeypatch)
    run_all(make, first=50 * part, count=50)
