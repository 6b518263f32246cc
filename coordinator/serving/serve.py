"""The coordinator's process: a port, a ledger, and the rounds that a restart finds unfinished.

The other port, for enrolment, has a process of its own, which this one starts and answers.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import grpc

from coordinator.clock import RealClock
from coordinator.members.folder import CoordinatorFolder, create_folder, open_folder
from coordinator.members.older_copy import refuse_to_serve_older
from coordinator.members.presence import Presence, read_presence
from coordinator.members.roster import Roster
from coordinator.rounds.coordinator import Coordinator
from coordinator.rounds.open_rounds import OpenRounds
from coordinator.serving.analyst_service import AnalystService
from coordinator.serving.descriptors import MEMBERS, STRANGERS, connections_within, raise_limit
from coordinator.serving.enrolment_port import EnrolmentPort
from coordinator.serving.enrolment_service import EnrolmentService
from coordinator.serving.forwarding_service import Orders
from coordinator.serving.site_service import SiteService
from coordinator.store.ledger import Ledger, begin_ledger, open_ledger
from protos._generated.analyst_service_pb2_grpc import add_AnalystServiceServicer_to_server
from protos._generated.site_service_pb2_grpc import add_SiteServiceServicer_to_server
from protos.channels import Listening
from protos.pieces import PieceStore
from protos.serving import Serving, waiting_room_for
from protos.serving import serve as listen
from protos.tls import Presented, TlsKeys
from protos.turns import FEWEST_NAMES, Turns
from protos.words import stored_plan
from wardround.federation.errors import InvariantBroken
from wardround.federation.ledger.folder_copy import refuse_backup
from wardround.federation.ledger.serving_lock import serving_lock
from wardround.federation.strict_toml import join_address, split_address
from wardround.federation.study.study import Study
from wardround.federation.trust.certificates import Role, key_to_pem, new_tls_key

STOP_SECONDS = 5.0
NOTE_SECONDS = 5.0

log = logging.getLogger("wardround.coordinator")


def initialise(path: Path, *, study_text: str, configuration_text: str | None, now: datetime.datetime) -> Study:
    """A new coordinator's folder with its ledger begun."""
    with create_folder(path, study_text=study_text, configuration_text=configuration_text, now=now) as folder:
        study = folder.study()
        begin_ledger(path, study=study, identity=folder.identity()).close()
    return study


def served_ledger(folder: CoordinatorFolder) -> Ledger:
    """The ledger of this folder, for the process that serves it; what an earlier version left is rewritten first."""
    ledger = open_ledger(folder.path, study=folder.study(), identity=folder.identity())
    refuse_to_serve_older(ledger)
    ledger.rounds.rewrite_messages(stored_plan)
    ledger.attest_rows()
    return ledger


def serve(path: Path, *, announce: Callable[[str], None]) -> None:
    """Serve until a signal, or until an invariant breaks; then stop and let the disk decide."""
    folder = open_folder(path)
    refuse_backup(folder.path, recover=f"wardround coordinator recover {path}")
    with serving_lock(folder.path):
        _Process(folder, announce).run()


