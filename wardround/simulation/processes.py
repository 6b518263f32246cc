"""Sites of a simulation in processes of their own, so that a thousand of them use every core.

The coordinator stays where it is. A process holds the production agents of its sites and reaches the coordinator
through one pipe. Answers and tasks of a few sites travel together, and the process works on the next few while the
coordinator takes the last ones in, so that neither waits for the other. What a site releases, and in which order it
writes, is the same as in one process.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import selectors
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import NamedTuple, Protocol, TypeAlias

from site_agent.serving.agent import Agent
from wardround.federation.errors import FederationError, InvariantBroken, Mistaken, PeerUnreachable
from wardround.federation.plan.plan import Plan
from wardround.federation.plan.recalled import Recalled
from wardround.federation.plan.task import Failed, SignedTask, Submission, Task
from wardround.federation.trust.enrolment import Standing
from wardround.federation.trust.entry import Entry, Head
from wardround.simulation.sites import Ground, Newcomer, SimulatedSite, begin_site

_AT_ONCE = 16
"""So many sites' answers and tasks travel together; the plan that tasks share is written once for all of them."""

_NOT_UP = (
    "a process of the simulation ended before its sites began; it printed why. "
    'A program with processes begins at `if __name__ == "__main__":`.'
)
_TURN = b"turn"
"""What tells a process to give each of its sites a turn."""


class Desk(Protocol):
    """The coordinator's two doors for sites."""

    def claim(self, site: str, *, wait_seconds: float) -> SignedTask | None:
        """The next task of a site."""

    def submit(self, site: str, submission: Submission) -> Entry | None:
        """Take a site's answer."""


# --- What is said through a pipe ------------------------------------------------------------------------


class _Began(NamedTuple):
    newcomers: tuple[Newcomer, ...]


class _Exchange(NamedTuple):
    """Answers for the coordinator, and the sites that would like a task."""

    answers: tuple[tuple[str, Submission], ...]
    wanted: tuple[str, ...]


class _Exchanged(NamedTuple):
    """A receipt for each answer, and a task for each site that has one to do."""

    receipts: tuple[Entry | None, ...]
    tasks: tuple[SignedTask | None, ...]


class _Rested(NamedTuple):
    """Every site of the process had its turn: whether one did something, or why they stopped."""

    worked: bool
    error: FederationError | None = None


@dataclass(frozen=True, slots=True)
class _Stopped:
    """The coordinator failed; whoever asked it will say why."""


_Call: TypeAlias = _Began | _Exchange | _Rested
_Reply: TypeAlias = _Exchanged | _Stopped


# --- Where the coordinator is ---------------------------------------------------------------------------


class SitesElsewhere:
    """Processes with sites in them, and the pipes to them."""

    def __init__(self, sites: Mapping[str, SimulatedSite], ground: Ground, *, processes: int) -> None:
        spawning = multiprocessing.get_context("spawn")
        self._running: list[tuple[SpawnProcess, Connection]] = []
        self._calling = selectors.DefaultSelector()
        names = list(sites)
        given = [_packed({name: sites[name] for name in names[number::processes]}) for number in range(processes)]
        try:
            for _ in range(processes):
                ours, theirs = spawning.Pipe()
                process = spawning.Process(target=_work, args=(theirs, ground), daemon=True)
                with contextlib.closing(theirs):
                    process.start()
                self._running.append((process, ours))
                self._calling.register(ours, selectors.EVENT_READ)
            # Only now: who is given much reads it when it is up, and the others need not wait for that.
            with self._whole(Mistaken(_NOT_UP)):
                for (_, pipe), held in zip(self._running, given, strict=True):
                    pipe.send_bytes(held)
        except BaseException:
            self.close()
            raise

    def newcomers(self) -> Iterator[Newcomer]:
        """The sites that began, process by process."""
        for _, pipe in self._running:
            with self._whole(Mistaken(_NOT_UP)):
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
        with self._whole(InvariantBroken("A process of the simulation ended while its sites worked.")):
            return self._turn(desk)

    @contextlib.contextmanager
    def _whole(self, gone: FederationError) -> Iterator[None]:
        """Nobody is left half way: what is broken off in the middle of a call ends every process.

        `gone` is what to say where one of them ended by itself.
        """
        try:
            yield
        except (EOFError, ConnectionError):
            self.close()
            raise gone from None
        except FederationError:
            raise
        except BaseException:
            self.close()
            raise

    def _turn(self, desk: Desk) -> bool:
        pipes = {pipe.fileno(): pipe for _, pipe in self._running}
        for pipe in pipes.values():
            pipe.send_bytes(_TURN)
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
        if isinstance(call, _Exchange):
            receipts = tuple(desk.submit(site, submission) for site, submission in call.answers)
            return _Exchanged(receipts, tuple(desk.claim(site, wait_seconds=0.0) for site in call.wanted))
    except FederationError as error:
        errors.append(error)
        return _Stopped()
    raise InvariantBroken(private="a process of the simulation spoke out of turn")


