"""The process that has the enrolment port: started, answered and, when it dies, started again.

It is asked for nothing but to forward. One thread answers it, one question at a time and in turn with the members'
calls, so that strangers take the coordinator one call's work at most.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from coordinator.serving.forwarding_service import ANSWERED, REFUSED, Orders
from coordinator.serving.local_socket import LocalSocket
from protos.serving import Broken, outcome_of
from protos.statuses import Told, encode_fault
from protos.tls import TlsKeys
from protos.turns import Turns
from wardround.federation.errors import ConfigurationMistaken, Unavailable

# No member's name is empty.
STRANGERS = ""
START_SECONDS = 60.0
STOP_SECONDS = 10.0
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0
_FIRST_PAUSES_SECONDS = (0.1, 0.4, 1.0)
_REFUSED_PAUSE_SECONDS = 0.05
# Whoever lived this long did not die of its start.
_LONG_SECONDS = 60.0

log = logging.getLogger("wardround.coordinator")


class _Child:
    """One such process and the socket to it."""

    def __init__(self, orders: Orders) -> None:
        ours, theirs = socket.socketpair()
        self.socket = LocalSocket(ours)
        try:
            # Started anew and not forked: nothing of this process, no thread and no descriptor, comes along.
            command = [sys.executable, "-P", "-m", "coordinator.serving.forwarding_service", str(theirs.fileno())]
            self._process = subprocess.Popen(  # noqa: S603
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=(theirs.fileno(),), bufsize=0
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self.order(orders)

    def order(self, orders: Orders) -> None:
        """Hand over orders; one that is gone is started again, and gets the newest then."""
        if self._process.stdin is not None:
            try:
                self._process.stdin.write(orders.line())
            except (BrokenPipeError, ValueError):
                log.info("the enrolment process is gone and was not told of new keys")

    def port(self) -> int:
        """The port it listens at, once it does; `ConfigurationMistaken` in its own words when it cannot."""
        try:
            said = self.socket.receive(timeout_seconds=START_SECONDS)
        except OSError:
            self.end()
            raise
        if said[:1] != ANSWERED:
            self.end()
            raise ConfigurationMistaken(said[1:].decode(errors="replace"))
        return int(said[1:])

    def dismiss(self) -> None:
        """Let it end by itself; it is still answered meanwhile."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def end(self) -> int:
        """Whatever it does, it is gone afterwards; how it ended."""
        self.dismiss()
        self.socket.close()
        try:
            return self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


class EnrolmentPort:
    """The enrolment port of a serving coordinator."""

    def __init__(self, orders: Orders, enrol: Callable[[bytes], bytes], *, turns: Turns, broken: Broken) -> None:
        self._orders = orders
        self._enrol = enrol
        self._turns = turns
        self._broken = broken
        self._stopping = threading.Event()
        self._guard = threading.Lock()
        self._child: _Child
        self._thread = threading.Thread(target=self._attend, name="enrolment", daemon=True)

    def start(self) -> int:
        """The port, once the first process listens there; whatever keeps it from that is said."""
        # A coordinator that was killed leaves its process a moment in which it still has the port.
        for pause_seconds in _FIRST_PAUSES_SECONDS:
            with contextlib.suppress(ConfigurationMistaken):
                return self._begin()
            time.sleep(pause_seconds)
        return self._begin()

    def _begin(self) -> int:
        try:
            self._child = _Child(self._orders)
            port = self._child.port()
        except OSError as error:
            reason = "The process for the enrolment port did not start; try again."
            raise Unavailable(reason, private=str(error)) from None
        self._thread.start()
        return port

    def show(self, keys: TlsKeys) -> None:
        """Show these keys from now on."""
        with self._guard:
            self._orders = dataclasses.replace(self._orders, keys=keys)
            self._child.order(self._orders)

    def stop(self) -> None:
        """Take nobody new, answer who is there, and end the process."""
        with self._guard:
            self._stopping.set()
            self._child.dismiss()
        self._thread.join(STOP_SECONDS)
        self._child.end()
        # Nothing of an enrolment is under way any more: the ledger may be closed.
        self._thread.join()

    def _attend(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            began = time.monotonic()
            self._answer()
            code = self._child.end()
            if self._stopping.is_set():
                return
            if time.monotonic() - began > _LONG_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            while not self._started_again(pause, why=f"ended with code {code}"):
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
                if self._stopping.is_set():
                    return
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _started_again(self, pause_seconds: float, *, why: str) -> bool:
        log.warning("the enrolment process %s; it is started again in %g s", why, pause_seconds)
        if self._stopping.wait(pause_seconds):
            return False
        try:
            with self._guard:
                if self._stopping.is_set():
                    return False
                self._child = _Child(self._orders)
            self._child.port()
        except OSError as error:
            log.warning("the enrolment process cannot be started: %s", error.strerror or error)
        except ConfigurationMistaken as error:
            log.warning("the enrolment process cannot serve: %s", error.message)
        else:
            return True
        return False

    def _answer(self) -> None:
        """Answer the process until it is gone."""
        while True:
            try:
                request = self._child.socket.receive()
                reply = self._answered(request)
                self._child.socket.send(reply)
            except OSError:
                return
            if reply[:1] == REFUSED:
                # Guessing is slow, and neither the log nor a processor is filled by it.
                self._stopping.wait(_REFUSED_PAUSE_SECONDS)

    def _answered(self, request: bytes) -> bytes:
        def enrol() -> bytes:
            with self._turns.turn(STRANGERS):
                return self._enrol(request)

        outcome = outcome_of(enrol, call="Enrol", broken=self._broken)
        if isinstance(outcome, Told):
            return REFUSED + encode_fault(outcome.fault)
        return ANSWERED + outcome
