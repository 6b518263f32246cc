"""Every statistic from every source: the same integers as plain Python, and one unit within its norms.

The names of these tests are the table of statistics and sources in the documentation.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Sequence

import pytest

from site_agent.reading.dataset import Dataset
from tests.site_agent.sources.conformance.sources import SOURCES
from tests.site_agent.sources.conformance.study_rows import (
    COHORTS,
    MISSING_KEYS,
    UNIT_KEY,
    agreed,
    groupings,
    question,
    rows_of,
    strange,
)
from tests.site_agent.sources.reference_totals import Row, reference_keys, reference_totals
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.question.query import Statistic
from wardround.federation.study.study import Study

Open = Callable[[Sequence[Row], Study], Dataset]
EVERY = pytest.mark.parametrize(
    ("statistic", "source"),
    [
        pytest.param(statistic, source, id=f"{statistic.value}-{source}")
        for source in SOURCES
        for statistic in Statistic
    ],
)
# In `make test` from a file and from a database whose statements are others; the rest in `make test-all`.
TWO_SOURCES = ("csv", "postgresql")
EVERY_OF_TWO = pytest.mark.parametrize(
    ("statistic", "source"),
    [
        pytest.param(
            statistic,
            source,
            id=f"{statistic.value}-{source}",
            marks=() if source in TWO_SOURCES else pytest.mark.slow,
        )
        for source in SOURCES
        for statistic in Statistic
    ],
)
WHOLE, VALUE = "whole", "by value"


def totals(dataset: Dataset, asked: AnswerLayout) -> list[list[int]]:
    dataset.check(asked)
    return [part.total.tolist() for part in dataset.bounded(asked)]


def asked_of(statistic: Statistic) -> Iterator[AnswerLayout]:
    """Every grouping of all patients, and some again of a cohort and of events."""
    for name, grouping in groupings(statistic).items():
        yield question(statistic, agreed(), grouping)
        if name in (WHOLE, VALUE):
            yield question(statistic, agreed(unit="event"), grouping, COHORTS[1])
    yield question(statistic, agreed(), (), COHORTS[1])


@EVERY
def test_same_integers(statistic: Statistic, source: str, opened: Open) -> None:
    rows = rows_of(random.Random(7), patients=25, rows=160)
    if statistic is Statistic.CHI_SQUARE:
        # A patient counts in one cell of the table only, so that more rows would be cut.
        rows = [{**row, UNIT_KEY: f"p{place}"} for place, row in enumerate(rows)]
    dataset = opened(rows, agreed())
    for asked in asked_of(statistic):
        if statistic is Statistic.KEYS:
            dataset.check(asked)
            assert dataset.keys(asked) == reference_keys(asked, rows), asked.query
            continue
        found = totals(dataset, asked)
        assert found == reference_totals(asked, rows), asked.query
        assert any(any(part) for part in found), "a question that nobody is in shows nothing"


def one_patient(statistic: Statistic, source: str, opened: Open, *, scene: int, most: int) -> None:
    draw = random.Random(f"{statistic.value} {scene}")
    study = agreed(rows=draw.choice((1, 3)), groups=draw.choice((1, 2, 3)), windows=draw.choice((None, 1, 4)))
    texts = SOURCES[source].untyped
    others = [strange(draw, draw.choice(("a", "b", "c", *MISSING_KEYS)), texts=texts) for _ in range(12)]
    mine = [strange(draw, "target", texts=texts) for _ in range(draw.choice((1, 3, 30)) if scene else 30)]
    cohort = draw.choice(COHORTS)
    mixed = others + mine
    draw.shuffle(mixed)
    without, alone, along = (opened(rows, study) for rows in (others, mine, mixed))
    chosen = list(groupings(statistic).values())
    for grouping in draw.sample(chosen, min(most, len(chosen))):
        asked = question(statistic, study, grouping, cohort)
        if statistic is Statistic.KEYS:
            less, only, more = (dict(dataset.keys(asked)) for dataset in (without, alone, along))
            assert more == {key: less.get(key, 0) + only.get(key, 0) for key in {**less, **only}}
            assert len(only) <= asked.parts[0].max_groups
            assert set(only.values()) <= {1}
            continue
        before, own, after = (dataset.bounded(asked) for dataset in (without, alone, along))
        for less_part, only_part, more_part in zip(before, own, after, strict=True):
            step = only_part.total.tolist()
            # Not only within the norms: what a unit contributes is the same whoever else is there.
            assert (more_part.total - less_part.total).tolist() == step
            assert sum(abs(number) for number in step) <= only_part.l1_sensitivity
            assert sum(number * number for number in step) <= only_part.l2_sensitivity_squared


@EVERY
def test_one_patient_within_the_norms(
    statistic: Statistic,
    source: str,
    opened: Open,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        one_patient(statistic, source, opened, scene=0, most=2)
    # Nothing that the rows hold is worth a word, however strange it is.
    assert not caplog.records
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
@EVERY
def test_many_patients_within_the_norms(statistic: Statistic, source: str, opened: Open) -> None:
    for scene in range(1, 5):
        one_patient(statistic, source, opened, scene=scene, most=3)


@EVERY_OF_TWO
def test_one_event_within_the_norms(statistic: Statistic, source: str, opened: Open) -> None:
    study = agreed(unit="event", rows=1, groups=1)
    draw = random.Random(statistic.value)
    texts = SOURCES[source].untyped
    others = [strange(draw, draw.choice(("a", "b", *MISSING_KEYS)), texts=texts) for _ in range(10)]
    without, along = opened(others, study), opened([strange(draw, "a", texts=texts), *others], study)
    grouping = draw.choice(list(groupings(statistic).values()))
    asked = question(statistic, study, grouping, draw.choice(COHORTS))
    if statistic is Statistic.KEYS:
        assert sum(along.keys(asked).values()) - sum(without.keys(asked).values()) in (0, 1)
        return
    for before, after in zip(without.bounded(asked), along.bounded(asked), strict=True):
        step = (after.total - before.total).tolist()
        assert sum(abs(number) for number in step) <= before.l1_sensitivity
        assert sum(number * number for number in step) <= before.l2_sensitivity_squared


@pytest.mark.parametrize("source", SOURCES)
def test_a_key_held_by_a_patient_with_many_others_takes_one_of_few_places(source: str, opened: Open) -> None:
    rows: list[Row] = [{UNIT_KEY: "p", "code": f"C{place}"} for place in range(40)]
    rows += [{UNIT_KEY: f"q{place}", "code": "C7"} for place in range(5)]
    asked = question(Statistic.KEYS, agreed(groups=3))
    found = opened(rows, agreed()).keys(asked)
    assert sum(found.values()) == 3 + 5
    assert found["C7"] >= 5
