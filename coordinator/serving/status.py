"""How a coordinator stands, for a person and for a probe: whether it is served, who calls, what is open and spent."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from coordinator.accounts.accounting import Balances
from coordinator.members.folder import open_folder
from coordinator.members.presence import LIVE_SECONDS, Seen, read_presence
from coordinator.store.ledger import open_ledger
from coordinator.store.members import MemberState, SiteRecord
from wardround.federation.ledger.serving_lock import is_served
from wardround.federation.question.answer import Loss

# The hint is written every few seconds; a process that has not for so long hangs.
LONGEST_SILENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """One site: how it stands, and when it was last there."""

    record: SiteRecord
    state: str
    seen: Seen | None

    def document(self) -> dict[str, object]:
        """The site for machines."""
        seen = self.seen
        return {
            "state": self.state,
            "patients": self.record.patients,
            "last_seen": None if seen is None else moment(seen.date),
            "version": None if seen is None else seen.version or None,
            "certificate_ends": None if seen is None else _moment_if_any(seen.certificate_ends),
        }

    def line(self) -> str:
        """The site for people."""
        seen = self.seen
        if seen is None:
            return f"  {self.record.name}  {self.state}  never seen"
        version_text = f", version {seen.version}" if seen.version else ""
        ends = _moment_if_any(seen.certificate_ends)
        certificate = f", certificate until {ends}" if ends else ""
        return f"  {self.record.name}  {self.state}  last seen {moment(seen.date)}{version_text}{certificate}"


@dataclass(frozen=True, slots=True)
class CoordinatorStatus:
    """What can be said without a network."""

    study: str
    address: str
    alive: bool
    served: float
    sites: tuple[MemberStatus, ...]
    needed: int
    open_rounds: int
    older_copy: bool
    awaited: tuple[str, ...]
    spent: Loss
    cap: float
    now: float

    @property
    def faults(self) -> list[str]:
        """Why a probe should not be content."""
        found = [] if self.alive else ["no process serves this folder"]
        if self.alive and self.now - self.served > LONGEST_SILENCE_SECONDS:
            found.append("the process that serves this folder has said nothing for a minute")
        live = sum(site.state == "active" for site in self.sites)
        if self.alive and live < self.needed:
            found.append(f"{live} sites are there and the study needs {self.needed}")
        if self.older_copy:
            found.append("a site holds a receipt that this ledger lacks: it is an older copy")
        if self.awaited:
            names = ", ".join(self.awaited)
            found.append(f"it came back from a backup and answers no question before {names} rejoined")
        return found

    def document(self) -> dict[str, object]:
        """The status for machines."""
        return {
            "role": "coordinator",
            "name": self.study,
            "healthy": not self.faults,
            "faults": self.faults,
            "alive": self.alive,
            "version": version("wardround"),
            "address": self.address,
            "sites": {site.record.name: site.document() for site in self.sites},
            "min_sites": self.needed,
            "open_rounds": self.open_rounds,
            "spent": {"epsilon": self.spent.epsilon, "delta": self.spent.delta},
            "cap": {"epsilon": self.cap, "delta": self.spent.delta},
        }

    def lines(self) -> list[str]:
        """The status for people."""
        return [
            f"coordinator of {self.study}, version {version('wardround')}",
            *(f"NOT WELL: {fault}" for fault in self.faults),
            *([f"served by a process, at {self.address}"] if self.alive else []),
            f"open rounds: {self.open_rounds}",
            f"spent ε = {self.spent.epsilon:.4g} of {self.cap:.4g} (δ = {self.spent.delta:.3g})",
            f"sites ({self.needed} are needed for an answer):",
            *(site.line() for site in self.sites),
            *([] if self.sites else ["  none has enrolled yet"]),
        ]


def status(path: Path, *, now: datetime.datetime) -> CoordinatorStatus:
    """How the coordinator in this folder stands."""
    folder = open_folder(path)
    study, (served, seen) = folder.study(), read_presence(path)
    ledger = open_ledger(path, study=study, identity=folder.identity())
    try:
        with ledger.one_moment():
            records, balances = ledger.members.sites(), Balances(study, ledger.rounds.spent())
            open_rounds, older = ledger.rounds.open_now(), ledger.members.lacking() is not None
            awaited = ledger.recovery.awaited()
    finally:
        ledger.close()
    return CoordinatorStatus(
        study=study.name,
        address=folder.address(),
        alive=is_served(path),
        served=served,
        sites=tuple(
            MemberStatus(record, _state(record, seen.get(record.name), now=now.timestamp()), seen.get(record.name))
            for record in records
        ),
        needed=study.min_sites,
        open_rounds=open_rounds,
        older_copy=older,
        awaited=awaited,
        spent=balances.spent(),
        cap=study.cap.epsilon,
        now=now.timestamp(),
    )


def moment(seconds: float) -> str:
    """A date in UTC."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")


def _moment_if_any(seconds: float | None) -> str | None:
    return None if seconds is None else moment(seconds)


def _state(record: SiteRecord, seen: Seen | None, *, now: float) -> str:
    if record.state is not MemberState.ACTIVE:
        return record.state.value
    # The hint itself may be some seconds old.
    return "active" if seen is not None and now - seen.date <= LIVE_SECONDS + 10.0 else "away"
