"""A federation of real processes in one folder: a coordinator, three hospitals, two analysts.

Three sites with true counts 1, 10 and 100, so that one glance at a number names the bug: 111 all, 101 site
two missing, 121 someone counted twice. The questions ask with a large ε, whose noise stays far below one half;
the roles are started by the commands of the contract and nothing in them is switched off.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from coordinator.members.presence import read_presence
from tests.integration.terms import Terms
from wardround.analyst.asking.client import connect
from wardround.analyst.showing.documents import Json
from wardround.federation.errors import FederationError, SitesAway
from wardround.federation.ledger.verify.verify import verify
from wardround.federation.strict_toml import split_address

HERE = Path(__file__).parent
PATIENTS = "SELECT COUNT(DISTINCT patient_id) FROM encounters"
# Twenty numbers at once: noise drawn twice is the same for all of them once in 10²⁰ times at most.
AGES = "SELECT HISTOGRAM(age, 20) FROM encounters"
# σ is about 0.08 for each site: a difference of one patient is plain to see.
SHARP = 150.0
# A shared machine starts a process in seconds, not in milliseconds, and may stand still for some of them.
PATIENCE_SECONDS = 120.0


def command(*words: object) -> list[str]:
    """The command line of the contract, in this interpreter."""
    return [sys.executable, "-m", "wardround", *map(str, words)]


# The programs that one-off commands are run by: forked from a process that has imported the project, once there is one.
PREPARED: list[Path] = []


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def eventually(true: Callable[[], object], *, what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait for something that another process will make true."""
    until = time.monotonic() + seconds
    while not true():
        if time.monotonic() > until:
            raise AssertionError(f"never happened: {what}")
        time.sleep(0.03)


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Json]:
        """The one JSON document on standard output; anything beside it fails here."""
        document = json.loads(self.out)
        assert isinstance(document, dict)
        return document

    @property
    def error(self) -> dict[str, Json]:
        error = self.document["error"]
        assert isinstance(error, dict)
        assert list(self.document) == ["error"]
        return error


_Answer = TypeVar("_Answer")


class Asked(Generic[_Answer]):
    """A question on its way, in a thread of its own: the answer's document, or the error it ended with."""

    def __init__(self, question: Callable[[], _Answer]) -> None:
        self._answer: _Answer | None = None
        self._error: FederationError | None = None
        self._thread = threading.Thread(target=self._run, args=(question,), daemon=True)
        self._thread.start()

    def _run(self, question: Callable[[], _Answer]) -> None:
        try:
            self._answer = question()
        except FederationError as error:
            self._error = error

    def ends(self, *, within_seconds: float) -> bool:
        self._thread.join(within_seconds)
        return not self._thread.is_alive()

    def answer(self) -> _Answer:
        self._thread.join(2 * PATIENCE_SECONDS)
        if self._error is not None:
            raise self._error
        assert self._answer is not None, "the question was never answered"
        return self._answer