class _Process:
    """What runs between start and stop."""

    def __init__(self, folder: CoordinatorFolder, announce: Callable[[str], None]) -> None:
        self._folder = folder
        self._announce = announce
        self._configuration = configuration = folder.configuration()
        self._descriptors = raise_limit()
        self._connections = connections_within(self._descriptors, MEMBERS, wanted=configuration.connections)
        self._enrolment_connections = connections_within(
            self._descriptors, STRANGERS, wanted=configuration.enrolment_connections
        )
        self._authority = folder.authority()
        self._life = datetime.timedelta(hours=configuration.certificate_hours)
        self._bound = folder.bind_addresses()
        self._hosts = sorted(
            {split_address(each)[0] for each in (*self._bound, folder.address(), folder.enrolment_address())}
            | {"localhost"}
        )
        self._stopping = threading.Event()
        self._broken: list[InvariantBroken] = []
        ledger = served_ledger(folder)
        self._turns = Turns(names=max(FEWEST_NAMES, _names(ledger)), at_once=configuration.calls_at_once)
        self._rounds = OpenRounds(most=configuration.open_rounds, most_of_one=configuration.open_rounds_per_analyst)
        self._presence = Presence(read_presence(folder.path)[1])
        clock = RealClock(self._turns.aside)
        self._coordinator = Coordinator(ledger, clock=clock, rounds=self._rounds, presence=self._presence)

    def run(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stopping.set())
        presented, enrolment = Presented(self._keys()), self._enrolment()
        with contextlib.ExitStack() as closing:
            # Undone from the last to the first: waiting calls are woken, no new ones come, and only then the ledger
            # closes, under nobody.
            closing.callback(self._coordinator.close)
            enrolment_port = enrolment.start()
            closing.callback(enrolment.stop)
            main = self._listen(presented)
            closing.callback(main.stop, grace_seconds=STOP_SECONDS)
            closing.callback(self._coordinator.stop)
            address, enrolment_address = self._bound
            self._folder.note_addresses(_at(address, main.port), _at(enrolment_address, enrolment_port))
            self._coordinator.resume()
            if awaited := self._coordinator.ledger.recovery.awaited():
                log.warning(
                    "recovered from a backup; nothing is asked before %s showed their ledgers", ", ".join(awaited)
                )
            log.info("%d connections at most, of %d descriptors", self._connections, self._descriptors)
            self._announce(f"wardround: serving {self._coordinator.study.name} at {self._folder.address()}")
            self._attend(presented, enrolment)
        log.info("stopped")
        if self._broken:
            raise self._broken[0]

    def _attend(self, presented: Presented, enrolment: EnrolmentPort) -> None:
        """Renew our own certificates in time, and notice a round that broke a rule."""
        renewal = self._life.total_seconds() / 2
        waited = noted = 0.0
        tick = min(1.0, renewal)
        live = self._presence.live()
        self._note_presence()
        while not self._stopping.wait(tick):
            waited += tick
            noted += tick
            if noted >= NOTE_SECONDS or live != self._presence.live():
                live = self._presence.live()
                self._note_presence()
                noted = 0.0
            if waited >= renewal:
                presented.replace(self._keys())
                enrolment.show(self._keys())
                waited = 0.0
            fault = self._coordinator.fault()
            if fault is not None:
                self._break(fault if isinstance(fault, InvariantBroken) else InvariantBroken(private=repr(type(fault))))

    def _note_presence(self) -> None:
        self._presence.write(self._folder.path, at_work=self._rounds.at_work())

    def _break(self, error: InvariantBroken) -> None:
        log.critical("%s %s", error.code, error.private)
        self._broken.append(error)
        self._stopping.set()

    def _listen(self, presented: Presented) -> Serving:
        coordinator, room = self._coordinator, waiting_room_for(self._turns)
        pieces = PieceStore(self._folder.path / "pieces")
        site = SiteService(coordinator, self._authority, pieces, room, self._life, self._presence)
        analyst = AnalystService(coordinator, self._folder.study_text(), room)

        def register(service: grpc.Server) -> None:
            add_SiteServiceServicer_to_server(site, service)
            add_AnalystServiceServicer_to_server(analyst, service)

        at = Listening(self._bound[0], self._connections, self._configuration.handshake_seconds)
        return listen(at, presented, register, turns=self._turns, broken=self._break)

    def _enrolment(self) -> EnrolmentPort:
        """The port for strangers, in a process of its own and with a key of its own."""
        configuration = self._configuration
        service = EnrolmentService(self._coordinator.ledger, self._authority, self._life)
        return EnrolmentPort(
            Orders(
                address=self._bound[1],
                connections=self._enrolment_connections,
                handshake_seconds=configuration.handshake_seconds,
                keys=self._keys(),
            ),
            service.enrol,
            turns=self._turns,
            broken=self._break,
        )

    def _keys(self) -> TlsKeys:
        """A fresh key and certificate for the names sites dial; never written to disk."""
        key = new_tls_key()
        certificate = self._authority.issue(
            key.public_key(),
            role=Role.COORDINATOR,
            name=self._coordinator.study.name,
            life=self._life,
            now=datetime.datetime.now(datetime.UTC),
            hosts=self._hosts,
        )
        return TlsKeys(key_to_pem(key), certificate, self._authority.pem.encode())


def _names(ledger: Ledger) -> int:
    roster = Roster(ledger)
    return len(roster.sites()) + len(roster.analysts())


def _at(address: str, port: int) -> str:
    return join_address(split_address(address)[0], port)
