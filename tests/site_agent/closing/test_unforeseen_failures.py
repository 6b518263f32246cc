"""Whatever is raised once rows were read closes the table: nobody has to have foreseen the class of it."""

from __future__ import annotations

import decimal
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from site_agent.answering.admission import Approval
from site_agent.serving.agent import Agent
from site_agent.store.ledger import SiteLedger
from tests.site_agent.answering.test_hostile_training import TRAINED, plan, scores, step
from tests.site_agent.answering.test_keys_and_choices import CHOICE, GAUSSIAN, KEYS, VOTES, lone, plan_of
from tests.site_agent.closing.failing_sources import COHORTS, asking, sqlite_that_raises
from tests.site_agent.closing.watched_site import WatchedSite
from tests.site_agent.lone_site import LoneSite, Rows
from tests.site_agent.serving.test_agent import Scripted
from wardround.federation.errors import LedgerBusy, MalformedMessage, PlanRefused, SchemaRefused
from wardround.federation.ledger.verify.verify import verify
from wardround.federation.plan.task import Failed, SignedTask

CANARY = "Müller"
SOON_SECONDS = 30.0
UNFORESEEN: tuple[Exception, ...] = (
    OverflowError(CANARY),
    ValueError(CANARY),
    KeyError(CANARY),
    TypeError(CANARY),
    AttributeError(CANARY),
    OSError(5, CANARY),
    StopIteration(CANARY),
    RecursionError(CANARY),
    UnicodeDecodeError("utf-8", CANARY.encode("latin-1"), 1, 2, "invalid start byte"),
    struct.error(CANARY),
    zlib.error(CANARY),
    decimal.InvalidOperation(CANARY),
    pa.ArrowInvalid(CANARY),
    pa.ArrowException(CANARY),
    np.linalg.LinAlgError(CANARY),
    MemoryError(CANARY),
    # Ours, that no source should raise any more.
    SchemaRefused(CANARY),
    PlanRefused(CANARY),
    MalformedMessage(CANARY),
    LedgerBusy(CANARY),
)


@pytest.mark.parametrize("error", UNFORESEEN, ids=lambda error: type(error).__name__)
def test_an_error_of_any_class_closes_the_table_for_twelve_cohorts_alike(
    tmp_path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    site = WatchedSite(tmp_path, sqlite_that_raises(tmp_path, bad=False))
    read = site.watched.tables.bounded

    def fails_once_it_has_read(form: object) -> object:
        read(form)  # type: ignore[arg-type]
        raise error

    with monkeypatch.context() as failing:
        failing.setattr(site.watched, "bounded", fails_once_it_has_read)
        assert isinstance(site.ask(asking("age = 57")), Failed)
    site.watched.events.clear()
    told = [site.ask(asking(cohort)) for cohort in COHORTS]
    assert {type(word) for word in told} == {Failed}
    assert site.watched.events == [], "the source is not touched"
    assert site.kinds() == ["charged", "closed"]
    assert CANARY not in caplog.text
    assert verify(tmp_path).problems == ()
    site.ledger.close()


def _fails() -> None:
    raise OverflowError(CANARY)


def _trained(folder: Path) -> LoneSite:
    return LoneSite(folder, study=TRAINED, rows=Rows(before_reading=_fails))


def _worded(folder: Path) -> LoneSite:
    return lone(folder, rows=Rows(before_reading=_fails))


KINDS: dict[str, Callable[[Path], tuple[LoneSite, SignedTask]]] = {
    "a first round": lambda folder: (site := _trained(folder), site.task(plan(site, step()))),
    "scores": lambda folder: (site := _trained(folder), site.task(plan(site, scores()))),
    "keys": lambda folder: (site := _worded(folder), site.task(plan_of(site, KEYS, GAUSSIAN))),
    "a choice": lambda folder: (site := _worded(folder), site.task(plan_of(site, CHOICE, VOTES))),
}


@pytest.mark.parametrize("kind", KINDS)
def test_trainings_keys_and_choices_close_it_as_questions_do(tmp_path: Path, kind: str) -> None:
    site, task = KINDS[kind](tmp_path)
    assert isinstance(site.pipeline.run(task), Failed)
    assert [closed.table for closed in site.ledger.tables.listed()] == ["visits"]
    site.ledger.close()


# --- the thread that answers what a steward approved ----------------------------------------------------------


@pytest.fixture
def approved(tmp_path: Path) -> Iterator[tuple[LoneSite, Agent]]:
    """A site with one request, which its steward has approved, and its agent."""
    site = LoneSite(tmp_path, rows=Rows(before_reading=_fails), approval=Approval.MANUAL)
    link = Scripted()
    agent = Agent(site.pipeline, site.ledger, link)
    site.pipeline.run(site.task())
    site.ledger.decide(site.plan().plan_id, approve=True, by="ann")
    yield site, agent
    site.ledger.close()


def test_what_a_steward_approved_closes_its_table_and_the_agent_goes_on(
    approved: tuple[LoneSite, Agent], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    site, agent = approved
    link = agent.link
    assert isinstance(link, Scripted)
    heard, submit = threading.Event(), link.submit
    monkeypatch.setattr(link, "submit", lambda word: (submit(word), heard.set())[0])
    serving = threading.Thread(target=agent.serve)
    serving.start()
    heard.wait(SOON_SECONDS)
    agent.stop()
    serving.join(SOON_SECONDS)
    assert link.submitted == [Failed(site.plan().plan_id)]
    assert [closed.table for closed in site.ledger.tables.listed()] == ["visits"]
    assert CANARY not in capfd.readouterr().err


def test_what_nobody_foresaw_in_that_thread_ends_the_agent_and_is_not_written_out(
    approved: tuple[LoneSite, Agent], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    _, agent = approved

    def decided(_: SiteLedger) -> list[SignedTask]:
        raise KeyError(CANARY)

    monkeypatch.setattr(SiteLedger, "decided", decided)
    late = threading.Timer(SOON_SECONDS, agent.stop)
    late.start()
    with pytest.raises(KeyError):
        agent.serve()
    late.cancel()
    assert CANARY not in capfd.readouterr().err
