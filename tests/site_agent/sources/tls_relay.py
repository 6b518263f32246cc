"""TLS in front of a PostgreSQL that was built without: whoever asks for TLS gets it, and comes from another address.

So rules of pg_hba.conf can tell the two apart, as hostssl and hostnossl would.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

from tests.fixtures.ports import HOST

OVER_TLS = "127.0.0.2"
_SSL_REQUEST = struct.pack("!ii", 8, 80877103)
_SECONDS = 60.0


@contextlib.contextmanager
def relay(port: int, *, certificate: Path, key: Path) -> Iterator[int]:
    """The port of a relay to the server at `port`."""
    presented = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    presented.load_cert_chain(certificate, key)
    with socket.create_server((HOST, 0)) as listening:
        threading.Thread(target=_accept, args=(listening, port, presented), daemon=True).start()
        yield int(listening.getsockname()[1])
        # A thread that waits for a connection does not notice that its socket was closed.
        listening.shutdown(socket.SHUT_RDWR)


def _accept(listening: socket.socket, port: int, presented: ssl.SSLContext) -> None:
    with contextlib.suppress(OSError):
        while True:
            caller, _ = listening.accept()
            caller.settimeout(_SECONDS)
            threading.Thread(target=_carry, args=(caller, port, presented), daemon=True).start()


def _carry(caller: socket.socket, port: int, presented: ssl.SSLContext) -> None:
    with contextlib.suppress(OSError), contextlib.ExitStack() as closing:
        closing.enter_context(caller)
        first, source = caller.recv(8, socket.MSG_PEEK | socket.MSG_WAITALL), HOST
        if first == _SSL_REQUEST:
            caller.recv(8)
            caller.sendall(b"S")
            caller, source = closing.enter_context(presented.wrap_socket(caller, server_side=True)), OVER_TLS
        address = (HOST, port)
        onward = closing.enter_context(socket.create_connection(address, _SECONDS, source_address=(source, 0)))
        back = threading.Thread(target=_pump, args=(onward, caller), daemon=True)
        back.start()
        _pump(caller, onward)
        back.join(_SECONDS)


def _pump(origin: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while content := origin.recv(65536):
            target.sendall(content)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
