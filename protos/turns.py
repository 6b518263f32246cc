"""Whose call is worked on next: calls take turns by the name of their caller.

A few calls are worked on at once. Whoever waits is taken up round-robin over the names, and within a name in the order
of arrival: before a name's waiting call, at most one call of each other name is taken up, however many it sends.

Every call inside holds a thread, so there are only so many slots: some that are a name's own, whoever else calls, and
some that all share. A call that finds no slot is told at once to ask again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from wardround.federation.errors import PeerUnreachable

CALLS_AT_ONCE = 8
CALLS_OF_ONE_NAME = 32
# One to wait for news with, and one to act with.
OWN_SLOTS = 2
SHARED_SLOTS = 128
# Threads are made when they are needed, so slots for a consortium that grows while it serves cost nothing.
FEWEST_NAMES = 64
# One name may work on this share of the calls at once: slow calls of one caller leave the others some.
_SHARE_OF_ONE_NAME = 2
# A request follows the beginning of its call at once, unless somebody plays with us.
_READING_SECONDS = 0.2
_TELLING_SECONDS = 60.0
_NAMES_TOLD = 5
_BUSY = "The coordinator has as many calls of this caller as it takes at once; ask again."

log = logging.getLogger("wardround.wire")

WAITS, SERVED = "waits", "served"
Watch = Callable[[str, str], None]


class Turns:
    """The turns of one service; `watch` is told of every call that waits or is taken up, in that order."""

    def __init__(
        self,
        *,
        names: int = FEWEST_NAMES,
        at_once: int = CALLS_AT_ONCE,
        of_one_name: int = CALLS_OF_ONE_NAME,
        shared_slots: int = SHARED_SLOTS,
        watch: Watch | None = None,
    ) -> None:
        self.slots = OWN_SLOTS * names + shared_slots
        self._shared_slots = shared_slots
        self._of_one_name = of_one_name
        self._share = max(1, at_once // _SHARE_OF_ONE_NAME)
        self._watch = watch
        self._guard = threading.Lock()
        self._inside: Counter[str] = Counter()
        self._shared = 0
        self._refused: Counter[str] = Counter()
        self._told = -_TELLING_SECONDS
        self._free = at_once
        self._working: Counter[str] = Counter()
        self._waiting: dict[str, deque[threading.Lock]] = {}
        # Names with a waiting call that may be taken up, next first: a dictionary is a set that knows its order.
        self._line: dict[str, None] = {}
        # Calls that have a turn and wait for their request, each with its name and since when.
        self._reading: dict[object, tuple[str, float]] = {}
        self._thread = threading.local()

    @contextmanager
    def slot(self, name: str) -> Iterator[None]:
        """A slot inside for one call of this name; `PeerUnreachable` at once when there is none."""
        with self._guard:
            own = self._inside[name] < OWN_SLOTS
            room = own or (self._inside[name] < self._of_one_name and self._shared < self._shared_slots)
            if not room or self._inside.total() >= self.slots:
                self._refused[name] += 1
                self._tell_refused()
                raise PeerUnreachable(_BUSY)
            self._inside[name] += 1
            self._shared += not own
        try:
            yield
        finally:
            with self._guard:
                _less(self._inside, name)
                self._shared -= self._inside[name] >= OWN_SLOTS

    @contextmanager
    def turn(self, name: str) -> Iterator[None]:
        """Wait until it is this name's turn, and keep it for the block."""
        self._take(name)
        self._thread.name = name
        try:
            yield
        finally:
            self._thread.name = None
            self._give_back(name)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Let others work while this thread waits for something; a thread that has no turn just waits."""
        name: str | None = getattr(self._thread, "name", None)
        if name is None:
            yield
            return
        self._thread.name = None
        self._give_back(name)
        try:
            yield
        finally:
            self._take(name)
            self._thread.name = name

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Keep the turn while a request is read, which has mostly come already; not while its caller keeps it back."""
        name: str = self._thread.name
        mark = object()
        with self._guard:
            self._reading[mark] = (name, time.monotonic())
        try:
            yield
        finally:
            with self._guard:
                kept = self._reading.pop(mark, None) is not None
            if not kept:
                self._take(name)

    def _tell_refused(self) -> None:
        """Log who finds no slot, now and then: a line for each call would let a caller fill the disk."""
        now = time.monotonic()
        if now - self._told < _TELLING_SECONDS:
            return
        self._told = now
        most = ", ".join(f"{name} ({calls})" for name, calls in self._refused.most_common(_NAMES_TOLD))
        log.warning("too many calls at once, told to ask again: %s", most)
        self._refused.clear()

    def _take(self, name: str) -> None:
        with self._guard:
            if self._free and self._working[name] < self._share:
                self._serve(name)
                return
            gate = threading.Lock()
            gate.acquire()
            self._waiting.setdefault(name, deque()).append(gate)
            self._line_up(name)
            if self._watch is not None:
                self._watch(WAITS, name)
        # Opened by whoever gives a turn back, and that may be nobody for a while: whoever waits sees to it then.
        while not gate.acquire(timeout=_READING_SECONDS):
            self._end_slow_readings()

    def _end_slow_readings(self) -> None:
        with self._guard:
            began = time.monotonic() - _READING_SECONDS
            slow = [(mark, name) for mark, (name, since) in self._reading.items() if since <= began]
            for mark, name in slow:
                del self._reading[mark]
                self._pass_on(name)

    def _give_back(self, name: str) -> None:
        with self._guard:
            self._pass_on(name)

    def _pass_on(self, name: str) -> None:
        self._free += 1
        _less(self._working, name)
        self._line_up(name)
        while self._free and self._line:
            following = next(iter(self._line))
            del self._line[following]
            gate = self._waiting[following].popleft()
            if not self._waiting[following]:
                del self._waiting[following]
            self._serve(following)
            self._line_up(following)
            gate.release()

    def _serve(self, name: str) -> None:
        self._free -= 1
        self._working[name] += 1
        if self._watch is not None:
            self._watch(SERVED, name)

    def _line_up(self, name: str) -> None:
        """Put the name at the end of the line, unless it stands there, has nothing to do or works on its share."""
        if name in self._waiting and self._working[name] < self._share:
            self._line.setdefault(name)


def _less(counts: Counter[str], name: str) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]
