"""`wardround demo`: a real federation on loopback, seen through once.

Everything is what a consortium and its hospitals would run: the same commands in separate processes,
mutual TLS, durable ledgers. Only the patients are synthetic. It ends by itself and leaves nothing running.
"""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from wardround.analyst.asking.client import Client, connect
from wardround.analyst.learning.request import TrainingRequest
from wardround.analyst.showing.documents import error_document
from wardround.cli.console import Document
from wardround.federation.errors import BudgetExceeded, ConfigurationMistaken, PeerUnreachable, Refused
from wardround.federation.models.training import ModelKind
from wardround.federation.strict_toml import split_address
from wardround.simulation.synthetic import PATIENTS, STUDY, hospital_sizes, write_encounters

SEED = 20260101
START_SECONDS = 60.0
STOP_SECONDS = 20.0

QUESTIONS = (
    (
        "Encounters and mean cost per diagnosis",
        "SELECT diagnosis, COUNT(*), AVG(cost) FROM encounters GROUP BY diagnosis",
        0.5,
    ),
    (
        "Systolic pressure from forty on: mean, spread and median",
        "SELECT AVG(sbp), STDDEV(sbp), MEDIAN(sbp) FROM encounters WHERE age >= 40",
        0.3,
    ),
    ("How pressure rises with age", "SELECT REGRESS(sbp, age) FROM encounters", 0.5),
    ("Positive tests by month", "SELECT month, COUNT(*) FROM encounters WHERE positive GROUP BY month", 0.4),
    ("How many patients there are", "SELECT COUNT(DISTINCT patient_id) FROM encounters", 0.2),
)
MODEL = TrainingRequest(
    kind=ModelKind.LOGISTIC,
    table="encounters",
    target="positive",
    features=("age", "sex", "sbp", "diagnosis"),
    epsilon=1.0,
)
TOO_MUCH = ("SELECT sex, COUNT(*) FROM encounters GROUP BY sex", 2.9)

SITE = """\
[site]
name = "{name}"
patients = {patients}
dataset = "encounters-2026"

[tables.encounters]
source = "encounters.csv"

[policy]
epsilon = 3.0
delta = 1e-6
max_epsilon_per_plan = 3.0
statistics = ["count", "sum", "mean", "std", "quantile", "regression", "training"]
approval = "automatic"
"""

Tell = Callable[[str], None]


def run_demo(*, sites: int, keep: Path | None, tell: Tell) -> Document:
    """Run the demo and return what happened as a document."""
    if keep is not None and keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise ConfigurationMistaken(f"{keep} exists and is not empty; name a new folder for --keep.")
    with contextlib.ExitStack() as stack:
        stack.enter_context(_stopped_by_signals())
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wardround-demo-")))
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationMistaken(f"{folder} cannot be made: {error.strerror}.") from None
        stage = DemoScene(folder, tell)
        stack.callback(stage.stop)
        return _play(stage, sites=sites, keep=keep)


def _play(stage: DemoScene, *, sites: int, keep: Path | None) -> Document:
    tell = stage.tell
    names = stage.begin(sites)
    with connect(stage.folder / "analyst.profile") as federation:
        answers = [_ask(federation, tell, title, sql, epsilon) for title, sql, epsilon in QUESTIONS]
        model = _train(federation, tell, under=None if keep is None else keep / "models")
        refused = _ask_too_much(federation, tell)
        title, sql, epsilon = QUESTIONS[0]
        tell(f"\n── Asked again: {title.lower()} ──")
        again = federation.ask(sql, epsilon=epsilon)
        same = again.document()["estimates"] == answers[0]["estimates"]
        tell(f"The stored answer came back ({'identical' if same else 'DIFFERENT'}) and cost nothing.")
        tell("\n── The privacy report ──")
        report = federation.budget()
        tell(str(report))
    stage.stop()
    tell("\n── The ledgers, verified offline ──")
    ledgers = {name: stage.verify(name) for name in ("consortium", *names)}
    where = f"Everything is kept in {keep}." if keep else "Everything was deleted; keep it next time with --keep DIR."
    tell(f"\n{where}\nNext: README.md for a first question of your own, docs/site.md to run a hospital's agent,")
    tell("docs/coordinator.md to run a study, docs/learning.md to train a model,")
    tell("`wardround simulate --help` to try your own tables.")
    return {
        "sites": names,
        "answers": answers,
        "model": model,
        "refused": refused,
        "replayed": again.document(),
        "budget": report.document(),
        "ledgers": ledgers,
        "kept": None if keep is None else str(keep),
    }


def _ask(federation: Client, tell: Tell, title: str, sql: str, epsilon: float) -> Document:
    tell(f"\n── {title} ──\n{sql}   [ε = {epsilon:g}]")
    result = federation.ask(sql, epsilon=epsilon)
    tell(str(result))
    return result.document()


def _train(federation: Client, tell: Tell, *, under: Path | None) -> Document:
    features = ", ".join(MODEL.features)
    tell(f"\n── A model: who tests positive ──\n{MODEL.kind} {MODEL.target} from {features}   [ε = {MODEL.epsilon:g}]")
    result = federation.train(MODEL, under=under)
    tell(str(result))
    return result.document()


def _ask_too_much(federation: Client, tell: Tell) -> Document:
    sql, epsilon = TOO_MUCH
    tell(f"\n── A question that asks too much ──\n{sql}   [ε = {epsilon:g}]")
    try:
        federation.ask(sql, epsilon=epsilon)
    except BudgetExceeded as refusal:
        tell(f"Refused: {refusal.message}")
        return error_document(refusal)
    raise Refused("The over-budget question was answered; the demo stops here.")


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
            rows = write_encounters(place / "encounters.csv", hospital=name, patients=patients, seed=SEED)
            self.tell(f"  {name}: {patients} synthetic patients, {rows} encounters; enrolling ...")
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
def _stopped_by_signals() -> Iterator[None]:
    """A terminated demo still stops what it started."""

    def leave(number: int, frame: FrameType | None) -> None:
        del frame
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
