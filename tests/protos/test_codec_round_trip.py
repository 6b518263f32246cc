"""Every word survives the wire unchanged, and so does the hash it is known by."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protos.pages import PAGE_BYTES, Page, read_watched, write_watched
from protos.words import PLAN, QUERY, TASK, write_question
from tests.protos import words
from tests.protos.conversations import CONVERSATIONS, Conversation
from wardround.federation.errors import QueryMistaken
from wardround.federation.plan.plan import Plan
from wardround.federation.plan.task import AskRequest, SignedTask
from wardround.federation.question.answer import Answer, Estimate, Loss, PrivacyStatement, Remaining
from wardround.federation.question.cohort import And, Expression, IsNull, Not, Within
from wardround.federation.question.query import Aggregate, Clip, GroupBy, Grouping, Query, Statistic

COUNT = (Aggregate(Statistic.COUNT),)


@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=lambda conversation: conversation.name)
@given(choice=st.data())
@settings(max_examples=25)
def test_every_word_comes_back_equal(conversation: Conversation, choice: st.DataObject) -> None:
    word = choice.draw(conversation.words)
    back = conversation.read(conversation.write(word))
    assert back == word
    assert type(back) is type(word)


@given(words.plans)
@settings(max_examples=25)
def test_a_plan_keeps_its_id(plan: Plan) -> None:
    assert PLAN.decode(PLAN.encode(plan)).plan_id == plan.plan_id


@given(words.tasks)
@settings(max_examples=5)
def test_equal_tasks_have_equal_bytes(task: SignedTask) -> None:
    again = TASK.decode(TASK.encode(task))
    assert TASK.encode(again) == TASK.encode(task)


def nested(levels: int) -> Expression:
    term: Expression = IsNull("age")
    for _ in range(levels - 1):
        term = And((term,))
    return term


def test_a_cohort_of_the_greatest_depth_travels() -> None:
    query = Query("encounters", COUNT, nested(32))
    message = QUERY.write(query)
    assert QUERY.read(message) == query


@pytest.mark.parametrize("levels", [33, 100, 20_000])
def test_a_deeper_cohort_is_the_analysts_mistake(levels: int) -> None:
    with pytest.raises(QueryMistaken, match="32 deep"):
        QUERY.write(Query("encounters", COUNT, nested(levels)))


@pytest.mark.parametrize(
    "query",
    [
        Query("", COUNT),
        Query("t" * 257, COUNT),
        Query("half \ud800", COUNT),
        Query("encounters", ()),
        Query("encounters", COUNT * 33),
        Query("encounters", COUNT, group_by=(Grouping("a"),) * 5),
        Query("encounters", COUNT, group_by=(Grouping("a", GroupBy.BINS, edges=(math.nan,)),)),
        Query("encounters", COUNT, group_by=(Grouping("a", GroupBy.BINS, edges=(0.0,) * 1025),)),
        Query("encounters", COUNT, group_by=(Grouping("a", keys=("k",) * 10_001),)),
        Query("encounters", COUNT, group_by=(Grouping("a", keys=("NUL \x00",)),)),
        Query("encounters", (Aggregate(Statistic.CORRELATION, "a", ("b",) * 12),)),
        Query("encounters", (Aggregate(Statistic.QUANTILE, "a", level=math.inf),)),
        Query("encounters", (Aggregate(Statistic.HISTOGRAM, "a", bins=0),)),
        Query("encounters", (Aggregate(Statistic.HISTOGRAM, "a", bins=2**40),)),
        Query("encounters", (Aggregate(Statistic.MEAN, "a", clips=(Clip("a", math.nan, 1.0),)),)),
        Query("encounters", COUNT, And(())),
        Query("encounters", COUNT, And((IsNull("age"),) * 257)),
        Query("encounters", COUNT, Within("age", ())),
        Query("encounters", COUNT, Within("age", tuple(range(1025)))),
        Query("encounters", COUNT, Within("age", (2**63,))),
        Query("encounters", COUNT, Not(Within("age", (math.nan,)))),
        Query("encounters", COUNT, Within("diagnosis", ("x" * 257,))),
        Query("encounters", COUNT, Within("diagnosis", ("NUL \x00",))),
        Query("encounters", COUNT, Within("diagnosis", ("half \udfff",))),
    ],
)
def test_a_question_that_cannot_travel_is_the_analysts_mistake(query: Query) -> None:
    with pytest.raises(QueryMistaken):
        write_question(AskRequest(query))


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.0, None), (-1.0, None), (math.nan, None), (math.inf, None), (1.0, -0.1), (1.0, 1.0)]
)
def test_a_loss_that_is_no_loss_is_the_analysts_mistake(epsilon: float, delta: float | None) -> None:
    with pytest.raises(QueryMistaken):
        write_question(AskRequest(Query("encounters", COUNT), epsilon, delta))


def test_an_answer_in_pages_is_the_same_answer() -> None:
    total = 2500
    estimates = tuple(
        Estimate("mean", "c" * 200, (("d" * 200, "v" * 256),), float(number), 2.0, (0.0, 3e3), 0.95)
        for number in range(total)
    )
    privacy = PrivacyStatement("discrete_laplace", Loss(1.0, 0.0), Loss(1.0, 0.0), Remaining(2.0, 1.0), 1, "parallel")
    answer = Answer("ab" * 32, "event", False, False, ("north",), (), (), estimates, privacy)
    read: list[Estimate] = []
    pages = 0
    while len(read) < total:
        message = write_watched(answer, first_estimate=len(read))
        assert message.ByteSize() < 2 * PAGE_BYTES
        page = read_watched(message).outcome
        assert isinstance(page, Page)
        assert (page.first, page.total) == (len(read), total)
        read.extend(page.answer.estimates)
        pages += 1
    assert tuple(read) == estimates
    assert pages > 1
