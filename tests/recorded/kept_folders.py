"""A federation of an earlier version, opened again: its own ledgers, keys and tables, in this process.

Without the wire, because certificates expire and a test must not: everything else is what `serve` opens.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import tarfile
from collections.abc import Iterator
from pathlib import Path

from coordinator.members.folder import open_folder as open_coordinator
from coordinator.rounds.coordinator import Coordinator
from coordinator.serving.serve import served_ledger
from protos.words import stored_task
from site_agent.answering.pipeline import Pipeline
from site_agent.serving.agent import Agent
from site_agent.serving.folder import open_folder as open_site
from site_agent.serving.open_dataset import site_dataset
from site_agent.store.ledger import SiteLedger, utc_today
from tests.cli.calling import call
from tests.fixtures.asking import ADA
from tests.integration.stage import AGES, PATIENTS
from tests.recorded.make_folders import CORRELATION, FOLDERS, REQUEST, SUMS
from tests.recorded.recording import Document, Json
from wardround.analyst.asking.client import Client
from wardround.analyst.learning.request import parse_request
from wardround.analyst.link.signing import Signer
from wardround.simulation.federation import DirectAnalystLink, DirectLink
from wardround.simulation.noise import ZeroNoise
from wardround.simulation.pumped import DrivenAttendant, PumpedClock

ROLES = ("consortium", "one", "two", "three")
ANALYST = "ada"
ANSWERED = (PATIENTS, AGES, SUMS, CORRELATION)
SHARP = 150.0


def names() -> list[str]:
    """The versions of which folders are kept."""
    return sorted(file.name.removesuffix(".tar.xz") for file in FOLDERS.glob("*.tar.xz"))


def unpacked(name: str, folder: Path) -> Path:
    with tarfile.open(FOLDERS / f"{name}.tar.xz") as archive:
        # Python 3.11 has the filter since its fourth correction only; Debian 12 ships the second.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        for member in archive:
            archive.extract(member, folder)
    for file in folder.rglob("*"):
        file.chmod(0o700 if file.is_dir() else 0o600)
    return folder


class Reopened:
    """Coordinator and hospitals over folders that another version left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ledger = served_ledger(open_coordinator(folder / "consortium"))
        self.coordinator = Coordinator(ledger, clock=PumpedClock(self._turn), attendant=DrivenAttendant())
        self.agents = {name: self._agent(name) for name in ROLES[1:]}
        self.client = Client(DirectAnalystLink(self.coordinator, ANALYST), signer=Signer(ANALYST, lambda: ADA))

    def _agent(self, name: str) -> Agent:
        place = open_site(self.folder / name)
        configuration, study = place.configuration(), place.study()
        ledger = SiteLedger(place.ledger, identity=place.identity())
        ledger.rewrite_messages(stored_task)
        ledger.attest_rows()
        ledger.set_cap(configuration.policy.cap)
        pipeline = Pipeline(
            configuration.name,
            study,
            configuration.policy,
            place.coordinator().identity,
            ledger,
            site_dataset(place, configuration, study),
            ZeroNoise(),
            utc_today,
            key=place.row_key(),
        )
        return Agent(pipeline, ledger, DirectLink(self.coordinator, name))

    def _turn(self) -> bool:
        worked = [agent.step(wait_seconds=0.0) for name, agent in self.agents.items() if name != "one"]
        return any(worked)

    def close(self) -> None:
        self.coordinator.close()
        for agent in self.agents.values():
            agent.ledger.close()


@contextlib.contextmanager
def reopened(folder: Path) -> Iterator[Reopened]:
    found = Reopened(folder)
    try:
        yield found
    finally:
        found.close()


def document(name: str, folder: Path) -> Document:
    """All that can be read from the folders: entries, verdicts, stored answers, what left each hospital, the budget."""
    place = unpacked(name, folder)
    told: dict[str, Json] = {}
    for role in ROLES:
        told[f"{role}: verified"] = _called("ledger", "verify", place / role)
        told[f"{role}: entries"] = _entries(place / role)
    with reopened(place) as found:
        for question in ANSWERED:
            told[f"asked again: {question}"] = found.client.ask(question, epsilon=SHARP).document()
        trained = found.client.train(parse_request(REQUEST))
        told["trained again"] = trained.document()
        told["budget"] = found.client.budget().document()
    for role in ROLES[1:]:
        told[f"{role}: history"] = _called("site", "history", place / role)
        told[f"{role}: requests"] = _called("site", "requests", place / role)
    return told


def _called(*words: object) -> Json:
    done = call(*words, "--json")
    return [done.code, json.loads(done.out)]


def _entries(folder: Path) -> Json:
    with contextlib.closing(sqlite3.connect(folder / "ledger.sqlite")) as ledger:
        rows = ledger.execute("SELECT sequence, kind, body FROM entries ORDER BY sequence").fetchall()
    return [[sequence, kind, json.loads(body)] for sequence, kind, body in rows]
