"""What a newcomer gets wrong: one sentence each, and the words that it offers are accepted when they are typed.

The cases are in mistaken_questions.txt: a question, and under it the sentence it gets.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.analyst.sql.offers import offers, typed
from wardround.analyst.asking.binding import settled
from wardround.analyst.asking.multi_round import course_of
from wardround.analyst.sql.read import read
from wardround.federation.errors import QueryMistaken
from wardround.federation.study.study import Study
from wardround.federation.study.study_file import parse_study

STUDY = parse_study(
    """
    name = "ward"
    overlap = 1
    [budget]
    epsilon = 8.0
    delta = 1e-6
    [tables.stays]
    unit_key = "patient_id"
    max_rows_per_unit = 3
    [tables.stays.columns]
    age       = { type = "integer", lower = 0, upper = 110 }
    sbp       = { type = "number", lower = 80, upper = 200, step = 0.1 }
    weight    = { type = "number" }
    days      = { type = "integer", lower = 0, upper = 60 }
    died      = { type = "boolean" }
    sex       = { type = "category", values = ["F", "M"] }
    diagnosis = { type = "category", values = ["E11", "I10", "C50"] }
    admitted  = { type = "date", lower = "2025-01-01", upper = "2025-06-30" }
    code      = { type = "category" }
    [tables.labs]
    unit_key = "patient_id"
    max_rows_per_unit = 3
    [tables.labs.columns]
    hba1c = { type = "number", lower = 3, upper = 15, step = 0.1 }
    """
)
LINES = (Path(__file__).parent / "mistaken_questions.txt").read_text("utf-8").splitlines()
CASES = list(zip(LINES[::2], (line.strip() for line in LINES[1::2]), strict=True))


def ask(text: str, study: Study = STUDY) -> None:
    """All that a client does with a question before anything leaves its machine."""
    course_of(settled(read(text, study), study), study, by_search=False)


@pytest.mark.parametrize(("question", "sentence"), CASES, ids=[question for question, _ in CASES])
def test_a_mistake_gets_its_sentence_and_what_it_offers_is_accepted(question: str, sentence: str) -> None:
    with pytest.raises(QueryMistaken) as mistake:
        ask(question)
    assert mistake.value.message == sentence
    for kind, words in offers(sentence):
        ask(typed(question, sentence, kind, words))


def test_nearly_every_sentence_offers_words() -> None:
    silent = [sentence for _, sentence in CASES if not list(offers(sentence))]
    assert len(CASES) > 280
    assert len(silent) < 60
