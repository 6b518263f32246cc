"""The agent's process: one at a time per folder, stopped cleanly by a signal."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

from protos.words import stored_task
from site_agent.answering.pipeline import Pipeline
from site_agent.answering.reminders import Reminders
from site_agent.serving.agent import FULL, Agent
from site_agent.serving.folder import SiteFolder, open_folder
from site_agent.serving.folder_account import open_account, spending
from site_agent.serving.link import GrpcLink
from site_agent.serving.open_dataset import site_dataset
from site_agent.store.heartbeat import Heartbeat
from site_agent.store.ledger import SiteLedger, utc_today
from wardround.federation.errors import LedgerFull
from wardround.federation.ledger.folder_copy import refuse_backup
from wardround.federation.ledger.serving_lock import serving_lock
from wardround.privacy.mechanisms.randomness import Chance, SecureChance

ROOM_SECONDS = 5.0

_Begun = TypeVar("_Begun")

log = logging.getLogger("wardround.site")


@contextmanager
def open_ledger(path: Path) -> Iterator[SiteLedger]:
    """The ledger of the site in this folder, for one command; the agent may serve meanwhile."""
    folder = open_folder(path)
    ledger = SiteLedger(folder.ledger, identity=folder.identity())
    try:
        yield ledger
    finally:
        ledger.close()


def make_agent(folder: SiteFolder, ledger: SiteLedger, *, noise: Chance) -> Agent:
    """The agent of this folder over gRPC; what an earlier version left in its ledger is rewritten first."""
    ledger.rewrite_messages(stored_task)
    ledger.attest_rows()
    configuration, study = folder.configuration(), folder.study()
    ledger.set_cap(configuration.policy.cap)
    within, text = spending(ledger.spent(), configuration.policy.cap)
    if not within:
        log.warning("%s", text)
    coordinator = folder.coordinator().identity
    dataset = site_dataset(folder, configuration, study)
    pipeline = Pipeline(
        configuration.name,
        study,
        configuration.policy,
        coordinator,
        ledger,
        dataset,
        noise,
        utc_today,
        open_account(folder, configuration, study, ledger),
        folder.row_key(),
    )
    return Agent(pipeline, ledger, GrpcLink(folder), note=Heartbeat(folder.path))


def when_there_is_room(begin: Callable[[], _Begun], *, pause: Callable[[float], None] = time.sleep) -> _Begun:
    """What `begin` makes; on a full disk the site waits, and says so, before it has an agent as while it has one."""
    reminders = Reminders()
    while True:
        try:
            return begin()
        except LedgerFull:
            reminders.say(FULL)
        pause(ROOM_SECONDS)


def _started(path: Path, closing: ExitStack) -> Agent:
    """The agent of this folder, whose ledger `closing` lets go of."""
    with ExitStack() as undone:
        ledger = undone.enter_context(open_ledger(path))
        agent = make_agent(open_folder(path), ledger, noise=SecureChance())
        closing.push(undone.pop_all())
    return agent


def serve(path: Path, *, announce: Callable[[str], None]) -> None:
    """Serve until a signal, until an invariant breaks, or until nothing more is to be had of the coordinator.

    Raises:
        NotAuthorized: the site was revoked, its certificate expired, or the coordinator runs another study.
    """
    folder = open_folder(path)
    refuse_backup(folder.path, recover=f"wardround site recover {path}")
    with serving_lock(folder.path), ExitStack() as closing:
        agent = when_there_is_room(lambda: _started(path, closing))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: threading.Thread(target=agent.stop).start())
        announce(f"wardround: {folder.configuration().name} serves {folder.coordinator().address}")
        agent.serve()
