"""The link over real mutual TLS on loopback: answers, errors, a restart, and strangers."""

from __future__ import annotations

import dataclasses
import datetime
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

import wardround
from coordinator.members.authority import Authority
from protos import words
from protos._generated import analyst_service_pb2 as pb
from protos._generated.analyst_service_pb2_grpc import AnalystServiceServicer, add_AnalystServiceServicer_to_server
from protos.pages import write_watched
from protos.serving import Serving, serve
from protos.tls import Presented, TlsKeys
from protos.turns import Turns
from protos.words import ASKED, PREVIEWED, REPORT, WATCH, read_question
from tests.fixtures.ports import HOST, take_port
from tests.protos.loopback_service import ANYWHERE
from wardround.analyst.asking.client import Client
from wardround.analyst.link.grpc_link import GrpcAnalystLink, Persistence
from wardround.federation.errors import (
    AwaitingApproval,
    BudgetExceeded,
    ConfigurationMistaken,
    FederationError,
    LedgerBusy,
    MalformedMessage,
    Mistaken,
    NotAuthorized,
    PeerUnreachable,
    ProtocolViolation,
    TooFewSites,
)
from wardround.federation.plan.task import ALL_SITES, AskRequest
from wardround.federation.question.answer import (
    Answer,
    Estimate,
    Loss,
    Preview,
    PrivacyStatement,
    Progress,
    Remaining,
    SiteState,
)
from wardround.federation.question.query import Aggregate, Query, Statistic
from wardround.federation.question.study_budget import BudgetReport, ByOverlap
from wardround.federation.trust.certificates import Role, key_to_pem, new_tls_key
from wardround.federation.trust.enrolment import AnalystProfile, write_profile
from wardround.federation.trust.public_limits import PublicSite

STUDY = """
name = "cardio"
overlap = 1
[budget]
epsilon = 3.0
delta = 1e-6
[tables.encounters]
unit_key = "patient_id"
max_rows_per_unit = 4
[tables.encounters.columns]
sbp = { type = "number", lower = 80, upper = 200, step = 0.1 }
"""
PLAN = "ab" * 32
PRIVACY = PrivacyStatement("discrete_gaussian", Loss(0.5, 1e-7), Loss(0.9, 1e-6), Remaining(2.0, 0.7), 1, "parallel")
ESTIMATE = Estimate("mean", "sbp", (), 131.2, 0.4, (130.4, 132.0), 0.95)
ANSWER = Answer(PLAN, "patient", False, False, ("north",), (), (), (ESTIMATE,), PRIVACY)
MEAN = "SELECT AVG(sbp) FROM encounters"
BRIEF = datetime.timedelta(hours=1)


class Desk(AnalystServiceServicer):
    """A coordinator's front desk that gives each watch its next step."""

    def __init__(self, study: str = STUDY) -> None:
        self.study = study
        self.asked: list[AskRequest] = []
        self.hospitals = [PublicSite(name, 10, active=True) for name in ("east", "north", "south", "west", "x")]
        self.pages: list[str] = []
        self.stuck = False
        self.refusal: FederationError | None = None
        self.steps: list[Progress | Answer | FederationError] = [ANSWER]
        self.firsts: list[int] = []

    def Ask(self, request: pb.AskRequest, context: grpc.ServicerContext) -> pb.AskReply:  # noqa: N802
        if self.refusal is not None:
            raise self.refusal
        self.asked.append(read_question(request.question))
        return ASKED.write(PLAN)

    def AskRequiring(self, request: pb.AskRequest, context: grpc.ServicerContext) -> pb.AskReply:  # noqa: N802
        return self.Ask(request, context)

    def Await(self, request: pb.AwaitRequest, context: grpc.ServicerContext) -> pb.AwaitReply:  # noqa: N802
        watch = WATCH.read(request)
        self.firsts.append(watch.first_estimate)
        step = self.steps.pop(0)
        if isinstance(step, FederationError):
            raise step
        return write_watched(step, first_estimate=watch.first_estimate)

    def Preview(self, request: pb.PreviewRequest, context: grpc.ServicerContext) -> pb.PreviewReply:  # noqa: N802
        read_question(request.question)
        return PREVIEWED.write(Preview(PLAN, "patient", False, ("north",), (), PRIVACY))

    def Sites(self, request: pb.SitesRequest, context: grpc.ServicerContext) -> pb.SitesReply:  # noqa: N802
        return words.SITES.write(("north", "south"))

    def Hospitals(self, request: pb.HospitalsRequest, context: grpc.ServicerContext) -> pb.HospitalsReply:  # noqa: N802
        after = words.AFTER.read(request)
        self.pages.append(after)
        left = [each for each in self.hospitals if self.stuck or each.name > after]
        return words.HOSPITALS.write(tuple(left[:2]))

    def Describe(self, request: pb.DescribeRequest, context: grpc.ServicerContext) -> pb.DescribeReply:  # noqa: N802
        return words.STUDY.write(self.study)

    def Budget(self, request: pb.BudgetRequest, context: grpc.ServicerContext) -> pb.BudgetReply:  # noqa: N802
        report = BudgetReport(
            *("cardio", "patient", 1, Loss(3, 1e-6), Loss(0, 0), Remaining(3, 1)), (), (), 0, ByOverlap(0, 0, 0), (), ()
        )
        return REPORT.write(report)


