"""Estimates say which aggregate of the question they belong to, through the wire and the ledger."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from protos.words import ESTIMATE
from tests.recorded import questions
from wardround.analyst.sql.read import read
from wardround.analyst.tables.presentation import owners, places_of
from wardround.federation.errors import MalformedMessage
from wardround.federation.plan.typed import typed
from wardround.federation.question.answer import Answer, Estimate
from wardround.federation.study.study_file import parse_study

HERE = Estimate("count", None, (), 1.0, 1.0, (0.0, 2.0), 0.95, place=31)
ANSWERED = tuple(text for text in questions.QUESTIONS[:22] if "KEYS" not in text)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Answer, Answer]]:
    """Every answer twice: as it was made, and as it was read back from the ledger."""
    study = parse_study(questions.STUDY.replace("{pure}", ""))
    folder: Path = tmp_path_factory.mktemp("places")
    tables = questions.opened("csv", study, folder)
    with questions.federation(study, tables, folder, noiseless=True) as federation:
        ask = federation.client.ask
        return {text: (ask(text, epsilon=1.0).answer, ask(text, epsilon=1.0).answer) for text in ANSWERED}


@pytest.mark.parametrize("text", ANSWERED)
def test_every_estimate_has_the_place_of_its_aggregate(told: dict[str, tuple[Answer, Answer]], text: str) -> None:
    study = parse_study(questions.STUDY.replace("{pure}", ""))
    query = typed(read(text).query, study)
    made, stored = told[text]
    assert stored.replayed
    assert stored.estimates == made.estimates
    for estimate in made.estimates:
        if estimate.place is None:
            # The cells of a table, counted beside its test.
            assert (query.aggregates[0].statistic.value, estimate.statistic) == ("chi_square", "count")
        else:
            assert query.aggregates[estimate.place].statistic.value == estimate.statistic
    assert {estimate.place for estimate in made.estimates} - {None} == set(range(len(query.aggregates)))


@pytest.mark.parametrize("text", ANSWERED)
def test_answers_that_do_not_say_so_are_shown_in_the_same_places(
    told: dict[str, tuple[Answer, Answer]], text: str
) -> None:
    study = parse_study(questions.STUDY.replace("{pure}", ""))
    query = typed(read(text).query, study)
    said = told[text][0].estimates
    before = [dataclasses.replace(estimate, place=None) for estimate in said]
    assert owners(before, query) == places_of(before, query) == places_of(said, query)


def test_the_wire_refuses_a_place_that_no_question_has() -> None:
    message = ESTIMATE.write(HERE)
    assert ESTIMATE.read(message) == HERE
    message.place = 32
    with pytest.raises(MalformedMessage, match=re.escape("the place of an aggregate is out of bounds.")):
        ESTIMATE.read(message)


def test_an_estimate_without_a_place_is_the_same_bytes_as_before() -> None:
    message = ESTIMATE.write(dataclasses.replace(HERE, place=None))
    assert not message.HasField("place")
    assert ESTIMATE.read(message).place is None
