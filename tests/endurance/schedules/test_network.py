"""Faults of the network on every call between three sites, two analysts and a coordinator, until they stop.

`make test-endurance ARGS="-k network"` runs two hundred schedules and prints how often each fault hit each call.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.endurance.schedules.network import ANALYSTS, FaultyFederation, hurry, renew_always
from tests.endurance.schedules.relay import Fault, Relay
from tests.endurance.seeds import say, schedules
from tests.integration.stage import AGES, PATIENTS, SHARP
from wardround.federation.errors import Unavailable

# As many as a federation has a budget for.
OF_ONE_FEDERATION = 20
PATIENCE_SECONDS = 60.0
BY_SITES = {"Greet", "ClaimTask", "ShowChain", "SubmitRelease"}
BY_ANALYSTS = {"Ask", "AskByError", "Await", "Preview", "PreviewByError", "Sites", "Describe", "Budget", "Hospitals"}


@dataclass(frozen=True)
class Question:
    analyst: str
    sql: str
    nonce: str
    truth: int | None = None
    error: float | None = None


def questions(chance: random.Random) -> list[Question]:
    """One question that both analysts ask at the same time, one of many numbers, and one by its error."""
    bound = chance.randint(81, 110)
    same = f"SELECT COUNT(DISTINCT patient_id) FROM encounters WHERE age < {bound}"
    nonce = f"{chance.getrandbits(128):032x}"
    found = [Question(name, same, nonce, 111) for name in ANALYSTS]
    found.append(Question("ada", AGES, f"{chance.getrandbits(128):032x}"))
    found.append(Question("bob", same, f"{chance.getrandbits(128):032x}", error=chance.uniform(5.0, 20.0)))
    chance.shuffle(found)
    return found


def ask(federation: FaultyFederation, question: Question, *, limit_seconds: float) -> bool:
    """Whether an answer came; otherwise a clear error did."""
    client = federation.analysts[question.analyst]
    try:
        epsilon = SHARP if question.error is None else None
        result = client.ask(
            question.sql, epsilon=epsilon, error=question.error, nonce=question.nonce, limit_seconds=limit_seconds
        )
    except Unavailable:
        # Anything else would not be worth asking again.
        return False
    federation.oracle.note(result.document(), truth=question.truth)
    return True


def run(federation: FaultyFederation, chance: random.Random, *, looking: bool) -> int:
    """One schedule; how many questions were answered while the network was faulty."""
    federation.break_network(chance, faulty=chance.choice([0.2, 0.5, 0.8]))
    asked = questions(chance)
    limit = chance.uniform(0.5, 3.0)
    with ThreadPoolExecutor(len(asked)) as threads:
        early = list(threads.map(lambda each: ask(federation, each, limit_seconds=limit), asked))
        # Calls that change nothing meet faults as well.
        for name in ANALYSTS if looking else ():
            threads.submit(look, federation, name).result()
    federation.heal()
    with ThreadPoolExecutor(len(asked)) as threads:
        late = list(threads.map(lambda each: ask(federation, each, limit_seconds=PATIENCE_SECONDS), asked))
    assert all(late), "a question is not answered although the network is sound again"
    assert all(site.serves for site in federation.sites.values())
    return sum(early)


def look(federation: FaultyFederation, name: str) -> None:
    """Ask what can be asked without a charge."""
    federation.relays[name].faulty *= 0.5
    client = federation.analysts[name]
    client.budget()
    client.describe()
    client.link.sites()
    client.preview(AGES, epsilon=1.0)
    client.preview(PATIENTS, error=10.0)


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], FaultyFederation]:
    relays: dict[int, Relay] = {}
    hurry(monkeypatch, relays)
    return lambda number: FaultyFederation(tmp_path / str(number), relays)


def run_all(make: Callable[[int], FaultyFederation], *, first: int = 0, count: int) -> Counter[tuple[str, Fault]]:
    done: Counter[tuple[str, Fault]] = Counter()
    early, federation = 0, None
    for number, chance in schedules("network", first=first, count=count):
        if federation is None:
            federation = make(number)
        early += run(federation, chance, looking=count > 1)
        federation.oracle.check()
        if number % OF_ONE_FEDERATION == OF_ONE_FEDERATION - 1:
            done += finish(federation)
            federation = None
    if federation is not None:
        done += finish(federation)
    say(f"  {early} of {4 * count} questions were answered while the network was faulty")
    return done


def finish(federation: FaultyFederation) -> Counter[tuple[str, Fault]]:
    done = federation.done()
    federation.close()
    federation.oracle.check()
    return done


def test_a_schedule_of_network_faults_breaks_no_invariant(make: Callable[[int], FaultyFederation]) -> None:
    done = run_all(make, count=1)
    assert done.total() > 5


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4), ids="part{}".format)
def test_schedules_of_network_faults_break_no_invariant(
    make: Callable[[int], FaultyFederation], part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = BY_SITES | BY_ANALYSTS
    if part == 0:
        renew_always(monkeypatch)
        calls |= {"RenewCertificate"}
    done = run_all(make, first=50 * part, count=50)
    table = [
        f"{fault.name:>14}: " + ", ".join(f"{call} {done[call, fault]}" for call in sorted(calls)) for fault in Fault
    ]
    say("\n".join(table))
    if "ONLY" not in os.environ:
        assert {call for call, _ in done} == calls
        assert {fault for _, fault in done} == set(Fault)


@pytest.mark.slow
def test_connections_that_fall_silent_for_good_are_given_up_within_two_minutes(tmp_path: Path) -> None:
    # Nothing is hurried here: it is the heartbeat that finds out.
    federation = FaultyFederation(tmp_path / "federation", {})
    for question in (Question("ada", AGES, "01"), Question("ada", AGES, "02")):
        assert ask(federation, question, limit_seconds=120.0)
        for relay in federation.relays.values():
            relay.fall_silent()
    assert ask(federation, Question("bob", AGES, "03"), limit_seconds=120.0)
    federation.close()
    federation.oracle.check()
