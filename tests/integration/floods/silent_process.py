"""Connections that say nothing: HOST PORT COUNT [again]. A test's attacker, at the lowest priority.

Prints a line once all connections were made, and holds them until its input ends. With `again` whatever the other side
closes is dialled anew, for as long.
"""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import socket
import sys
import threading


def main(address: tuple[str, int], count: int, *, again: bool) -> None:
    os.nice(19)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    held = selectors.DefaultSelector()
    for _ in range(count):
        dial(held, address)
    print(count, flush=True)
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    while not ended.is_set():
        for key, _ in held.select(timeout=0.1):
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            with contextlib.suppress(OSError):
                if connection.recv(4096):
                    continue
            held.unregister(connection)
            connection.close()
            if again:
                dial(held, address)


def dial(held: selectors.BaseSelector, address: tuple[str, int]) -> None:
    connection = socket.socket()
    connection.setblocking(False)
    connection.connect_ex(address)
    held.register(connection, selectors.EVENT_READ)


if __name__ == "__main__":
    main((sys.argv[1], int(sys.argv[2])), int(sys.argv[3]), again=sys.argv[4:] == ["again"])
