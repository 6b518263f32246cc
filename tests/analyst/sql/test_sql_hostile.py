"""Whatever is sent, the reader answers with a query or one sentence, soon and silently."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlglot import Tokenizer

from wardround.analyst.sql.parse import MAX_CHARACTERS
from wardround.analyst.sql.read import condition, parse
from wardround.federation.errors import QueryMistaken

W = "SELECT COUNT(*) FROM t WHERE "
DEEP = 9_000
HOSTILE = {
    "parentheses": W + "(" * DEEP + "a" + ")" * DEEP,
    "parentheses at the parser's limit": W + "(" * 32 + "a" + ")" * 32,
    "NOT": W + "NOT " * 4_900 + "a",
    "minus": W + "a = " + "- " * DEEP + "1",
    "AND": W + "a AND " * 3_000 + "a",
    "OR": W + "a OR " * 3_000 + "a",
    "IN": W + "a IN (" + "1," * DEEP + "1)",
    "CASE": "SELECT " + "CASE WHEN " * 1_900,
    "brackets": "SELECT " + "[" * DEEP,
    "braces": "SELECT " + "{" * DEEP,
    "calls": "SELECT " + "f(" * DEEP,
    "nested types": "SELECT " + "DECIMAL(" * 24 + "1" + ")" * 24,
    "nested structs": "SELECT " + "STRUCT(" * 24 + "INT" + ")" * 24,
    "nested arrays": "SELECT " + "ARRAY[" * 24 + "1" + "]" * 24,
    "subqueries": "SELECT COUNT(*) FROM " + "(SELECT * FROM " * 1_000,
    "common tables": "SELECT 1 FROM (" + "WITH a AS (" * 1_000,
    "joins": "SELECT COUNT(*) FROM t" + " JOIN t" * 2_000,
    "unions": "SELECT 1 UNION " * 1_300 + "SELECT 1",
    "dots": "SELECT " + "a." * DEEP,
    "equals": W + "a=" * DEEP + "1",
    "casts": "SELECT 1" + "::int" * 3_900,
    "semicolons": "SELECT COUNT(*) FROM t" + ";" * DEEP,
    "an open text": W + "a = '" + "x" * DEEP,
    "open comments": "/*" * DEEP,
    "a very long number": W + "a = " + "9" * 19_000,
    "a very long fraction": W + "a = 0." + "9" * 19_000,
    "a superscript": W + "a = ²",
    "a number of another script": W + "a = ٣",
    "a NUL": W + "a = '\x00'",
    "a lone surrogate": W + "a = '\udc80'",
    "an escape sequence": "\x1b[31mSELECT COUNT(*) FROM t",
    "right to left": "SELECT \u202e COUNT(*) FROM t",
    "too long": W + "a = '" + "x" * MAX_CHARACTERS + "'",
    "stacked": "SELECT COUNT(*) FROM t; DROP TABLE t; --",
    "a command behind a question": "SELECT COUNT(*) FROM t; ALTER TABLE t FOO BAR",
    "a broken path": "SELECT a -> '$[' FROM t",
    "a file": "SELECT COUNT(*) FROM '/etc/passwd'",
    "a table function": "SELECT COUNT(*) FROM read_csv('/etc/passwd')",
    "a command": "COPY t TO '/tmp/x'",
    "a setting": "SET x = 1",
    "a hint": "SELECT /*+ BROADCAST(t) */ COUNT(*) FROM t",
    "pragma": "PRAGMA database_list",
    "template": "SELECT COUNT(*) FROM {{ t }}",
    "nested CASE": "SELECT " + "CASE WHEN a < 1 THEN " * 800 + "1" + " ELSE 2 END" * 800 + ", COUNT(*) FROM t",
    "many branches": "SELECT CASE " + "".join(f"WHEN a<{n} THEN 'b' " for n in range(850)) + "END, COUNT(*) FROM t",
    "nested bounds": "SELECT AVG(" + "LEAST(" * 2_000 + "a" + ", 1)" * 2_000 + ") FROM t",
    "WITHIN GROUP": "SELECT " + "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY " * 300 + "a" + ")" * 300 + " FROM t",
    "a long HAVING": "SELECT COUNT(*) FROM t HAVING " + "COUNT(*) > 1 AND " * 1_100 + "COUNT(*) > 1",
    "a deep HAVING": "SELECT COUNT(*) FROM t HAVING " + "NOT " * 4_000 + "COUNT(*) > 1",
    "a long ORDER BY": "SELECT COUNT(*) FROM t ORDER BY " + "2, " * 6_000 + "2",
    "a huge LIMIT": "SELECT COUNT(*) FROM t LIMIT " + "9" * 15_000,
    "aliases": "SELECT " + ", ".join(f"SUM(a{n}) x" for n in range(1_000)) + " FROM t",
    "columns": "SELECT CORR(" + "a, " * 6_000 + "a) FROM t",
    "a bucket for every value": "SELECT WIDTH_BUCKET(a, 0, 1, 999999999999), COUNT(*) FROM t",
}
# Two of them are odd ways to write an ordinary question.
FINE = {"semicolons", "parentheses at the parser's limit"}


@pytest.mark.parametrize("name", sorted(FINE))
def test_odd_text_is_still_read(name: str) -> None:
    assert parse(HOSTILE[name]).table == "t"


@pytest.mark.parametrize("name", sorted(HOSTILE.keys() - FINE))
def test_hostile_text_gets_one_short_sentence_soon_and_silently(
    name: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    begun = time.process_time()
    with pytest.raises(QueryMistaken) as fault:
        parse(HOSTILE[name])
    # A reading takes some hundredths of a second; with unbounded nesting, three of these would take hours.
    assert time.process_time() - begun < 5.0
    assert fault.value.message.isprintable()
    assert len(fault.value.message) < 300
    assert fault.value.message.endswith(".")
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []


def test_the_parsers_own_log_is_silent_only_while_reading(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(QueryMistaken):
        parse("SELECT")
    logging.getLogger("sqlglot").warning("somebody else's remark")
    assert [record.message for record in caplog.records] == ["somebody else's remark"]


def sentence(reader: Callable[[str], object], text: str) -> str:
    """What the reader says against the text; nothing when it reads it."""
    try:
        reader(text)
    except QueryMistaken as mistaken:
        return mistaken.message
    return ""


@given(st.text(max_size=200))
@example("SELECT COUNT(*) FROM t WHERE a = '\\'")
@example("SELECT COUNT(*) FROM t WHERE \x85a")
def test_any_text_is_a_query_or_a_mistake(text: str) -> None:
    for reader in (parse, condition):
        assert sentence(reader, text).isprintable()
    assert sentence(parse, W + text).isprintable()


# fmt: off
WORDS = [
    *sorted(word for word in Tokenizer.KEYWORDS if word.strip()),
    "(", ")", "(", ")", "(", ")", ",", ".", ";", "'x'", '"q"', "-", "+", "<", ">", "<>", "=", "1", "1.5", "1e9", "a",
    "b", "t", "COUNT", "SUM", "AVG", "DATE", "MEDIAN(", "HISTOGRAM(a, 5)", "CLAMP(a, 1, 2)", "CASE WHEN a < 1 THEN 'x'",
    "ELSE 'y' END", "DATE_TRUNC('month', a)", "WITHIN GROUP (", "HAVING", "ORDER", "LIMIT", "KEYS(a)", "REGRESS(a, b)",
    "*", "/", "?", ":", "@", "x'ab'", "N'x'", "->", "=>",
    *(["SELECT", "FROM", "WHERE", "AND", "OR", "NOT", "IN", "BETWEEN", "IS", "NULL", "GROUP", "BY", "AS"] * 5),
]
# fmt: on


@given(
    st.sampled_from(["", "SELECT ", W, "SELECT COUNT(*) FROM ", "SELECT a, COUNT(*) FROM t GROUP BY "]),
    st.lists(st.sampled_from(WORDS), max_size=40),
)
def test_any_words_are_a_query_or_a_mistake(beginning: str, words: list[str]) -> None:
    for reader in (parse, condition):
        assert sentence(reader, beginning + " ".join(words)).isprintable()
