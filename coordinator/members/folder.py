"""The coordinator's folder: what `init` makes and every other command opens.

study.toml  coordinator.toml  identity.pem  authority/  ledger.sqlite  address  enrolment_address  serving  pieces/
presence.json

coordinator.toml says where the coordinator listens, how long what it issues lives, and how much callers may take. While
`init` has not come to its end there is a file `unfinished` besides. That alone tells an init that was cut short, which
is begun again, from a coordinator that lost something, which is not.
"""

from __future__ import annotations

import contextlib
import datetime
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from coordinator.members.authority import Authority
from protos.turns import CALLS_AT_ONCE
from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.ledger.folder_copy import Report, copy_folder
from wardround.federation.ledger.sqlite_file import LEDGER_FILE, lost
from wardround.federation.private_files import STAGED, create_private, make_private_folder, sync_folder, write_private
from wardround.federation.strict_toml import (
    Section,
    address_fault,
    check_plain,
    join_address,
    parse,
    read_text,
    split_address,
)
from wardround.federation.study.study import Study
from wardround.federation.study.study_file import new_study, parse_study
from wardround.federation.trust.entry import Head
from wardround.federation.trust.identity import Identity

UNFINISHED = "unfinished"
KEPT = ("study.toml", "coordinator.toml", "identity.pem", "authority", "address", "enrolment_address")
"""What a backup holds beside the ledger."""

SAMPLE = "# See deploy/coordinator.toml for every key; these are the defaults.\n"
LOOPBACK = "127.0.0.1:0"


@dataclass(frozen=True, slots=True)
class CoordinatorFolder:
    """The paths, and what is read from them."""

    path: Path

    @property
    def ledger(self) -> Path:
        return self.path / LEDGER_FILE

    def study_text(self) -> str:
        return read_text(self.path / "study.toml")

    def study(self) -> Study:
        return parse_study(self.study_text(), name=str(self.path / "study.toml"))

    def configuration(self) -> CoordinatorConfiguration:
        return read_coordinator(self.path / "coordinator.toml")

    def identity(self) -> Identity:
        return Identity.load(self.path / "identity.pem")

    def authority(self) -> Authority:
        return Authority.load(self.path / "authority")

    def address(self) -> str:
        """Where sites and analysts dial."""
        return self.configuration().address or read_text(self.path / "address").strip()

    def enrolment_address(self) -> str:
        """Where a new site enrols."""
        return self.configuration().enrolment_address or read_text(self.path / "enrolment_address").strip()

    def note_addresses(self, address: str, enrolment_address: str) -> None:
        """Write down where the coordinator listens, so that a free port stays the same after a restart."""
        write_private(self.path / "address", f"{address}\n".encode())
        write_private(self.path / "enrolment_address", f"{enrolment_address}\n".encode())

    def bind_addresses(self) -> tuple[str, str]:
        """Where to listen: what is configured, or the free ports that were noted."""
        configuration = self.configuration()
        return (
            self._bind(configuration.listen, "address"),
            self._bind(configuration.enrolment_listen, "enrolment_address"),
        )

    def _bind(self, listen: str, note: str) -> str:
        host, port = split_address(listen)
        if port:
            return listen
        return join_address(host, split_address(read_text(self.path / note).strip())[1])


def open_folder(path: Path) -> CoordinatorFolder:
    """The folder of an initialised coordinator."""
    begin = f"wardround coordinator init {path} --study study.toml"
    if (path / UNFINISHED).exists():
        raise ConfigurationMistaken(f"the setup of {path} was not finished; run again: {begin}")
    if not (path / "coordinator.toml").exists() and not (path / "authority").exists():
        raise ConfigurationMistaken(f"{path} is not a coordinator's folder; make one with: {begin}")
    for needed in ("identity.pem", "authority", LEDGER_FILE):
        if not (path / needed).exists():
            raise lost(path / needed, "is missing")
    return CoordinatorFolder(path)


def back_up(path: Path, out: Path, *, now: datetime.datetime, report: Report) -> Head:
    """Copy the coordinator in this folder to a new one, also while it serves; how far its ledger was."""
    folder = open_folder(path)
    return copy_folder(folder.path, out, files=KEPT, made=now.isoformat(timespec="seconds"), report=report)


@contextlib.contextmanager
def create_folder(
    path: Path, *, study_text: str, configuration_text: str | None, now: datetime.datetime
) -> Iterator[CoordinatorFolder]:
    """Keys, authority, study and configuration of a new coordinator; refuses to touch an existing one.

    It counts as made when the block, which begins the ledger, is left. Killed before, it is made anew the next time.
    """
    study = new_study(study_text)
    configuration = parse_coordinator(configuration_text or SAMPLE)
    check_plain(configuration_text or SAMPLE, name="coordinator.toml")
    again = (path / UNFINISHED).exists()
    if path.exists() and not again and (not path.is_dir() or any(path.iterdir())):
        if (path / "authority").exists():
            # Whoever lost its ledger is never told to begin another one.
            advice = "serve it, or restore it from its backup if a file is missing"
            raise ConfigurationMistaken(f"{path} is already a coordinator's folder; {advice}.")
        raise ConfigurationMistaken(f"{path} exists and is not empty; name a new folder.")
    make_private_folder(path)
    if not again:
        create_private(path / UNFINISHED).close()
        sync_folder(path)
    for left in (*path.glob(f"{LEDGER_FILE}*"), *path.rglob(f"{STAGED}*")):
        left.unlink()
    write_private(path / "study.toml", study_text.encode())
    write_private(path / "coordinator.toml", (configuration_text or SAMPLE).encode())
    folder = CoordinatorFolder(path)
    folder.note_addresses(*_concrete(configuration.listen, configuration.enrolment_listen))
    Authority.create(path / "authority", name=study.name, now=now)
    Identity.generate().save(path / "identity.pem")
    yield folder
    (path / UNFINISHED).unlink()
    sync_folder(path)


