"""Messages between the two processes of a coordinator, over a pair of sockets: a length, then so many bytes.

Nothing but bytes is read: what the process that strangers reach sends is not believed, and no longer than it may be.
"""

from __future__ import annotations

import socket
import struct

MOST_BYTES = 1024 * 1024
_LENGTH = struct.Struct("!I")


class LocalSocket:
    """One end of a pair; one thread at a time sends and receives."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def send(self, content: bytes) -> None:
        """Hand over one message; `OSError` when nobody is there any more."""
        self._connection.sendall(_LENGTH.pack(len(content)) + content)

    def receive(self, *, timeout_seconds: float | None = None) -> bytes:
        """The next message; `OSError` when the other side is gone, silent for too long, or sends what is no message."""
        self._connection.settimeout(timeout_seconds)
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        if length > MOST_BYTES:
            raise ConnectionAbortedError("a message is longer than it may be")
        return self._exactly(length)

    def close(self) -> None:
        self._connection.close()

    def _exactly(self, size: int) -> bytes:
        content = bytearray()
        while len(content) < size:
            piece = self._connection.recv(size - len(content))
            if not piece:
                raise ConnectionAbortedError("the other side is gone")
            content += piece
        return bytes(content)
