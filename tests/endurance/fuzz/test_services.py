"""Mutated requests to every call of both services, over real gRPC: a reply or an error of the table, and no more.

Nothing that was refused changes a ledger; a request that is still a sound question may be charged like any other.
`make fuzz` sends 200,000; `ARGS="-k SiteService"` those of one service.
"""

from __future__ import annotations

import logging
import random
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import grpc
import pytest

from protos import serving
from protos._generated.analyst_service_pb2 import AskReply
from protos.statuses import STATUS
from tests.endurance.fuzz.mutations import mutated
from tests.endurance.fuzz.recording import CALLS, SERVICES, Recorded, recorded
from tests.endurance.seeds import SEED, say
from wardround.federation.ledger.verify.verify import verify

REQUESTS = 200_000
LONGEST_SECONDS = 1.0
AT_ONCE = 12
PATIENCE_SECONDS = 60.0
# Polls wait as long as a message says; whoever sends that many hangs up before.
WAITING = ("ClaimTask", "Await")
POLL_SECONDS = 0.2
# What a call may change without a word: where a site says it is, what it says in public, and hours of service.
HINTS = {"tasks", "public_limits", "windows", "served"}
# With a sound question these grow as well.
OF_QUESTIONS = {"entries", "accounts", "rounds", "askers", "left_out", "sqlite_sequence"}
ALLOWED = {grpc.StatusCode.OK, *STATUS.values()} - {grpc.StatusCode.INTERNAL}

Tables = dict[str, set[str]]
_Outcome = TypeVar("_Outcome")


def tables(federation: Recorded) -> Tables:
    """Every row of every table of the coordinator's ledger."""
    listed = federation.stage.rows("consortium", "SELECT name FROM sqlite_schema WHERE type = 'table'")
    return {
        str(name): {repr(row) for row in federation.stage.rows("consortium", f"SELECT * FROM {name}")}
        for (name,) in listed
    }


class Processor:
    """How long the longest call kept a processor."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.longest = 0.0
        original = serving.outcome_of

        def timed(work: Callable[[], _Outcome], **named: object) -> object:
            began = time.thread_time()
            try:
                return original(work, **named)  # type: ignore[arg-type]
            finally:
                self.longest = max(self.longest, time.thread_time() - began)

        monkeypatch.setattr(serving, "outcome_of", timed)


def send(line: grpc.Channel, service: str, call: str, contents: list[bytes]) -> tuple[Counter[str], set[str]]:
    """Call once with each content; how the calls ended, and the plans that were asked for."""
    method = line.unary_unary(f"/wardround.v1.{service}/{call}", request_serializer=None, response_deserializer=None)
    ended: Counter[str] = Counter()
    plans: set[str] = set()
    waiting: deque[grpc.Future] = deque()  # type: ignore[type-arg]

    def end() -> None:
        done = waiting.popleft()
        status = done.code()  # type: ignore[attr-defined]
        ended[status.name] += 1
        if status is grpc.StatusCode.OK and call.startswith("Ask"):
            plans.add(AskReply.FromString(done.result()).plan_id)
        hung_up = call in WAITING and status is grpc.StatusCode.DEADLINE_EXCEEDED
        assert hung_up or status in ALLOWED, (call, status, done.details())  # type: ignore[attr-defined]

    seconds = POLL_SECONDS if call in WAITING else PATIENCE_SECONDS
    for content in contents:
        waiting.append(method.future(content, timeout=seconds))
        if len(waiting) >= AT_ONCE:
            end()
    while waiting:
        end()
    return ended, plans


def run(federation: Recorded, name: str, processor: Processor, *, count: int, batch: int) -> None:
    """So many requests to each call of one service."""
    service = SERVICES[name]
    say(f"{service}: {count} requests to each call, seed {SEED}")
    for call in CALLS[name]:
        chance = random.Random(f"{SEED} {call}")
        corpus = sorted(federation.requests[call])
        assert corpus, f"nothing was said in {call}"
        before, ended, began = tables(federation), Counter[str](), time.monotonic()
        for first in range(0, count, batch):
            contents = [mutated(chance, corpus) for _ in range(min(batch, count - first))]
            with federation.line(name) as line:
                found, plans = send(line, service, call, contents)
            ended += found
            after = tables(federation)
            check_unchanged(before, after, plans)
            before = after
        federation.check()
        seconds = time.monotonic() - began
        say(f"  {service}.{call}: {dict(ended)} in {seconds:.0f} s, at most {1000 * processor.longest:.0f} ms")
        assert processor.longest < LONGEST_SECONDS, f"seed {SEED}, {call}: a call took {processor.longest:.1f} s"


def check_unchanged(before: Tables, after: Tables, plans: set[str]) -> None:
    """Only what sound questions were charged is new, and nothing is gone that is no number of what stands where."""
    changed = {table for table in after if after[table] != before[table]} - HINTS
    new = after["entries"] - before["entries"]
    assert before["entries"] <= after["entries"]
    assert all("'reserved'" in row and any(plan in row for plan in plans) for row in new), new
    assert changed <= (OF_QUESTIONS if new else set()), changed


@pytest.fixture
def federation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]  # noqa: ANN201
    with recorded(tmp_path / "federation", monkeypatch) as made:
        yield made
        assert verify(made.stage.consortium).valid


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch) -> Processor:
    return Processor(monkeypatch)


def test_a_few_mutated_requests_change_nothing(
    processor: Processor, federation: Recorded, caplog: pytest.LogCaptureFixture
) -> None:
    for name in SERVICES:
        run(federation, name, processor, count=20, batch=20)
    assert "unexpected" not in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVICES, ids=SERVICES.values())
def test_mutated_requests_to_every_call_of_both_services(
    processor: Processor, federation: Recorded, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    calls = sum(map(len, CALLS.values()))
    run(federation, name, processor, count=-(-REQUESTS // calls), batch=2000)
    assert "unexpected" not in caplog.text
