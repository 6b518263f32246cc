"""The agent's process: one at a time per folder, stopped cleanly by a signal."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from site_agent.agent import Agent
from site_agent.configuration import SiteConfiguration
from site_agent.folder import SiteFolder, open_folder
from site_agent.ledger import SiteLedger, utc_today
from site_agent.link import GrpcLink
from site_agent.pipeline import Pipeline
from site_agent.prepared.site import site_dataset
from site_agent.shared_account import SharedAccount
from wardround.federation.ledger.serving_lock import serving_lock
from wardround.federation.study import Study
from wardround.privacy.chance import Chance, SecureChance


@contextmanager
def open_ledger(path: Path) -> Iterator[SiteLedger]:
    """The ledger of the site in this folder, for one command; the agent may serve meanwhile."""
    folder = open_folder(path)
    ledger = SiteLedger(folder.ledger, identity=folder.identity())
    try:
        yield ledger
    finally:
        ledger.close()


def open_shared_account(folder: SiteFolder, configuration: SiteConfiguration, study: Study) -> SharedAccount | None:
    """The account this folder shares with others over the same dataset, if site.toml names one."""
    if configuration.account is None:
        return None
    return SharedAccount(
        folder.path / configuration.account,
        dataset=configuration.dataset,
        owner=f"{configuration.name} {study.study_hash}",
        cap=configuration.policy.cap,
    )


def make_agent(folder: SiteFolder, ledger: SiteLedger, *, noise: Chance) -> Agent:
    """The agent of this folder over gRPC."""
    configuration, study = folder.configuration(), folder.study()
    ledger.set_cap(configuration.policy.cap)
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
        open_shared_account(folder, configuration, study),
        folder.row_key(),
    )
    return Agent(pipeline, ledger, GrpcLink(folder))


def serve(path: Path, *, announce: Callable[[str], None]) -> None:
    """Serve until a signal, or until an invariant breaks."""
    folder = open_folder(path)
    with serving_lock(folder.path), open_ledger(path) as ledger:
        agent = make_agent(folder, ledger, noise=SecureChance())
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: threading.Thread(target=agent.stop).start())
        announce(f"wardround: {folder.configuration().name} serves {folder.coordinator().address}")
        agent.serve()
