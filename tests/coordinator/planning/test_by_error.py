"""A question asked by error: the least ε of each kind of noise, one plan for ever, or one sentence."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from coordinator.planning.by_error import ByError
from coordinator.planning.expected import expected_errors
from coordinator.planning.widest_noise import multiple_at, ordinal
from tests.coordinator.hospitals import ANALYST, PATIENTS, World, ask, oracle, study
from wardround.federation.errors import BudgetExceeded, QueryMistaken
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.forms.totals import NoiseSetting
from wardround.federation.plan.plan import Planned
from wardround.federation.plan.task import AskRequest
from wardround.federation.question.answer import WhyDearer
from wardround.federation.question.query import Aggregate, Grouping, Query, Statistic
from wardround.federation.study.study import Study
from wardround.privacy.noise.distribution import Mechanism

GAUSSIAN, LAPLACE = Mechanism.DISCRETE_GAUSSIAN, Mechanism.DISCRETE_LAPLACE
SITES = {"b": 1000, "a": 2000}
MEAN = Aggregate(Statistic.MEAN, "sbp")
BOTH = Query("encounters", (*PATIENTS.aggregates, MEAN))


def wanted(
    *errors: float,
    query: Query = PATIENTS,
    agreed: Study | None = None,
    participants: Mapping[str, int] = SITES,
    setting: NoiseSetting | None = None,
    **terms: float,
) -> ByError:
    request = AskRequest(query, errors=errors, **terms)  # type: ignore[arg-type]
    agreed = study(pure_epsilon=1.0) if agreed is None else agreed
    return ByError.of(request, query, agreed, participants, setting or NoiseSetting())


def kinds(asked: ByError) -> list[str]:
    return [found.plan.mechanism.value for found in asked.planned()]


def widths(asked: ByError, found: Planned[AnswerLayout]) -> list[float | None]:
    errors = expected_errors(found.plan, found.layout, asked.participants, NoiseSetting())
    return [each.half_width for each in errors]


# --- planning -------------------------------------------------------------------------------------------------


def test_places_of_scales_are_in_order_and_lead_back() -> None:
    places = [*range(1, 3000), *range(2**20 - 3, 2**20 + 3), *range(3 * 2**19 - 3, 3 * 2**19 + 3), 9 * 10**6]
    multiples = [multiple_at(place) for place in places]
    assert [ordinal(multiple) for multiple in multiples] == places
    assert multiples == sorted(multiples)
    assert ordinal(2**60) < 2**26, "halving takes a few dozen steps"
    assert all(multiple_at(place + 1) <= multiple_at(place) * (1 + 2.0**-19) for place in range(2**20, 2**25, 99_991))


def test_the_half_width_is_what_was_asked_and_the_next_wider_noise_is_too_wide() -> None:
    asked = wanted(50.0, 0.5, query=BOTH)
    for found in asked.planned():
        count, mean = widths(asked, found)
        assert count is not None
        assert mean is not None
        assert 49.5 <= count <= 50.0
        assert 0.495 <= mean <= 0.5
        for place, scale in enumerate(found.plan.scales):
            scales = list(found.plan.scales)
            scales[place] = type(scale)(multiple_at(ordinal(int(scale * 1024)) + 1), 1024)
            wider = dataclasses.replace(found, plan=dataclasses.replace(found.plan, scales=tuple(scales)))
            assert max(w / e for w, e in zip(widths(asked, wider), (50.0, 0.5), strict=True) if w is not None) > 1.0


def test_the_kind_that_takes_the_smaller_share_of_its_own_part_comes_first() -> None:
    assert kinds(wanted(50.0)) == [GAUSSIAN, LAPLACE]
    assert kinds(wanted(50.0, agreed=study(pure_epsilon=2.5))) == [LAPLACE, GAUSSIAN]
    assert kinds(wanted(50.0, agreed=study(pure_epsilon=0))) == [GAUSSIAN]
    assert kinds(wanted(50.0, agreed=study(delta=0))) == [LAPLACE]
    assert kinds(wanted(50.0, delta=0.0)) == [LAPLACE]


def test_a_plan_follows_from_study_question_participants_and_nothing_else() -> None:
    first, second = wanted(50.0).planned()[0], wanted(50.0, participants=dict(reversed(SITES.items()))).planned()[0]
    assert first.plan.plan_id == second.plan.plan_id
    # The error of a count is that of its noise; that of a mean is for so many declared patients.
    other = {"a": 5000, "b": 1000}
    assert wanted(50.0, participants=other).planned()[0].plan == first.plan
    alone = Query("encounters", (MEAN,))
    assert wanted(1.0, query=alone).planned() != wanted(1.0, query=alone, participants=other).planned()
    # A simulation without noise asks for the same.
    assert wanted(50.0, setting=NoiseSetting(noiseless=True)).planned()[0].plan == first.plan


def test_the_ceiling_leaves_out_what_is_above_it() -> None:
    gaussian, laplace = (asked := wanted(50.0)).planned()
    assert asked.loss(laplace).epsilon < 0.1
    assert asked.loss(gaussian).epsilon > 0.2
    assert kinds(wanted(50.0, epsilon=0.1)) == [LAPLACE]
    assert wanted(50.0, epsilon=3.0).planned() == asked.planned()
    exactly = asked.loss(gaussian).epsilon
    assert kinds(wanted(50.0, epsilon=exactly)) == [GAUSSIAN, LAPLACE]


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (
            wanted(0.5),
            "COUNT(DISTINCT patient_id) ± 0.5 cannot be had with the study's whole budget; the smallest is ± 4.",
        ),
        (
            wanted(1e-300),
            "COUNT(DISTINCT patient_id) ± 1e-300 cannot be had with the study's whole budget; the smallest is ± 4.",
        ),
        (
            wanted(1e-300, 50.0, query=BOTH),
            (
                "these errors cannot be had with the study's whole budget; the smallest in the same proportion are "
                "COUNT(DISTINCT patient_id) ± 4, AVG(sbp) ± 2e+302."
            ),
        ),
        (wanted(5.0, epsilon=0.1), "COUNT(DISTINCT patient_id) ± 5 cannot be had with ε = 0.1; the smallest is ± 41."),
        (
            wanted(9.0, 0.001, query=BOTH),
            (
                "these errors cannot be had with the study's whole budget; the smallest in the same proportion are "
                "COUNT(DISTINCT patient_id) ± 1480, AVG(sbp) ± 0.165."
            ),
        ),
        (
            wanted(9.0, query=Query("encounters", (MEAN,)), participants={"a": 1, "b": 1}),
            "with the study's whole budget there is no estimate of AVG(sbp) for 2 declared patients.",
        ),
    ],
)
def test_what_no_budget_reaches_is_one_sentence_that_says_what_can_be_had(asked: ByError, sentence: str) -> None:
    with pytest.raises(QueryMistaken) as mistake:
        asked.planned()
    assert mistake.value.message == sentence
    offered = tuple(
        float(number) for number in re.findall(r"± ([0-9.e+]+?)(?=[,.;]? |[,.;]?$)", sentence.partition(";")[2])
    )
    if offered:
        assert asked.reached(offered), "what is offered is accepted when it is asked for"
        assert not asked.reached(tuple(0.99 * error for error in offered))


@pytest.mark.parametrize(
    ("query", "errors", "sentence"),
    [
        (BOTH, (50.0,), "the question has 2 aggregates and 1 errors; give one error for each, in order."),
        (PATIENTS, (0.0,), "an error must be a finite number above 0."),
        (PATIENTS, (float("nan"),), "an error must be a finite number above 0."),
        (
            Query("encounters", (Aggregate(Statistic.CHOICE, "diagnosis"),)),
            (5.0,),
            "MODE(diagnosis) names a value, which has no error to ask for; ask with ε instead.",
        ),
    ],
)
def test_errors_without_sense_are_one_sentence(query: Query, errors: tuple[float, ...], sentence: str) -> None:
    with pytest.raises(QueryMistaken) as mistake:
        wanted(*errors, query=query)
    assert mistake.value.message == sentence


# --- the coordinator ------------------------------------------------------------------------------------------


def by_error(*errors: float, query: Query = PATIENTS, epsilon: float | None = None, nonce: str = "") -> AskRequest:
    return AskRequest(query, epsilon, None, nonce, errors)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return oracle(tmp_path, pure_epsilon=1.0, noiseless=False)


def test_asked_twice_it_is_one_plan_and_one_charge(world: World) -> None:
    first = world.ask(by_error(50.0))
    spent = world.spent()
    world.ask(ask(0.5, query=BOTH))
    between = world.spent()
    again = world.ask(by_error(50.0))
    assert (again.plan_id, again.replayed) == (first.plan_id, True)
    assert world.spent() == between != spent
    assert world.kinds().count("reserved") == 2
    # The answer has the error that was asked for.
    low, high = first.estimates[0].interval
    assert 49.5 <= (high - low) / 2 <= 50.0
    # Gaussian noise takes less of its own part, which is why it was chosen: nothing dearer had to be used.
    assert (first.privacy.mechanism, first.dearer) == (GAUSSIAN.value, None)
    world.close()


def use_up(world: World, pure: float) -> None:
    world.ask(ask(pure, query=PATIENTS, delta=0.0, nonce="ab"))


def use_up_gaussian(world: World) -> None:
    groups = Query("encounters", PATIENTS.aggregates, None, (Grouping("diagnosis"),))
    world.ask(ask(1.99, query=groups, nonce="cd"))


def test_the_other_kind_is_used_once_the_first_is_used_up_and_a_stored_answer_to_either_is_found_first(
    world: World,
) -> None:
    first, second = (
        found.plan.plan_id for found in wanted(40.0, participants=dict.fromkeys(world.hospitals, 1000)).planned()
    )
    use_up_gaussian(world)
    told = world.ask(by_error(40.0))
    assert (told.plan_id, told.privacy.mechanism) == (second, LAPLACE.value)
    assert told.plan_id != first
    spent = world.spent()
    again = world.ask(by_error(40.0))
    assert (again.plan_id, again.replayed) == (second, True)
    assert world.spent() == spent
    use_up(world, 0.8)
    with pytest.raises(BudgetExceeded):
        world.ask(by_error(30.0))
    assert world.ask(by_error(40.0)).replayed
    world.close()


def test_a_stored_answer_to_the_second_kind_is_found_although_the_first_would_fit(world: World) -> None:
    _, second = wanted(50.0, participants=dict.fromkeys(world.hospitals, 1000)).planned()
    epsilon = wanted(50.0, participants=dict.fromkeys(world.hospitals, 1000)).loss(second).epsilon
    stored = world.ask(by_error(50.0, epsilon=epsilon))
    assert stored.privacy.mechanism == LAPLACE.value
    found = world.ask(by_error(50.0))
    assert (found.plan_id, found.replayed) == (stored.plan_id, True)
    assert world.kinds().count("reserved") == 1
    world.close()


def test_a_dry_run_shows_half_the_same_and_twice_the_error(world: World) -> None:
    before = world.coordinator.preview(ANALYST, by_error(50.0))
    half, same, _ = before.by_error
    assert [each.errors for each in before.by_error] == [(25.0,), (50.0,), (100.0,)]
    losses = [each.loss.epsilon for each in before.by_error if each.loss is not None]
    assert losses == sorted(losses, reverse=True)
    assert len(losses) == 3
    assert same.loss == before.privacy.charged
    assert same.share is not None
    assert 0.0 < same.share < 0.05
    assert half.share == pytest.approx(4 * same.share, rel=0.02), "half of the error takes four times of μ²"
    assert before.expected[0].half_width == 50.0
    use_up_gaussian(world)
    then = world.coordinator.preview(ANALYST, by_error(50.0)).by_error
    assert [each.mechanism for each in then] == [LAPLACE.value, LAPLACE.value, GAUSSIAN.value]
    use_up(world, 0.9999)
    last = world.coordinator.preview(ANALYST, by_error(6.0)).by_error
    assert [each.loss is None for each in last] == [True, False, False]
    assert [each.share is None or each.share > 1.0 for each in last[1:]] == [True, True]
    world.ask(by_error(500.0))
    paid = world.coordinator.preview(ANALYST, by_error(500.0)).by_error[1]
    assert paid.share == 0.0
    world.close()


def test_several_aggregates_say_how_they_share_the_charge(world: World) -> None:
    count, mean = world.coordinator.preview(ANALYST, by_error(50.0, 0.5, query=BOTH)).expected
    assert count.share + mean.share == pytest.approx(1.0)
    assert mean.share > 0.9
    world.close()


# --- a dearer kind of noise -----------------------------------------------------------------------------------


def test_a_question_that_had_to_take_another_noise_says_what_it_would_have_liked(world: World) -> None:
    liked = world.coordinator.preview(ANALYST, ask(0.3))
    assert (liked.privacy.mechanism, liked.dearer) == (LAPLACE.value, None)
    assert world.ask(ask(0.3, nonce="01")).dearer is None
    use_up(world, 0.7)
    for told in (world.coordinator.preview(ANALYST, ask(0.3)), world.ask(ask(0.3)), world.ask(ask(0.3))):
        assert told.privacy.mechanism == GAUSSIAN.value
        assert told.dearer is not None
        assert (told.dearer.mechanism, told.dearer.why, told.dearer.place) == (LAPLACE.value, WhyDearer.USED_UP, 0)
        assert told.dearer.instead == liked.expected[0].half_width
        assert told.dearer.actual > 2.5 * told.dearer.instead
    world.close()


def test_a_question_that_is_too_large_for_a_kind_says_so(world: World) -> None:
    told = world.ask(ask(1.5)).dearer
    assert told is not None
    assert (told.mechanism, told.why) == (LAPLACE.value, WhyDearer.DOES_NOT_FIT)
    world.close()


def test_where_the_study_or_the_question_leaves_no_choice_nothing_is_said(tmp_path: Path) -> None:
    world = oracle(tmp_path, pure_epsilon=0, noiseless=False)
    assert world.ask(ask(0.5)).dearer is None
    world.close()


def test_asked_by_error_the_dearer_noise_is_told_in_epsilon(tmp_path: Path) -> None:
    world = oracle(tmp_path, pure_epsilon=2.5, noiseless=False)
    liked = world.coordinator.preview(ANALYST, by_error(50.0))
    assert (liked.privacy.mechanism, liked.dearer) == (LAPLACE.value, None)
    use_up(world, 2.49)
    told = world.ask(by_error(50.0))
    assert told.privacy.mechanism == GAUSSIAN.value
    assert told.dearer is not None
    assert (told.dearer.why, told.dearer.place) == (WhyDearer.USED_UP, None)
    assert told.dearer.instead == pytest.approx(liked.privacy.charged.epsilon, rel=0.01)
    assert told.dearer.actual == pytest.approx(told.privacy.charged.epsilon)
    world.close()
