"""What a round of a training may hold is decided before it is paid, and long updates are read page by page."""

from __future__ import annotations

from fractions import Fraction

import pytest

from coordinator.planning.plans import plans_for
from coordinator.serving.analyst_service import KEPT_BYTES, PagedAnswer
from protos.pages import PAGE_BYTES
from protos.words import Watch
from tests.coordinator.hospitals import study
from wardround.federation.errors import QueryMistaken
from wardround.federation.models.training import Model, ModelKind, Stage, StageKind, Step, Training
from wardround.federation.plan.task import AskRequest
from wardround.federation.question.answer import (
    MAX_UPDATE_BYTES,
    Answer,
    Excerpt,
    Loss,
    PrivacyStatement,
    Progress,
    Remaining,
    Update,
)

PLAN, OTHER = "ab" * 32, "cd" * 32
PRIVACY = PrivacyStatement("discrete_gaussian", Loss(0.5, 1e-7), Loss(0.9, 1e-6), Remaining(2.0, 0.7), 1, "parallel")
SITES = {f"site-{number}": 1000 for number in range(100)}
SCALE = Fraction(2**24)


def first_step(*, steps: int, by_site: bool = False) -> AskRequest:
    """The step that pays for a training whose later round holds 2 integers for each of its steps."""
    model = Model(ModelKind.LINEAR, "encounters", "sbp", ("age",))
    stages = (Stage(StageKind.MOMENTS, SCALE), Stage(StageKind.GRADIENT, SCALE, steps=steps))
    return AskRequest(Step(Training(model, stages, by_site=by_site), 0, 0))


def test_a_training_with_a_round_that_cannot_be_answered_is_refused_at_its_first() -> None:
    # The intercept, the age, and 199 values that are compared with the first.
    values = ", ".join(f'"{number}"' for number in range(200))
    wide = study(diagnosis=f'{{ type = "category", values = [{values}] }}')
    model = Model(ModelKind.LINEAR, "encounters", "sbp", ("age", "diagnosis"))
    for steps, fits in ((4_000_000 // 201, True), (4_000_000 // 201 + 1, False)):
        stages = (Stage(StageKind.MOMENTS, SCALE), Stage(StageKind.GRADIENT, SCALE, steps=steps))
        request = AskRequest(Step(Training(model, stages), 0, 0))
        if fits:
            assert len(plans_for(request, wide, SITES)) == 1
        else:
            with pytest.raises(QueryMistaken, match="at most 4000000 are possible; take fewer steps"):
                plans_for(request, wide, SITES)


def test_a_training_whose_updates_nobody_could_hold_is_refused_at_its_first() -> None:
    # Two integers in each step, and a hundred thousand steps at most.
    sites = {f"site-{number}": 1000 for number in range(1000)}
    most = MAX_UPDATE_BYTES // (8 * 2 * len(sites))
    assert len(plans_for(first_step(steps=most, by_site=True), study(), sites)) == 1
    with pytest.raises(QueryMistaken, match="do without each site's sums"):
        plans_for(first_step(steps=most + 1, by_site=True), study(), sites)
    assert len(plans_for(first_step(steps=most + 1), study(), sites)) == 1


def answer(size: int, *, plan_id: str = PLAN) -> Excerpt:
    updates = (Update("", bytes(size)),)
    return Excerpt(Answer(plan_id, "patient", False, False, ("a",), (), (), (), PRIVACY, updates), 0, 0)


def watch(first: int, *, plan_id: str = PLAN) -> Watch:
    return Watch(plan_id, 0, 0.0, 0, first)


def test_an_answer_is_kept_from_its_first_page_to_its_last() -> None:
    reading, long = PagedAnswer(), answer(2 * PAGE_BYTES + 8)
    assert reading.begun("ada", watch(PAGE_BYTES)) is None
    reading.note("ada", watch(0), long)
    assert reading.begun("ada", watch(PAGE_BYTES)) is long
    reading.note("ada", watch(PAGE_BYTES), long)
    assert reading.begun("ada", watch(2 * PAGE_BYTES)) is long
    reading.note("ada", watch(2 * PAGE_BYTES), long)
    assert reading.begun("ada", watch(PAGE_BYTES)) is None


def test_the_first_page_is_always_told_as_of_now() -> None:
    reading = PagedAnswer()
    reading.note("ada", watch(0), answer(2 * PAGE_BYTES))
    assert reading.begun("ada", watch(0)) is None


def test_nobody_gets_what_another_analyst_or_another_plan_was_told() -> None:
    reading = PagedAnswer()
    reading.note("ada", watch(0), answer(2 * PAGE_BYTES))
    assert reading.begun("bob", watch(PAGE_BYTES)) is None
    assert reading.begun("ada", watch(PAGE_BYTES, plan_id=OTHER)) is None
    reading.note("bob", watch(0, plan_id=OTHER), answer(2 * PAGE_BYTES, plan_id=OTHER))
    assert reading.begun("ada", watch(PAGE_BYTES)) is None


@pytest.mark.parametrize("outcome", [Progress(1, ()), answer(PAGE_BYTES)], ids=["progress", "one page"])
def test_what_has_no_further_page_is_not_kept(outcome: Progress | Excerpt) -> None:
    reading = PagedAnswer()
    reading.note("ada", watch(0), outcome)
    assert reading.begun("ada", watch(PAGE_BYTES)) is None


def test_more_than_a_coordinator_should_hold_is_not_kept() -> None:
    reading = PagedAnswer()
    piece = bytes(KEPT_BYTES // 4)
    updates = tuple(Update(f"site-{number}", piece) for number in range(5))
    large = Answer(PLAN, "patient", False, False, (), (), (), (), PRIVACY, updates)
    reading.note("ada", watch(0), Excerpt(large, 0, 0))
    assert reading.begun("ada", watch(PAGE_BYTES)) is None
