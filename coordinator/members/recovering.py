"""`coordinator recover`: a coordinator from a backup begins again with those whom its operator confirms by name.

What was forgotten are not only charges: revocations, used invitations and new members are, too. So whoever is not
confirmed is revoked, and every invitation ends. What sites were charged they recall once it serves.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from coordinator.members.folder import open_folder
from coordinator.members.roster import Roster
from coordinator.store.ledger import Ledger, open_ledger
from coordinator.store.members import MemberState
from coordinator.store.recovery import Confirmed
from protos.words import stored_plan
from wardround.federation.errors import ConfigurationMistaken, Mistaken
from wardround.federation.ledger.folder_copy import MARK
from wardround.federation.ledger.serving_lock import serving_lock
from wardround.federation.private_files import sync_folder


@dataclass(frozen=True, slots=True)
class Members:
    """Who may take part as the restored ledger has it."""

    sites: tuple[str, ...]
    analysts: tuple[str, ...]

    def others(self, names: Confirmed) -> tuple[str, ...]:
        """Sites and analysts that would be revoked, because nobody confirmed them."""
        confirmed = {*names.sites, *names.without, *names.analysts}
        return tuple(name for name in (*self.sites, *self.analysts) if name not in confirmed)


def members(path: Path) -> Members:
    """Who would be revoked unless they are confirmed."""
    folder = open_folder(path)
    ledger = open_ledger(folder.path, study=folder.study(), identity=folder.identity())
    try:
        return _members(ledger)
    finally:
        ledger.close()


def recover(path: Path, names: Confirmed) -> tuple[str, ...]:
    """Begin an incarnation of the coordinator in this folder; whom it revoked. To be repeated begins another one.

    Raises:
        ConfigurationMistaken: a name is not that of an active member, or the coordinator serves.
    """
    folder = open_folder(path)
    with serving_lock(folder.path):
        ledger = open_ledger(folder.path, study=folder.study(), identity=folder.identity())
        try:
            known = _members(ledger)
            _require(names.sites + names.without, known.sites, "site")
            _require(names.analysts, known.analysts, "analyst")
            ledger.rounds.rewrite_messages(stored_plan)
            ledger.attest_rows()
            revoked = ledger.recovery.recover(names, least=ledger.study.min_sites)
        finally:
            ledger.close()
        (folder.path / MARK).unlink(missing_ok=True)
        sync_folder(folder.path)
    return revoked


def _members(ledger: Ledger) -> Members:
    roster = Roster(ledger)
    sites, analysts = roster.sites(), roster.analysts()
    return Members(
        tuple(site.name for site in sites if site.state is MemberState.ACTIVE),
        tuple(analyst.name for analyst in analysts if analyst.state is MemberState.ACTIVE),
    )


def _require(names: Collection[str], known: Collection[str], what: str) -> None:
    if len(set(names)) != len(names):
        raise Mistaken(f"a {what} is named twice; name each once.")
    for name in names:
        if name not in known:
            raise ConfigurationMistaken(
                f"{name!r} is no active {what} of this ledger, which has {', '.join(known) or 'none'}; whoever joined "
                "later is invited again once it serves."
            )
