"""The rounds of one training read rows once, and never rows that are no longer there."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import pytest

from site_agent.reading.batches import Batch, Fingerprint
from site_agent.reading.dataset import Tables
from site_agent.reading.examples import KEPT_SECONDS, LastExamples
from site_agent.reading.memory_limits import Limits
from tests.site_agent.columnstore.prepared_tables import TABLE, Kept, random_rows, study
from wardround.federation.errors import SchemaRefused, SourceAway, SourceFailed
from wardround.federation.models.step_layout import StepLayout, step_form
from wardround.federation.models.training import Model, ModelKind, Stage, StageKind, Step, Training
from wardround.federation.plan.layout import shape
from wardround.federation.question.cohort import Comparison, Operator
from wardround.federation.question.query import Aggregate, Query, Statistic
from wardround.federation.study.study import Table
from wardround.privacy.noise.distribution import Mechanism

ROWS = random_rows(patients=20, rows=100, seed=1)
OLDER = Comparison("ward", Operator.GREATER, 1)


def form_of(turn: int = 0, *, cohort: Comparison | None = None, held_out: Fraction = Fraction(1, 8)) -> StepLayout:
    model = Model(ModelKind.LOGISTIC, TABLE, "sex", ("ward", "gain"), cohort)
    training = Training(model, (Stage(StageKind.MOMENTS, Fraction(2**20), 9),), held_out)
    return step_form(Step(training, 0, turn), study())


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def opened(source: Kept) -> tuple[Tables, Clock]:
    clock = Clock()
    return Tables({TABLE: source}, LastExamples(clock)), clock


def test_rounds_of_a_training_read_once() -> None:
    source = Kept(ROWS)
    tables, _ = opened(source)
    first = tables.examples(form_of(0))
    assert all(tables.examples(form_of(turn)) is first for turn in range(1, 8))
    assert source.asked == ["examples"]


@pytest.mark.parametrize("other", [form_of(1, cohort=OLDER), form_of(1, held_out=Fraction(1, 2))])
def test_another_training_reads_anew(other: StepLayout) -> None:
    tables, _ = opened(Kept(ROWS))
    first = tables.examples(form_of(0))
    second = tables.examples(other)
    assert second.held_out.tolist() != first.held_out.tolist()
    assert tables.examples(form_of(2)) is not first


def test_a_change_of_the_source_is_read() -> None:
    source = Kept(ROWS)
    tables, _ = opened(source)
    before = tables.examples(form_of(0)).target.size
    source.rows, source.state = ROWS[:40], "second"
    assert tables.examples(form_of(1)).target.size < before


def test_a_source_that_cannot_tell_is_read_again_after_some_minutes() -> None:
    source = Kept(ROWS, sees_changes=False)
    tables, clock = opened(source)
    first = tables.examples(form_of(0))
    clock.seconds += KEPT_SECONDS
    assert tables.examples(form_of(1)) is first
    clock.seconds += 1.0
    assert tables.examples(form_of(2)) is not first


def test_after_the_last_round_nothing_is_kept() -> None:
    source = Kept(ROWS)
    tables, _ = opened(source)
    tables.examples(form_of(7))
    tables.examples(form_of(8))
    assert source.asked == ["examples"]
    tables.examples(form_of(8))
    assert source.asked == ["examples", "examples"]


def test_a_failure_keeps_nothing_and_says_nothing() -> None:
    source = Kept(ROWS, batch_rows=10, fails_after=3)
    tables, _ = opened(source)
    with pytest.raises(SourceFailed):
        tables.examples(form_of(0))
    source.fails_after = None
    assert tables.examples(form_of(1)).target.size > 0


class Leaving(Kept):
    """A source that is away after its first rows."""

    def batches(self, table: Table) -> Iterator[Batch]:
        yield next(iter(super().batches(table)))
        raise SourceAway


def test_a_source_that_is_away_is_no_failure_and_is_read_again() -> None:
    source = Leaving(ROWS, batch_rows=10)
    tables, _ = opened(source)
    with pytest.raises(SourceAway) as away:
        tables.examples(form_of(0))
    assert not away.value.unread
    assert opened(Kept(ROWS))[0].examples(form_of(0)).target.size > 0


class Unseen(Kept):
    """A source whose schema fails only once rows are read."""

    def fingerprint(self, table: Table) -> Fingerprint:
        raise SchemaRefused("The file is gone.")

    def batches(self, table: Table) -> Iterator[Batch]:
        raise SchemaRefused("The file is gone.")


def test_a_schema_that_fails_after_the_charge_is_the_one_failure() -> None:
    tables, _ = opened(Unseen(ROWS))
    with pytest.raises(SourceFailed) as failure:
        tables.examples(form_of(0))
    assert "gone" not in str(failure.value)
    assert failure.value.__context__ is None


@pytest.mark.parametrize(("part", "read"), [(1, 1), (10**9, 2)])
def test_a_question_has_the_memory_of_examples_that_take_much_of_it(
    part: int, read: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Kept(ROWS)
    tables, _ = opened(source)
    tables.examples(form_of(0))
    counted = shape(Query(TABLE, (Aggregate(Statistic.COUNT),)), study(), Mechanism.DISCRETE_GAUSSIAN)
    with monkeypatch.context() as patched:
        patched.setattr(Limits, "working_bytes", property(lambda _: 2**32 // part))
        tables.bounded(counted)
    tables.examples(form_of(1))
    assert source.asked.count("examples") == read