def add_without_sites(desk: Desk, service: grpc.Server) -> None:
    """As a coordinator serves that was made before the call for the participants."""
    describe = grpc.unary_unary_rpc_method_handler(
        desk.Describe,
        request_deserializer=pb.DescribeRequest.FromString,
        response_serializer=pb.DescribeReply.SerializeToString,
    )
    handlers = grpc.method_handlers_generic_handler("wardround.v1.AnalystService", {"Describe": describe})
    service.add_generic_rpc_handlers((handlers,))


def add_without_errors(desk: Desk, service: grpc.Server) -> None:
    """As a coordinator serves that was made before questions could be asked by error."""
    calls = {
        name: grpc.unary_unary_rpc_method_handler(
            getattr(desk, name), request_deserializer=asked.FromString, response_serializer=told.SerializeToString
        )
        for name, asked, told in (
            ("Ask", pb.AskRequest, pb.AskReply),
            ("Preview", pb.PreviewRequest, pb.PreviewReply),
            ("Describe", pb.DescribeRequest, pb.DescribeReply),
        )
    }
    handlers = grpc.method_handlers_generic_handler("wardround.v1.AnalystService", calls)
    service.add_generic_rpc_handlers((handlers,))


class House:
    """An authority, a desk it vouches for, and the profiles it issues."""

    def __init__(self, folder: Path) -> None:
        self.now = datetime.datetime.now(datetime.UTC)
        self.authority = Authority.create(folder, name="cardio", now=self.now)
        self.desk = Desk()
        self.register: Callable[[Desk, grpc.Server], None] = add_AnalystServiceServicer_to_server
        key = new_tls_key()
        certificate = self.authority.issue(
            key.public_key(), role=Role.COORDINATOR, name="cardio", life=BRIEF, now=self.now, hosts=[HOST]
        )
        keys = TlsKeys(key_to_pem(key), certificate, self.authority.pem.encode())
        self._presented = Presented(keys)
        self.serving: Serving | None = None
        # Of its own, so that nobody else listens there while the coordinator is away.
        self.port = take_port()

    def open(self) -> None:
        self.serving = serve(
            dataclasses.replace(ANYWHERE, address=f"{HOST}:{self.port}"),
            self._presented,
            lambda service: self.register(self.desk, service),
            turns=Turns(),
            broken=lambda error: None,
        )

    def close(self) -> None:
        if self.serving is not None:
            self.serving.stop(grace_seconds=0)

    def profile(self) -> AnalystProfile:
        key = new_tls_key()
        certificate = self.authority.issue(key.public_key(), role=Role.ANALYST, name="ada", life=BRIEF, now=self.now)
        return AnalystProfile(
            name="ada",
            address=f"{HOST}:{self.port}",
            study="cardio",
            authority=self.authority.pem,
            certificate=certificate.decode(),
            key=key_to_pem(key).decode(),
        )


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path / "authority")
    house.open()
    yield house
    house.close()


def impatient(on_pause: Callable[[], None] = lambda: None) -> Persistence:
    """Waits no time, but counts it, and lets the test act in the pause."""
    now = [0.0]

    def pause(seconds: float) -> None:
        now[0] += seconds
        on_pause()

    return Persistence(lambda: now[0], pause)


