"""The coordinator's process: two ports, one ledger, and the rounds that a restart finds unfinished."""

from __future__ import annotations

import datetime
import logging
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import grpc

from coordinator.clock import RealClock
from coordinator.members.folder import CoordinatorFolder, create_folder, open_folder
from coordinator.members.roster import Roster
from coordinator.rounds.coordinator import Coordinator
from coordinator.serving.analyst_service import AnalystService
from coordinator.serving.site_service import EnrolmentService, SiteService
from coordinator.store.ledger import Ledger, begin_ledger, open_ledger
from protos._generated.analyst_service_pb2_grpc import add_AnalystServiceServicer_to_server
from protos._generated.enrolment_service_pb2_grpc import add_EnrolmentServiceServicer_to_server
from protos._generated.site_service_pb2_grpc import add_SiteServiceServicer_to_server
from protos.channels import Listening
from protos.pieces import PieceStore
from protos.serving import Serving, waiting_room_for
from protos.serving import serve as listen
from protos.tls import Presented, TlsKeys
from protos.turns import FEWEST_NAMES, Turns
from protos.words import stored_plan
from wardround.federation.errors import InvariantBroken
from wardround.federation.ledger.sqlite_file import serving_lock
from wardround.federation.strict_toml import join_address, split_address
from wardround.federation.study.study import Study
from wardround.federation.trust.certificates import Role, key_to_pem, new_tls_key

STOP_SECONDS = 5.0

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
    ledger.rounds.rewrite_messages(stored_plan)
    return ledger


def serve(path: Path, *, announce: Callable[[str], None]) -> None:
    """Serve until a signal, or until an invariant breaks; then stop and let the disk decide."""
    folder = open_folder(path)
    with serving_lock(folder.path):
        _Process(folder, announce).run()


class _Process:
    """What runs between start and stop."""

    def __init__(self, folder: CoordinatorFolder, announce: Callable[[str], None]) -> None:
        self._folder = folder
        self._announce = announce
        self._configuration = folder.configuration()
        self._authority = folder.authority()
        self._stopping = threading.Event()
        self._broken: list[InvariantBroken] = []
        ledger = served_ledger(folder)
        self._turns = Turns(names=max(FEWEST_NAMES, _names(ledger)))
        self._coordinator = Coordinator(ledger, clock=RealClock(self._turns.aside))

    def run(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stopping.set())
        life = datetime.timedelta(hours=self._configuration.certificate_hours)
        presented = Presented(self._keys(life))
        services = self._listen(presented, life)
        try:
            self._coordinator.resume()
            self._announce(f"wardround: serving {self._coordinator.study.name} at {self._folder.address()}")
            self._attend(presented, life)
        finally:
            # Waiting calls are woken first, then no new ones come, and only then the ledger closes under nobody.
            self._coordinator.stop()
            for service in services:
                service.stop(grace_seconds=STOP_SECONDS)
            self._coordinator.close()
        log.info("stopped")
        if self._broken:
            raise self._broken[0]

    def _attend(self, presented: Presented, life: datetime.timedelta) -> None:
        """Renew our own certificate in time, and notice a round that broke a rule."""
        renewal = life.total_seconds() / 2
        waited = 0.0
        tick = min(1.0, renewal)
        while not self._stopping.wait(tick):
            waited += tick
            if waited >= renewal:
                presented.replace(self._keys(life))
                waited = 0.0
            fault = self._coordinator.fault()
            if fault is not None:
                self._break(fault if isinstance(fault, InvariantBroken) else InvariantBroken(private=repr(type(fault))))

    def _break(self, error: InvariantBroken) -> None:
        log.critical("%s %s", error.code, error.private)
        self._broken.append(error)
        self._stopping.set()

    def _listen(self, presented: Presented, life: datetime.timedelta) -> tuple[Serving, Serving]:
        coordinator, authority = self._coordinator, self._authority
        room = waiting_room_for(self._turns)
        site = SiteService(coordinator, authority, PieceStore(self._folder.path / "pieces"), room, life)
        analyst = AnalystService(coordinator, self._folder.study_text(), room)
        enrolment = EnrolmentService(coordinator.ledger, authority, life)

        def register(service: grpc.Server) -> None:
            add_SiteServiceServicer_to_server(site, service)
            add_AnalystServiceServicer_to_server(analyst, service)

        def register_enrolment(service: grpc.Server) -> None:
            add_EnrolmentServiceServicer_to_server(enrolment, service)

        address, enrolment_address = self._folder.bind_addresses()
        main = listen(Listening(address), presented, register, turns=self._turns, broken=self._break)
        try:
            side = listen(
                Listening(enrolment_address, strangers=True),
                presented,
                register_enrolment,
                turns=self._turns,
                broken=self._break,
            )
        except BaseException:
            main.stop(grace_seconds=0)
            raise
        self._folder.note_addresses(_at(address, main.port), _at(enrolment_address, side.port))
        return main, side

    def _keys(self, life: datetime.timedelta) -> TlsKeys:
        """A fresh key and certificate for the names sites dial; never written to disk."""
        key = new_tls_key()
        addresses = (*self._folder.bind_addresses(), self._folder.address(), self._folder.enrolment_address())
        hosts = sorted({split_address(address)[0] for address in addresses} | {"localhost"})
        certificate = self._authority.issue(
            key.public_key(),
            role=Role.COORDINATOR,
            name=self._coordinator.study.name,
            life=life,
            now=datetime.datetime.now(datetime.UTC),
            hosts=hosts,
        )
        return TlsKeys(key_to_pem(key), certificate, self._authority.pem.encode())


def _names(ledger: Ledger) -> int:
    roster = Roster(ledger)
    return len(roster.sites()) + len(roster.analysts())


def _at(address: str, port: int) -> str:
    return join_address(split_address(address)[0], port)
