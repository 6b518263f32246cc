"""The agent's loop: deliver first, wait longer each time, stop at once, end on a broken invariant."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

from site_agent.answering.admission import Approval
from site_agent.answering.reminders import Reminders
from site_agent.serving.agent import (
    APPROVAL_SECONDS,
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    LONGEST_UNREACHABLE_SECONDS,
    Agent,
    Pause,
)
from tests.site_agent.lone_site import LoneSite, Rows
from wardround.federation.errors import InvariantBroken, NotAuthorized, PeerUnreachable, SiteFrozen
from wardround.federation.plan.recalled import Recalled
from wardround.federation.plan.task import Failed, Released, SignedTask, Submission
from wardround.federation.trust.enrolment import Standing
from wardround.federation.trust.entry import Entry, Head


class Scripted:
    """A link that answers claims from a list and loses every submission while `deaf`."""

    def __init__(self, *claims: Callable[[], SignedTask | None]) -> None:
        self.claims = list(claims)
        self.deaf = True
        self.submitted: list[Submission] = []
        self.closed = threading.Event()

    def claim(self, *, wait_seconds: float, receipt: Entry | None = None) -> SignedTask | None:
        if self.claims:
            return self.claims.pop(0)()
        self.closed.wait(min(wait_seconds, 5.0))
        return None

    def submit(self, submission: Submission) -> Entry | None:
        self.submitted.append(submission)
        if self.deaf and isinstance(submission, Released):
            raise PeerUnreachable
        return None

    def show(self, chain: Sequence[Entry]) -> None:
        pass

    def rejoin(self, chain: Sequence[Entry], recalled: Iterable[Recalled], head: Head) -> None:
        """Nobody comes back."""

    def upkeep(self, receipt: Entry | None = None) -> Standing | None:
        return None

    def greet_again(self) -> None:
        pass

    def close(self) -> None:
        self.closed.set()


def agent_of(site: LoneSite, link: Scripted) -> Agent:
    return Agent(site.pipeline, site.ledger, link)


def test_what_is_owed_is_delivered_before_a_new_task_is_claimed(tmp_path: Path) -> None:
    site = LoneSite(tmp_path)
    link = Scripted(site.task, lambda: site.task(site.plan(nonce="01")))
    agent = agent_of(site, link)
    with pytest.raises(PeerUnreachable):
        agent.step(wait_seconds=0)
    with pytest.raises(PeerUnreachable):
        agent.step(wait_seconds=0)
    assert len(link.claims) == 1, "nothing new was claimed"
    first, second = link.submitted
    assert first == second
    site.ledger.close()


def test_a_failed_source_says_so_and_lets_time_pass(tmp_path: Path) -> None:
    site = LoneSite(tmp_path, rows=Rows(failures=1))
    link = Scripted(site.task)
    assert agent_of(site, link).step(wait_seconds=0) is False
    assert link.submitted == [Failed(site.plan().plan_id)]
    site.ledger.close()


def test_pauses_grow_to_a_ceiling_and_begin_again_after_a_success() -> None:
    pause = Pause()
    ceilings = []
    for _ in range(12):
        ceilings.append(pause.ceiling_seconds)
        assert 0 < pause.next_seconds() <= ceilings[-1] * 1.001
    assert ceilings[0] == FIRST_PAUSE_SECONDS
    assert ceilings[-1] == LONGEST_PAUSE_SECONDS
    pause.reset()
    assert pause.next_seconds() <= FIRST_PAUSE_SECONDS * 1.001


class Hurried(threading.Event):
    """An ending that nobody waits for; how long they would have is noted."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        if timeout == APPROVAL_SECONDS:
            return super().wait(timeout)
        self.waits.append(timeout or 0.0)
        return self.is_set()


def test_sites_are_back_soon_after_a_coordinator_that_was_away_for_long(tmp_path: Path) -> None:
    def away() -> SignedTask | None:
        raise PeerUnreachable

    def enough() -> SignedTask | None:
        agent.stop()
        return None

    site, ending = LoneSite(tmp_path), Hurried()
    agent = Agent(site.pipeline, site.ledger, Scripted(*[away] * 60, enough), _stopping=ending)
    agent.serve()
    assert len(ending.waits) >= 60
    assert max(ending.waits) <= LONGEST_UNREACHABLE_SECONDS * 1.001
    site.ledger.close()


