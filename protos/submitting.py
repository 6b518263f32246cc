"""Sending an answer: a large release goes ahead in pieces, and nobody above notices.

Every step may be repeated, so a submission that failed in the middle is simply submitted again.
"""

from __future__ import annotations

from collections.abc import Iterator

from protos._generated.site_service_pb2_grpc import SiteServiceStub
from protos.codec_release import CHUNK_BYTES, MAX_RELEASE_BYTES
from protos.codec_site import Chunk, chunk_to_message, receipt_from_message, submit_to_message
from protos.statuses import call
from wardround.federation.errors import InvariantBroken
from wardround.federation.ledger.entry import Entry
from wardround.federation.release import release_hash
from wardround.federation.task import Released, Submission

CALL_SECONDS = 30.0


def submit(stub: SiteServiceStub, submission: Submission, *, deadline_seconds: float = CALL_SECONDS) -> Entry | None:
    """Hand over an answer; each call has `deadline_seconds`. A release or a refusal gets a receipt."""
    if isinstance(submission, Released):
        for chunk in chunks(submission.payload):
            call(stub.PutChunk, chunk_to_message(chunk), deadline_seconds=deadline_seconds)
    reply = call(stub.SubmitRelease, submit_to_message(submission), deadline_seconds=deadline_seconds)
    return receipt_from_message(reply)


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
