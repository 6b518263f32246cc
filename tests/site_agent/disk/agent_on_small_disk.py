"""An agent whose disk fills up at one moment of a question and has room again later; says what was seen of it.

Run by test_full_disks.py on a small disk: agent_on_small_disk FOLDER MOMENT
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from site_agent.answering.admission import Approval
from site_agent.serving.agent import APPROVAL_SECONDS, Agent
from site_agent.serving.serve import when_there_is_room
from tests.site_agent.disk.small_disk import Ballast
from tests.site_agent.lone_site import NAME, LoneSite, Rows
from wardround.federation.errors import SourceFailed
from wardround.federation.forms.release import release_hash
from wardround.federation.ledger.entry_body import encode_body
from wardround.federation.ledger.sqlite_file import Durability
from wardround.federation.ledger.verify.verify import verify
from wardround.federation.plan.recalled import Recalled
from wardround.federation.plan.task import Declined, Released, SignedTask, Submission
from wardround.federation.trust.enrolment import Standing
from wardround.federation.trust.entry import EMPTY, Entry, Head, make_entry
from wardround.privacy.budget.filter import Cap

# More than readings that never end close a table.
WAITS = 8


class Waiting(threading.Event):
    """An ending that nobody waits for; after some waits there is room again."""

    def __init__(self, free: Callable[[], None]) -> None:
        super().__init__()
        self.waits, self._free = 0, free

    def wait(self, timeout: float | None = None) -> bool:
        if timeout == APPROVAL_SECONDS:
            return super().wait(timeout)
        self.waits += 1
        if self.waits >= WAITS:
            self._free()
        return self.is_set()


class Asking:
    """A coordinator that asks one question until it has heard the last word about it."""

    def __init__(self, site: LoneSite, task: SignedTask, on_submit: Callable[[], None]) -> None:
        self.site, self.task, self.on_submit = site, task, on_submit
        self.submitted: list[Submission] = []
        self.agent: Agent | None = None

    def claim(self, *, wait_seconds: float, receipt: Entry | None = None) -> SignedTask | None:
        del wait_seconds, receipt
        if self.submitted and self.agent is not None:
            self.agent.stop()
            return None
        return self.task

    def submit(self, submission: Submission) -> Entry | None:
        self.submitted.append(submission)
        self.on_submit()
        match submission:
            case Released():
                said = {"release_hash": release_hash(submission.payload)}
            case Declined():
                said = {"code": submission.code}
            case _:
                return None
        place = {"sequence": submission.entry.sequence, "digest": submission.entry.digest}
        body = {"plan_id": submission.plan_id, "site": NAME, **said, **place}
        kind = "received" if isinstance(submission, Released) else "declined"
        return make_entry(self.site.coordinator, after=EMPTY, kind=kind, body=encode_body(body))

    def upkeep(self, receipt: Entry | None = None) -> Standing | None:
        """Nothing expires here, and nobody is greeted."""
        del receipt

    def greet_again(self) -> None:
        """Nobody is greeted here."""

    def show(self, chain: Sequence[Entry]) -> None:
        """Nobody looks at what is shown."""

    def rejoin(self, chain: Sequence[Entry], recalled: Iterable[Recalled], head: Head) -> None:
        """Nobody comes back."""

    def close(self) -> None:
        """Nothing is open."""


class Lines(logging.Handler):
    """What the agent logs."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def main(folder: Path, moment: str) -> dict[str, object]:
    ballast, lines = Ballast(folder), Lines()
    logging.getLogger("wardround.site").addHandler(lines)
    logging.getLogger("wardround.site").setLevel(logging.INFO)

    def while_read() -> None:
        if moment in ("keep", "close"):
            ballast.fill()
        if moment == "close":
            raise SourceFailed

    def while_sent() -> None:
        if moment == "receipt" and len(link.submitted) == 1:
            ballast.fill()

    manual = Approval.MANUAL if moment == "hold" else Approval.AUTOMATIC
    site = LoneSite(folder, rows=Rows(total=7, before_reading=while_read), keeping=Durability.DURABLE, approval=manual)
    plan = site.plan(epsilon=3.0 if moment == "refuse" else 0.5)
    link = Asking(site, site.task(plan), while_sent)
    ending = Waiting(ballast.free)
    link.agent = Agent(site.pipeline, site.ledger, link, _stopping=ending)
    if moment in ("charge", "hold", "refuse", "start"):
        ballast.fill()
    if moment == "start":
        when_there_is_room(lambda: site.ledger.set_cap(Cap(3.0, 1e-6)), pause=lambda seconds: _waited(ending, seconds))
    link.agent.serve()
    seen = {
        "submitted": [type(word).__name__ for word in link.submitted],
        "same": len({repr(word) for word in link.submitted}) == 1,
        "reads": site.rows.events.count("read") + (moment == "close"),
        "charges": len(site.ledger.charges()),
        "owed": len(site.ledger.undelivered()),
        "waited": ending.waits >= WAITS,
        "closed": [closed.table for closed in site.ledger.tables.listed()],
        "lines": [line for line in lines.lines if "room" in line],
    }
    site.ledger.close()
    return {**seen, "problems": [str(problem) for problem in verify(folder).problems]}


def _waited(ending: Waiting, seconds: float) -> None:
    ending.wait(seconds)


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), sys.argv[2])))
