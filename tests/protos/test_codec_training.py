"""A step and its updates on the wire: bounded, unchanged, and beside questions whose bytes stay what they were."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import pytest
from hypothesis import given, settings

from protos._generated import analyst_service_pb2, answer_pb2, plan_pb2
from protos.calls import AnalystCalls
from protos.channels import MAX_MESSAGE_BYTES, channel
from protos.pages import PAGE_BYTES, read_watched, write_watched
from protos.words import MAX_QUESTION_BYTES, PLAN, TASK, read_question, write_question
from protos.words import STEP as STEPS
from tests.protos import words
from tests.protos.loopback_service import HASH, AnalystDesk, analysts, listening
from tests.protos.putting import put
from wardround.federation import canonical
from wardround.federation.errors import MalformedMessage, QueryMistaken
from wardround.federation.models.training import MAX_WEIGHTS, Model, ModelKind, Stage, StageKind, Step, Training
from wardround.federation.plan.plan import Plan
from wardround.federation.plan.task import AskRequest, SignedTask, Task
from wardround.federation.question.answer import Answer, Loss, PrivacyStatement, Remaining, Update
from wardround.federation.question.cohort import And, Comparison, Expression, IsNull, Operator, Or, Within
from wardround.federation.question.query import Aggregate, Grouping, Query, Statistic
from wardround.federation.trust.entry import EMPTY
from wardround.privacy.noise.distribution import Mechanism

MODEL = Model(ModelKind.PERCEPTRON, "encounters", "readmitted", ("age", "sbp"), hidden=8)
GRADIENTS = Stage(StageKind.GRADIENT, Fraction(4096), rounds=6, steps=2, rate=Fraction(1, 2**32))
TRAINING = Training(
    MODEL, (Stage(StageKind.MOMENTS, Fraction(1, 1024)), GRADIENTS), Fraction(1, 4), 0.5, 7, by_site=True
)
STEP = Step(TRAINING, 1, 5, bytes(16), bytes(16), bytes(8 * 33), 0.25, 64.0)
PRIVACY = PrivacyStatement("discrete_gaussian", Loss(0.5, 1e-7), Loss(0.9, 1e-6), Remaining(2.0, 0.7), 1, "parallel")


def plan_of(asked: Query | Step, *participants: str) -> Plan:
    return Plan(HASH, asked, Mechanism.DISCRETE_GAUSSIAN, (Fraction(4096),), participants)


# --- what was there before ------------------------------------------------------------------------------------

QUERY = Query(
    "encounters",
    (Aggregate(Statistic.MEAN, "sbp"),),
    And((Comparison("age", Operator.GREATER, 40), Within("diagnosis", ("E11", "I10")))),
    (Grouping("diagnosis"),),
)
# Written down before steps existed.
QUERY_BYTES = (
    "0a0a656e636f756e746572731207080312037362701a2e322c0a0d0a0b0a0361676510051a0210500a1b12190a09646961676e6f7369731205"
    "220345313112052203493130220d0a09646961676e6f7369731001"
)


def test_the_plan_of_a_question_keeps_its_id_and_its_bytes() -> None:
    scales = (Fraction(4097, 1024), Fraction(8))
    plan = Plan(HASH, QUERY, Mechanism.DISCRETE_GAUSSIAN, scales, ("north", "south"), "n-1", 7)
    assert plan.plan_id == "86f0723b3a9c301ba397fe282214b0d606faea729308f3ce0c5ab8fa0134cf0a"
    rest = "18012204812080402a056e6f7274682a05736f75746832036e2d313807"
    stored = bytes.fromhex(f"0a40{HASH.encode().hex()}1254{QUERY_BYTES}{rest}")
    assert PLAN.encode(plan) == stored
    assert PLAN.decode(stored) == plan


def test_a_question_keeps_its_bytes() -> None:
    message = write_question(AskRequest(QUERY, 0.5, 1e-7, "n-1"))
    rest = "11000000000000e03f1948afbc9af2d77a3e22036e2d31"
    assert message.SerializeToString(deterministic=True).hex() == f"0a54{QUERY_BYTES}{rest}"


# --- a step ---------------------------------------------------------------------------------------------------


@given(words.steps)
@settings(max_examples=50)
def test_a_step_has_the_same_digest_on_both_sides(step: Step) -> None:
    back = STEPS.read(STEPS.readable(STEPS.sendable(step)))
    assert canonical.encode(back) == canonical.encode(step)
    assert PLAN.decode(PLAN.encode(plan_of(step))).plan_id == plan_of(step).plan_id


def test_the_largest_model_fits_into_a_task_of_the_most_sites() -> None:
    step = dataclasses.replace(STEP, weights=b"\xff" * (8 * MAX_WEIGHTS))
    assert write_question(AskRequest(step)).ByteSize() < 2**20
    sites = tuple(f"{number:a>63}" for number in range(10_000))
    signed = SignedTask(Task(plan_of(step, *sites), "north", EMPTY), b"s" * 64)
    assert len(TASK.encode(signed)) < MAX_MESSAGE_BYTES
    assert TASK.decode(TASK.encode(signed)) == signed
    assert MAX_QUESTION_BYTES + sum(len(site) + 2 for site in sites) + 1024 < MAX_MESSAGE_BYTES


def with_cohort(cohort: Expression) -> Step:
    model = dataclasses.replace(MODEL, cohort=cohort)
    return dataclasses.replace(STEP, training=dataclasses.replace(TRAINING, model=model))


def with_stage(**changes: object) -> Step:
    stages = (dataclasses.replace(GRADIENTS, **changes),)  # type: ignore[arg-type]
    return dataclasses.replace(STEP, training=dataclasses.replace(TRAINING, stages=stages), stage=0, turn=0)


def with_training(**changes: object) -> Step:
    return dataclasses.replace(STEP, training=dataclasses.replace(TRAINING, **changes))  # type: ignore[arg-type]


LONG = Within("diagnosis", tuple(f"{number:x>256}" for number in range(1024)))


@pytest.mark.parametrize(
    ("step", "sentence"),
    [
        (dataclasses.replace(STEP, weights=bytes(8 * MAX_WEIGHTS + 8)), "more than 100000 numbers"),
        (dataclasses.replace(STEP, weights=bytes(9)), "8 bytes"),
        (dataclasses.replace(STEP, centre=bytes(8 * 258)), "more than 257 numbers"),
        (dataclasses.replace(STEP, stage=2), "stage of a step"),
        (dataclasses.replace(STEP, stage=-1), "outside what can be sent"),
        (dataclasses.replace(STEP, turn=6), "turn of a step"),
        (dataclasses.replace(STEP, learning_rate=math.nan), "learning rate"),
        (dataclasses.replace(STEP, batch=math.inf), "batch"),
        (dataclasses.replace(STEP, edges=(0.0,) * 257), "too many edges"),
        (with_stage(scale=Fraction(1, 3)), "1/1024"),
        (with_stage(scale=Fraction(0)), "noise scale"),
        (with_stage(rate=Fraction(1, 3)), f"1/{2**32}"),
        (with_stage(rate=Fraction(2)), "a rate"),
        (with_stage(rounds=2**40), "outside what can be sent"),
        (with_training(held_out=Fraction(1)), "held out"),
        (with_training(slack=2**60 + 1), "slack"),
        (with_training(clip=0.0), "clip"),
        (with_training(stages=()), "stages"),
        (with_training(model=dataclasses.replace(MODEL, features=())), "features"),
        (with_training(model=dataclasses.replace(MODEL, target="half \ud800")), "outside what can be sent"),
        (with_cohort(And((IsNull("age"),) * 257)), "256 terms"),
        (with_cohort(Or((LONG,) * 13)), f"at most {MAX_QUESTION_BYTES} can be sent"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_a_step_that_cannot_travel_is_refused_before_it_is_sent(step: Step, sentence: str) -> None:
    with pytest.raises(QueryMistaken) as caught:
        write_question(AskRequest(step))
    assert sentence in caught.value.message
    assert caught.value.message.endswith(".")
    assert "\n" not in caught.value.message


def test_a_step_is_not_given_a_sharpness_of_its_own() -> None:
    for sharp in (AskRequest(STEP, epsilon=1.0), AskRequest(STEP, delta=0.0)):
        with pytest.raises(QueryMistaken, match="noise of its training"):
            write_question(sharp)


# --- what a peer may send -------------------------------------------------------------------------------------


def step() -> plan_pb2.Step:
    return STEPS.readable(STEPS.sendable(with_cohort(IsNull("age"))))


def plan() -> plan_pb2.Plan:
    return PLAN.write(plan_of(STEP, "north"))


def question() -> answer_pb2.Question:
    return write_question(AskRequest(STEP))


def large() -> answer_pb2.Question:
    """As large as a question may be, but for a few bytes."""
    message = write_question(AskRequest(with_cohort(Or((LONG,) * 11))))
    message.nonce = "n" * 60
    return message


def page() -> analyst_service_pb2.AwaitReply:
    return write_watched(answered(("north", 3), ("south", 3)), first_estimate=0)


def total() -> analyst_service_pb2.AwaitReply:
    return write_watched(answered(("", 3)), first_estimate=0)


def answered(*updates: tuple[str, int]) -> Answer:
    """An answer to a step, with so many integers for each site, no two of them alike."""
    made = tuple(
        Update(site, b"".join((2**40 * place + number).to_bytes(8, "little") for number in range(count)))
        for place, (site, count) in enumerate(updates)
    )
    sites = tuple(site for site, _ in updates if site) or ("north", "south")
    return Answer(HASH, "patient", False, False, sites, (), (), (), PRIVACY, made)


READERS = {
    step: STEPS.read,
    plan: PLAN.read,
    question: read_question,
    large: read_question,
    page: read_watched,
    total: read_watched,
}

BAD: list[tuple[object, str, object]] = [
    (step, "training", None),
    (step, "training.model", None),
    (step, "training.model.kind", 0),
    (step, "training.model.kind", 5),
    (step, "training.model.table", ""),
    (step, "training.model.target", "t" * 257),
    (step, "training.model.target", "a\x00b"),
    (step, "training.model.features", []),
    (step, "training.model.features", ["age"] * 257),
    (step, "training.model.features", ["age", ""]),
    (step, "training.model.cohort.negation.is_null.column", ""),
    (step, "training.model.cohort.conjunction.terms", [plan_pb2.Expression()]),
    (step, "training.model.hidden", 257),
    (step, "training.stages", []),
    (step, "training.stages", [plan_pb2.Stage(kind=1, scale_1024ths=1, rounds=1, steps=1, rate=1)] * 17),
    (step, "training.stages.0.kind", 0),
    (step, "training.stages.0.kind", 5),
    (step, "training.stages.0.scale_1024ths", 0),
    (step, "training.stages.0.scale_1024ths", 2**60 + 1),
    (step, "training.stages.0.rounds", 0),
    (step, "training.stages.0.rounds", 100_001),
    (step, "training.stages.0.steps", 0),
    (step, "training.stages.0.steps", 100_001),
    (step, "training.stages.0.rate", 0),
    (step, "training.stages.0.rate", 2**32 + 1),
    (step, "training.held_out", 2**32),
    (step, "training.clip", 0.0),
    (step, "training.clip", -1.0),
    (step, "training.clip", math.nan),
    (step, "training.clip", math.inf),
    (step, "training.slack", 2**60 + 1),
    (step, "stage", 2),
    (step, "stage", 2**32 - 1),
    (step, "turn", 6),
    (step, "centre", bytes(7)),
    (step, "centre", bytes(8 * 258)),
    (step, "spread", bytes(17)),
    (step, "spread", bytes(8 * 258)),
    (step, "weights", bytes(1)),
    (step, "weights", bytes(800_008)),
    (step, "learning_rate", math.nan),
    (step, "learning_rate", -math.inf),
    (step, "batch", math.nan),
    (step, "edges", [0.0] * 257),
    (step, "edges", [math.nan]),
    (plan, "step", None),
    (plan, "step.training.clip", 0.0),
    (question, "step", None),
    (question, "step.turn", 6),
    (question, "epsilon", 1.0),
    (question, "delta", 0.0),
    (large, "step.weights", bytes(800_000)),
    (page, "page.updates.0.site", "south"),
    (page, "page.updates.0.site", "east"),
    (page, "page.updates.0.site", ""),
    (page, "page.updates.0.bytes", 0),
    (page, "page.updates.0.bytes", 16),
    (page, "page.updates.0.bytes", 32),
    (page, "page.updates.0.bytes", 32_000_008),
    (page, "page.updates", []),
    (page, "page.answer.answered", ["north"]),
    (page, "page.first_update_byte", 1),
    (page, "page.first_update_byte", 2**64 - 1),
    (page, "page.update_bytes", b""),
    (page, "page.update_bytes", bytes(49)),
    (total, "page.updates.0.bytes", 25),
    (total, "page.updates", [analyst_service_pb2.UpdateSize(bytes=24)] * 2),
    (total, "page.updates", [analyst_service_pb2.UpdateSize(site="a b", bytes=24)]),
]


@pytest.mark.parametrize("make", READERS, ids=lambda make: make.__name__)
def test_the_sound_messages_are_sound(make: object) -> None:
    READERS[make](make())  # type: ignore[index, operator]


@pytest.mark.parametrize(("make", "path", "content"), BAD, ids=lambda part: str(getattr(part, "__name__", part))[:40])
def test_one_bad_field_makes_a_message_malformed(make: object, path: str, content: object) -> None:
    message = make()  # type: ignore[operator]
    put(message, path, content)
    with pytest.raises(MalformedMessage) as caught:
        READERS[make](message)  # type: ignore[index]
    if isinstance(content, str) and len(content) > 1:
        assert content not in caught.value.message.replace("south", "")


def test_more_bytes_than_an_analyst_can_hold_are_not_begun() -> None:
    message = page()
    sites = [f"site-{number}" for number in range(34)]
    put(message, "page.answer.answered", sites)
    put(message, "page.updates", [analyst_service_pb2.UpdateSize(site=site, bytes=32_000_000) for site in sites])
    with pytest.raises(MalformedMessage, match="too large"):
        read_watched(message)


# --- updates in pages -----------------------------------------------------------------------------------------


def test_updates_of_any_size_are_read_in_pages_and_are_one_answer() -> None:
    # Neither a site's end nor a page's falls together with the other.
    answer = answered(("east", 100_000), ("north", 100_000), ("west", 100_000))
    desk = AnalystDesk(answer)
    with (
        listening(analysts(desk)) as loopback,
        channel(loopback.address, loopback.authority.issue("ada")) as ada,
    ):
        assert AnalystCalls(ada).ask(AskRequest(STEP)) == HASH
        assert AnalystCalls(ada).watch(HASH, seen=0, wait_seconds=1) == answer
        desk.outcome = answered(("", 5))
        assert AnalystCalls(ada).watch(HASH, seen=0, wait_seconds=1) == desk.outcome
    assert desk.asked == [AskRequest(STEP)]
    message = write_watched(answer, first_estimate=0)
    assert message.ByteSize() < PAGE_BYTES + 2048


class ForgetfulDesk(AnalystDesk):
    """Sends the first page, whatever is asked for."""

    def Await(self, request, context):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, N802
        request.first_update_byte = 0
        return AnalystDesk.Await(self, request, context)


def test_pages_that_do_not_continue_one_another_are_no_answer() -> None:
    with (
        listening(analysts(ForgetfulDesk(answered(("east", 100_000), ("north", 100_000))))) as loopback,
        channel(loopback.address, loopback.authority.issue("ada")) as ada,
        pytest.raises(MalformedMessage, match="do not fit together"),
    ):
        AnalystCalls(ada).watch(HASH, seen=0, wait_seconds=1)


def test_an_update_that_an_answer_does_not_have_is_not_looked_for() -> None:
    with pytest.raises(MalformedMessage, match="no such update"):
        write_watched(answered(("", 3)), first_estimate=0, first_update_byte=25)
