# ruff: noqa: RUF001 (words of several languages)
"""What is refused, what is escaped, and that what people write in their languages is neither."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wardround.federation.errors import ConfigurationMistaken, QueryMistaken
from wardround.federation.forms.release import showable
from wardround.federation.plain_text import escaped, fault_in, fitted, is_plain, rows, text_fault
from wardround.federation.question.cohort import And, Comparison, IsNull, Not, Operator, Within
from wardround.federation.question.query import Aggregate, Grouping, Query, Statistic

ANY = st.text(st.characters(), max_size=60)
TURNING = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
HONEST = (
    "St Mary's",
    "Müller-Lüdenscheidt",
    "Crohn\u202fet\u00a0al.",
    "می\u200cخواهم",  # Persian, with the joiner that its words need
    "क्\u200dष",  # Hindi, the same
    "שָׁלוֹם",
    "糖尿病　２型",
    "Nguyễn",
    "བསྒྲུབས",
    "👩\u200d⚕️",
    "α ≥ 3 µg/dl",
    "C:\\new\\x1b",
)


def test_the_refused_characters_are_those_that_steer_break_turn_or_are_no_characters() -> None:
    for number in range(sys.maxunicode + 1):
        character = chr(number)
        hidden = unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") or character in TURNING
        assert is_plain(character) is not hidden, hex(number)


def test_no_character_is_shown_that_is_refused_or_that_nobody_sees() -> None:
    # The planes that have letters, and the one of tags.
    for number in (*range(0x20000), *range(0xE0000, 0xE1000)):
        character = chr(number)
        shown = escaped(f"a{character}")
        assert is_plain(shown), hex(number)
        kind = unicodedata.category(character)
        invisible = kind in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") and character not in "\u200c\u200d"
        assert (shown == f"a{character}") is not invisible, hex(number)


@given(ANY)
def test_what_is_escaped_is_one_line_of_plain_text_and_escaping_again_changes_nothing(text: str) -> None:
    shown = escaped(text)
    assert is_plain(shown)
    assert len(shown.splitlines()) <= 1
    assert escaped(shown) == shown
    # Nothing disappears: whatever was not shown as it is has been written out.
    assert len(shown) >= len(text)


@pytest.mark.parametrize("text", HONEST)
def test_words_of_any_language_are_sent_and_shown_as_they_are(text: str) -> None:
    assert is_plain(text)
    assert text_fault(text) is None
    assert escaped(text) == text
    assert showable(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[2J", "a\\x1b[2J"),
        ("a\nb\r\tc\x00", "a\\nb\\r\\tc\\x00"),
        ("\u202eab", "\\u202eab"),
        ("a\u200b\ufeff\U000e0041", "a\\u200b\\ufeff\\U000e0041"),
        ("\udcff.csv", "\\udcff.csv"),  # a file name that is not UTF-8, as the system gives it
        ("a" + "\u0301" * 10, "a" + "\u0301" * 8 + "\\u0301" * 2),
        ("a" + "\u0301\u200d" * 5, "a" + "\u0301\u200d" * 4 + "\\u0301\\u200d"),
        ("\u0338x", "\\u0338x"),  # a mark that would strike out what stands before the text
        ("", ""),
    ],
)
def test_what_is_hidden_is_written_out(text: str, shown: str) -> None:
    assert escaped(text) == shown


def test_a_fault_names_the_character_and_its_place() -> None:
    assert text_fault("ab\u202ec\x1b") == "has U+202E at place 3, a control or direction character; leave it out"


@pytest.mark.parametrize(
    "query",
    [
        Query("t\x07", (Aggregate(Statistic.COUNT),)),
        Query("t", (Aggregate(Statistic.COUNT, "c\x07"),)),
        Query("t", (Aggregate(Statistic.CORRELATION, "c", ("d\x07",)),)),
        Query("t", (Aggregate(Statistic.COUNT),), And((IsNull("c"), Not(Comparison("c", Operator.EQUAL, "\x07"))))),
        Query("t", (Aggregate(Statistic.COUNT),), Within("c", (3, "a", "b\x07"))),
        Query("t", (Aggregate(Statistic.COUNT),), None, (Grouping("c", keys=("a", "b\x07")),)),
    ],
)
def test_a_text_anywhere_in_a_word_is_found(query: Query) -> None:
    assert fault_in(query) is not None
    assert "U+0007" in str(fault_in(query))


def test_a_word_of_plain_texts_has_no_fault() -> None:
    assert fault_in(Query("t", (Aggregate(Statistic.COUNT, level=0.5),), Within("c", (3, "a", True)))) is None


@given(ANY, st.integers(4, 40))
def test_what_is_fitted_is_the_beginning_and_takes_no_more_than_its_columns(text: str, columns: int) -> None:
    shown = fitted(text, columns)
    assert sum(1 if character.isascii() else 2 for character in shown) <= columns
    assert shown == escaped(text) or escaped(text).startswith(shown.removesuffix("…"))


@given(ANY, st.integers(4, 40))
def test_rows_lose_nothing_but_blanks_at_their_ends(text: str, columns: int) -> None:
    found = rows(text, columns)
    assert "".join(found).replace(" ", "") == escaped(text).replace(" ", "")
    wide = [sum(2 if unicodedata.east_asian_width(c) in ("W", "F") else 1 for c in row) for row in found]
    assert max(wide) <= columns


def test_an_error_is_one_line_whatever_it_quotes() -> None:
    error = QueryMistaken("no file\n\x1b[2Jwardround: all is well\u202e")
    assert error.message == str(error) == "no file\\n\\x1b[2Jwardround: all is well\\u202e"
    assert ConfigurationMistaken().message == ConfigurationMistaken.sentence
