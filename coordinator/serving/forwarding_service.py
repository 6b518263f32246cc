"""The enrolment port, in a process of its own: it ends TLS for strangers and forwards what they ask.

It has no ledger and no key but that of its own certificate, and decides nothing. What a flood of strangers uses up, of
descriptors, memory and processor time, is its own; the coordinator answers one of its questions at a time. It ends when
its standard input does: with the coordinator, however that ended.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import sys
import threading
from dataclasses import asdict, dataclass

import grpc

from coordinator.serving.local_socket import LocalSocket
from protos._generated import enrolment_service_pb2 as pb
from protos._generated.enrolment_service_pb2_grpc import (
    EnrolmentServiceServicer,
    add_EnrolmentServiceServicer_to_server,
)
from protos.channels import Listening
from protos.serving import serve
from protos.statuses import decode_fault, error_of
from protos.tls import Presented, TlsKeys
from protos.turns import Turns
from wardround.federation.errors import ConfigurationMistaken, InvariantBroken, PeerUnreachable
from wardround.federation.plain_text import escaped

ANSWERED, REFUSED = b"+", b"-"
STOP_SECONDS = 5.0
# Members' calls come first where both compete for a processor.
_NICER = 5
# Addresses take turns here, as members' names do at the other port; whose one may be is not known, so few are enough.
_NAMES, _OF_ONE_ADDRESS, _SHARED_SLOTS = 32, 8, 32

log = logging.getLogger("wardround.enrolment")


@dataclass(frozen=True, slots=True)
class Orders:
    """Where to listen, and the keys to show; the first line of standard input, and each time the keys change."""

    address: str
    connections: int
    handshake_seconds: float
    keys: TlsKeys

    def line(self) -> bytes:
        texts = {name: value.decode() for name, value in asdict(self.keys).items()}
        return json.dumps(asdict(self) | {"keys": texts}).encode() + b"\n"


def orders_of(line: bytes) -> Orders:
    """The orders in a line."""
    found = json.loads(line)
    keys = TlsKeys(**{name: text.encode() for name, text in found["keys"].items()})
    return Orders(found["address"], found["connections"], found["handshake_seconds"], keys)


class ForwardingService(EnrolmentServiceServicer):
    """Hands each request to the coordinator, one at a time, and its answer back."""

    def __init__(self, coordinator: LocalSocket) -> None:
        self._coordinator = coordinator
        self._one_at_a_time = threading.Lock()

    def Enrol(self, request: pb.EnrolRequest, context: grpc.ServicerContext) -> pb.EnrolReply:
        """Ask the coordinator, which alone decides."""
        try:
            with self._one_at_a_time:
                self._coordinator.send(request.SerializeToString())
                reply = self._coordinator.receive()
        except OSError:
            raise PeerUnreachable("The coordinator is stopping; ask again.") from None
        if reply[:1] != ANSWERED:
            raise error_of(decode_fault(reply[1:]))
        return pb.EnrolReply.FromString(reply[1:])


class _OneLine(logging.Formatter):
    """A record in one line, so that nothing it quotes can begin another one."""

    def format(self, record: logging.LogRecord) -> str:
        return escaped(super().format(record))


def main() -> None:
    """Listen as ordered until standard input ends."""
    # Both come to the coordinator too, which lets calls end first.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.nice(_NICER)
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(_OneLine("%(asctime)s %(name)s %(levelname)s %(message)s"))
    # Who is refused, and why, is logged where it is decided.
    logging.basicConfig(handlers=[lines], level=logging.WARNING)
    coordinator = LocalSocket(socket.socket(fileno=int(sys.argv[1])))
    first = sys.stdin.buffer.readline()
    if not first:
        return
    orders = orders_of(first)
    presented = Presented(orders.keys)
    try:
        service = serve(
            Listening(orders.address, orders.connections, orders.handshake_seconds, strangers=True),
            presented,
            lambda found: add_EnrolmentServiceServicer_to_server(ForwardingService(coordinator), found),
            turns=Turns(names=_NAMES, at_once=1, of_one_name=_OF_ONE_ADDRESS, shared_slots=_SHARED_SLOTS),
            broken=_say_broken,
        )
    except ConfigurationMistaken as mistaken:
        coordinator.send(REFUSED + mistaken.message.encode())
        return
    coordinator.send(ANSWERED + str(service.port).encode())
    for line in sys.stdin.buffer:
        presented.replace(orders_of(line).keys)
    service.stop(grace_seconds=STOP_SECONDS)


def _say_broken(error: InvariantBroken) -> None:
    log.critical("%s %s", error.code, error.private)


if __name__ == "__main__":
    main()
