"""A question becomes the same plan every time, and a senseless one becomes a sentence."""

from __future__ import annotations

import datetime
import math

import hypothesis
import pytest
from hypothesis import strategies as st

from coordinator.planning.plans import plans_for, target_of
from coordinator.store.rounds import decode_plan, encode_plan
from tests.coordinator.hospitals import PATIENTS, ask, study
from tests.coordinator.losses import charged
from wardround.federation.errors import LedgerCorrupt, QueryMistaken
from wardround.federation.plan.plan import price
from wardround.federation.question.cohort import And, Between, Comparison, Expression, IsNull, Not, Operator, Or, Within
from wardround.federation.question.query import Aggregate, Grouping, Query, Statistic
from wardround.privacy.noise.distribution import Mechanism

SITES = {"b": 1000, "a": 2000}
MANY = Query(
    "encounters",
    (Aggregate(Statistic.COUNT), Aggregate(Statistic.COUNT, "patient_id"), Aggregate(Statistic.MEAN, "sbp")),
    None,
    (Grouping("diagnosis"),),
)


def test_the_same_question_is_the_same_plan_in_whatever_order_the_sites_come() -> None:
    first = plans_for(ask(), study(), SITES)
    second = plans_for(ask(), study(), dict(reversed(SITES.items())))
    assert [plan.plan_id for plan in first] == [plan.plan_id for plan in second]
    assert first[0].participants == ("a", "b")


def test_another_number_of_declared_patients_is_the_same_plan() -> None:
    assert plans_for(ask(), study(), SITES) == plans_for(ask(), study(), {"a": 5, "b": 6})


@pytest.mark.parametrize("change", [{"epsilon": 0.6}, {"delta": 1e-7}, {"nonce": "00"}, {"query": MANY}])
def test_anything_that_differs_is_another_plan(change: dict[str, object]) -> None:
    assert plans_for(ask(**change), study(), SITES)[0].plan_id != plans_for(ask(), study(), SITES)[0].plan_id  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("epsilon", "sentence"),
    [
        (0.0, "ε must be a finite number above 0, not 0."),
        (-1.0, "ε must be a finite number above 0, not -1."),
        (math.nan, "ε must be a finite number above 0, not nan."),
        (math.inf, "ε must be a finite number above 0, not inf."),
    ],
)
def test_an_epsilon_without_sense_is_one_sentence(epsilon: float, sentence: str) -> None:
    with pytest.raises(QueryMistaken) as mistake:
        plans_for(ask(epsilon), study(), SITES)
    assert mistake.value.message == sentence


@pytest.mark.parametrize("epsilon", [1e-13, 5e-324])
def test_a_pure_epsilon_below_one_unit_is_one_sentence(epsilon: float) -> None:
    with pytest.raises(QueryMistaken) as mistake:
        plans_for(ask(epsilon), study(delta=0), SITES)
    assert mistake.value.message == f"ε = {epsilon:g} is too small for this question; ask with a larger ε."


@pytest.mark.parametrize(
    ("delta", "sentence"),
    [
        (-1e-9, "δ must be a finite number of at least 0, not -1e-09."),
        (math.nan, "δ must be a finite number of at least 0, not nan."),
        (0.0, "δ must be above 0: this study has no pure budget; choose δ up to 1e-06."),
        (1e-5, "δ = 1e-05 is above the study's δ = 1e-06; choose it at most that."),
        (1e-13, "δ = 1e-13 is too small to account for; choose 0, or at least 1e-12."),
    ],
)
def test_a_delta_without_sense_is_one_sentence(delta: float, sentence: str) -> None:
    with pytest.raises(QueryMistaken) as mistake:
        plans_for(ask(delta=delta), study(), SITES)
    assert mistake.value.message == sentence


def test_delta_must_be_below_one_over_the_declared_patients() -> None:
    with pytest.raises(QueryMistaken) as mistake:
        plans_for(ask(), study(), {"a": 400_000, "b": 600_000})
    assert mistake.value.message == (
        "δ = 1e-06 is not below 1/1000000 (the patients declared by 2 sites); choose δ < 1e-06."
    )
    assert plans_for(ask(), study(), {"a": 400_000, "b": 599_999})


@pytest.mark.parametrize("nonce", ["xyz", "a" * 65, " ", "0x"])
def test_a_nonce_is_short_hexadecimal(nonce: str) -> None:
    with pytest.raises(QueryMistaken, match="at most 64 hexadecimal digits"):
        plans_for(ask(nonce=nonce), study(), SITES)


