"""An analyst who speaks the wire without our client: a real coordinator stores and charges nothing for hidden words."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from coordinator.members.enrolment import issue_profile
from coordinator.members.folder import open_folder
from coordinator.rounds.coordinator import Coordinator
from coordinator.serving.analyst_service import AnalystService
from coordinator.serving.serve import initialise
from coordinator.store.ledger import open_ledger
from protos._generated import analyst_service_pb2 as pb
from protos._generated import answer_pb2, plan_pb2
from protos._generated.analyst_service_pb2_grpc import AnalystServiceStub, add_AnalystServiceServicer_to_server
from protos.channels import channel
from protos.serving import serve, waiting_room_for
from protos.statuses import from_rpc_error
from protos.tls import Presented, TlsKeys
from protos.turns import Turns
from protos.words import QUERY
from tests.fixtures.ports import HOST, take_port
from tests.protos.loopback_service import ANYWHERE
from tests.screens.hostile_words import HOSTILE, STUDY, asked, asked_among
from wardround.federation.errors import MalformedMessage
from wardround.federation.trust.certificates import Role, key_to_pem, new_tls_key
from wardround.federation.trust.enrolment import read_profile
from wardround.federation.trust.identity import Identity

HIDDEN = {name: text for name, text in HOSTILE.items() if name != "markup"}
DAY = datetime.timedelta(days=1)


@dataclass
class Wire:
    """The analyst's end of a connection, and the coordinator at the other."""

    stub: AnalystServiceStub
    coordinator: Coordinator

    def refused(self, call: grpc.UnaryUnaryMultiCallable, request: object) -> MalformedMessage:  # type: ignore[type-arg]
        with pytest.raises(grpc.RpcError) as caught:
            call(request, timeout=60)
        error = from_rpc_error(caught.value)
        assert isinstance(error, MalformedMessage), error
        return error

    def stored(self) -> list[tuple[int, ...]]:
        with self.coordinator.ledger.database.reading() as connection:
            return connection.execute("SELECT (SELECT count(*) FROM rounds), (SELECT count(*) FROM entries)").fetchall()


@pytest.fixture
def wire(tmp_path: Path) -> Iterator[Wire]:
    now = datetime.datetime.now(datetime.UTC)
    study = initialise(tmp_path / "consortium", study_text=STUDY, configuration_text=None, now=now)
    folder = open_folder(tmp_path / "consortium")
    issue_profile(folder, "amira", tmp_path / "amira.profile", now=now)
    profile, key, authority = read_profile(tmp_path / "amira.profile"), new_tls_key(), folder.authority()
    shown = authority.issue(key.public_key(), role=Role.COORDINATOR, name="trial", life=DAY, now=now, hosts=[HOST])
    coordinator = Coordinator(open_ledger(folder.path, study=study, identity=folder.identity()))
    coordinator.roster.enrol_site(
        name="north", identity=Identity.generate().public, patients=1000, dataset="ehr", study_signature=b""
    )
    turns = Turns()
    service = AnalystService(coordinator, STUDY, waiting_room_for(turns))
    serving = serve(
        dataclasses.replace(ANYWHERE, address=f"{HOST}:{take_port()}"),
        Presented(TlsKeys(key_to_pem(key), shown, authority.pem.encode())),
        lambda server: add_AnalystServiceServicer_to_server(service, server),
        turns=turns,
        broken=lambda _: None,
    )
    keys = TlsKeys(profile.key.encode(), profile.certificate.encode(), profile.authority.encode())
    try:
        with channel(f"{HOST}:{serving.port}", keys) as opened:
            yield Wire(AnalystServiceStub(opened), coordinator)
    finally:
        coordinator.stop()
        serving.stop(grace_seconds=0)
        coordinator.close()


def test_hidden_words_are_refused_before_anything_is_stored_or_charged(wire: Wire) -> None:
    before = wire.stored()
    for text in HIDDEN.values():
        question = answer_pb2.Question(query=QUERY.write(asked(text)), epsilon=0.5)
        for error in (
            wire.refused(wire.stub.Ask, pb.AskRequest(question=question)),
            wire.refused(wire.stub.Preview, pb.PreviewRequest(question=question)),
        ):
            assert error.message.startswith("a text in a question has U+")
    listed = plan_pb2.Grouping(column="note", by=plan_pb2.GROUP_BY_VALUE, keys=["a", "b\u202e"])
    question = answer_pb2.Question(query=QUERY.write(asked_among(["a", "b"])), epsilon=0.5, nonce="aa")
    question.query.group_by.append(listed)
    wire.refused(wire.stub.Ask, pb.AskRequest(question=question))
    question.query.group_by[0].keys[1] = "b"
    question.nonce = "aa\n"
    wire.refused(wire.stub.Ask, pb.AskRequest(question=question))
    assert wire.stored() == before
    # The same question without them is asked: nothing else was wrong with it.
    question.nonce = "aa"
    wire.stub.Ask(pb.AskRequest(question=question), timeout=60)
    assert wire.stored() != before
