"""Submissions and receipts, as messages and back.

A release of at most 1 MiB travels inside the submission; a larger one has gone ahead in chunks, and the
submission names its hash. Either way the caller gives and gets a whole `Released`.
"""

from __future__ import annotations

from typing import Protocol

from protos import checks
from protos._generated import release_pb2 as pb
from protos.codec_plan import SIGNATURE_BYTES
from wardround.federation.ledger.entry import GENESIS, Entry
from wardround.federation.release import release_hash
from wardround.federation.task import Declined, Failed, Pending, Released, Submission

CHUNK_BYTES = 1024 * 1024
MAX_CHUNKS = 64
MAX_RELEASE_BYTES = CHUNK_BYTES * MAX_CHUNKS
MAX_BODY = 256 * 1024


class Pieces(Protocol):
    """Where the chunks of one site's releases wait for the submission that names them."""

    def assemble(self, release_hash: str, *, size: int) -> bytes:
        """The bytes with this hash and size; `Unavailable` when some are missing and must be sent again."""


def entry_to_message(entry: Entry) -> pb.Entry:
    """A ledger entry as a message."""
    return pb.Entry(
        sequence=entry.sequence,
        previous=entry.previous,
        kind=entry.kind,
        body=entry.body,
        signature=entry.signature,
    )


def entry_from_message(message: pb.Entry) -> Entry:
    """The ledger entry in a message; whether the signature holds is for the reader to ask."""
    sequence = checks.whole(message.sequence, "an entry's sequence", lower=1)
    previous = checks.digest(message.previous, "an entry's predecessor")
    checks.require((sequence == 1) == (previous == GENESIS), "only the first entry follows the empty chain.")
    return Entry(
        sequence=sequence,
        previous=previous,
        kind=checks.word(message.kind, "an entry's kind"),
        body=checks.text(message.body, "an entry's body", longest=MAX_BODY),
        signature=checks.size(message.signature, "an entry's signature", exactly=SIGNATURE_BYTES),
    )


def submission_to_message(submission: Submission) -> pb.Submission:
    """A submission as a message; the bytes of a large release are named, not included."""
    match submission:
        case Released(plan_id, payload, entry):
            released = pb.Released(plan_id=plan_id, entry=entry_to_message(entry))
            if len(payload) > CHUNK_BYTES:
                chunked = pb.Chunked(release_hash=release_hash(payload), size=len(payload))
                released.chunked.CopyFrom(chunked)
            else:
                released.payload = payload
            return pb.Submission(released=released)
        case Declined(plan_id, code, entry):
            return pb.Submission(declined=pb.Declined(plan_id=plan_id, code=code, entry=entry_to_message(entry)))
        case Pending(plan_id):
            return pb.Submission(pending=pb.Pending(plan_id=plan_id))
        case Failed(plan_id):
            return pb.Submission(failed=pb.Failed(plan_id=plan_id))


def submission_from_message(message: pb.Submission, pieces: Pieces) -> Submission:
    """The submission in a message, its bytes put together from `pieces` when they went ahead."""
    match message.WhichOneof("kind"):
        case "released":
            released = message.released
            checks.require(released.HasField("entry"), "a release has no ledger entry.")
            plan_id, entry = _plan_id(released.plan_id), entry_from_message(released.entry)
            return Released(plan_id, _payload(released, pieces), entry)
        case "declined":
            declined = message.declined
            checks.require(declined.HasField("entry"), "a refusal has no ledger entry.")
            code = checks.word(declined.code, "a refusal's code")
            return Declined(_plan_id(declined.plan_id), code, entry_from_message(declined.entry))
        case "pending":
            return Pending(_plan_id(message.pending.plan_id))
        case "failed":
            return Failed(_plan_id(message.failed.plan_id))
        case None:
            raise checks.malformed("a submission is empty.")


def _plan_id(value: str) -> str:
    return checks.digest(value, "a plan id")


def _payload(released: pb.Released, pieces: Pieces) -> bytes:
    match released.WhichOneof("content"):
        case "payload":
            checks.require(1 <= len(released.payload) <= CHUNK_BYTES, "a release in one piece is empty or too large.")
            return released.payload
        case "chunked":
            chunked = released.chunked
            size = checks.whole(chunked.size, "a release's size", lower=CHUNK_BYTES + 1, upper=MAX_RELEASE_BYTES)
            return pieces.assemble(checks.digest(chunked.release_hash, "a release's hash"), size=size)
        case None:
            raise checks.malformed("a release has no content.")
