"""Statistics, groups and views that are refused, and the one sentence that says what works.

The cases are in refused_sql.txt: a question, and under it the sentence it gets.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from wardround.analyst.sql.read import parse
from wardround.federation.errors import QueryMistaken

LINES = (Path(__file__).parent / "refused_sql.txt").read_text("utf-8").splitlines()
CASES = list(zip(LINES[::2], (line.strip() for line in LINES[1::2]), strict=True))


def test_there_are_many_cases() -> None:
    assert len({text for text, _ in CASES}) == len(CASES) > 200


@pytest.mark.parametrize(("text", "sentence"), CASES, ids=[text for text, _ in CASES])
def test_what_is_outside_gets_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(QueryMistaken) as fault:
        parse(text)
    assert fault.value.message == sentence
    assert sentence.isprintable()
    assert sentence.endswith((".", "?"))
