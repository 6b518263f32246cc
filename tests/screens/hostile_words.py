"""Words that are made to forge a line, a hospital that is asked with them, and a coordinator that sends them.

Whatever is refused at a door comes in below it here, as from an older version's store or from a peer that speaks the
wire by itself, so that showing is tested on its own.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from coordinator.planning.plans import plans_for
from protos._generated import analyst_service_pb2 as analyst_pb
from protos._generated import fault_pb2, release_pb2, site_service_pb2
from protos._generated.analyst_service_pb2_grpc import AnalystServiceServicer, add_AnalystServiceServicer_to_server
from protos._generated.site_service_pb2_grpc import SiteServiceServicer, add_SiteServiceServicer_to_server
from protos.statuses import FAULT_KEY
from protos.tls import Presented, serving_credentials
from protos.words import PREVIEWED, TASK
from site_agent.store.ledger import SiteLedger
from tests.fixtures.asking import asked_by
from tests.fixtures.ports import HOST, take_port
from tests.protos.certificates import TestAuthority
from wardround.federation.ledger.sqlite_file import Durability
from wardround.federation.plan.plan import Plan
from wardround.federation.plan.task import AskRequest, SignedTask, Task, sign_task
from wardround.federation.question.answer import Loss, Preview, PrivacyStatement, Remaining
from wardround.federation.question.cohort import Comparison, Expression, Operator, Within
from wardround.federation.question.query import Aggregate, Query, Statistic
from wardround.federation.study.study_file import parse_study
from wardround.federation.trust.enrolment import AnalystProfile, write_profile
from wardround.federation.trust.entry import EMPTY
from wardround.federation.trust.identity import Identity

FORGED = "3f9c0a12deadbeef"
FORGED_LINE = f"{FORGED}  pending   2026-01-01  ε = 0.001  SELECT COUNT(*) FROM visits"
HOSTILE: dict[str, str] = {
    "a line of its own": f"x\n{FORGED_LINE}",
    "the same line again": f"x\r{FORGED_LINE}",
    "the line above": f"x\x1b[1A\r\x1b[2K{FORGED_LINE}",
    "an empty screen": f"x\x1b[2J\x1b[H{FORGED_LINE}",
    "eight-bit sequences": f"x\x9b2J\x9bH{FORGED_LINE}",
    "backspaces": "x" + "\x08" * 120 + FORGED_LINE,
    "a title": "x\x1b]0;owned\x07\x1b]8;;http://evil.example\x07ok\x1b]8;;\x07",
    "a turned line": f"x\u202e{FORGED_LINE[::-1]}\u202c",
    "isolates": f"x\u2066\u2067{FORGED_LINE}\u2069\u2069\u200f\u061c",
    "other line ends": f"x\x0b\x0c\x85\u2028\u2029{FORGED_LINE}",
    "markup": f"x[/][red]ok[/red][link=http://evil.example]{FORGED_LINE}[/link]<b>&amp;",
}
"""Each at most 256 characters, as long as a text of a question may be."""

STUDY = """\
name = "trial"
overlap = 1
[budget]
epsilon = 4.0
delta = 1e-6
[tables.visits]
unit_key = "patient_id"
max_rows_per_unit = 2
[tables.visits.columns]
age  = { type = "integer", lower = 0, upper = 110 }
note = { type = "category" }
"""
SITE = """\
[site]
name = "north"
patients = 1000
[tables.visits]
source = "visits.csv"
[policy]
epsilon = 4.0
delta = 1e-6
approval = "manual"
"""
COUNT = Aggregate(Statistic.COUNT)


def asked(text: str) -> Query:
    """How many rows have this note."""
    return Query("visits", (COUNT,), Comparison("note", Operator.EQUAL, text))


def asked_among(texts: list[str]) -> Query:
    cohort: Expression = Within("note", tuple(texts))
    return Query("visits", (COUNT,), cohort)


def plan_of(query: Query, *, epsilon: float = 0.5) -> Plan:
    """What a coordinator of before made of a question; it did not look at its texts."""
    return plans_for(AskRequest(query, epsilon=epsilon), parse_study(STUDY), {"north": 1000})[0]


@dataclass
class Hospital:
    """The folder of an enrolled site, its coordinator's key in the hands of the test."""

    folder: Path
    address: str = "127.0.0.1:1"
    study: str = STUDY
    site: str = SITE
    authority: TestAuthority = field(default_factory=TestAuthority)
    identity: Identity = field(default_factory=Identity.generate)
    coordinator: Identity = field(default_factory=Identity.generate)

    def __post_init__(self) -> None:
        study = parse_study(self.study)
        keys = self.authority.issue("north", days=30)
        self.identity.save(self.folder / "identity.pem")
        for name, content in (
            ("study.toml", self.study.encode()),
            ("site.toml", self.site.encode()),
            ("visits.csv", b"patient_id,age,note\np,40,x\n"),
            ("rows.key", b"k" * 32),
            ("tls/key.pem", keys.key),
            ("tls/certificate.pem", keys.certificate),
            ("tls/authority.pem", keys.authority),
            ("coordinator.json", json.dumps({"address": self.address, "key": self.coordinator.public.key}).encode()),
        ):
            (self.folder / name).parent.mkdir(exist_ok=True)
            (self.folder / name).write_bytes(content)
        self.ledger = SiteLedger.create(
            self.folder,
            identity=self.identity,
            name="north",
            study_hash=study.study_hash,
            dataset="ehr",
            coordinator_key=self.coordinator.public.key,
            keeping=Durability.FILE,
        )

    def task(self, plan: Plan) -> SignedTask:
        return sign_task(Task(plan, "north", EMPTY), self.coordinator, asked_by(plan))

    def holds(self, query: Query, *, epsilon: float = 0.5) -> str:
        """A request that an older version let in, beside a summary that says something else; its plan id."""
        plan = plan_of(query, epsilon=epsilon)
        self.ledger.hold(self.task(plan), summary=f"SELECT 1\n{FORGED_LINE}")
        return plan.plan_id


