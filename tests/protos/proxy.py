"""A real HTTP CONNECT proxy, as small as one can be."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.fixtures.ports import HOST, take_port


@dataclass
class Proxy:
    """Opens a way to whatever it is asked for, or answers 403; remembers what it was asked."""

    allow: bool = True
    asked: list[bytes] = field(default_factory=list)
    address: str = ""
    _open: list[socket.socket] = field(default_factory=list)

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                self._open.append(near)
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with contextlib.suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head and (received := near.recv(4096)):
                head += received
            self.asked.append(head)
            if not self.allow:
                near.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
                near.close()
                return
            host, _, port = head.split()[1].decode().rpartition(":")
            far = socket.create_connection((host, int(port)))
            self._open.append(far)
            near.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            threading.Thread(target=_copy, args=(far, near), daemon=True).start()
            _copy(near, far)


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while content := source.recv(65536):
            sink.sendall(content)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def proxying(*, allow: bool = True) -> Iterator[Proxy]:
    port = take_port()
    listener = socket.create_server((HOST, port))
    proxy = Proxy(allow, address=f"{HOST}:{port}")
    accepting = threading.Thread(target=proxy._accept, args=(listener,), daemon=True)
    accepting.start()
    try:
        yield proxy
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join()
        for end in proxy._open:
            end.close()
