"""A TCP relay between one caller and the coordinator, which does to a call's bytes what it is told.

What passes is encrypted, so a request or a reply is known by who speaks and when: the caller says which call comes,
and the fault that is drawn for it hits the next bytes in its direction. A connection on which bytes were lost is
silent in that direction for good, until it is reset, as by a firewall that forgot it.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from tests.fixtures.ports import HOST, take_port

_BYTES = 65536
_LATE_SECONDS = 0.4
_FORGOTTEN_SECONDS = 0.8
_RESET = struct.pack("ii", 1, 0)


class Fault(StrEnum):
    """What happens to one call."""

    REFUSED = "every connection is reset before the request is sent"
    RESET = "the request resets its connection and does not arrive"
    TORN = "half of the request arrives, and then a reset"
    LOST_REQUEST = "the request and all that follows it is lost, without a word: half-open"
    LOST_REPLY = "the request arrives, the reply and all that follows it is lost: half-open"
    REPLAYED = "the request arrives, the reply resets its connection, and the caller sends it again"
    SLOW_REQUEST = "the request is late on its connection"
    SLOW_REPLY = "the reply is late on its connection"
    OVERTAKEN = "the caller's connection ends; the request arrives after those of its next connection"
    FORGOTTEN = "the caller's connection ends; the coordinator does not hear of it"


_OF_REPLIES = frozenset((Fault.LOST_REPLY, Fault.REPLAYED, Fault.SLOW_REPLY))


@dataclass(eq=False)
class _Way:
    """One connection of the caller and the one to the coordinator that continues it."""

    near: socket.socket
    far: socket.socket
    deaf: set[bool] = field(default_factory=set)

    def reset(self) -> None:
        for end in (self.near, self.far):
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                end.shutdown(socket.SHUT_RD)
            end.close()

    def hang_up(self) -> None:
        """End towards the caller alone."""
        with contextlib.suppress(OSError):
            self.near.shutdown(socket.SHUT_RDWR)


class Relay:
    """Listens for one caller, and counts what happened to which call."""

    def __init__(self, target: str, chance: random.Random) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._listening = socket.create_server((HOST, take_port()), backlog=64)
        self.port = self._listening.getsockname()[1]
        self.address = f"{HOST}:{self.port}"
        self.chance = chance
        self.faulty = 0.0
        self.done: Counter[tuple[str, Fault]] = Counter()
        self._guard = threading.Lock()
        self._ways: set[_Way] = set()
        self._next: tuple[str, Fault] | None = None
        threading.Thread(target=self._accept, name=f"relay {self.port}", daemon=True).start()

    # --- what is told -------------------------------------------------------------------------------------

    def call_comes(self, name: str) -> None:
        """The caller is about to send a request: draw what happens to it."""
        with self._guard:
            self._next = None
            if self.chance.random() >= self.faulty:
                return
            fault = self.chance.choice(list(Fault))
            if fault is Fault.REFUSED:
                self.done[name, fault] += 1
                ways, self._ways = self._ways, set()
            else:
                self._next, ways = (name, fault), set()
        for way in ways:
            way.reset()

    def fall_silent(self) -> None:
        """What is open now carries nothing more in either direction, and nobody is ever told."""
        with self._guard:
            for way in self._ways:
                way.deaf.update((True, False))

    def heal(self) -> None:
        """No more faults; what is silent by now is reset."""
        with self._guard:
            self.faulty, self._next = 0.0, None
            silent = [way for way in self._ways if way.deaf]
        for way in silent:
            self._end(way)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        with self._guard:
            ways, self._ways = self._ways, set()
        for way in ways:
            way.reset()

    # --- what passes --------------------------------------------------------------------------------------

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                try:
                    far = socket.create_connection(self._target, timeout=5.0)
                except OSError:
                    near.close()
                    continue
                far.settimeout(None)
                way = _Way(near, far)
                with self._guard:
                    self._ways.add(way)
                for request in (True, False):
                    threading.Thread(target=self._pump, args=(way, request), daemon=True).start()

    def _pump(self, way: _Way, request: bool) -> None:
        source, sink = (way.near, way.far) if request else (way.far, way.near)
        try:
            while content := source.recv(_BYTES):
                if request in way.deaf:
                    continue
                if not self._pass(way, content, sink, self._taken(request)):
                    return
        except OSError:
            # One of the two ends is gone, and so is the other one's use.
            pass
        if not way.deaf:
            self._end(way)

    def _taken(self, request: bool) -> Fault | None:
        with self._guard:
            if self._next is None or (self._next[1] in _OF_REPLIES) is request:
                return None
            (name, fault), self._next = self._next, None
            self.done[name, fault] += 1
            return fault

    def _pass(self, way: _Way, content: bytes, sink: socket.socket, fault: Fault | None) -> bool:
        """Hand bytes on, or not; whether this direction goes on."""
        match fault:
            case None:
                sink.sendall(content)
            case Fault.SLOW_REQUEST | Fault.SLOW_REPLY:
                time.sleep(self.chance.uniform(0.0, _LATE_SECONDS))
                sink.sendall(content)
            case Fault.LOST_REQUEST | Fault.LOST_REPLY:
                way.deaf.add(fault is Fault.LOST_REQUEST)
                self._later(_FORGOTTEN_SECONDS, way)
            case Fault.OVERTAKEN:
                way.deaf.add(True)
                way.hang_up()
                time.sleep(_LATE_SECONDS)
                sink.sendall(content)
                self._later(_FORGOTTEN_SECONDS, way)
            case Fault.FORGOTTEN:
                way.deaf.add(True)
                way.hang_up()
                self._later(_FORGOTTEN_SECONDS, way)
            case _:
                if fault is Fault.TORN:
                    sink.sendall(content[: len(content) // 2])
                self._end(way)
                return False
        return True

    def _later(self, seconds: float, way: _Way) -> None:
        timer = threading.Timer(seconds, self._end, (way,))
        timer.daemon = True
        timer.start()

    def _end(self, way: _Way) -> None:
        with self._guard:
            self._ways.discard(way)
        way.reset()
