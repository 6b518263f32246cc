"""The requests and replies of the site's conversation, as messages and back."""

from __future__ import annotations

from dataclasses import dataclass

from protos import checks
from protos._generated import site_service_pb2 as pb
from protos.codec_plan import task_from_message, task_to_message
from protos.codec_release import (
    CHUNK_BYTES,
    MAX_CHUNKS,
    Pieces,
    entry_from_message,
    entry_to_message,
    submission_from_message,
    submission_to_message,
)
from wardround.federation.ledger.entry import Entry
from wardround.federation.task import SignedTask, Submission

LONGEST_WAIT_SECONDS = 20.0
MILLISECONDS = 1000


@dataclass(frozen=True, slots=True)
class Claim:
    """What a long poll brought: perhaps a task, and how long to stay away when it could not wait."""

    task: SignedTask | None
    pause_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Chunk:
    """One piece of a large release."""

    release_hash: str
    index: int
    total: int
    content: bytes


def wait_to_milliseconds(wait_seconds: float) -> int:
    """A wait as the wire has it, never longer than a poll may last."""
    return round(min(max(wait_seconds, 0.0), LONGEST_WAIT_SECONDS) * MILLISECONDS)


def wait_from_milliseconds(value: int) -> float:
    """A wait in seconds; one longer than a poll may last is refused."""
    longest = round(LONGEST_WAIT_SECONDS * MILLISECONDS)
    return checks.whole(value, "a wait", upper=longest) / MILLISECONDS


def claim_request_to_message(*, wait_seconds: float) -> pb.ClaimTaskRequest:
    """A long poll for a task."""
    return pb.ClaimTaskRequest(wait_milliseconds=wait_to_milliseconds(wait_seconds))


def claim_request_from_message(message: pb.ClaimTaskRequest) -> float:
    """How many seconds the caller is ready to wait."""
    return wait_from_milliseconds(message.wait_milliseconds)


def claim_to_message(claim: Claim) -> pb.ClaimTaskReply:
    """What a long poll brought, as a message."""
    task = None if claim.task is None else task_to_message(claim.task)
    return pb.ClaimTaskReply(task=task, pause_milliseconds=wait_to_milliseconds(claim.pause_seconds))


def claim_from_message(message: pb.ClaimTaskReply) -> Claim:
    """What a long poll brought."""
    task = task_from_message(message.task) if message.HasField("task") else None
    return Claim(task, wait_from_milliseconds(message.pause_milliseconds))


def chunk_to_message(chunk: Chunk) -> pb.PutChunkRequest:
    """A piece of a release as a message."""
    return pb.PutChunkRequest(
        release_hash=chunk.release_hash, index=chunk.index, total=chunk.total, content=chunk.content
    )


def chunk_from_message(message: pb.PutChunkRequest) -> Chunk:
    """The piece of a release in a message; every piece but the last is exactly 1 MiB."""
    total = checks.whole(message.total, "the number of pieces", lower=1, upper=MAX_CHUNKS)
    index = checks.whole(message.index, "the number of a piece", upper=total - 1)
    length = len(message.content)
    last = index == total - 1
    checks.require(0 < length <= CHUNK_BYTES and (last or length == CHUNK_BYTES), "a piece has the wrong length.")
    return Chunk(checks.digest(message.release_hash, "a release's hash"), index, total, message.content)


def submit_to_message(submission: Submission) -> pb.SubmitReleaseRequest:
    """A submission as a request."""
    return pb.SubmitReleaseRequest(submission=submission_to_message(submission))


def submit_from_message(message: pb.SubmitReleaseRequest, pieces: Pieces) -> Submission:
    """The submission in a request, whole."""
    return submission_from_message(message.submission, pieces)


def receipt_to_message(receipt: Entry | None) -> pb.SubmitReleaseReply:
    """A receipt, where there is one, as a reply."""
    return pb.SubmitReleaseReply(receipt=None if receipt is None else entry_to_message(receipt))


def receipt_from_message(message: pb.SubmitReleaseReply) -> Entry | None:
    """The receipt in a reply, where there is one."""
    return entry_from_message(message.receipt) if message.HasField("receipt") else None
