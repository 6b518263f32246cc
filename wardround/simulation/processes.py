"""Sites of a simulation in processes of their own, so that a thousand of them use every core.

The coordinator stays where it is. A process holds the production agents of its sites and reaches the coordinator
through one pipe: it asks for the tasks of the next few sites at once, and hands in each answer by itself. What a
site releases, and in which order it writes, is the same as in one process.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import selectors
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import NamedTuple, Protocol, TypeAlias

from site_agent.agent import Agent
from wardround.federation.errors import FederationError, InvariantBroken, Mistaken, PeerUnreachable
from wardround.federation.ledger.entry import Entry
from wardround.federation.plan import Plan
from wardround.federation.task import SignedTask, Submission, Task
from wardround.simulation.sites import Ground, Newcomer, SimulatedSite, begin_site

_AT_ONCE = 16
"""The tasks of so many sites travel together: the plan that they share is written once for all of them."""


class Desk(Protocol):
    """The coordinator's two doors for sites."""

    def claim(self, site: str, *, wait_seconds: float) -> SignedTask | None:
        """The next task of a site."""

    def submit(self, site: str, submission: Submission) -> Entry | None:
        """Take a site's answer."""


# --- What is said through a pipe ------------------------------------------------------------------------


class _Began(NamedTuple):
    newcomers: tuple[Newcomer, ...]


class _Claims(NamedTuple):
    sites: tuple[str, ...]


class _Answered(NamedTuple):
    site: str
    submission: Submission


class _Rested(NamedTuple):
    """Every site of the process had its turn: whether one did something, or why they stopped."""

    worked: bool
    error: FederationError | None = None


@dataclass(frozen=True, slots=True)
class _Stopped:
    """The coordinator failed; whoever asked it will say why."""


_Call: TypeAlias = _Began | _Claims | _Answered | _Rested
_Reply: TypeAlias = tuple[SignedTask | None, ...] | Entry | _Stopped | None


# --- Where the coordinator is ---------------------------------------------------------------------------


class SitesElsewhere:
    """Processes with sites in them, and the pipes to them."""

    def __init__(self, sites: Mapping[str, SimulatedSite], ground: Ground, *, processes: int) -> None:
        spawning = multiprocessing.get_context("spawn")
        self._running: list[tuple[SpawnProcess, Connection]] = []
        self._calling = selectors.DefaultSelector()
        names = list(sites)
        try:
            for number in range(processes):
                held = {name: sites[name] for name in names[number::processes]}
                ours, theirs = spawning.Pipe()
                process = spawning.Process(target=_work, args=(theirs, held, ground), daemon=True)
                with contextlib.closing(theirs), _sendable():
                    process.start()
                self._running.append((process, ours))
                self._calling.register(ours, selectors.EVENT_READ)
        except BaseException:
            self.close()
            raise

    def newcomers(self) -> Iterator[Newcomer]:
        """The sites that began, process by process."""
        for _, pipe in self._running:
            with self._whole():
                call = _heard(pipe)
            match call:
                case _Began(newcomers):
                    yield from newcomers
                case _Rested(error=FederationError() as error):
                    raise error
                case _:
                    raise InvariantBroken(private="a process of the simulation spoke out of turn")

    def turn(self, desk: Desk) -> bool:
        """Every site takes one turn; whether any of them did something."""
        if not self._running:
            raise PeerUnreachable("The processes of the simulation have ended; make the federation anew.")
        with self._whole():
            return self._turn(desk)

    @contextlib.contextmanager
    def _whole(self) -> Iterator[None]:
        """Nobody is left half way: what is broken off in the middle of a call ends every process."""
        try:
            yield
        except (EOFError, ConnectionError):
            self.close()
            raise InvariantBroken("A process of the simulation ended while its sites worked.") from None
        except FederationError:
            raise
        except BaseException:
            self.close()
            raise

    def _turn(self, desk: Desk) -> bool:
        pipes = {pipe.fileno(): pipe for _, pipe in self._running}
        for pipe in pipes.values():
            _tell(pipe, None)
        working, worked, errors = len(self._running), False, list[FederationError]()
        while working:
            for key, _ in self._calling.select():
                pipe = pipes[key.fd]
                match _heard(pipe):
                    case _Rested(did, error):
                        working, worked = working - 1, worked or did
                        errors += [] if error is None else [error]
                    case call:
                        _tell(pipe, _served(call, desk, errors))
        if errors:
            raise errors[0]
        return worked

    def close(self) -> None:
        """Let every process close its ledgers and end."""
        for _, pipe in self._running:
            pipe.close()
        for process, _ in self._running:
            process.join()
        self._calling.close()
        self._running.clear()


def _served(call: _Call, desk: Desk, errors: list[FederationError]) -> _Reply:
    """The coordinator's reply; its error is noted, and the sites that called take no further turn."""
    if errors:
        return _Stopped()
    try:
        match call:
            case _Claims(sites):
                return tuple(desk.claim(site, wait_seconds=0.0) for site in sites)
            case _Answered(site, submission):
                return desk.submit(site, submission)
    except FederationError as error:
        errors.append(error)
        return _Stopped()
    raise InvariantBroken(private="a process of the simulation spoke out of turn")