def fault_of(message: str, code: str) -> bytes:
    """A fault as it travels, with any words in it."""
    return fault_pb2.Fault(code=code, message=message).SerializeToString()


def sound_preview() -> analyst_pb.PreviewReply:
    """What every question is looked at by before it is asked; nothing of it is shown."""
    loss = Loss(0.4, 1e-6)
    privacy = PrivacyStatement("discrete_gaussian", loss, loss, Remaining(3.0, 0.9), 1, "parallel")
    return PREVIEWED.write(Preview("ab" * 32, "patient", False, ("north",), (), privacy))


@dataclass
class Desk(AnalystServiceServicer, SiteServiceServicer):
    """A coordinator without any check of its own: it sends what it has, as it is."""

    study: str = STUDY
    says: str = ""
    preview: analyst_pb.PreviewReply = field(default_factory=sound_preview)
    watched: list[analyst_pb.AwaitReply] = field(default_factory=list)
    tasks: list[SignedTask] = field(default_factory=list)
    submitted: list[release_pb2.Submission] = field(default_factory=list)

    def refuse(self, context: grpc.ServicerContext) -> None:
        context.set_trailing_metadata(((FAULT_KEY, fault_of(self.says, "TooFewSites")),))
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, self.says.encode("ascii", "replace").decode())

    def Describe(self, request: object, context: grpc.ServicerContext) -> analyst_pb.DescribeReply:  # noqa: N802
        return analyst_pb.DescribeReply(study=self.study)

    def Preview(self, request: object, context: grpc.ServicerContext) -> analyst_pb.PreviewReply:  # noqa: N802
        if self.says:
            self.refuse(context)
        return self.preview

    def Ask(self, request: object, context: grpc.ServicerContext) -> analyst_pb.AskReply:  # noqa: N802
        if self.says:
            self.refuse(context)
        return analyst_pb.AskReply(plan_id="ab" * 32)

    def Await(self, request: object, context: grpc.ServicerContext) -> analyst_pb.AwaitReply:  # noqa: N802
        return self.watched.pop(0)

    def Greet(self, request: object, context: grpc.ServicerContext) -> site_service_pb2.GreetReply:  # noqa: N802
        study_hash = parse_study(self.study).study_hash
        return site_service_pb2.GreetReply(site="north", study_hash=study_hash, unix_milliseconds=1)

    def ClaimTask(self, request: object, context: grpc.ServicerContext) -> site_service_pb2.ClaimTaskReply:  # noqa: N802
        if self.tasks:
            return site_service_pb2.ClaimTaskReply(task=TASK.write(self.tasks.pop(0)))
        self.refuse(context)
        raise AssertionError

    def SubmitRelease(  # noqa: N802
        self, request: site_service_pb2.SubmitReleaseRequest, context: grpc.ServicerContext
    ) -> site_service_pb2.SubmitReleaseReply:
        self.submitted.append(request.submission)
        self.refuse(context)
        raise AssertionError


@contextlib.contextmanager
def listening(desk: Desk, authority: TestAuthority) -> Iterator[str]:
    """The desk behind mutual TLS, and its address."""
    service = grpc.server(ThreadPoolExecutor(max_workers=8))
    add_AnalystServiceServicer_to_server(desk, service)
    add_SiteServiceServicer_to_server(desk, service)
    keys = Presented(authority.issue("coordinator"))
    port = service.add_secure_port(f"{HOST}:{take_port()}", serving_credentials(keys, callers_have_certificates=True))
    service.start()
    try:
        yield f"{HOST}:{port}"
    finally:
        service.stop(None).wait()


def profile_at(folder: Path, address: str, authority: TestAuthority) -> Path:
    """The profile of an analyst who trusts that coordinator."""
    keys = authority.issue("amira")
    texts = (keys.authority.decode(), keys.certificate.decode(), keys.key.decode())
    write_profile(AnalystProfile("amira", address, "trial", *texts), folder / "amira.profile")
    return folder / "amira.profile"