@dataclass
class Federation:
    """The folder and the processes that run in it; `close` ends them all."""

    folder: Path
    terms: Terms
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    called: bool = False
    coordinator_began: float = 0.0

    # --- places -------------------------------------------------------------------------------------------

    @property
    def consortium(self) -> Path:
        return self.folder / "consortium"

    @property
    def sites(self) -> tuple[str, ...]:
        return self.terms.sites

    def site(self, name: str) -> Path:
        return self.folder / name

    def profile(self, analyst: str = "ada") -> Path:
        return self.folder / f"{analyst}.profile"

    def log(self, name: str) -> str:
        file = self.folder / f"{name}.log"
        return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""

    # --- processes ----------------------------------------------------------------------------------------

    def run(self, *words: object) -> Done:
        """One command to its end."""
        line = [str(PREPARED[0] / "wardround"), *map(str, words)] if PREPARED else command(*words)
        done = subprocess.run(line, cwd=self.folder, capture_output=True, check=False, timeout=2 * PATIENCE_SECONDS)
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    def spawn(self, name: str, words: list[str]) -> subprocess.Popen[bytes]:
        assert name not in self.running, f"{name} runs already"
        if (log := self.folder / f"{name}.log").exists():
            log.rename(self.folder / f"{name}.{len(list(self.folder.glob(f'{name}.*.log')))}.log")
        with (self.folder / f"{name}.log").open("ab") as stream:
            self.running[name] = subprocess.Popen(words, cwd=self.folder, stdout=stream, stderr=stream)
        return self.running[name]

    def await_calls(self) -> None:
        """Wait until as many of the running sites have called the coordinator since its start as the study needs.

        A question waits for them one poll long, which may be shorter than a busy machine takes to start a process.
        """
        started = [name for name in self.sites if name in self.running]
        if self.called or "consortium" not in self.running or len(started) < self.terms.min_sites:
            return

        def enough() -> bool:
            seen = read_presence(self.consortium)[1]
            there = [name for name in started if name in seen and seen[name].date >= self.coordinator_began]
            return len(there) >= self.terms.min_sites

        eventually(enough, what="the sites call")
        self.called = True

    def start_coordinator(self, *, failpoint: str | None = None) -> None:
        self.called, self.coordinator_began = False, time.time()
        ordinary = command("coordinator", "serve", self.consortium)
        faulty = [sys.executable, str(HERE / "faulty_coordinator.py"), str(self.consortium), failpoint or ""]
        self.spawn("consortium", ordinary if failpoint is None else faulty)
        self.await_coordinator()

    def start_timeless_coordinator(self) -> None:
        """A coordinator for which a deadline passes `after_the_deadline` and at no other time."""
        self.start_coordinator(failpoint="timeless")

    def after_the_deadline(self, asked: Asked[_Answer], *, when: Callable[[], object], what: str) -> _Answer:
        """The answer of a round whose deadline passes once this is true: whoever is to answer in time has done so."""
        eventually(when, what=what)
        until = time.monotonic() + PATIENCE_SECONDS
        # More than once: the round may have begun to wait only now.
        while not asked.ends(within_seconds=1.0) and time.monotonic() < until:
            with (self.consortium / "days").open("ab") as days:
                days.write(b".")
        return asked.answer()

    def await_coordinator(self) -> None:
        address = split_address((self.consortium / "address").read_text(encoding="utf-8").strip())

        def listens() -> bool:
            assert self.running["consortium"].poll() is None, self.log("consortium")
            with contextlib.suppress(OSError), socket.create_connection(address, timeout=1.0):
                return True
            return False

        eventually(listens, what="the coordinator listens")

    def start_site(self, name: str, *, failpoint: str | None = None, folder: Path | None = None) -> None:
        place = folder or self.site(name)
        ordinary = command("site", "serve", place)
        faulty = [sys.executable, str(HERE / "faulty_site.py"), str(place), failpoint or ""]
        self.spawn(place.name, ordinary if failpoint is None else faulty)

    def await_sites(self) -> None:
        """Wait until every started site has begun to serve: a short deadline should not measure its start."""
        for name in self.running:
            if name != "consortium":
                eventually(lambda name=name: f"wardround: {name} serves" in self.log(name), what=f"{name} serves")  # type: ignore[misc]

    def start(self) -> Federation:
        self.start_coordinator()
        for name in self.sites:
            self.start_site(name)
        return self

    def stop(self, name: str, *, number: int = signal.SIGTERM) -> int:
        """End one process and say how it ended."""
        process = self.running.pop(name)
        process.send_signal(number)
        return process.wait(PATIENCE_SECONDS)

    def await_death(self, name: str) -> None:
        """Wait until a failpoint has killed the process."""
        assert self.running[name].wait(PATIENCE_SECONDS) == -signal.SIGKILL, self.log(name)
        del self.running[name]

    def close(self) -> None:
        for process in self.running.values():
            process.kill()
        for process in self.running.values():
            process.wait()
        self.running.clear()
        for log in sorted(self.folder.glob("*.log")):
            print(f"--- {log.name}\n{log.read_text(encoding='utf-8', errors='replace')}")

    # --- questions ----------------------------------------------------------------------------------------

    def ask(
        self, sql: str = PATIENTS, *, epsilon: float = SHARP, analyst: str = "ada", fresh: bool = False
    ) -> dict[str, Json]:
        self.await_calls()
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                with connect(self.profile(analyst)) as federation:
                    answer = federation.ask(sql, epsilon=epsilon, fresh=fresh, limit_seconds=2 * PATIENCE_SECONDS)
                    return answer.document()
            except SitesAway:
                # Once a clock has jumped, nobody has called for days until the polls that are under way have ended.
                if not (self.consortium / "days").exists() or time.monotonic() > until:
                    raise
            time.sleep(0.5)

    def asking(self, sql: str = PATIENTS, *, epsilon: float = SHARP, fresh: bool = False) -> Asked[dict[str, Json]]:
        return Asked(lambda: self.ask(sql, epsilon=epsilon, fresh=fresh))

    def ask_command(self, sql: str = PATIENTS, *options: object, analyst: str = "ada", epsilon: float = SHARP) -> Done:
        self.await_calls()
        return self.run("ask", "--profile", self.profile(analyst), sql, "--epsilon", epsilon, "--json", *options)

    # --- ledgers ------------------------------------------------------------------------------------------

    def entries(self, name: str, kind: str, plan_id: str | None = None) -> list[dict[str, Json]]:
        """The bodies of the entries of one kind in a role's chain, about one plan or all."""
        bodies = [json.loads(row[0]) for row in self.rows(name, "SELECT body FROM entries WHERE kind = ?", kind)]
        return [body for body in bodies if plan_id is None or body.get("plan_id") == plan_id]

    def rows(self, name: str, statement: str, *values: object) -> list[tuple[object, ...]]:
        """What a role's ledger file holds, read beside it."""
        # Not read-only: whoever was killed in the middle of a commit left it to the next reader to undo it.
        with contextlib.closing(
            sqlite3.connect(f"file:{self.folder / name / 'ledger.sqlite'}?mode=rw", uri=True)
        ) as db:
            db.execute("PRAGMA busy_timeout = 20000")
            return db.execute(statement, values).fetchall()

    def received(self) -> int:
        """How many answers of sites the coordinator has taken, to all questions."""
        return len(self.entries("consortium", "received"))

    def check_ledgers(self) -> None:
        """The invariants of every ledger, and of each site's against the coordinator's."""
        verdict = verify(self.consortium)
        assert verdict.valid, verdict.problems
        for name in self.sites:
            verdict = verify(self.site(name))
            assert verdict.valid, (name, verdict.problems)
            # One statement, so that a charge that is being written is in both or in neither.
            entries = "SELECT count(*) FROM entries WHERE kind = 'charged'"
            assert self.rows(name, f"SELECT (SELECT count(*) FROM charges) = ({entries})") == [(1,)], name
            self._check_views(name)

    def _check_views(self, name: str) -> None:
        """Whatever the coordinator has seen of a site is what the site's own ledger holds."""
        # The coordinator's first: the site's own chain may only have grown since.
        seen = self.rows("consortium", "SELECT sequence, digest FROM places WHERE site = ?", name)
        chain = {
            (int(str(sequence)), digest)
            for sequence, digest in self.rows(name, "SELECT sequence, previous FROM entries")
        }
        last = max(sequence for sequence, _ in chain)
        for sequence, digest in seen:
            assert sequence == last or (int(str(sequence)) + 1, digest) in chain, (name, sequence)
        stored = self.rows("consortium", "SELECT plan_id, payload FROM submissions WHERE site = ? AND code = ''", name)
        for plan_id, payload in stored:
            assert self.rows(name, "SELECT payload FROM releases WHERE plan_id = ?", plan_id) == [(payload,)]

    def check_charged_once(self, plan_id: str) -> None:
        """One charge and one release for the plan, on both sides, at every site."""
        assert len(self.entries("consortium", "reserved", plan_id)) == 1
        assert len(self.entries("consortium", "answered", plan_id)) == 1
        for name in self.sites:
            assert len(self.entries(name, "charged", plan_id)) == 1, name
            assert len(self.entries(name, "released", plan_id)) == 1, name
        received = self.entries("consortium", "received", plan_id)
        assert sorted(str(body["site"]) for body in received) == sorted(self.sites)


def values(document: dict[str, Json]) -> list[float]:
    """The numbers of an answer."""
    estimates = document["estimates"]
    assert isinstance(estimates, list)
    return [estimate["value"] for estimate in estimates]  # type: ignore[call-overload,index,misc]


def value(document: dict[str, Json]) -> float:
    """The one number of an answer."""
    (found,) = values(document)
    return found


def is_about(document: dict[str, Json], truth: int) -> bool:
    """Whether the answer is this truth and neither of its neighbours: the noise is some seven times smaller."""
    return abs(value(document) - truth) < 0.95


def sites_in(document: dict[str, Json]) -> dict[str, Json]:
    sites = document["sites"]
    assert isinstance(sites, dict)
    return sites


@contextlib.contextmanager
def closing(federation: Federation) -> Iterator[Federation]:
    try:
        yield federation
    finally:
        federation.close()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