@contextlib.contextmanager
def _sendable() -> Iterator[None]:
    """What cannot be sent to another process, as one sentence."""
    try:
        yield
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise Mistaken(
            "a simulation in several processes needs tables, noise and policies that can be pickled "
            f"({error}); leave out processes, or use classes that are defined in a module."
        ) from None


# --- Where the sites are --------------------------------------------------------------------------------


class _Window:
    """The coordinator behind a pipe, for the sites of one process in the order of their turns."""

    def __init__(self, pipe: Connection, sites: tuple[str, ...]) -> None:
        self._pipe = pipe
        self._sites = sites
        self._places = {site: place for place, site in enumerate(sites)}
        self._tasks: dict[str, SignedTask | None] = {}
        self._plan: Plan | None = None

    def claim(self, site: str) -> SignedTask | None:
        """The site's task, fetched with those of the sites after it."""
        if site not in self._tasks:
            place = self._places[site]
            sites = self._sites[place : place + _AT_ONCE]
            tasks = self._called(_Claims(sites))
            if not isinstance(tasks, tuple):
                raise InvariantBroken(private="tasks were asked for, and something else came")
            self._tasks = dict(zip(sites, map(self._same, tasks), strict=True))
        return self._tasks.pop(site)

    def _same(self, signed: SignedTask | None) -> SignedTask | None:
        """The task over the plan that the sites before have worked with: what follows from a plan is kept on it."""
        if signed is None:
            return None
        task = signed.task
        if self._plan is None or self._plan.encoding != task.plan.encoding:
            self._plan = task.plan
        return SignedTask(Task(self._plan, task.site, task.head), signed.signature)

    def submit(self, site: str, submission: Submission) -> Entry | None:
        """Hand over an answer."""
        receipt = self._called(_Answered(site, submission))
        if isinstance(receipt, tuple):
            raise InvariantBroken(private="a receipt was waited for, and tasks came")
        return receipt

    def forget(self) -> None:
        """Drop the tasks of a turn that ended early: they will be handed out again."""
        self._tasks.clear()

    def _called(self, call: _Call) -> tuple[SignedTask | None, ...] | Entry | None:
        _tell(self._pipe, call)
        reply: _Reply = pickle.loads(self._pipe.recv_bytes())  # noqa: S301 -- from the process that started this one
        if isinstance(reply, _Stopped):
            raise PeerUnreachable
        return reply


@dataclass(frozen=True, slots=True)
class _WindowLink:
    """One site's way to the coordinator."""

    window: _Window
    site: str

    def claim(self, *, wait_seconds: float) -> SignedTask | None:
        """The next task; nobody waits in a simulation."""
        del wait_seconds
        return self.window.claim(self.site)

    def submit(self, submission: Submission) -> Entry | None:
        """Hand over an answer."""
        return self.window.submit(self.site, submission)

    def upkeep(self) -> None:
        """Nothing expires here."""

    def close(self) -> None:
        """The pipe is every site's."""


def _work(pipe: Connection, sites: Mapping[str, SimulatedSite], ground: Ground) -> None:
    """A process's whole life: begin the sites, give each its turn when told to, end when the pipe does."""
    # Ctrl-C is for the process that asks; this one ends with its pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    window = _Window(pipe, tuple(sites))
    # An end of the pipe is how the process that asks says that it is done, or shows that it is gone.
    with contextlib.suppress(EOFError, ConnectionError), contextlib.ExitStack() as stack:
        agents, newcomers = list[Agent](), list[Newcomer]()
        try:
            for name, site in sites.items():
                agent, newcomer = begin_site(name, site, _WindowLink(window, name), ground)
                stack.callback(agent.ledger.close)
                agents.append(agent)
                newcomers.append(newcomer)
        except FederationError as error:
            _tell(pipe, _Rested(worked=False, error=error))
            return
        _tell(pipe, _Began(tuple(newcomers)))
        while True:
            pipe.recv_bytes()
            _tell(pipe, _turn(agents, window))


def _turn(agents: list[Agent], window: _Window) -> _Rested:
    worked = False
    try:
        for agent in agents:
            worked |= agent.step(wait_seconds=0.0)
    except PeerUnreachable:
        return _Rested(worked)
    except FederationError as error:
        return _Rested(worked, error)
    finally:
        window.forget()
    return _Rested(worked)


def _tell(pipe: Connection, word: _Call | _Reply) -> None:
    pipe.send_bytes(pickle.dumps(word, protocol=pickle.HIGHEST_PROTOCOL))


def _heard(pipe: Connection) -> _Call:
    call: _Call = pickle.loads(pipe.recv_bytes())  # noqa: S301 -- from a process that this one started
    return call
