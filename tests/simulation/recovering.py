"""A federation over real folders whose roles are restored from copies, recovered and asked again, in one process.

A coordinator and its sites are what `serve` opens, without the wire: a link greets, recalls and answers by calls, and
greets again when its coordinator came back. Noise is drawn as in a hospital, so bytes that are drawn twice are seen.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from coordinator.members.folder import back_up as back_up_coordinator
from coordinator.members.folder import open_folder
from coordinator.members.recovering import recover
from coordinator.members.roster import Roster
from coordinator.rounds.coordinator import Coordinator
from coordinator.rounds.returning import Returning
from coordinator.store.ledger import open_ledger
from coordinator.store.recovery import Confirmed
from site_agent.answering.admission import Approval
from site_agent.answering.pipeline import Pipeline
from site_agent.serving.agent import Agent
from site_agent.serving.backup import back_up as back_up_site
from site_agent.serving.folder import SiteFolder
from site_agent.store.ledger import SiteLedger
from tests.fixtures.asking import ADA
from tests.roles.enrolled import NOW, found, hospital
from tests.site_agent.lone_site import STUDY, Rows
from wardround.analyst.asking.client import Client
from wardround.analyst.link.signing import Signer
from wardround.federation.errors import FederationError
from wardround.federation.ledger.sqlite_file import Durability
from wardround.federation.ledger.verify.verify import verify
from wardround.federation.plan.recalled import Recalled
from wardround.federation.plan.task import SignedTask, Submission
from wardround.federation.trust.enrolment import Presenting, Standing
from wardround.federation.trust.entry import Entry, Head
from wardround.privacy.mechanisms.randomness import SecureChance
from wardround.simulation.federation import DirectAnalystLink
from wardround.simulation.pumped import DrivenAttendant, PumpedClock

TRUTH = {"one": 1, "two": 10, "three": 100}
COUNT = "SELECT COUNT(*) FROM visits"
AGES = "SELECT HISTOGRAM(age, 20) FROM visits"
CAP = "epsilon = 400.0"
WIDE = STUDY.replace("epsilon = 4.0", CAP).replace("overlap = 1", "overlap = 1\nmin_sites = 2\ndeadline_seconds = 60")


@dataclass
class Link:
    """One site's way to whatever coordinator there is now."""

    stage: Restored
    site: str
    greeted: Coordinator | None = None

    @property
    def _to(self) -> Coordinator:
        return self.stage.coordinator

    def claim(self, *, wait_seconds: float, receipt: Entry | None = None) -> SignedTask | None:
        return self._to.claim(self.site, wait_seconds=wait_seconds, receipt=receipt)

    def show(self, chain: Sequence[Entry]) -> None:
        self._to.show(self.site, tuple(chain))

    def submit(self, submission: Submission) -> Entry | None:
        return self._to.submit(self.site, submission)

    def rejoin(self, chain: Sequence[Entry], recalled: Iterable[Recalled], head: Head) -> None:
        for start in range(0, len(chain), 4):
            self._to.show(self.site, tuple(chain[start : start + 4]))
        for each in recalled:
            self.stage.step(f"{self.site} recalls")
            self._to.recall(self.site, each)
        self.stage.step(f"{self.site} rejoins")
        self._to.rejoin(self.site, head)
        self.stage.step(f"{self.site} has rejoined")

    def upkeep(self, receipt: Entry | None = None) -> Standing | None:
        if self.greeted is self._to:
            return None
        standing = self._to.greet(self.site, Presenting(None, receipt))
        self.greeted = self._to
        return standing

    def greet_again(self) -> None:
        self.greeted = None

    def close(self) -> None:
        pass


class Killed(BaseException):
    """A process ends here."""


