"""A federation under attack: a coordinator with few descriptors, attackers in processes of their own, and a victim."""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from coordinator.members.enrolment import issue_profile
from coordinator.members.folder import CoordinatorFolder
from protos.calls import AnalystCalls
from protos.channels import channel
from protos.tls import TlsKeys
from tests.fixtures.processes import opened
from tests.integration.stage import PATIENCE_SECONDS, Federation, now
from tests.protos.fairness import Event, times_waited
from wardround.federation.errors import DeadlinePassed, PeerUnreachable
from wardround.federation.strict_toml import split_address
from wardround.federation.trust.enrolment import read_profile

HERE = Path(__file__).parent
VICTIM = "ada"


@dataclass
class Siege:
    """The federation, and how many descriptors its coordinator may have."""

    federation: Federation
    descriptors: int
    tell: Callable[[str], None] = print
    runs: int = field(default=0)

    @property
    def notes(self) -> Path:
        return self.federation.folder / f"turns{self.runs}"

    def configure(self, line: str) -> None:
        with (self.federation.consortium / "coordinator.toml").open("a", encoding="utf-8") as stream:
            stream.write(f"{line}\n")

    def start(self) -> None:
        """Start the coordinator as a shell does after `ulimit -n`."""
        self.runs += 1
        script = [sys.executable, str(HERE / "watched_coordinator.py"), str(self.federation.consortium)]
        limited = ["bash", "-c", f'ulimit -n {self.descriptors} && exec "$@"', "-", *script, str(self.notes)]
        self.federation.spawn("consortium", limited)
        self.federation.await_coordinator()

    def events(self) -> list[Event]:
        """Whose call waited and whose was taken up, in that order, since the last start."""
        lines = self.notes.read_text(encoding="utf-8").splitlines()
        return [(kind, name) for kind, _, name in (line.partition(" ") for line in lines)]

    def check_alive(self) -> None:
        """Nothing ended, and the coordinator stays below its limit."""
        process = self.federation.running["consortium"]
        assert process.poll() is None, self.federation.log("consortium")
        assert len(opened(process.pid)) < self.descriptors

    def analyst(self, name: str) -> Path:
        """The profile of one more analyst."""
        path = self.federation.profile(name)
        if not path.exists():
            issue_profile(CoordinatorFolder(self.federation.consortium), name, path, now=now())
        return path

    @contextlib.contextmanager
    def silent(self, note: str, count: int, *, again: bool = False) -> Iterator[None]:
        """So many connections without a word to the port whose address is in the file `note`."""
        address = (self.federation.consortium / note).read_text(encoding="utf-8").strip()
        host, port = split_address(address)
        with self._attacker("silent_process.py", host, port, count, *(["again"] if again else [])):
            yield

    @contextlib.contextmanager
    def flood(self, name: str, *, connections: int = 1, streams: int = 40) -> Iterator[None]:
        """Calls at full speed by one analyst."""
        with self._attacker("calling_process.py", self.analyst(name), connections, streams) as said:
            yield
        self.tell(f"    {name}: {said[0].strip()}")

    @contextlib.contextmanager
    def _attacker(self, script: str, *words: object) -> Iterator[list[str]]:
        """What it says in the end is put into the list."""
        command = [sys.executable, str(HERE / script), *map(str, words)]
        said: list[str] = []
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline(), f"{script} did not begin"
                yield said
                said.append(process.communicate(timeout=PATIENCE_SECONDS)[0])
            finally:
                process.kill()

    @contextlib.contextmanager
    def victim(self) -> Iterator[Victim]:
        profile = read_profile(self.federation.profile(VICTIM))
        keys = TlsKeys(profile.key.encode(), profile.certificate.encode(), profile.authority.encode())
        with channel(profile.address, keys) as connection:
            yield Victim(self, AnalystCalls(connection))


@dataclass
class Victim:
    """An analyst who asks one thing after another over one connection."""

    siege: Siege
    calls: AnalystCalls

    def arrives(self) -> None:
        """Call until the first call is answered: others may have every connection for a while."""
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                self.calls.study_text()
            except (PeerUnreachable, DeadlinePassed):
                assert time.monotonic() < until, "the victim never got a connection"
                time.sleep(0.1)
            else:
                return

    def calls_on(self, what: str, *, times: int) -> None:
        """Call so often; every call is answered, and the median of what they took is printed."""
        taken = []
        for _ in range(times):
            began = time.perf_counter()
            self.calls.study_text()
            taken.append(time.perf_counter() - began)
        self.siege.check_alive()
        median, worst = statistics.median(taken), max(taken)
        self.siege.tell(f"  {what}: {len(taken)} calls, median {1000 * median:.1f} ms, longest {1000 * worst:.0f} ms")

    def waits(self, times: int) -> None:
        """Call until it had to wait so often: on a busy machine flooders of the lowest priority may do little."""
        until = time.monotonic() + 2 * PATIENCE_SECONDS
        while times_waited(self.siege.events(), VICTIM) < times:
            assert time.monotonic() < until, "nobody floods"
            for _ in range(100):
                self.calls.study_text()
