"""A whole federation in one process, from the code the roles run: no sockets, no threads, real ledgers.

The coordinator, every site's pipeline and every ledger are the production ones. What differs is the link
(a call instead of gRPC), the waiting (sites take turns instead of time passing) and, for a researcher who
wants to compare with known answers, the noise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from coordinator.rounds.coordinator import Coordinator
from coordinator.store.ledger import begin_ledger
from site_agent.serving.agent import Agent
from wardround.analyst.asking.client import Client
from wardround.analyst.link.signing import Signer
from wardround.federation.errors import Mistaken
from wardround.federation.ledger.sqlite_file import Durability
from wardround.federation.plan.recalled import Recalled
from wardround.federation.plan.task import AskRequest, SignedTask, Submission
from wardround.federation.question.answer import Answer, Preview, Progress
from wardround.federation.question.study_budget import BudgetReport
from wardround.federation.study.study import Study
from wardround.federation.trust.enrolment import Standing
from wardround.federation.trust.entry import Entry, Head
from wardround.federation.trust.identity import Identity
from wardround.federation.trust.public_limits import PublicSite
from wardround.simulation.processes import SitesElsewhere
from wardround.simulation.pumped import DrivenAttendant, PumpedClock
from wardround.simulation.sites import Ground, Newcomer, SimulatedSite, begin_site, default_policy

__all__ = ["DirectAnalystLink", "SimulatedFederation", "SimulatedSite", "default_policy"]

ANALYST = "researcher"


@dataclass(frozen=True, slots=True)
class DirectLink:
    """The coordinator as a function call away."""

    coordinator: Coordinator
    site: str

    def claim(self, *, wait_seconds: float, receipt: Entry | None = None) -> SignedTask | None:
        return self.coordinator.claim(self.site, wait_seconds=wait_seconds, receipt=receipt)

    def show(self, chain: Sequence[Entry]) -> None:
        self.coordinator.show(self.site, tuple(chain))

    def submit(self, submission: Submission) -> Entry | None:
        return self.coordinator.submit(self.site, submission)

    def rejoin(self, chain: Sequence[Entry], recalled: Iterable[Recalled], head: Head) -> None:
        """Nothing is lost here, unless a test loses it."""
        self.coordinator.show(self.site, tuple(chain))
        for each in recalled:
            self.coordinator.recall(self.site, each)
        self.coordinator.rejoin(self.site, head)

    def upkeep(self, receipt: Entry | None = None) -> Standing | None:  # noqa: ARG002
        """Nothing expires here, and nobody comes back."""
        return None

    def greet_again(self) -> None:
        """Nobody was greeted."""

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True, slots=True)
class DirectAnalystLink:
    """The analyst's calls, straight to the coordinator."""

    coordinator: Coordinator
    analyst: str = ANALYST

    def ask(self, request: AskRequest) -> str:
        return self.coordinator.ask(self.analyst, request)

    def watch(self, plan_id: str, *, seen: int, wait_seconds: float) -> Progress | Answer:
        """Let the sites work until there is news."""
        return self.coordinator.watch(self.analyst, plan_id, seen=seen, wait_seconds=wait_seconds)

    def preview(self, request: AskRequest) -> Preview:
        return self.coordinator.preview(self.analyst, request)

    def sites(self) -> tuple[str, ...]:
        return self.coordinator.sites(self.analyst)

    def hospitals(self) -> tuple[PublicSite, ...]:
        return self.coordinator.hospitals(self.analyst)

    def budget(self) -> BudgetReport:
        return self.coordinator.budget(self.analyst)

    def study(self) -> Study:
        return self.coordinator.study

    def close(self) -> None:
        """Nothing is open."""


class SimulatedFederation:
    """Coordinator and sites over one folder; `client` asks, and `signer` signs for it, by a key in memory.

    `agents` are the sites of this process. With `processes` above 1 the sites are in so many other ones instead,
    for simulations of hundreds of sites; the program that makes one begins with `if __name__ == "__main__":`, as
    Python's multiprocessing asks for.
    """

    def __init__(
        self,
        study: Study,
        sites: Mapping[str, SimulatedSite],
        *,
        folder: Path,
        noiseless: bool = False,
        trusted_total: bool = False,
        processes: int = 1,
    ) -> None:
        if not 1 <= processes <= max(len(sites), 1):
            raise Mistaken(f"processes is {processes}; it must be from 1 to the number of sites, {len(sites)}.")
        # What is only looked at when all is over is not written to a file a thousand times before.
        keeping = Durability.FILE if processes == 1 else Durability.MEMORY
        self.study = study
        self.agents: dict[str, Agent] = {}
        self._elsewhere: SitesElsewhere | None = None
        self._clock = PumpedClock(self._turn)
        self.coordinator = Coordinator(
            begin_ledger(folder, study=study, identity=Identity.generate(), keeping=keeping),
            clock=self._clock,
            attendant=DrivenAttendant(),
            noiseless=noiseless,
            trusted_total=trusted_total,
        )
        self._ground = Ground(study, self.coordinator.identity.public, folder, keeping)
        own = Identity.generate()
        self.signer = Signer(ANALYST, lambda: own)
        self.client = Client(DirectAnalystLink(self.coordinator), signer=self.signer)
        self.coordinator.roster.add_analyst(ANALYST)
        try:
            self._begin(sites, processes)
        except BaseException:
            self.close()
            raise

    def _begin(self, sites: Mapping[str, SimulatedSite], processes: int) -> None:
        if processes == 1:
            for name, site in sites.items():
                self.enrol(name, site)
            return
        self._elsewhere = SitesElsewhere(sites, self._ground, processes=processes)
        for newcomer in self._elsewhere.newcomers():
            self._welcome(newcomer)

    def enrol(self, name: str, site: SimulatedSite) -> None:
        """One more site, in this process."""
        self.agents[name], newcomer = begin_site(name, site, DirectLink(self.coordinator, name), self._ground)
        self._welcome(newcomer)

    def _welcome(self, newcomer: Newcomer) -> None:
        self.coordinator.roster.enrol_site(
            name=newcomer.name,
            identity=newcomer.identity,
            patients=newcomer.patients,
            dataset=newcomer.name,
            study_signature=newcomer.study_signature,
        )
        self.coordinator.note_limits(newcomer.name, newcomer.limits)

    def _turn(self) -> bool:
        """Every site takes one turn; whether any of them did something."""
        worked = [agent.step(wait_seconds=0.0) for agent in self.agents.values()]
        if self._elsewhere is not None:
            worked.append(self._elsewhere.turn(self.coordinator))
        return any(worked)

    def close(self) -> None:
        self.coordinator.close()
        for agent in self.agents.values():
            agent.ledger.close()
        if self._elsewhere is not None:
            self._elsewhere.close()
