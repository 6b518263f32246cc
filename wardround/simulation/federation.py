"""A whole federation in one process, from the code the roles run: no sockets, no threads, real ledgers.

The coordinator, every site's pipeline and every ledger are the production ones. What differs is the link
(a call instead of gRPC), the waiting (sites take turns instead of time passing) and, for a researcher who
wants to compare with known answers, the noise.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from coordinator.federation import Coordinator
from coordinator.patience import PumpedPatience
from site_agent.agent import Agent
from site_agent.dataset import Dataset
from site_agent.ledger import SiteLedger
from site_agent.pipeline import Pipeline
from site_agent.policy import Approval, Policy
from wardround.analyst.client import Client
from wardround.federation.answer import Answer, AskRequest, BudgetReport, Preview, Progress
from wardround.federation.identity import Identity, Purpose
from wardround.federation.ledger.entry import Entry
from wardround.federation.query import Statistic
from wardround.federation.study import Study
from wardround.federation.task import SignedTask, Submission
from wardround.privacy.chance import Chance, SecureChance

ANALYST = "researcher"


@dataclass(frozen=True, slots=True)
class SimulatedSite:
    """A site of the simulation: its tables, its declared number of patients, its noise and its policy."""

    dataset: Dataset
    patients: int
    noise: Chance | None = None
    policy: Policy | None = None


@dataclass(frozen=True, slots=True)
class DirectLink:
    """The coordinator as a function call away."""

    coordinator: Coordinator
    site: str

    def claim(self, *, wait_seconds: float) -> SignedTask | None:
        """The next task; nobody waits in a simulation."""
        return self.coordinator.claim(self.site, wait_seconds=wait_seconds)

    def submit(self, submission: Submission) -> Entry | None:
        """Hand over an answer."""
        return self.coordinator.submit(self.site, submission)

    def upkeep(self) -> None:
        """Nothing expires here."""

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True, slots=True)
class DirectAnalystLink:
    """The analyst's calls, straight to the coordinator."""

    coordinator: Coordinator

    def ask(self, request: AskRequest) -> str:
        """Open the question."""
        return self.coordinator.ask(ANALYST, request)

    def watch(self, plan_id: str, *, seen: int, wait_seconds: float) -> Progress | Answer:
        """Let the sites work until there is news."""
        return self.coordinator.watch(ANALYST, plan_id, seen=seen, wait_seconds=wait_seconds)

    def preview(self, request: AskRequest) -> Preview:
        """A dry run."""
        return self.coordinator.preview(ANALYST, request)

    def budget(self) -> BudgetReport:
        """The study's budget."""
        return self.coordinator.budget(ANALYST)

    def study(self) -> Study:
        """The study."""
        return self.coordinator.study

    def close(self) -> None:
        """Nothing is open."""


class SimulatedFederation:
    """Coordinator and sites over one folder; `client` asks."""

    def __init__(
        self,
        study: Study,
        sites: Mapping[str, SimulatedSite],
        *,
        folder: Path,
        noiseless: bool = False,
        trusted_total: bool = False,
        durable: bool = False,
    ) -> None:
        self.study = study
        self.agents: dict[str, Agent] = {}
        self._patience = PumpedPatience(self._turn)
        self.coordinator = Coordinator(
            folder,
            study=study,
            identity=Identity.generate(),
            patience=self._patience,
            threads=False,
            durable=durable,
            noiseless=noiseless,
            trusted_total=trusted_total,
        )
        self.coordinator.roster.add_analyst(ANALYST)
        for name, site in sites.items():
            self.agents[name] = self._enrol(name, site, folder / name, durable=durable)
        self.client = Client(DirectAnalystLink(self.coordinator))

    def _enrol(self, name: str, site: SimulatedSite, folder: Path, *, durable: bool) -> Agent:
        folder.mkdir(parents=True, exist_ok=True)
        identity = Identity.generate()
        signature = identity.sign(Purpose.STUDY, bytes.fromhex(self.study.study_hash))
        self.coordinator.roster.enrol_site(
            name=name, identity=identity.public, patients=site.patients, dataset=name, study_signature=signature
        )
        coordinator = self.coordinator.identity.public
        ledger = SiteLedger.create(
            folder,
            identity=identity,
            name=name,
            study_hash=self.study.study_hash,
            dataset=name,
            coordinator_key=coordinator.key,
            durable=durable,
        )
        policy = site.policy or default_policy(self.study)
        ledger.set_cap(policy.cap)
        noise = SecureChance() if site.noise is None else site.noise
        pipeline = Pipeline(
            name, self.study, policy, coordinator, ledger, site.dataset, noise, lambda: datetime.date(2026, 1, 1)
        )
        return Agent(pipeline, ledger, DirectLink(self.coordinator, name))

    def _turn(self) -> bool:
        """Every site takes one turn; whether any of them did something."""
        worked = [agent.step(wait_seconds=0.0) for agent in self.agents.values()]
        return any(worked)

    def close(self) -> None:
        """Close every ledger."""
        self.coordinator.close()
        for agent in self.agents.values():
            agent.ledger.close()


def default_policy(study: Study) -> Policy:
    """A site that allows what the study allows."""
    return Policy(
        cap=study.cap,
        max_epsilon_per_plan=study.cap.epsilon,
        statistics=tuple(Statistic),
        approval=Approval.AUTOMATIC,
    )
