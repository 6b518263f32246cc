"""The calls of each conversation over real mutual TLS: caps, deadlines, pieces, pages, faults and a proxy."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from protos._generated import site_service_pb2 as pb
from protos._generated.site_service_pb2_grpc import SiteServiceStub
from protos.calls import AnalystCalls, SiteCalls
from protos.channels import channel
from protos.chunked_release import chunks, write_submission
from protos.pages import PAGE_BYTES
from protos.serving import serve
from protos.statuses import call
from protos.tls import calling_credentials
from protos.turns import Turns
from tests.protos.loopback_service import (
    ANYWHERE,
    HASH,
    RECEIPT,
    AnalystDesk,
    Loopback,
    SiteDesk,
    analysts,
    listening,
    sites,
)
from tests.protos.proxy import proxying
from wardround.federation.errors import (
    BudgetExceeded,
    DeadlinePassed,
    LedgerCorrupt,
    MalformedMessage,
    PeerUnreachable,
    ProtocolViolation,
    Unavailable,
)
from wardround.federation.plan.task import AskRequest, Declined, Failed, Pending, Released, Submission
from wardround.federation.question.answer import (
    Answer,
    Estimate,
    Loss,
    PrivacyStatement,
    Progress,
    Remaining,
    SiteState,
)
from wardround.federation.question.query import Aggregate, Query, Statistic
from wardround.federation.trust.entry import GENESIS, Entry

ENTRY = Entry(1, GENESIS, "released", "{}", b"s" * 64)
MIB = 1024 * 1024


@pytest.fixture
def north(loopback: Loopback) -> Iterator[grpc.Channel]:
    with channel(loopback.address, loopback.authority.issue("north")) as found:
        yield found


@pytest.mark.parametrize(
    "submission",
    [
        Released(HASH, b"x", ENTRY),
        Released(HASH, b"x" * MIB, ENTRY),
        Released(HASH, bytes(range(256)) * 4096 + b"y", ENTRY),
        Released(HASH, bytes(range(256)) * 4096 * 5, ENTRY),
        Declined(HASH, "PlanRefused", ENTRY),
        Pending(HASH),
        Failed(HASH),
    ],
    ids=["small", "1 MiB", "1 MiB and a byte", "5 MiB", "declined", "pending", "failed"],
)
def test_a_submission_of_any_size_arrives_whole(desk: SiteDesk, north: grpc.Channel, submission: Submission) -> None:
    assert SiteCalls(north).submit(submission) == RECEIPT
    assert SiteCalls(north).submit(submission) == RECEIPT
    assert desk.submitted == [("north", submission)] * 2


def test_a_release_whose_pieces_were_lost_is_unavailable_and_then_sent_again(
    desk: SiteDesk, north: grpc.Channel
) -> None:
    large = Released(HASH, b"z" * (2 * MIB), ENTRY)
    with pytest.raises(Unavailable, match="send them again"):
        call(SiteServiceStub(north).SubmitRelease, write_submission(large), deadline_seconds=30)
    assert desk.submitted == []
    assert SiteCalls(north).submit(large) == RECEIPT


def test_pieces_may_come_twice_and_in_any_order(desk: SiteDesk, north: grpc.Channel) -> None:
    large = Released(HASH, bytes(range(256)) * 4096 * 3, ENTRY)
    for piece in reversed(list(chunks(large.payload))):
        desk.pieces.of("north").put(piece)
    assert SiteCalls(north).submit(large) == RECEIPT
    assert desk.submitted == [("north", large)]


@pytest.mark.parametrize("size", [4 * MIB, 5 * MIB])
def test_a_message_above_the_cap_is_not_sent(north: grpc.Channel, size: int) -> None:
    message = pb.PutChunkRequest(content=b"x" * size)
    with pytest.raises(MalformedMessage, match="larger"):
        call(SiteServiceStub(north).PutChunk, message, deadline_seconds=30)


def test_a_message_above_the_cap_is_not_read(loopback: Loopback) -> None:
    credentials = calling_credentials(loopback.authority.issue("north"))
    with grpc.secure_channel(loopback.address, credentials, options=[("grpc.max_send_message_length", -1)]) as careless:
        message = pb.PutChunkRequest(content=b"x" * 5 * MIB)
        with pytest.raises(MalformedMessage, match="larger"):
            call(SiteServiceStub(careless).PutChunk, message, deadline_seconds=30)


def test_a_compressed_message_is_not_read(loopback: Loopback, tmp_path: Path) -> None:
    credentials = calling_credentials(loopback.authority.issue("north"))
    message = pb.PutChunkRequest(release_hash=HASH, index=0, total=2, content=b"x" * MIB)
    with grpc.secure_channel(loopback.address, credentials, compression=grpc.Compression.Gzip) as bomb:
        with pytest.raises(ProtocolViolation) as caught:
            call(SiteServiceStub(bomb).PutChunk, message, deadline_seconds=30)
        assert type(caught.value) is ProtocolViolation
    assert list((tmp_path / "pieces").iterdir()) == []
    with grpc.secure_channel(loopback.address, credentials) as plain:
        call(SiteServiceStub(plain).PutChunk, message, deadline_seconds=30)


def test_bytes_that_are_no_message_are_malformed(north: grpc.Channel) -> None:
    raw = north.unary_unary("/wardround.v1.SiteService/SubmitRelease")
    with pytest.raises(MalformedMessage):
        call(raw, b"\xff\xff\xff", deadline_seconds=30)


def test_a_reply_that_is_no_message_is_malformed(north: grpc.Channel) -> None:
    deaf = north.unary_unary(
        "/wardround.v1.SiteService/Greet",
        request_serializer=pb.GreetRequest.SerializeToString,
        response_deserializer=lambda raw: pb.ClaimTaskReply.FromString(b"\xff" + raw),
    )
    with pytest.raises(MalformedMessage):
        call(deaf, pb.GreetRequest(), deadline_seconds=30)


def test_a_call_nobody_serves_is_a_violation(north: grpc.Channel) -> None:
    with pytest.raises(ProtocolViolation):
        AnalystCalls(north).ask(AskRequest(Query("encounters", (Aggregate(Statistic.COUNT),))))


def test_a_call_ends_at_its_deadline(north: grpc.Channel) -> None:
    message = pb.ClaimTaskRequest(wait_milliseconds=20_000)
    with pytest.raises(DeadlinePassed):
        call(SiteServiceStub(north).ClaimTask, message, deadline_seconds=0.2)


def test_nothing_at_the_address_is_said_at_once(loopback: Loopback) -> None:
    loopback.serving.stop(grace_seconds=0)
    with (
        channel(loopback.address, loopback.authority.issue("north")) as north,
        pytest.raises(PeerUnreachable, match="Nothing answers"),
    ):
        SiteCalls(north).greet()


def test_closing_the_channel_ends_a_waiting_call(desk: SiteDesk, loopback: Loopback) -> None:
    north = channel(loopback.address, loopback.authority.issue("north"))
    ended: list[Exception] = []

    def wait() -> None:
        with contextlib.suppress(Unavailable):
            SiteCalls(north).claim(wait_seconds=20)
            return
        ended.append(PeerUnreachable())

    waiting = threading.Thread(target=wait)
    waiting.start()
    while desk.room.taken == 0:
        threading.Event().wait(0.01)
    north.close()
    waiting.join(timeout=60)
    assert len(ended) == 1
    with pytest.raises(PeerUnreachable, match="closed"):
        SiteCalls(north).greet()


def test_an_error_arrives_with_its_numbers(desk: SiteDesk, north: grpc.Channel) -> None:
    desk.fault = BudgetExceeded(asked=1.0, remaining=0.4, private="a private text")
    with pytest.raises(BudgetExceeded) as caught:
        SiteCalls(north).greet()
    assert (caught.value.asked, caught.value.remaining) == (1.0, 0.4)
    assert caught.value.message == desk.fault.message
    assert "private text" not in caught.value.private


def test_an_unexpected_exception_says_nothing_of_itself(
    desk: SiteDesk, north: grpc.Channel, caplog: pytest.LogCaptureFixture
) -> None:
    desk.fault = ZeroDivisionError("canary-4711")
    with caplog.at_level(logging.ERROR, "wardround.wire"), pytest.raises(Unavailable) as caught:
        SiteCalls(north).greet()
    assert "canary-4711" not in f"{caught.value.message} {caught.value.private}"
    assert "canary-4711" in caplog.text


def test_a_broken_invariant_is_told_to_its_own_process_and_stops_no_other(
    desk: SiteDesk, loopback: Loopback, north: grpc.Channel
) -> None:
    desk.fault = LedgerCorrupt(private="entry 7")
    with pytest.raises(Unavailable, match="internal error"):
        SiteCalls(north).greet()
    assert loopback.broken == [desk.fault]


def test_a_renewal_travels(north: grpc.Channel) -> None:
    assert SiteCalls(north).renew(b"-----BEGIN CERTIFICATE REQUEST-----").startswith(b"-----BEGIN CERTIFICATE")


PRIVACY = PrivacyStatement("discrete_gaussian", Loss(0.5, 1e-7), Loss(0.9, 1e-6), Remaining(2.0, 0.7), 1, "parallel")


def test_a_long_answer_is_read_in_pages_and_is_one_answer() -> None:
    estimates = tuple(
        Estimate("count", None, (("diagnosis", f"{number:0>200}"),), float(number), 1.0, (0.0, 1e9), 0.95)
        for number in range(12_000)
    )
    answer = Answer(HASH, "patient", False, False, ("north",), (), ("south",), estimates, PRIVACY)
    desk = AnalystDesk(answer)
    with (
        listening(analysts(desk)) as loopback,
        channel(loopback.address, loopback.authority.issue("ada")) as ada,
    ):
        request = AskRequest(Query("encounters", (Aggregate(Statistic.COUNT),)), 0.5)
        assert AnalystCalls(ada).ask(request) == HASH
        assert AnalystCalls(ada).watch(HASH, seen=0, wait_seconds=1) == answer
    assert desk.asked == [request]
    assert len(estimates) * 200 > 2 * PAGE_BYTES


def test_progress_travels() -> None:
    progress = Progress(3, (("north", SiteState.RELEASED), ("south", SiteState.PENDING)))
    with (
        listening(analysts(AnalystDesk(progress))) as loopback,
        channel(loopback.address, loopback.authority.issue("ada")) as ada,
    ):
        assert AnalystCalls(ada).watch(HASH, seen=2, wait_seconds=1) == progress


@pytest.mark.parametrize("configured", [True, False], ids=["site.toml", "environment"])
def test_a_site_reaches_its_coordinator_through_a_proxy(
    loopback: Loopback, monkeypatch: pytest.MonkeyPatch, configured: bool
) -> None:
    with proxying() as proxy:
        if not configured:
            monkeypatch.setenv("https_proxy", f"http://{proxy.address}")
        keys = loopback.authority.issue("north")
        with channel(loopback.address, keys, proxy=proxy.address if configured else None) as north:
            assert SiteCalls(north).greet().site == "north"
        assert proxy.asked[0].startswith(f"CONNECT {loopback.address} HTTP/1.".encode())


def test_a_proxy_with_a_password_is_told_it(loopback: Loopback) -> None:
    keys = loopback.authority.issue("north")
    with (
        proxying() as proxy,
        channel(loopback.address, keys, proxy=f"http://user:secret@{proxy.address}") as north,
    ):
        assert SiteCalls(north).greet().site == "north"
        assert b"dXNlcjpzZWNyZXQ=" in proxy.asked[0]


def test_a_proxy_that_refuses_is_named(loopback: Loopback) -> None:
    keys = loopback.authority.issue("north")
    with (
        proxying(allow=False) as proxy,
        channel(loopback.address, keys, proxy=proxy.address) as north,
        pytest.raises(PeerUnreachable, match="proxy"),
    ):
        SiteCalls(north).greet()


def test_a_site_finds_a_coordinator_that_was_restarted(desk: SiteDesk) -> None:
    with listening(sites(desk)) as first:
        port, keys = first.serving.port, first.authority.issue("north")
        presented = first.presented
        north = channel(first.address, keys)
        assert SiteCalls(north).greet().site == "north"
    with pytest.raises(PeerUnreachable):
        SiteCalls(north).greet()
    second = serve(
        dataclasses.replace(ANYWHERE, address=f"127.0.0.1:{port}"),
        presented,
        sites(desk),
        turns=Turns(),
        broken=lambda error: None,
    )
    try:
        for _ in range(1200):
            try:
                assert SiteCalls(north).greet().site == "north"
                break
            except PeerUnreachable:
                threading.Event().wait(0.1)
        else:
            pytest.fail("the site never came back")
    finally:
        north.close()
        second.stop(grace_seconds=0)