def test_connect_asks_and_gets_the_answer(house: House, tmp_path: Path) -> None:
    write_profile(house.profile(), tmp_path / "ada.profile")
    house.desk.steps = [Progress(1, (("north", SiteState.CLAIMED),)), ANSWER]
    shown: list[Progress] = []
    with wardround.connect(tmp_path / "ada.profile") as federation:
        result = federation.ask(MEAN, epsilon=0.5, on_progress=shown.append)
        assert federation.preview(MEAN).preview.sites == ("north",)
        assert federation.budget().report.cap.epsilon == 3.0
        assert federation.study.name == "cardio"
    assert result.answer == ANSWER
    assert [each.seen for each in shown] == [1]
    assert house.desk.asked[0].epsilon == 0.5


def test_a_refusal_arrives_with_its_numbers(house: House) -> None:
    house.desk.refusal = BudgetExceeded(asked=1.0, remaining=0.4, private="canary")
    with Client(GrpcAnalystLink(house.profile())) as federation, pytest.raises(BudgetExceeded) as fault:
        federation.ask(MEAN)
    assert (fault.value.asked, fault.value.remaining) == (1.0, 0.4)
    assert "canary" not in str(fault.value)


def test_a_pending_approval_arrives_at_once(house: House) -> None:
    house.desk.steps = [AwaitingApproval("north has yet to decide.")]
    pauses: list[None] = []
    link = GrpcAnalystLink(house.profile(), persistence=impatient(lambda: pauses.append(None)))
    with Client(link) as federation, pytest.raises(AwaitingApproval, match="north has yet to decide"):
        federation.ask(MEAN)
    assert pauses == []


def test_a_page_that_fails_is_asked_for_again_and_not_the_pages_before_it(house: House) -> None:
    long = dataclasses.replace(ANSWER, estimates=(ESTIMATE,) * 50_000)
    house.desk.steps = [long, LedgerBusy(), long, LedgerBusy(), LedgerBusy(), long]
    with Client(GrpcAnalystLink(house.profile(), persistence=impatient(lambda: None))) as federation:
        assert federation.ask(MEAN).answer == long
    first, second, third, *_ = dict.fromkeys(house.desk.firsts)
    assert house.desk.firsts == [first, second, second, third, third, third]


def test_a_coordinator_that_restarts_in_the_middle_of_a_question_is_waited_for(house: House) -> None:
    house.desk.steps = [Progress(1, (("north", SiteState.OPEN),)), ANSWER]
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        if not pauses:
            house.open()
        pauses.append(seconds)
        time.sleep(seconds)  # gRPC itself lets a moment pass before it dials again

    persistence = Persistence(pause=pause)
    with Client(GrpcAnalystLink(house.profile(), persistence=persistence)) as federation:
        result = federation.ask(MEAN, on_progress=lambda _: house.close())
    assert result.answer == ANSWER
    assert pauses


def test_nobody_there_is_one_sentence(house: House) -> None:
    house.close()
    with Client(GrpcAnalystLink(house.profile(), persistence=impatient())) as federation:
        with pytest.raises(PeerUnreachable) as fault:
            federation.budget()
        assert fault.value.message.endswith(".")


def test_a_coordinator_of_another_authority_is_not_believed(house: House, tmp_path: Path) -> None:
    other = Authority.create(tmp_path / "other", name="cardio", now=house.now)
    profile = dataclasses.replace(house.profile(), authority=other.pem)
    with Client(GrpcAnalystLink(profile, persistence=impatient())) as federation, pytest.raises(NotAuthorized):
        federation.ask(MEAN)
    assert house.desk.asked == []


def test_an_analyst_of_another_authority_is_turned_away(house: House, tmp_path: Path) -> None:
    stranger = House(tmp_path / "stranger").profile()
    profile = dataclasses.replace(stranger, address=house.profile().address, authority=house.authority.pem)
    with Client(GrpcAnalystLink(profile, persistence=impatient())) as federation, pytest.raises(PeerUnreachable):
        federation.ask(MEAN)
    assert house.desk.asked == []


