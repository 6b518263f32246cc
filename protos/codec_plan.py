"""Plans and tasks, as messages and back.

A signature covers the canonical form of the decoded word, so a field that a reader does not know cannot
change what it believes was signed.
"""

from __future__ import annotations

from fractions import Fraction

from protos import checks
from protos._generated import plan_pb2 as pb
from protos.codec_query import query_from_message, query_to_message
from protos.codec_training import step_from_message, step_to_message
from wardround.federation.ledger.entry import EMPTY, Head
from wardround.federation.plan import Plan
from wardround.federation.query import MAX_AGGREGATES, Query
from wardround.federation.task import SignedTask, Task
from wardround.federation.training import Step
from wardround.privacy.facts import AnyMechanism
from wardround.privacy.law import LARGEST_SCALE, SCALE_UNIT, Mechanism
from wardround.privacy.selection import Choosing
from wardround.privacy.thresholding import LARGEST_THRESHOLD

SIGNATURE_BYTES = 64

MECHANISMS: dict[AnyMechanism, pb.Mechanism.ValueType] = {
    Mechanism.DISCRETE_GAUSSIAN: pb.MECHANISM_DISCRETE_GAUSSIAN,
    Mechanism.DISCRETE_LAPLACE: pb.MECHANISM_DISCRETE_LAPLACE,
    Choosing.PERMUTE_AND_FLIP: pb.MECHANISM_PERMUTE_AND_FLIP,
}
_MECHANISMS_BACK = {int(number): mechanism for mechanism, number in MECHANISMS.items()}


def plan_to_message(plan: Plan) -> pb.Plan:
    """The plan as a message."""
    return pb.Plan(
        study_hash=plan.study_hash,
        query=query_to_message(plan.query) if isinstance(plan.query, Query) else None,
        step=step_to_message(plan.query) if isinstance(plan.query, Step) else None,
        mechanism=MECHANISMS[plan.mechanism],
        scales_1024ths=[_scale_to_number(scale) for scale in plan.scales],
        participants=plan.participants,
        nonce=plan.nonce,
        threshold=plan.threshold,
    )


def plan_from_message(message: pb.Plan) -> Plan:
    """The plan in a message."""
    checks.require(1 <= len(message.scales_1024ths) <= MAX_AGGREGATES, "a plan has too few or too many noise scales.")
    return Plan(
        study_hash=checks.digest(message.study_hash, "a study's hash"),
        query=_asked(message),
        mechanism=mechanism_from_number(message.mechanism),
        scales=tuple(_scale_from_number(number) for number in message.scales_1024ths),
        participants=checks.names(message.participants, "the participants"),
        nonce=checks.nonce(message.nonce),
        threshold=checks.whole(message.threshold, "a threshold", upper=LARGEST_THRESHOLD),
    )


def _asked(message: pb.Plan) -> Query | Step:
    match message.WhichOneof("asked"):
        case "query":
            return query_from_message(message.query)
        case "step":
            return step_from_message(message.step)
        case None:
            raise checks.malformed("a plan asks nothing.")


def mechanism_from_number(number: int) -> AnyMechanism:
    """The mechanism behind a number of the wire."""
    return checks.member(_MECHANISMS_BACK, number, "a mechanism")


def mechanism_to_number(name: str) -> pb.Mechanism.ValueType:
    """The number on the wire of a mechanism that is known by its name."""
    mechanism = next(mechanism for mechanism in MECHANISMS if mechanism.value == name)
    return MECHANISMS[mechanism]


def _scale_to_number(scale: Fraction) -> int:
    number = scale * SCALE_UNIT
    if number.denominator != 1:
        msg = "a noise scale is not a whole number of 1/1024"
        raise ValueError(msg)
    return number.numerator


def _scale_from_number(number: int) -> Fraction:
    return Fraction(checks.whole(number, "a noise scale", lower=1, upper=LARGEST_SCALE * SCALE_UNIT), SCALE_UNIT)


def head_to_message(head: Head) -> pb.Head:
    """A place in a ledger as a message."""
    return pb.Head(sequence=head.sequence, digest=head.digest)


def head_from_message(message: pb.Head) -> Head:
    """The place in a ledger in a message."""
    head = Head(checks.whole(message.sequence, "a head's sequence"), checks.digest(message.digest, "a head's digest"))
    checks.require((head.sequence == 0) == (head == EMPTY), "a head without entries is not the empty chain's.")
    return head


def task_to_message(signed: SignedTask) -> pb.SignedTask:
    """A signed task as a message."""
    task = signed.task
    return pb.SignedTask(
        task=pb.Task(plan=plan_to_message(task.plan), site=task.site, head=head_to_message(task.head)),
        signature=signed.signature,
    )


def task_from_message(message: pb.SignedTask) -> SignedTask:
    """The signed task in a message; whether the signature holds is for the site to ask."""
    task = message.task
    checks.require(task.HasField("plan") and task.HasField("head"), "a task has no plan or no head.")
    return SignedTask(
        task=Task(
            plan=plan_from_message(task.plan),
            site=checks.name(task.site, "a task's site"),
            head=head_from_message(task.head),
        ),
        signature=checks.size(message.signature, "a task's signature", exactly=SIGNATURE_BYTES),
    )


def encode_task(signed: SignedTask) -> bytes:
    """A signed task as bytes, for a store."""
    return task_to_message(signed).SerializeToString(deterministic=True)


def decode_task(content: bytes) -> SignedTask:
    """The signed task in these bytes."""
    return task_from_message(checks.parse(pb.SignedTask, content))


def encode_plan(plan: Plan) -> bytes:
    """A plan as bytes, for a store."""
    return plan_to_message(plan).SerializeToString(deterministic=True)


def decode_plan(content: bytes) -> Plan:
    """The plan in these bytes."""
    return plan_from_message(checks.parse(pb.Plan, content))
