"""A federation whose network loses, doubles, delays, reorders and replays calls, and sites that try again.

Three sites with true counts 1, 10 and 100 and no noise: 111 is all of them, 101 is without site two, and 121 would
be site two counted twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from site_agent.serving.agent import Agent, CoordinatorLink
from tests.site_agent.lone_site import STUDY, Rows
from wardround.federation.errors import (
    DeadlinePassed,
    FederationError,
    InvariantBroken,
    MalformedMessage,
    PeerUnreachable,
    SiteFrozen,
)
from wardround.federation.ledger.verify.verify import verify
from wardround.federation.plan.recalled import Recalled
from wardround.federation.plan.task import SignedTask, Submission
from wardround.federation.study.study_file import parse_study
from wardround.federation.trust.enrolment import Standing
from wardround.federation.trust.entry import Entry, Head
from wardround.simulation.federation import SimulatedFederation, SimulatedSite
from wardround.simulation.noise import ZeroNoise

TRUTH = {"one": 1, "two": 10, "three": 100}
DEADLINE_SECONDS = 60.0


class Fault(StrEnum):
    """What happens to one call."""

    LOST_REQUEST = "the request never arrives"
    LOST_REPLY = "the reply never arrives"
    TIMED_OUT = "the caller gives up before the request is sent"
    GARBLED_REPLY = "the reply cannot be decoded"
    DOUBLED = "the request arrives twice"
    DOUBLED_AND_LOST = "the request arrives twice and no reply does"
    LATE = "the request arrives before the caller's next call"
    VERY_LATE = "the request arrives after the caller's next call"
    LATE_TWICE = "the request arrives now, and again later"
    STALE_REPLY = "the reply to an earlier call arrives instead"
    SLOW_REQUEST = "the request arrives after the deadline"
    SLOW_REPLY = "the reply arrives after the deadline"


@dataclass
class FaultyLink:
    """A link that does to its n-th call what the schedule says."""

    inner: CoordinatorLink
    schedule: Mapping[int, Fault]
    wait: Callable[[float], None]
    calls: int = 0
    names: list[str] = field(default_factory=list)
    before_next: list[Callable[[], object]] = field(default_factory=list)
    after_next: list[Callable[[], object]] = field(default_factory=list)
    replies: dict[str, list[object]] = field(default_factory=dict)

    def claim(self, *, wait_seconds: float, receipt: Entry | None = None) -> SignedTask | None:
        reply = self._call("claim", lambda: self.inner.claim(wait_seconds=0.0))
        assert reply is None or isinstance(reply, SignedTask)
        return reply

    def submit(self, submission: Submission) -> Entry | None:
        reply = self._call("submit", lambda: self.inner.submit(submission))
        assert reply is None or isinstance(reply, Entry)
        return reply

    def show(self, chain: Sequence[Entry]) -> None:
        pass

    def rejoin(self, chain: Sequence[Entry], recalled: Iterable[Recalled], head: Head) -> None:
        """Nobody comes back."""

    def upkeep(self, receipt: Entry | None = None) -> Standing | None:
        return None

    def greet_again(self) -> None:
        pass

    def close(self) -> None:
        pass

    def _call(self, name: str, arrive: Callable[[], object]) -> object:
        fault = self.schedule.get(self.calls)
        self.calls += 1
        self.names.append(name)
        late, self.before_next = self.before_next, []
        later, self.after_next = self.after_next, []
        for waiting in late:
            waiting()
        try:
            return self._suffer(fault, name, arrive)
        finally:
            self.before_next += later

    def _suffer(self, fault: Fault | None, name: str, arrive: Callable[[], object]) -> object:  # noqa: C901 -- one case each
        match fault:
            case None:
                return self._reply(name, arrive)
            case Fault.LOST_REQUEST:
                raise PeerUnreachable
            case Fault.TIMED_OUT:
                raise DeadlinePassed
            case Fault.LOST_REPLY:
                self._reply(name, arrive)
                raise PeerUnreachable
            case Fault.GARBLED_REPLY:
                self._reply(name, arrive)
                raise MalformedMessage
            case Fault.DOUBLED:
                self._reply(name, arrive)
                return self._reply(name, arrive)
            case Fault.DOUBLED_AND_LOST:
                self._reply(name, arrive)
                self._reply(name, arrive)
                raise PeerUnreachable
            case Fault.LATE:
                self.before_next.append(arrive)
                raise PeerUnreachable
            case Fault.VERY_LATE:
                self.after_next.append(arrive)
                raise PeerUnreachable
            case Fault.LATE_TWICE:
                self.before_next.append(arrive)
                self.after_next.append(arrive)
                return self._reply(name, arrive)
            case Fault.STALE_REPLY:
                earlier = self.replies.get(name, [])
                reply = self._reply(name, arrive)
                return earlier[0] if earlier else reply
            case Fault.SLOW_REQUEST:
                self.wait(DEADLINE_SECONDS + 1)
                return self._reply(name, arrive)
            case Fault.SLOW_REPLY:
                reply = self._reply(name, arrive)
                self.wait(DEADLINE_SECONDS + 1)
                return reply

    def _reply(self, name: str, arrive: Callable[[], object]) -> object:
        reply = arrive()
        self.replies.setdefault(name, []).append(reply)
        return reply


@dataclass
class Persistent:
    """An agent that tries again after every fault that is not its own, as the serving loop does."""

    agent: Agent
    patience: int = 100

    @property
    def ledger(self) -> object:
        return self.agent.ledger

    def step(self, *, wait_seconds: float) -> bool:
        try:
            return self.agent.step(wait_seconds=wait_seconds)
        except (InvariantBroken, SiteFrozen):
            raise
        except FederationError:
            self.patience -= 1
            return self.patience > 0


class Oracle(SimulatedFederation):
    """The three sites behind faulty links."""

    def __init__(self, folder: Path, schedules: Mapping[str, Mapping[int, Fault]]) -> None:
        text = STUDY.replace("epsilon = 4.0", "epsilon = 40.0")
        sites = {name: SimulatedSite(Rows(total=count), 1000, noise=ZeroNoise()) for name, count in TRUTH.items()}
        super().__init__(parse_study(text), sites, folder=folder, noiseless=True)
        self.folder = folder
        self.links: dict[str, FaultyLink] = {}
        for name, agent in self.agents.items():
            link = FaultyLink(agent.link, schedules.get(name, {}), self._clock.pass_seconds)
            agent.link = self.links[name] = link
            self.agents[name] = Persistent(agent)  # type: ignore[assignment]
            self._note(folder / name, agent.ledger._identity.save, text)
        self._note(folder, self.coordinator.identity.save, text)

    @staticmethod
    def _note(folder: Path, save: Callable[[Path], None], study: str) -> None:
        """What a folder holds beside its ledger, so that it can be verified."""
        save(folder / "identity.pem")
        (folder / "study.toml").write_text(study, encoding="utf-8")

    def settle(self) -> None:
        """Let everything that is still owed be delivered."""
        for _ in range(10):
            if not self._turn():
                return

    def rows(self, name: str) -> Rows:
        rows = self.agents[name].agent.pipeline.dataset  # type: ignore[attr-defined]
        assert isinstance(rows, Rows)
        return rows

    def kinds(self, name: str) -> list[str]:
        """The kinds of entries in a site's ledger."""
        with self.agents[name].ledger._database.reading() as connection:
            return [row[0] for row in connection.execute("SELECT kind FROM entries ORDER BY sequence")]

    def verify(self) -> None:
        """`ledger verify` finds nothing in any folder."""
        for folder in (self.folder, *(self.folder / name for name in TRUTH)):
            found = verify(folder)
            assert found.valid, (folder.name, found.problems)
