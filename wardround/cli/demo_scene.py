"""A consortium and its hospitals on loopback: the same commands that they would run, in separate processes.

Mutual TLS and durable ledgers, as everywhere; only the patients are synthetic.
"""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from wardround.cli.terminal.console import Document
from wardround.federation.errors import PeerUnreachable, Refused
from wardround.federation.strict_toml import split_address
from wardround.simulation.synthetic import PATIENTS, STUDY, hospital_sizes, write_hospital

SEED = 20260101
START_SECONDS = 60.0
STOP_SECONDS = 20.0

SITE = """\
[site]
name = "{name}"
patients = {patients}
dataset = "heart-clinic-2026"

[tables.encounters]
source = "encounters.csv"

[tables.patients]
source = "patients.csv"

[policy]
epsilon = 3.0
delta = 1e-6
max_epsilon_per_plan = 3.0
statistics = ["count", "sum", "mean", "variance", "std", "histogram", "quantile", "below", "chi_square", "correlation",
              "regression", "survival", "choice", "keys", "training"]
approval = "automatic"
"""

Tell = Callable[[str], None]


@dataclass
class DemoScene:
    """The demo's folder and the processes that run in it."""

    folder: Path
    tell: Tell
    study: str = STUDY
    site: str = SITE
    patients: int = PATIENTS
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def begin(self, sites: int) -> list[str]:
        """Make the consortium and its hospitals and start them all."""
        self.tell("Making the consortium: certificate authority, signing key, study ...")
        (self.folder / "study.toml").write_text(self.study, encoding="utf-8")
        self.run("coordinator", "init", "consortium", "--study", "study.toml")
        self.start("coordinator", "serve", "consortium", log="consortium.log")
        self._await_coordinator()
        sizes = hospital_sizes(sites, patients=self.patients)
        for name, patients in sizes.items():
            place = self.folder / name
            place.mkdir(mode=0o700)
            rows = write_hospital(place, hospital=name, patients=patients, seed=SEED)
            self.tell(f"  {name}: {patients} synthetic patients, {rows.encounters} encounters; enrolling ...")
            (self.folder / f"{name}.toml").write_text(self.site.format(name=name, patients=patients), encoding="utf-8")
            self.run("coordinator", "invite", "consortium", name, "--out", f"{name}.invitation")
            self.run("site", "init", name, "--invite", f"{name}.invitation", "--config", f"{name}.toml", "--yes")
            self.start("site", "serve", name, log=f"{name}.log")
        self.run("coordinator", "analyst", "consortium", "analyst", "--out", "analyst.profile")
        return list(sizes)

    def run(self, *words: str) -> bytes:
        """One command to its end; its first complaint becomes ours."""
        done = subprocess.run(_command(words), cwd=self.folder, capture_output=True, check=False)  # noqa: S603
        if done.returncode != 0:
            raise Refused(f"`wardround {' '.join(words)}` failed: {done.stderr.decode(errors='replace').strip()}")
        return done.stdout

    def start(self, *words: str, log: str) -> None:
        """One process that stays, its log beside it."""
        with (self.folder / log).open("ab") as stream:
            self.running.append(
                subprocess.Popen(_command(words), cwd=self.folder, stdout=stream, stderr=stream)  # noqa: S603
            )

    def verify(self, name: str) -> Document:
        """The ledger of one role, checked by the command an auditor would use."""
        found: dict[str, object] = json.loads(self.run("ledger", "verify", name, "--json"))
        self.tell(f"  {name:<16} {'valid' if found['valid'] else 'INVALID'}: {found['entries']} entries")
        return found

    def _await_coordinator(self) -> None:
        host, port = split_address((self.folder / "consortium" / "address").read_text(encoding="utf-8").strip())
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and self.running[0].poll() is None:
            with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1.0):
                return
            time.sleep(0.05)
        raise PeerUnreachable(f"the coordinator did not start; see {self.folder / 'consortium.log'}.")

    def stop(self) -> None:
        """End every process, kindly first."""
        for process in self.running:
            process.terminate()
        for process in self.running:
            try:
                process.wait(timeout=STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.running.clear()


def _command(words: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "wardround", *words]


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[None]:
    """A terminated demo still stops what it started."""

    def leave(number: int, frame: FrameType | None) -> None:
        del frame
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
