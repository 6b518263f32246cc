"""The agent's process: one at a time per folder, stopped cleanly by a signal."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from protos.words import stored_task
from site_agent.answering.pipeline import Pipeline
from site_agent.serving.agent import Agent
from site_agent.serving.folder import SiteFolder, open_folder
from site_agent.serving.folder_account import open_account, spending
from site_agent.serving.link import GrpcLink
from site_agent.serving.open_dataset import site_dataset
from site_agent.store.ledger import SiteLedger, utc_today
from wardround.federation.ledger.folder_copy import refuse_backup
from wardround.federation.ledger.sqlite_file import serving_lock
from wardround.privacy.mechanisms.randomness import Chance, SecureChance

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
    return Agent(pipeline, ledger, GrpcLink(folder))


def serve(path: Path, *, announce: Callable[[str], None]) -> None:
    """Serve until a signal, or until an invariant breaks."""
    folder = open_folder(path)
    refuse_backup(folder.path, recover=f"wardround site recover {path}")
    with serving_lock(folder.path), open_ledger(path) as ledger:
        agent = make_agent(folder, ledger, noise=SecureChance())
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: threading.Thread(target=agent.stop).start())
        announce(f"wardround: {folder.configuration().name} serves {folder.coordinator().address}")
        agent.serve()