@dataclass
class ToCoordinator:
    """What a coordinator gives back to a site, page by page as over the wire, until the site's process is killed."""

    coordinator: Coordinator
    site: str
    kill_at: int = 0
    calls: int = 0

    def _call(self) -> Returning:
        self.calls += 1
        if self.calls == self.kill_at:
            raise Killed
        return self.coordinator.returning

    def returned_chain(self, *, after: int) -> tuple[Entry, ...]:
        return self._call().chain(self.site, after=after, most=3)

    def returned_plan(self, plan_id: str) -> tuple[SignedTask, bytes]:
        return self._call().plan(self.site, plan_id, first_byte=0, most=2**20)

    def reserved(self) -> Iterator[str]:
        last = ""
        while page := self._call().reserved(self.site, after=last, most=2):
            yield from page
            last = page[-1]


@dataclass
class Restored:
    """The federation; `errors` are what sites met, `kill_at` is the step of a recovery at which the process ends."""

    folder: Path
    study: str = WIDE
    away: set[str] = field(default_factory=set)
    stewards: set[str] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    kill_at: int | None = None
    agents: dict[str, Agent] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.date = 1000.0
        begun = (self.folder / "consortium").exists()
        if not begun:
            consortium = found(self.folder / "consortium", study=self.study)
            for name in TRUTH:
                place = hospital(consortium, name).path / "site.toml"
                place.write_text(place.read_text().replace("epsilon = 4.0", CAP))
        self.serve()
        if not begun:
            Roster(self.coordinator.ledger).add_analyst("ada")
        for name in TRUTH:
            self.open_site(name)

    def clone(self, folder: Path) -> Restored:
        """The same federation once more, as its folders are now; close this one first."""
        shutil.copytree(self.folder, folder)
        return Restored(folder, stewards=self.stewards)

    # --- processes ------------------------------------------------------------------------------------------

    def serve(self) -> None:
        place = open_folder(self.folder / "consortium")
        ledger = open_ledger(place.path, study=place.study(), identity=place.identity(), keeping=Durability.FILE)
        self.clock = PumpedClock(self.turn, date=self.date)
        self.coordinator = Coordinator(ledger, clock=self.clock, attendant=DrivenAttendant())
        self.coordinator.resume()

    def open_site(self, name: str) -> None:
        site = SiteFolder(self.folder / name)
        configuration, study = site.configuration(), site.study()
        ledger = SiteLedger(site.ledger, identity=site.identity(), keeping=Durability.FILE)
        ledger.set_cap(configuration.policy.cap)
        approval = Approval.MANUAL if name in self.stewards else Approval.AUTOMATIC
        policy = replace(configuration.policy, approval=approval)
        key, rows = site.coordinator().identity, Rows(total=TRUTH[name])
        pipeline = Pipeline(name, study, policy, key, ledger, rows, SecureChance(), NOW.date)
        self.agents[name] = Agent(pipeline, ledger, Link(self, name))

    def turn(self) -> bool:
        """Every site that is not away takes one turn, as its loop would."""
        turns = [self._turn(name) for name in self.agents if name not in self.away]
        return any(turns)

    def _turn(self, name: str) -> bool:
        agent = self.agents[name]
        try:
            agent.meet()
            agent.run_approved()
            return agent.step(wait_seconds=0.0)
        except FederationError as error:
            self.errors.append(f"{name}: {error.code}")
            agent.link.greet_again()
            return False

    def settle(self) -> None:
        """Until nobody has anything to do."""
        for _ in range(20):
            if not self.turn():
                return

    def conclude(self) -> None:
        """Let the rounds that are settled have their answers."""
        for plan_id in self.coordinator._rounds.plans():
            self.coordinator._attendant.drive(plan_id)

    def step(self, name: str) -> None:
        self.steps.append(name)
        if self.kill_at == len(self.steps):
            raise Killed(name)

    def close(self) -> None:
        for agent in self.agents.values():
            agent.ledger.close()
        self.coordinator.close()

    # --- copies ---------------------------------------------------------------------------------------------

    def copy(self, name: str) -> Path:
        """A copy of a role, as its backup command makes one."""
        copies = self.folder / "copies"
        copies.mkdir(exist_ok=True)
        out = copies / f"{name}-{len(list(copies.iterdir()))}"
        back_up = back_up_coordinator if name == "consortium" else back_up_site
        back_up(self.folder / name, out, now=NOW, report=lambda _, __: None)
        return out

    def restore(self, name: str, copy: Path) -> None:
        """Lose a role's folder, and put this copy in its place."""
        if name == "consortium":
            self.date = self.clock.date()
            self.coordinator.close()
            self.errors.clear()
        else:
            self.agents.pop(name).ledger.close()
        shutil.rmtree(self.folder / name)
        shutil.copytree(copy, self.folder / name)

    def recover(
        self,
        *sites: str,
        without: tuple[str, ...] = (),
        analysts: tuple[str, ...] = ("ada",),
        expecting: tuple[str, ...] = (),
    ) -> None:
        """Recover the coordinator with these sites, or all that are active, and serve it until all are back."""
        recover(self.folder / "consortium", Confirmed(sites or tuple(TRUTH), without, analysts))
        self.serve()
        self.settle()
        # Whoever is back before the others waits for them.
        assert [error for error in self.errors if ": Unavailable" not in error] == list(expecting)

    def kill(self) -> None:
        """End the coordinator's process, and start another one."""
        self.kill_at = None
        self.date = self.clock.date()
        self.coordinator.ledger.close()
        self.serve()

    # --- questions ------------------------------------------------------------------------------------------

    def client(self, analyst: str = "ada") -> Client:
        return Client(DirectAnalystLink(self.coordinator, analyst), signer=Signer(analyst, lambda: ADA))

    def ask(self, sql: str = COUNT, *, epsilon: float = 0.5, analyst: str = "ada", fresh: bool = False) -> float:
        """The first number of the answer."""
        estimate = self.client(analyst).ask(sql, epsilon=epsilon, fresh=fresh, limit_seconds=1000).estimates[0]
        assert estimate.value is not None
        return estimate.value

    # --- what must hold -------------------------------------------------------------------------------------

    def rows(self, name: str, statement: str) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(self.folder / name / "ledger.sqlite")) as connection:
            return connection.execute(statement).fetchall()

    def bodies(self, name: str, kind: str) -> list[dict[str, object]]:
        found = self.rows(name, f"SELECT body FROM entries WHERE kind = '{kind}' ORDER BY sequence")
        return [json.loads(str(body)) for (body,) in found]

    def charged(self, site: str) -> dict[str, tuple[object, ...]]:
        """What each plan cost at a site, by its own ledger."""
        return {str(body["plan_id"]): _amounts(body) for body in self.bodies(site, "charged")}

    def known(self, site: str) -> dict[str, tuple[object, ...]]:
        """The same by the coordinator's ledger: reserved or imported, and not given back."""
        given_back = {str(body["plan_id"]) for body in self.bodies("consortium", "voided") if body["site"] == site}
        held = {
            str(body["plan_id"]): _amounts(body)
            for body in self.bodies("consortium", "reserved")
            if site in body["sites"] and str(body["plan_id"]) not in given_back  # type: ignore[operator]
        }
        for body in self.bodies("consortium", "imported"):
            if body["site"] == site and body["facts"] and str(body["plan_id"]) not in given_back:
                assert body["plan_id"] not in held
                held[str(body["plan_id"])] = _amounts(body)
        return held

    def check(self, *, missing: Sequence[str] = ()) -> None:
        """Every ledger is valid, nobody is frozen, and the coordinator knows whatever was charged."""
        for name in ("consortium", *TRUTH):
            verdict = verify(self.folder / name)
            assert (verdict.problems, verdict.unattested) == ((), ()), name
        for site in TRUTH:
            assert self.rows(site, "SELECT 1 FROM entries WHERE kind = 'frozen'") == []
            if site in missing:
                continue
            charged, known = self.charged(site), self.known(site)
            assert {plan: known.get(plan) for plan in charged} == charged, site
            stored = dict(self.rows(site, "SELECT plan_id, payload FROM releases"))
            taken = f"SELECT plan_id, payload FROM submissions WHERE site = '{site}' AND code = ''"
            assert dict(self.rows("consortium", taken)).items() <= stored.items()


def _amounts(body: dict[str, object]) -> tuple[object, ...]:
    return body["mu_squared"], body["pure"], body["slack"]