def test_a_nonce_in_capitals_is_the_same_nonce() -> None:
    assert plans_for(ask(nonce="AB"), study(), SITES) == plans_for(ask(nonce="ab"), study(), SITES)


@pytest.mark.parametrize("overlap", [1, 2, None])
@pytest.mark.parametrize("query", [PATIENTS, MANY])
@pytest.mark.parametrize("epsilon", [0.001, 0.1, 1.0, 3.0])
def test_a_plan_never_costs_more_than_was_asked(query: Query, overlap: int | None, epsilon: float) -> None:
    agreed = study(overlap=overlap, pure_epsilon=1.0)
    plans = plans_for(ask(epsilon, query=query), agreed, SITES)
    assert len(plans) == (2 if epsilon <= 1.0 else 1)
    for plan in plans:
        loss = charged(plan, agreed, delta=1e-6)
        assert epsilon * 0.99 < loss.epsilon <= epsilon
        assert loss.delta == (0.0 if plan.mechanism is Mechanism.DISCRETE_LAPLACE else 1e-6)
        assert price(plan, agreed).cost.slack <= 3


def test_the_plan_with_the_smaller_error_is_tried_first() -> None:
    agreed = study(pure_epsilon=1.0)
    assert plans_for(ask(), agreed, SITES)[0].mechanism is Mechanism.DISCRETE_LAPLACE
    wide = Query(
        "encounters",
        tuple(Aggregate(Statistic.MEAN, c) for c in ("sbp", "age", "smoker")),
        None,
        (Grouping("diagnosis"),),
    )
    assert plans_for(ask(query=wide), agreed, SITES)[0].mechanism is Mechanism.DISCRETE_GAUSSIAN


def test_without_a_pure_lane_there_is_no_pure_plan() -> None:
    assert [plan.mechanism for plan in plans_for(ask(), study(), SITES)] == [Mechanism.DISCRETE_GAUSSIAN]


def test_a_question_without_delta_in_a_mixed_study_is_pure() -> None:
    plans = plans_for(ask(delta=0.0), study(pure_epsilon=1.0), SITES)
    assert [plan.mechanism for plan in plans] == [Mechanism.DISCRETE_LAPLACE]


def test_the_default_target_is_a_tenth_at_the_studys_delta() -> None:
    target = target_of(ask(None), study(), SITES)
    assert (target.epsilon, target.delta) == (pytest.approx(0.3), 1e-6)


def _leaves() -> st.SearchStrategy[Expression]:
    number = st.floats(80, 200) | st.integers(80, 200)
    return st.one_of(
        st.builds(Comparison, st.just("sbp"), st.sampled_from(Operator), number),
        st.builds(Comparison, st.just("smoker"), st.just(Operator.EQUAL), st.booleans()),
        st.builds(Within, st.just("diagnosis"), st.lists(st.sampled_from(["E11", "I10"]), min_size=1).map(tuple)),
        st.builds(Between, st.just("day"), st.dates(), st.dates(datetime.date(1, 1, 1))),
        st.builds(IsNull, st.just("age")),
    )


@hypothesis.given(
    cohort=st.recursive(
        _leaves(),
        lambda inner: st.one_of(
            st.builds(Not, inner),
            st.builds(And, st.lists(inner, min_size=1, max_size=3).map(tuple)),
            st.builds(Or, st.lists(inner, min_size=1, max_size=3).map(tuple)),
        ),
        max_leaves=6,
    )
)
def test_every_plan_comes_back_from_its_own_bytes(cohort: Expression) -> None:
    query = Query("encounters", MANY.aggregates, cohort, MANY.group_by)
    plan = plans_for(ask(query=query, nonce="ab"), study(), SITES)[0]
    again = decode_plan(encode_plan(plan), plan_id=plan.plan_id)
    assert again == plan
    assert again.plan_id == plan.plan_id


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b"\xff", b'{"word":"Plan","fields":{}}', b"[" * 100_000])
def test_bytes_that_are_no_plan_are_a_corrupt_ledger(text: bytes) -> None:
    with pytest.raises(LedgerCorrupt):
        decode_plan(text, plan_id=plans_for(ask(), study(), SITES)[0].plan_id)


def test_a_plan_with_one_changed_byte_does_not_come_back_as_itself() -> None:
    plan = plans_for(ask(), study(), SITES)[0]
    text = encode_plan(plan)
    for index in range(len(text)):
        damaged = text[:index] + bytes([text[index] ^ 1]) + text[index + 1 :]
        with pytest.raises(LedgerCorrupt):
            decode_plan(damaged, plan_id=plan.plan_id)