def _concrete(*listening: str) -> list[str]:
    """The addresses with a port that is free now wherever none is named; each port is another one."""
    # Every probe is held until all have their ports: a port that was given back could be given out again.
    with contextlib.ExitStack() as held:
        return [
            address if port else join_address(host, _held_port(host, held))
            for address in listening
            for host, port in (split_address(address),)
        ]


def _held_port(host: str, held: contextlib.ExitStack) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    probe = held.enter_context(socket.socket(family, socket.SOCK_STREAM))
    probe.bind((host, 0))
    return int(probe.getsockname()[1])


FORTNIGHT_HOURS = 14 * 24.0
WEEK_HOURS = 7 * 24.0
QUARTER_HOURS = 90 * 24.0
YEAR_HOURS = 366 * 24.0
SHORTEST_HOURS = 0.001
MOST_OPEN_ROUNDS = 10**6
HANDSHAKE_SECONDS = 5.0
MOST_CONNECTIONS = 60_000


@dataclass(frozen=True, slots=True)
class CoordinatorConfiguration:
    """Two ports (one for enrolment alone), the names they are dialled by, lifetimes, and what callers may take.

    Without a number of connections there are as many as descriptors allow.
    """

    listen: str = LOOPBACK
    enrolment_listen: str = LOOPBACK
    address: str | None = None
    enrolment_address: str | None = None
    certificate_hours: float = FORTNIGHT_HOURS
    analyst_hours: float = QUARTER_HOURS
    invitation_hours: float = WEEK_HOURS
    open_rounds: int = 4096
    open_rounds_per_analyst: int = 64
    connections: int | None = None
    enrolment_connections: int | None = None
    handshake_seconds: float = HANDSHAKE_SECONDS
    calls_at_once: int = CALLS_AT_ONCE


def read_coordinator(path: Path) -> CoordinatorConfiguration:
    """The configuration in a file."""
    return parse_coordinator(read_text(path), name=path.name)


def parse_coordinator(text: str, *, name: str = "coordinator.toml") -> CoordinatorConfiguration:
    """The configuration in a text."""
    top = parse(text, name=name)
    configuration = CoordinatorConfiguration(
        listen=_address(top, "listen", LOOPBACK),
        enrolment_listen=_address(top, "enrolment_listen", LOOPBACK),
        address=_address(top, "address", "") or None,
        enrolment_address=_address(top, "enrolment_address", "") or None,
        certificate_hours=top.number("certificate_hours", FORTNIGHT_HOURS, lower=SHORTEST_HOURS, upper=YEAR_HOURS),
        analyst_hours=top.number("analyst_hours", QUARTER_HOURS, lower=SHORTEST_HOURS, upper=YEAR_HOURS),
        invitation_hours=top.number("invitation_hours", WEEK_HOURS, lower=SHORTEST_HOURS, upper=YEAR_HOURS),
        open_rounds=top.integer("open_rounds", 4096, lower=1, upper=MOST_OPEN_ROUNDS),
        open_rounds_per_analyst=top.integer("open_rounds_per_analyst", 64, lower=1, upper=MOST_OPEN_ROUNDS),
        connections=_connections(top, "connections"),
        enrolment_connections=_connections(top, "enrolment_connections"),
        handshake_seconds=top.number("handshake_seconds", HANDSHAKE_SECONDS, lower=0.1, upper=60.0),
        calls_at_once=top.integer("calls_at_once", CALLS_AT_ONCE, lower=1, upper=256),
    )
    top.close()
    if (configuration.address is None) != (configuration.enrolment_address is None):
        raise ConfigurationMistaken(f"{name}: give both address and enrolment_address, or neither.")
    if configuration.address is None and split_address(configuration.listen)[0] in ("0.0.0.0", "::"):  # noqa: S104
        raise ConfigurationMistaken(
            f"{name}: listen stands for every address of this machine, so address must name the one that sites "
            "connect to."
        )
    return configuration


def _connections(top: Section, key: str) -> int | None:
    return top.integer(key, lower=1, upper=MOST_CONNECTIONS) if top.has(key) else None


def _address(top: Section, key: str, default: str) -> str:
    if not top.has(key):
        return default
    address = top.text(key)
    if (fault := address_fault(address)) is not None:
        raise top.fault(key, fault)
    return address