def _packed(sites: Mapping[str, SimulatedSite]) -> bytes:
    """What a process is given; what cannot be sent to one, as one sentence."""
    try:
        return pickle.dumps(sites, protocol=pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise Mistaken(
            "a simulation in several processes needs tables, noise and policies that can be pickled "
            f"({error}); leave out processes, or use classes that are defined in a module."
        ) from None


# --- Where the sites are --------------------------------------------------------------------------------


class _Window:
    """The coordinator behind a pipe: one exchange at a time, which may be under way while sites work."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._under_way = False
        self._plan: Plan | None = None
        self.owed = False
        """Whether a turn was broken off, so that answers may be kept that have not arrived."""

    def begin(self, answers: tuple[tuple[str, Submission], ...] = (), wanted: tuple[str, ...] = ()) -> None:
        """Hand answers over and ask for tasks, without waiting."""
        _tell(self._pipe, _Exchange(answers, wanted))
        self._under_way = True

    def end(self) -> _Exchanged:
        """What the exchange that is under way brings."""
        reply: _Reply = pickle.loads(self._pipe.recv_bytes())  # noqa: S301 -- from the process that started this one
        self._under_way = False
        if isinstance(reply, _Stopped):
            raise PeerUnreachable
        return _Exchanged(reply.receipts, tuple(map(self._same, reply.tasks)))

    def break_off(self) -> None:
        """Let an exchange come to its end unheard: tasks are handed out again, and so are receipts."""
        if self._under_way:
            self._pipe.recv_bytes()
            self._under_way = False

    def _same(self, signed: SignedTask | None) -> SignedTask | None:
        """The task over the plan that the sites before have worked with: what follows from a plan is kept on it."""
        if signed is None:
            return None
        task = signed.task
        if self._plan is None or self._plan.encoding != task.plan.encoding:
            self._plan = task.plan
        return replace(signed, task=Task(self._plan, task.site, task.head))


@dataclass(frozen=True, slots=True)
class _WindowLink:
    """One site's way to the coordinator."""

    window: _Window
    site: str

    def claim(self, *, wait_seconds: float, receipt: Entry | None = None) -> SignedTask | None:
        del wait_seconds, receipt
        self.window.begin(wanted=(self.site,))
        return self.window.end().tasks[0]

    def submit(self, submission: Submission) -> Entry | None:
        self.window.begin(answers=((self.site, submission),))
        return self.window.end().receipts[0]

    def show(self, chain: Sequence[Entry]) -> None:
        """Nothing is ever lost here."""

    def rejoin(self, chain: Sequence[Entry], recalled: Iterable[Recalled], head: Head) -> None:
        """Nobody comes back."""

    def upkeep(self, receipt: Entry | None = None) -> Standing | None:  # noqa: ARG002
        """Nothing expires here, and nobody comes back."""
        return None

    def greet_again(self) -> None:
        """Nobody was greeted."""

    def close(self) -> None:
        """The pipe is every site's."""


def _work(pipe: Connection, ground: Ground) -> None:
    """A process's whole life: begin the sites, give each its turn when told to, end when the pipe does."""
    # Ctrl-C is for the process that asks; this one ends with its pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    window = _Window(pipe)
    # An end of the pipe is how the process that asks says that it is done, or shows that it is gone.
    with contextlib.suppress(EOFError, ConnectionError), contextlib.ExitStack() as stack:
        sites: Mapping[str, SimulatedSite] = pickle.loads(pipe.recv_bytes())  # noqa: S301 -- as above
        agents, newcomers = dict[str, Agent](), list[Newcomer]()
        try:
            for name, site in sites.items():
                agent, newcomer = begin_site(name, site, _WindowLink(window, name), ground)
                stack.callback(agent.ledger.close)
                agents[name] = agent
                newcomers.append(newcomer)
        except FederationError as error:
            _tell(pipe, _Rested(worked=False, error=error))
            return
        _tell(pipe, _Began(tuple(newcomers)))
        while True:
            pipe.recv_bytes()
            _tell(pipe, _turn(agents, window))


def _turn(agents: Mapping[str, Agent], window: _Window) -> _Rested:
    """Deliver what is owed, then answer one task of each site that has one."""
    owed, window.owed = window.owed, True
    try:
        if owed:
            for agent in agents.values():
                agent.deliver()
        worked = _worked(agents, window)
    except PeerUnreachable:
        return _Rested(worked=False)
    except FederationError as error:
        return _Rested(worked=False, error=error)
    finally:
        window.break_off()
    window.owed = False
    return _Rested(worked)


def _worked(agents: Mapping[str, Agent], window: _Window) -> bool:
    """A few sites at a time; while they work, the answers of those before and the tasks of those after travel."""
    names = tuple(agents)
    groups = [names[start : start + _AT_ONCE] for start in range(0, len(names), _AT_ONCE)]
    worked, sent = False, tuple[tuple[str, Submission], ...]()
    window.begin(wanted=groups[0])
    tasks = window.end().tasks
    for group, later in zip(groups, [*groups[1:], ()], strict=True):
        window.begin(sent, later)
        answers = tuple(
            (name, agents[name].work(task)) for name, task in zip(group, tasks, strict=True) if task is not None
        )
        worked |= any(not isinstance(submission, Failed) for _, submission in answers)
        tasks = _acknowledged(agents, sent, window.end())
        sent = answers
    window.begin(sent)
    _acknowledged(agents, sent, window.end())
    return worked


def _acknowledged(
    agents: Mapping[str, Agent], sent: tuple[tuple[str, Submission], ...], exchanged: _Exchanged
) -> tuple[SignedTask | None, ...]:
    """Every site notes its receipt; the tasks that came with them."""
    for (name, submission), receipt in zip(sent, exchanged.receipts, strict=True):
        agents[name].arrived(submission, receipt)
    return exchanged.tasks


def _tell(pipe: Connection, word: _Call | _Reply) -> None:
    pipe.send_bytes(pickle.dumps(word, protocol=pickle.HIGHEST_PROTOCOL))


def _heard(pipe: Connection) -> _Call:
    call: _Call = pickle.loads(pipe.recv_bytes())  # noqa: S301 -- from a process that this one started
    return call
