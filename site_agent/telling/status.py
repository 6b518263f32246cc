"""How a site stands, for a person and for a probe: whether it is served and heard, and what waits for somebody."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from site_agent.serving.agent import POLL_SECONDS, WORKING
from site_agent.serving.folder import SiteFolder, open_folder
from site_agent.serving.serve import open_ledger
from site_agent.store.heartbeat import last_call
from site_agent.store.requests import RequestState
from wardround.federation.ledger.serving_lock import is_served
from wardround.federation.strict_toml import read_text
from wardround.federation.trust.certificates import load_certificate, validity
from wardround.privacy.budget.filter import epsilon_spent

# Two polls, and the pause that an agent makes when something failed.
LONGEST_SILENCE_SECONDS = 2 * POLL_SECONDS + 20.0


@dataclass(frozen=True, slots=True)
class SiteStatus:
    """What can be said without a network; dates are seconds since 1970."""

    name: str
    coordinator: str
    alive: bool
    called: float | None
    working: bool
    certificate_ends: datetime.datetime
    frozen: str | None
    closed: tuple[str, ...]
    waiting: int
    undelivered: int
    spent: float
    cap: float
    delta: float
    now: float

    @property
    def faults(self) -> list[str]:
        """Why a probe should not be content."""
        found = [] if self.alive else ["no process serves this folder"]
        if self.frozen is not None:
            found.append("the ledger is frozen")
        if self.alive and not self._heard:
            found.append("the coordinator has not answered for more than a minute")
        if self.now >= self.certificate_ends.timestamp():
            found.append("the certificate has expired")
        return found

    @property
    def _heard(self) -> bool:
        return self.called is not None and (self.working or self.now - self.called <= LONGEST_SILENCE_SECONDS)

    def document(self) -> dict[str, object]:
        """The status for machines."""
        return {
            "role": "site",
            "name": self.name,
            "healthy": not self.faults,
            "faults": self.faults,
            "alive": self.alive,
            "version": version("wardround"),
            "coordinator": self.coordinator,
            "last_answer": None if self.called is None else moment(self.called),
            "working": self.alive and self.working,
            "certificate_ends": self.certificate_ends.isoformat(),
            "frozen": self.frozen is not None,
            "closed_tables": list(self.closed),
            "waiting_for_steward": self.waiting,
            "undelivered": self.undelivered,
            "spent": {"epsilon": self.spent, "delta": self.delta},
            "cap": {"epsilon": self.cap, "delta": self.delta},
        }

    def lines(self) -> list[str]:
        """The status for people."""
        doing = "working on a question" if self.working else "waiting for questions"
        called = "never" if self.called is None else moment(self.called)
        return [
            f"site {self.name}, version {version('wardround')}",
            *(f"NOT WELL: {fault}" for fault in self.faults),
            *([f"served by a process, {doing}"] if self.alive else []),
            f"coordinator {self.coordinator}, which last answered: {called}",
            f"certificate valid until {self.certificate_ends:%Y-%m-%d %H:%M} UTC",
            f"spent ε = {self.spent:.4g} of {self.cap:.4g} (δ = {self.delta:.3g})",
            f"waiting for the steward: {self.waiting}; kept and not yet received: {self.undelivered}",
            f"closed tables: {', '.join(self.closed) or 'none'}",
        ]


def status(path: Path, *, now: datetime.datetime) -> SiteStatus:
    """How the site in this folder stands."""
    folder = open_folder(path)
    cap, call = folder.configuration().policy.cap, last_call(path)
    with open_ledger(path) as ledger:
        return SiteStatus(
            name=ledger.name,
            coordinator=folder.coordinator().address,
            alive=is_served(path),
            called=None if call is None else call.date,
            working=call is not None and call.doing == WORKING,
            certificate_ends=_certificate_ends(folder),
            frozen=ledger.frozen(),
            closed=tuple(closed.table for closed in ledger.tables.listed()),
            waiting=sum(request.state is RequestState.PENDING for request in ledger.requests()),
            undelivered=len(ledger.undelivered()),
            spent=epsilon_spent(ledger.spent(), cap),
            cap=cap.epsilon,
            delta=cap.delta,
            now=now.timestamp(),
        )


def moment(seconds: float) -> str:
    """A date in UTC."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")


def _certificate_ends(folder: SiteFolder) -> datetime.datetime:
    file = folder.tls / "certificate.pem"
    return validity(load_certificate(read_text(file).encode(), name=str(file)))[1]