def test_a_stopped_agent_leaves_its_long_poll(tmp_path: Path) -> None:
    site = LoneSite(tmp_path)
    agent = agent_of(site, Scripted())
    serving = threading.Thread(target=agent.serve)
    serving.start()
    agent.stop()
    serving.join(timeout=30)
    assert not serving.is_alive()
    site.ledger.close()


def test_a_broken_invariant_ends_the_agent(tmp_path: Path) -> None:
    def broken() -> SignedTask | None:
        raise InvariantBroken

    site = LoneSite(tmp_path)
    with pytest.raises(InvariantBroken):
        agent_of(site, Scripted(broken)).serve()
    site.ledger.close()


def test_what_is_final_ends_the_agent_with_its_sentence_and_what_only_was_refused_does_not(tmp_path: Path) -> None:
    def refused() -> SignedTask | None:
        raise NotAuthorized("not now.")

    def revoked() -> SignedTask | None:
        raise NotAuthorized("revoked.", final=True)

    site, ending = LoneSite(tmp_path), Hurried()
    link = Scripted(refused, revoked, site.task)
    with pytest.raises(NotAuthorized, match=r"^revoked\.$") as over:
        Agent(site.pipeline, site.ledger, link, _stopping=ending).serve()
    assert over.value.exit_code == 1
    assert (len(link.claims), link.submitted) == (1, []), "nothing was asked after it"
    site.ledger.close()


def test_what_is_final_ends_the_agent_when_it_meets_a_stewards_answer_too(tmp_path: Path) -> None:
    class Revoking(Scripted):
        def submit(self, submission: Submission) -> Entry | None:
            if isinstance(submission, Released):
                raise NotAuthorized("revoked.", final=True)
            return super().submit(submission)

    site = LoneSite(tmp_path, approval=Approval.MANUAL)
    link = Revoking(site.task)
    agent = agent_of(site, link)
    assert agent.step(wait_seconds=0)
    site.ledger.decide(site.plan().plan_id, approve=True, by="eve")
    with pytest.raises(NotAuthorized, match="revoked"):
        agent.serve()
    site.ledger.close()


def test_a_frozen_site_waits_and_says_so_once_an_hour(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def frozen() -> SignedTask | None:
        now[0] += LONGEST_PAUSE_SECONDS
        raise SiteFrozen

    def enough() -> SignedTask | None:
        agent.stop()
        return None

    site, ending, now = LoneSite(tmp_path), Hurried(), [0.0]
    reminders = Reminders(now_seconds=lambda: now[0])
    link = Scripted(*[frozen] * 241, enough)
    agent = Agent(site.pipeline, site.ledger, link, _stopping=ending, _reminders=reminders)
    with caplog.at_level(logging.INFO, "wardround.site"):
        agent.serve()
    said = [record for record in caplog.records if record.message.startswith(SiteFrozen.sentence)]
    assert [(record.levelname, "site check" in record.message) for record in said] == [("ERROR", True)] * 3
    assert ending.waits.count(LONGEST_PAUSE_SECONDS) == 241
    site.ledger.close()


def test_a_coordinator_that_is_away_does_not_end_the_agent(tmp_path: Path) -> None:
    def away() -> SignedTask | None:
        raise PeerUnreachable

    site = LoneSite(tmp_path)
    link = Scripted(away, site.task)
    agent = agent_of(site, link)
    ended: list[BaseException] = []

    def serve() -> None:
        try:
            agent.serve()
        except BaseException as error:  # noqa: BLE001 -- told to the test
            ended.append(error)

    serving = threading.Thread(target=serve)
    serving.start()
    for _ in range(600):
        if link.submitted:
            break
        link.closed.wait(0.05)
    agent.stop()
    serving.join(timeout=60)
    assert link.submitted
    assert ended == []
    site.ledger.close()
