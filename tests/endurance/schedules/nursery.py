"""A process that has loaded a role and forks one as often as it is told. A test's entry point, shipped nowhere.

What it forks runs the production `serve` from its first line, and is killed, or dies, like any process; only loading
the program, which takes longer than everything else, is done once. It says on its standard output what it did:

    start ROLE LOG WORD...   the number of a new process, whose output goes to LOG
    wait NUMBER, poll NUMBER   how it ended, or that it runs
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from tests.endurance.schedules.failing_files import let_fail
from wardround.federation.errors import FederationError

ROOT = Path(__file__).parents[3]
RUNS = "runs"


def _serve_coordinator(path: str) -> None:
    from coordinator.serving.serve import serve

    let_fail(Path(path))
    serve(Path(path), announce=print)


def _serve_site(path: str) -> None:
    from site_agent.serving import agent
    from site_agent.serving.serve import serve

    # Half a minute would be the same, and longer.
    agent.LONGEST_PAUSE_SECONDS = 1.0
    let_fail(Path(path))
    serve(Path(path), announce=print)


def _ask(profile: str, sql: str, epsilon: str) -> None:
    from wardround.analyst.asking.client import connect

    with connect(profile) as client:
        print(json.dumps(client.ask(sql, epsilon=float(epsilon)).document()))


ROLES: dict[str, Callable[..., None]] = {"coordinator": _serve_coordinator, "site": _serve_site, "ask": _ask}


LOADED = (
    "coordinator.serving.serve",
    "site_agent.reading.sources.duckdb.database",
    "site_agent.reading.sources.files.files",
    "site_agent.serving.serve",
    "wardround.analyst.asking.client",
    "wardround.analyst.link.grpc_link",
    "wardround.analyst.sql.read",
)


def _become(role: str, log: str, words: list[str]) -> None:
    """Be this role, in a process of its own, and end as a command would."""
    stream = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    silence = os.open(os.devnull, os.O_RDONLY)
    for own, given in ((0, silence), (1, stream), (2, stream)):
        os.dup2(given, own)
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115 -- as long as the process lives
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    from wardround.cli.terminal.console import start_log

    start_log()
    code = 0
    try:
        ROLES[role](*words)
    except FederationError as error:
        print(f"{error.code}: {error.message} {error.private}", file=sys.stderr)
        code = error.exit_code
    sys.stdout.flush()
    os._exit(code)


def main() -> None:
    for name in LOADED:
        importlib.import_module(name)
    print("ready", flush=True)
    born: set[int] = set()
    for line in sys.stdin:
        verb, *words = json.loads(line)
        if verb == "start":
            number = os.fork()
            if number == 0:
                _become(words[0], words[1], words[2:])
            born.add(number)
            print(number, flush=True)
            continue
        found, status = os.waitpid(int(words[0]), 0 if verb == "wait" else os.WNOHANG)
        born.discard(found)
        print(os.waitstatus_to_exitcode(status) if found else RUNS, flush=True)
    # Whoever gave the orders has ended.
    for number in born:
        os.kill(number, signal.SIGKILL)
        os.waitpid(number, 0)


class Nursery:
    """The process, from outside, with a library that the system loads into it and into whom it forks."""

    def __init__(self, library: Path | None = None) -> None:
        words = [sys.executable, "-m", "tests.endurance.schedules.nursery"]
        loaded = {} if library is None else {"LD_PRELOAD": str(library)}
        self._process = subprocess.Popen(
            words,
            cwd=ROOT,
            env=os.environ | loaded,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self._guard = threading.Lock()
        assert self._heard() == "ready"

    def start(self, role: str, log: Path, *words: object) -> Born:
        return Born(self, int(self.told("start", role, str(log), *map(str, words))))

    def told(self, *words: object) -> str:
        """What it says to one order."""
        assert self._process.stdin is not None
        with self._guard:
            print(json.dumps(words), file=self._process.stdin, flush=True)
            return self._heard()

    def close(self) -> None:
        # At the end of its orders it ends, and whom it has forked with it.
        self._process.communicate()

    def _heard(self) -> str:
        assert self._process.stdout is not None
        heard = self._process.stdout.readline().strip()
        assert heard, "the nursery has ended"
        return heard


class Born:
    """A forked process, with the part of `subprocess.Popen` that the stage uses."""

    def __init__(self, nursery: Nursery, number: int) -> None:
        self._nursery, self.pid = nursery, number
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._ended("poll")

    def wait(self, timeout: float | None = None) -> int | None:
        del timeout
        return self._ended("wait")

    def send_signal(self, number: int) -> None:
        # Of those that have ended and were not asked for, the number is still theirs.
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(9)

    def _ended(self, verb: str) -> int | None:
        if self.returncode is None and (said := self._nursery.told(verb, self.pid)) != RUNS:
            self.returncode = int(said)
        return self.returncode


if __name__ == "__main__":
    main()
