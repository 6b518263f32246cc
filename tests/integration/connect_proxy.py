"""A small HTTP CONNECT proxy, as a hospital's network would have: it counts the ways it opened."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

from tests.fixtures.ports import HOST, take_port

_BYTES = 65536


class ConnectProxy:
    """Accepts CONNECT and copies bytes both ways, one thread for each direction."""

    def __init__(self) -> None:
        self._listening = socket.create_server((HOST, take_port()))
        self.address = f"{HOST}:{self._listening.getsockname()[1]}"
        self.opened: list[str] = []
        self._open: list[socket.socket] = []

    def serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = self._listening.accept()
                self._open.append(caller)
                threading.Thread(target=self._connect, args=(caller,), daemon=True).start()

    def _connect(self, caller: socket.socket) -> None:
        head = b""
        with contextlib.suppress(OSError):
            while b"\r\n\r\n" not in head:
                piece = caller.recv(_BYTES)
                if not piece:
                    return
                head += piece
            verb, target, _ = head.split(b"\r\n")[0].split(b" ")
            if verb != b"CONNECT":
                caller.sendall(b"HTTP/1.1 405 Method Not Allowed\r\n\r\n")
                caller.close()
                return
            host, _, port = target.decode().rpartition(":")
            other = socket.create_connection((host, int(port)))
            self._open.append(other)
            self.opened.append(target.decode())
            caller.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            threading.Thread(target=_copy, args=(other, caller), daemon=True).start()
            _copy(caller, other)

    def close(self) -> None:
        self._listening.close()
        for one in self._open:
            one.close()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(_BYTES):
            target.sendall(piece)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def connect_proxy() -> Iterator[ConnectProxy]:
    proxy = ConnectProxy()
    threading.Thread(target=proxy.serve, daemon=True).start()
    try:
        yield proxy
    finally:
        proxy.close()
