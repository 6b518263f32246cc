"""The roles of a federation in this process, put together as by `serve`: real gRPC and mutual TLS on loopback."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from coordinator.clock import Clock, RealClock
from coordinator.members.folder import open_folder as open_coordinator
from coordinator.rounds.coordinator import Coordinator
from coordinator.serving.analyst_service import AnalystService
from coordinator.serving.serve import served_ledger
from coordinator.serving.site_service import SiteService
from protos._generated.analyst_service_pb2_grpc import add_AnalystServiceServicer_to_server
from protos._generated.site_service_pb2_grpc import add_SiteServiceServicer_to_server
from protos.channels import Listening
from protos.pieces import PieceStore
from protos.serving import Serving, serve, waiting_room_for
from protos.tls import Presented, TlsKeys
from protos.turns import Turns
from site_agent.serving.agent import Agent
from site_agent.serving.folder import open_folder as open_site
from site_agent.serving.serve import make_agent
from site_agent.store.ledger import SiteLedger
from tests.fixtures.ports import HOST
from wardround.federation.errors import InvariantBroken
from wardround.federation.trust.certificates import Role, key_to_pem, new_tls_key
from wardround.privacy.mechanisms.randomness import Chance, SecureChance

LIFE = datetime.timedelta(days=14)
CONNECTIONS = 256

Aside = Callable[[], AbstractContextManager[None]]


@dataclass
class ServedCoordinator:
    """The coordinator of a folder, serving members at its address; strangers have no port here."""

    path: Path
    clock: Callable[[Aside], Clock] = RealClock
    names: int = 64
    broken: list[InvariantBroken] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder = open_coordinator(self.path)
        self.turns = Turns(names=self.names)
        self.coordinator = Coordinator(served_ledger(self.folder), clock=self.clock(self.turns.aside))
        self._serving = self._listen()
        self.coordinator.resume()

    @property
    def address(self) -> str:
        return f"{HOST}:{self._serving.port}"

    def _listen(self) -> Serving:
        authority, room = self.folder.authority(), waiting_room_for(self.turns)
        site = SiteService(self.coordinator, authority, PieceStore(self.path / "pieces"), room, LIFE)
        analyst = AnalystService(self.coordinator, self.folder.study_text(), room)

        def register(service: grpc.Server) -> None:
            add_SiteServiceServicer_to_server(site, service)
            add_AnalystServiceServicer_to_server(analyst, service)

        key = new_tls_key()
        certificate = authority.issue(
            key.public_key(),
            role=Role.COORDINATOR,
            name=self.coordinator.study.name,
            life=LIFE,
            now=datetime.datetime.now(datetime.UTC),
            hosts=[HOST],
        )
        presented = Presented(TlsKeys(key_to_pem(key), certificate, authority.pem.encode()))
        at = Listening(self.folder.address(), CONNECTIONS, 5.0)
        return serve(at, presented, register, turns=self.turns, broken=self.broken.append)

    def stop(self) -> None:
        """As `serve` stops: nobody is let in, what is being written is finished, the ledger closes."""
        self.coordinator.stop()
        self._serving.stop(grace_seconds=2.0)
        self.coordinator.close()
        assert self.broken == []
        assert self.coordinator.fault() is None


class ServedSite:
    """The agent of a folder, serving in a thread."""

    def __init__(self, path: Path, *, noise: Chance | None = None) -> None:
        folder = open_site(path)
        self.ledger = SiteLedger(folder.ledger, identity=folder.identity())
        self.agent: Agent = make_agent(folder, self.ledger, noise=noise or SecureChance())
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, name=path.name, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            self.agent.serve()
        except BaseException as error:  # noqa: BLE001 -- raised where the site is stopped
            self.failure = error

    @property
    def serves(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        self.agent.stop()
        self._thread.join(60.0)
        assert not self._thread.is_alive(), "the agent does not stop"
        self.ledger.close()
        if self.failure is not None:
            raise self.failure
