"""Submissions: a large release goes ahead in pieces, and nobody above notices.

A release of at most 1 MiB travels inside the submission; a larger one has gone ahead in chunks, and the submission
names its hash. Either way the caller gives and gets a whole `Released`. Every step may be repeated, so a submission
that failed in the middle is simply submitted again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Protocol

from protos._generated import release_pb2 as pb
from protos._generated import site_service_pb2 as site_pb
from protos._generated.site_service_pb2_grpc import SiteServiceStub
from protos.statuses import call
from protos.words import DECLINED, ENTRY, FAILED, PENDING, RECALLED, RECEIPT, WORDS
from wardround.federation.errors import InvariantBroken, MalformedMessage
from wardround.federation.forms.release import release_hash
from wardround.federation.limits import Many, Whole, hash_of, refuse
from wardround.federation.plan.recalled import Recalled
from wardround.federation.plan.task import MAX_CHAIN, Declined, Failed, Pending, Released, Submission
from wardround.federation.trust.entry import Entry

CALL_SECONDS = 30.0
CHUNK_BYTES = 1024 * 1024
MAX_CHUNKS = 64
MAX_RELEASE_BYTES = CHUNK_BYTES * MAX_CHUNKS

_PLAN_ID = hash_of("a plan id")
_HASH = hash_of("a release's hash")
_SIZE = Whole("a release's size", CHUNK_BYTES + 1, MAX_RELEASE_BYTES)
_CHAIN = Many("an answer shows too many entries.", MAX_CHAIN)
_PAYLOAD = Many("a release in one piece is empty or too large.", CHUNK_BYTES, least=1)


@dataclass(frozen=True, slots=True)
class Chunk:
    """One piece of a large release; every piece but the last is exactly 1 MiB."""

    release_hash: Annotated[str, _HASH]
    index: Annotated[int, Whole("the number of a piece", upper=MAX_CHUNKS - 1)]
    total: Annotated[int, Whole("the number of pieces", 1, MAX_CHUNKS)]
    content: Annotated[bytes, Many("a piece has the wrong length.", CHUNK_BYTES, least=1)]

    def fault(self) -> str | None:
        """A piece is one of all, and as long as its place says."""
        if self.index >= self.total:
            return "the number of a piece is out of bounds."
        whole = self.index == self.total - 1 or len(self.content) == CHUNK_BYTES
        return None if whole else "a piece has the wrong length."


CHUNK = WORDS.record(Chunk, site_pb.PutChunkRequest)


class Pieces(Protocol):
    """Where the chunks of one site's releases wait for the submission that names them."""

    def assemble(self, release_hash: str, *, size: int) -> bytes:
        """The bytes with this hash and size; `Unavailable` when some are missing and must be sent again."""


def write_submission(submission: Submission) -> site_pb.SubmitReleaseRequest:
    """A submission as a request; the bytes of a large release are named, not included."""
    return site_pb.SubmitReleaseRequest(submission=_written(submission))


def _written(submission: Submission) -> pb.Submission:
    match submission:
        case Released(plan_id, payload, entry, chain):
            shown = [ENTRY.write(earlier) for earlier in chain]
            released = pb.Released(plan_id=plan_id, entry=ENTRY.write(entry), chain=shown)
            if len(payload) > CHUNK_BYTES:
                released.chunked.release_hash, released.chunked.size = release_hash(payload), len(payload)
            else:
                released.payload = payload
            return pb.Submission(released=released)
        case Declined():
            return pb.Submission(declined=DECLINED.write(submission))
        case Pending():
            return pb.Submission(pending=PENDING.write(submission))
        case Failed():
            return pb.Submission(failed=FAILED.write(submission))


def read_submission(message: pb.Submission, pieces: Pieces) -> Submission:
    """The submission in a message, its bytes put together from `pieces` when they went ahead."""
    match message.WhichOneof("kind"):
        case "released":
            released = message.released
            refuse(None if released.HasField("entry") else "a release has no ledger entry.")
            refuse(_PLAN_ID.fault(released.plan_id))
            refuse(_CHAIN.fault(released.chain))
            entry, chain = ENTRY.read(released.entry), tuple(ENTRY.read(earlier) for earlier in released.chain)
            return Released(released.plan_id, _payload(released, pieces), entry, chain)
        case "declined":
            return DECLINED.read(message.declined)
        case "pending":
            return PENDING.read(message.pending)
        case "failed":
            return FAILED.read(message.failed)
        case None:
            raise MalformedMessage("a submission is empty.")


def write_recalled(recalled: Recalled) -> site_pb.RecallRequest:
    """What a site recalls as a request, with its answer as a submission."""
    message = site_pb.RecallRequest(recalled=RECALLED.write(recalled))
    if recalled.answer is not None:
        message.answer.CopyFrom(_written(recalled.answer))
    return message


def read_recalled(message: site_pb.RecallRequest, pieces: Pieces) -> Recalled:
    """What a site recalls; its answer is a release or a refusal."""
    refuse(None if message.HasField("recalled") else "nothing is recalled.")
    recalled = RECALLED.read(message.recalled)
    if not message.HasField("answer"):
        return recalled
    answer = read_submission(message.answer, pieces)
    if not isinstance(answer, Released | Declined):
        raise MalformedMessage("what is recalled is no answer.")
    found = replace(recalled, answer=answer)
    refuse(found.fault())
    return found


def _payload(released: pb.Released, pieces: Pieces) -> bytes:
    match released.WhichOneof("content"):
        case "payload":
            refuse(_PAYLOAD.fault(released.payload))
            return released.payload
        case "chunked":
            chunked = released.chunked
            refuse(_SIZE.fault(chunked.size))
            refuse(_HASH.fault(chunked.release_hash))
            return pieces.assemble(chunked.release_hash, size=chunked.size)
        case None:
            raise MalformedMessage("a release has no content.")


def submit(stub: SiteServiceStub, submission: Submission, *, deadline_seconds: float = CALL_SECONDS) -> Entry | None:
    """Hand over an answer; each call has `deadline_seconds`. A release or a refusal gets a receipt."""
    if isinstance(submission, Released):
        for chunk in chunks(submission.payload):
            call(stub.PutChunk, CHUNK.write(chunk), deadline_seconds=deadline_seconds)
    return RECEIPT.read(call(stub.SubmitRelease, write_submission(submission), deadline_seconds=deadline_seconds))


def recall(stub: SiteServiceStub, recalled: Recalled, *, deadline_seconds: float = CALL_SECONDS) -> None:
    """Remind a coordinator of a plan, the bytes of a large release in pieces before."""
    if isinstance(recalled.answer, Released):
        for chunk in chunks(recalled.answer.payload):
            call(stub.PutChunk, CHUNK.write(chunk), deadline_seconds=deadline_seconds)
    call(stub.Recall, write_recalled(recalled), deadline_seconds=deadline_seconds)


def chunks(payload: bytes) -> Iterator[Chunk]:
    """The pieces of a release that does not fit into a submission; none of one that does."""
    if len(payload) <= CHUNK_BYTES:
        return
    if len(payload) > MAX_RELEASE_BYTES:
        raise InvariantBroken(private="a release is larger than the wire allows")
    named = release_hash(payload)
    total = -(-len(payload) // CHUNK_BYTES)
    for index in range(total):
        yield Chunk(named, index, total, payload[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES])
