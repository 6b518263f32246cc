"""A number that is not known is not shown as one: on every screen, in every file, in every order."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from coordinator.accounts.accounting import Outcome
from coordinator.rounds.stored_answers import StoredAnswer, read_answer, write_answer
from protos._generated import answer_pb2 as pb
from protos.words import ANSWER, ESTIMATE
from tests.analyst.stored import estimate, stored
from wardround.analyst.showing.result import Result
from wardround.analyst.tables.presentation import BoundQuestion, Compared, Ordering, Presentation
from wardround.federation.errors import MalformedMessage
from wardround.federation.question.answer import Estimate, Loss, NoEstimate
from wardround.federation.question.cohort import Operator
from wardround.federation.question.query import Aggregate, Grouping, Query, Statistic


def unknown(reason: NoEstimate = NoEstimate.TOO_FEW, **changed: object) -> Estimate:
    plain = Estimate("mean", "sbp", (), None, None, (80.0, 200.0), 0.95, reason=reason)
    return dataclasses.replace(plain, **changed)  # type: ignore[arg-type]


CORRELATION = unknown(NoEstimate.NO_SPREAD, statistic="correlation", term="age", interval=(-1.0, 1.0), sampling=True)


@pytest.mark.parametrize("reason", NoEstimate)
def test_a_reader_is_told_that_there_is_none_why_and_what_to_do(reason: NoEstimate) -> None:
    result = Result(stored(dataclasses.replace(CORRELATION, reason=reason)))
    for text in (str(result), result._repr_html_()):
        assert "no estimate" in text
        assert "±" not in text
        assert "ask with a larger ε" in text
    assert f"No estimate of CORR(sbp): {reason.sentence}" in str(result)


def test_a_script_reads_null_and_a_reason() -> None:
    (line,) = json.loads(json.dumps(Result(stored(CORRELATION)).document(), allow_nan=False))["estimates"]
    assert (line["value"], line["standard_error"], line["interval"]) == (None, None, [-1.0, 1.0])
    assert line["reason"] == {"code": "no_spread", "message": NoEstimate.NO_SPREAD.sentence}


def test_frames_hold_no_number_and_the_reason() -> None:
    result = Result(stored(unknown(), estimate("count", None, 5.0, 1.0)))
    frame = result.to_pandas(long=True)
    assert frame["value"].dtype == frame["standard_error"].dtype == "float64"
    assert math.isnan(frame["value"][0])
    assert frame["reason"].isna().tolist() == [False, True]
    assert frame["reason"][0] == "too_few"
    assert Result(stored(unknown())).to_pandas(long=True)["value"].dtype == "float64"
    table = result.to_arrow(long=True)
    assert table["value"].to_pylist() == [None, 5.0]
    assert table["reason"].to_pylist() == ["too_few", None]
    (row,) = result.to_arrow().to_pylist()
    assert (row["AVG(sbp)"], row["AVG(sbp)_error"], row["AVG(sbp)_reason"]) == (None, None, "too_few")
    assert (row["AVG(sbp)_lower"], row["AVG(sbp)_upper"]) == (80.0, 200.0)
    assert (row["COUNT(*)"], row["COUNT(*)_reason"]) == (5.0, None)
    assert math.isnan(result.to_pandas()["AVG(sbp)"][0])


def grouped(view: Presentation) -> list[object]:
    query = Query("t", (Aggregate(Statistic.MEAN, "sbp"),), None, (Grouping("dx"),))
    answer = stored(
        estimate("mean", "sbp", 120.0, 1.0, group=(("dx", "a"),)),
        unknown(group=(("dx", "b"),)),
        estimate("mean", "sbp", 140.0, 1.0, group=(("dx", "c"),)),
    )
    result = Result(answer, BoundQuestion(query, view))
    return [dict(each.group)["dx"] for each in result] + [result.gap]


@pytest.mark.parametrize("compare", Operator)
def test_nothing_is_true_of_a_number_that_is_not_known(compare: Operator) -> None:
    assert "b" not in grouped(Presentation(having=Compared(0, compare, 130.0)))


def test_groups_without_an_estimate_stand_last_and_make_no_gap() -> None:
    assert grouped(Presentation(order=(Ordering(0),))) == ["a", "c", "b", None]
    assert grouped(Presentation(order=(Ordering(0, descending=True),))) == ["c", "a", "b", None]
    assert grouped(Presentation(order=(Ordering(0),), limit=2)) == ["a", "c", None]


def wired(estimates: tuple[Estimate, ...]) -> pb.Answer:
    return ANSWER.write(stored(*estimates))


@pytest.mark.parametrize("reason", NoEstimate)
def test_the_wire_carries_the_reason(reason: NoEstimate) -> None:
    told = unknown(reason)
    assert ANSWER.read(wired((told,))).estimates == (told,)


def test_a_peer_of_before_reads_the_middle_of_all_that_is_possible() -> None:
    message = ESTIMATE.write(unknown())
    assert (message.value, message.standard_error, message.lower, message.upper) == (140.0, 60.0, 80.0, 200.0)


def test_an_answer_of_a_peer_of_before_is_read_as_it_was() -> None:
    message = wired((unknown(),))
    message.estimates[0].ClearField("reason")
    (read,) = ANSWER.read(message).estimates
    assert (read.value, read.standard_error, read.reason) == (140.0, 60.0, None)


def test_a_reason_that_nobody_knows_is_refused() -> None:
    message = wired((unknown(),))
    message.estimates[0].reason = 99  # type: ignore[assignment]
    with pytest.raises(MalformedMessage, match="reason"):
        ANSWER.read(message)


def kept(*estimates: Estimate, left_out: tuple[str, ...] = ()) -> StoredAnswer:
    outcome = Outcome(("north",), (), ())
    return StoredAnswer(outcome, estimates, "discrete_gaussian", Loss(0.5, 1e-7), 1, "parallel", False, left_out)


BEFORE = (
    '{"answered":["north"],"charged":[0.5,1e-07],"composition":"parallel","estimates":[["mean","sbp",[],140.0,60.0,'
    '[80.0,200.0],0.95,"",false]],"mechanism":"discrete_gaussian","missing":[],"noiseless":false,"overlap":1,'
    '"refused":[]}'
)


def test_a_stored_answer_of_before_is_shown_as_before_and_written_the_same() -> None:
    read = read_answer(BEFORE).answer
    assert (read.estimates[0].value, read.estimates[0].reason, read.left_out) == (140.0, None, ())
    assert write_answer(read).text == BEFORE


def test_a_stored_answer_keeps_the_reason_and_who_was_left_out() -> None:
    answer = kept(unknown(NoEstimate.NOBODY_LEFT), estimate("count", None, 5.0, 1.0), left_out=("west",))
    assert read_answer(write_answer(answer).text).answer == answer
