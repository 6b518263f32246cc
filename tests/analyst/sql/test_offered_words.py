"""What a newcomer gets wrong: one sentence each, and the words that it offers are accepted when they are typed.

The cases are in mistaken_questions.txt: a question, and under it the sentence it gets.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.analyst.sql.offers import offers, typed
from wardround.analyst.asking.binding import settled
from wardround.analyst.asking.builder import Draft, query
from wardround.analyst.asking.multi_round import course_of
from wardround.analyst.sql.offered_words import condition_words, name_words, offered, question_words, quoted
from wardround.analyst.sql.read import read
from wardround.analyst.sql.terms import FORMS, INSTEAD
from wardround.analyst.tables.presentation import BoundQuestion
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


ODD = parse_study(
    """
    name = "odd"
    overlap = 1
    [budget]
    epsilon = 8.0
    delta = 1e-6
    [tables.group]
    unit_key = "order"
    max_rows_per_unit = 3
    [tables.group.columns]
    select = { type = "number", lower = -1000000, upper = 1000000, step = 1 }
    from   = { type = "number", lower = 0.001, upper = 0.002, step = 0.000001 }
    where  = { type = "category", values = ["O'Brien", "100%", "a {number}"] }
    date   = { type = "date", lower = "2025-01-01", upper = "2025-06-30" }
    case   = { type = "boolean" }
    Sbp    = { type = "integer", lower = 5, upper = 6 }
    """
)
WORDS = [
    *FORMS.values(),
    *(re.sub(r"^.*?; (?:use|it stands inside an aggregate, as in) ", "", each) for each in INSTEAD.values()),
]


@pytest.mark.parametrize("template", [each.removesuffix(".") for each in WORDS if "{open}" not in each])
@pytest.mark.parametrize("study", [STUDY, ODD], ids=["ward", "odd"])
def test_every_function_that_is_offered_is_accepted_whatever_a_study_calls_its_columns(
    template: str, study: Study
) -> None:
    table = study.tables[0]
    words = list(offers(f"; use {offered(template, table)}."))
    assert words or "GROUP BY" in template
    for kind, found in words:
        if kind == "call":
            ask(f"SELECT {found} FROM {name_words(table.name)}", study)


@pytest.mark.parametrize("study", [STUDY, ODD], ids=["ward", "odd"])
def test_the_question_and_the_conditions_that_are_offered_are_accepted(study: Study) -> None:
    ask(question_words(study), study)
    for column in study.tables[0].columns:
        for written in ("", "o'brien", "no", "E1"):
            name = name_words(study.tables[0].name)
            ask(f"SELECT COUNT(*) FROM {name} WHERE {condition_words(column, written)}", study)


def test_a_value_that_nobody_can_type_is_escaped() -> None:
    assert quoted("a\u202eb'c") == "'a\\u202eb''c'"


@pytest.mark.parametrize(
    ("draft", "sentence"),
    [
        (query("stays").mean("SBP"), "unknown column 'SBP' in table 'stays'; did you mean 'sbp'?"),
        (query("Stays").count(), "unknown table 'Stays'; did you mean 'stays'?"),
        (query("stays").quantile("sbp", 90), "a quantile's level must be from 0.001 to 0.999, not 90; write 0.9."),
        (query("stays").where("sex = 'f'").count(), "'sex' has no value 'f' in the study; did you mean 'F'?"),
        (query("stays").count(distinct="age"), "only 'patient_id' can be counted as COUNT(DISTINCT …), not 'age'"),
        (query("stays").where("age >= 400").count(), "age >= 400 holds for no value"),
        (query("stays").mean("diagnosis"), "'diagnosis' is of type category; a mean needs numbers, such as age."),
        (query("stays").group_by("admitted").count(), "use DATE_TRUNC('month', admitted)."),
    ],
)
def test_the_same_mistakes_in_python_get_the_same_sentences(draft: Draft, sentence: str) -> None:
    with pytest.raises(QueryMistaken, match=re.escape(sentence)):
        course_of(settled(BoundQuestion(draft.query, draft.view), STUDY), STUDY, by_search=False)
