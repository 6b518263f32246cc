"""A coordinator and a site that came back from backups, and everything that this leaves in their ledgers."""

from __future__ import annotations

from pathlib import Path

from site_agent.serving.folder import SiteFolder
from site_agent.serving.recover import recover_with
from tests.simulation.recovering import AGES, Restored, ToCoordinator


def recovered_federation(folder: Path) -> Path:
    """The folder of it: answers are lost, and a site that was not waited for has yet to come back."""
    stage = Restored(folder)
    stage.coordinator.ledger.members.invite("four", secret_hash="4" * 64, expires=2.5e9)
    copies = {name: stage.copy(name) for name in ("consortium", "two")}
    stage.ask(AGES)
    stage.away = {"three"}
    stage.ask(epsilon=0.7)
    stage.settle()
    stage.restore("consortium", copies["consortium"])
    stage.recover("one", "two", without=("three",))
    stage.restore("two", copies["two"])
    known = stage.coordinator.ledger.members.head("two")
    recover_with(SiteFolder(stage.folder / "two"), ToCoordinator(stage.coordinator, "two"), known, complete=False)
    stage.close()
    return stage.folder