def test_a_profile_for_another_study_asks_nothing(house: House) -> None:
    profile = dataclasses.replace(house.profile(), study="diabetes")
    with Client(GrpcAnalystLink(profile)) as federation, pytest.raises(ConfigurationMistaken) as fault:
        federation.ask(MEAN)
    assert fault.value.message == (
        "the profile is for study 'diabetes', but the coordinator runs 'cardio'; "
        "ask the consortium for a new profile (wardround coordinator analyst)."
    )
    assert house.desk.asked == []


def test_a_study_that_cannot_be_read_is_the_coordinators_fault(house: House) -> None:
    house.desk.study = "not a study"
    with Client(GrpcAnalystLink(house.profile())) as federation, pytest.raises(ProtocolViolation):
        _ = federation.study


def test_who_would_be_asked_is_a_call_of_its_own(house: House) -> None:
    link = GrpcAnalystLink(house.profile())
    assert link.sites() == ("north", "south")
    link.close()


def test_hospitals_come_page_by_page_and_in_order(house: House) -> None:
    link = GrpcAnalystLink(house.profile())
    assert link.hospitals() == tuple(house.desk.hospitals)
    assert house.desk.pages == ["", "north", "west", "x"]
    house.desk.stuck = True
    with pytest.raises(MalformedMessage, match="the hospitals are not in order"):
        link.hospitals()
    link.close()


@pytest.mark.parametrize("call", ["ask", "preview"])
def test_a_coordinator_that_does_not_know_errors_is_named_before_anything_is_charged(house: House, call: str) -> None:
    house.close()
    house.register = add_without_errors
    house.open()
    link = GrpcAnalystLink(house.profile(), persistence=impatient())
    request = AskRequest(Query("encounters", (Aggregate(Statistic.COUNT),)))
    assert link.ask(request)
    with pytest.raises(ProtocolViolation, match="runs an earlier version"):
        getattr(link, call)(dataclasses.replace(request, errors=(50.0,)))
    link.close()
    assert house.desk.asked == [request]


def test_a_coordinator_of_an_earlier_version_is_named_in_one_sentence_and_nothing_is_asked(house: House) -> None:
    house.close()
    house.register = add_without_sites
    house.open()
    link = GrpcAnalystLink(house.profile(), persistence=impatient())
    assert link.study().name == "cardio"
    with pytest.raises(ProtocolViolation) as fault:
        link.sites()
    with pytest.raises(ProtocolViolation, match="earlier version"):
        Client(link).describe()
    link.close()
    assert fault.value.message == (
        "The coordinator runs an earlier version of wardround that does not know this call; nothing was charged. "
        "Ask the consortium to update it."
    )
    assert house.desk.asked == []


def test_an_earlier_coordinator_cannot_overlook_that_hospitals_are_required(house: House) -> None:
    """`add_without_errors` has no call that requires hospitals either."""
    house.close()
    house.register = add_without_errors
    house.open()
    with Client(GrpcAnalystLink(house.profile())) as client:
        with pytest.raises(ProtocolViolation, match="earlier version"):
            client.ask(MEAN, require="all")
        assert house.desk.asked == []


def test_an_answer_of_fewer_than_were_required_is_not_handed_over(house: House) -> None:
    """Somebody who requires less may have asked the same while the round was open."""
    fewer = dataclasses.replace(ANSWER, missing=("south",))
    with Client(GrpcAnalystLink(house.profile())) as client:
        for require in (2, "all"):
            house.desk.steps = [fewer]
            with pytest.raises(TooFewSites, match="An answer of 1 of 2 hospitals is kept"):
                client.ask(MEAN, require=require)
        house.desk.steps = [fewer]
        assert client.ask(MEAN, require=1).answer == fewer
    assert [asked.require for asked in house.desk.asked] == [2, ALL_SITES, 1]


@pytest.mark.parametrize("wrong", [0, -1, "some", "", 1.5, True, ALL_SITES, "1" * 99])
def test_what_is_required_is_all_or_a_number(house: House, wrong: object) -> None:
    with Client(GrpcAnalystLink(house.profile())) as client, pytest.raises(Mistaken, match="it must be 'all' or a"):
        client.ask(MEAN, require=wrong)  # type: ignore[arg-type]
    assert house.desk.asked == []
