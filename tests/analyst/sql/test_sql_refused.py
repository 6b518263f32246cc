"""SQL that is refused, and the one sentence that says why and what works."""

from __future__ import annotations

import pytest

from wardround.analyst.sql.read import condition, parse
from wardround.federation.errors import QueryMistaken

GRAMMAR = (
    "a question is SELECT [group columns,] aggregates such as COUNT(*), AVG(column) or MEDIAN(column) FROM table "
    "[WHERE condition] [GROUP BY columns] [HAVING condition] [ORDER BY columns] [LIMIT number]."
)
AGGREGATES = "use COUNT(*), COUNT(DISTINCT key), SUM(column), AVG(column), STDDEV(column) or MEDIAN(column)."
COUNTS = "use COUNT(*) to count events or COUNT(DISTINCT key) to count patients."
ONE_TABLE = (
    "a question reads one table, so a JOIN or a second table is not supported; "
    "name one table of the study that holds the columns."
)
NOT_GROUPED = (
    "'diagnosis' is in the SELECT list but not in GROUP BY; add GROUP BY diagnosis, "
    "or ask for one number, AVG(diagnosis)."
)
NO_NAME = "cannot be a name in a study; names are up to 63 letters, digits and '_'."
OPERATORS = "use =, <>, <, <=, >, >=, IN, BETWEEN, IS NULL, AND, OR and NOT."


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", f"the question is empty; {GRAMMAR}"),
        (" ; -- nothing", f"the question is empty; {GRAMMAR}"),
        ("DROP TABLE t", f"only SELECT is supported, and this begins with DROP; {GRAMMAR}"),
        ("DELETE FROM t", f"only SELECT is supported, and this begins with DELETE; {GRAMMAR}"),
        ("ATTACH 'x' AS y", f"only SELECT is supported, and this begins with ATTACH; {GRAMMAR}"),
        ("FROM t SELECT COUNT(*)", f"only SELECT is supported, and this begins with FROM; {GRAMMAR}"),
        ("(SELECT COUNT(*) FROM t)", "a question begins with SELECT; remove the parentheses around it."),
        ("SELECT COUNT(*) FROM t; DROP TABLE t", "there are 2 statements; ask one question at a time."),
        (
            "WITH x AS (SELECT 1) SELECT COUNT(*) FROM x",
            "WITH is not supported; ask one SELECT over one table of the study.",
        ),
        (
            "SELECT COUNT(*) FROM t UNION ALL SELECT COUNT(*) FROM u",
            "UNION is not supported; ask each SELECT as a question of its own.",
        ),
        (
            "SELECT COUNT(*) FROM t EXCEPT SELECT COUNT(*) FROM u",
            "EXCEPT is not supported; ask each SELECT as a question of its own.",
        ),
        ("SELECT COUNT(*) FROM t JOIN u ON t.a = u.a", ONE_TABLE),
        ("SELECT COUNT(*) FROM t LEFT JOIN u USING (a)", ONE_TABLE),
        ("SELECT COUNT(*) FROM t, u", ONE_TABLE),
        ("SELECT COUNT(*) FROM (SELECT * FROM t)", "a subquery in FROM is not supported; name one table of the study."),
        (
            "SELECT COUNT(*) FROM clinic.t",
            "a table is named as the study names it, without a schema; write FROM t.",
        ),
        (
            "SELECT COUNT(*) FROM t TABLESAMPLE (10)",
            "SAMPLE after a table is not supported; write only the table's name.",
        ),
        (
            "SELECT COUNT(*) FROM t AS e(a, b)",
            "renaming columns in FROM is not supported; use the study's names.",
        ),
        (
            "SELECT COUNT(*)",
            "the question has no FROM; name the table, as in SELECT COUNT(*) FROM encounters.",
        ),
        (
            "SELECT * FROM t",
            "SELECT * would return rows, and rows never leave a hospital; use COUNT(*), SUM(column) or AVG(column).",
        ),
        (
            "SELECT t.* FROM t",
            "SELECT * would return rows, and rows never leave a hospital; use COUNT(*), SUM(column) or AVG(column).",
        ),
        (
            "SELECT DISTINCT a FROM t",
            "SELECT DISTINCT is not supported; use COUNT(DISTINCT key) to count patients, or GROUP BY column.",
        ),
        ("SELECT a, COUNT(*) FROM t GROUP BY a FETCH FIRST 5 ROWS ONLY", "FETCH is not supported; write LIMIT 10."),
        (
            "SELECT a, COUNT(*) FROM t GROUP BY a OFFSET 5",
            "OFFSET is not supported; LIMIT counts from the first group, and all of them are in the answer.",
        ),
        (
            "SELECT COUNT(*) OVER (PARTITION BY a) FROM t",
            "window functions (OVER) are not supported; use an aggregate with GROUP BY.",
        ),
        (
            "SELECT ROW_NUMBER() OVER () FROM t",
            "window functions (OVER) are not supported; use an aggregate with GROUP BY.",
        ),
        ("SELECT COUNT(*) INTO x FROM t", "SELECT INTO is not supported; a question writes nothing."),
        ("SELECT COUNT(*) FROM t FOR UPDATE", "FOR UPDATE and FOR SHARE are not supported; a question writes nothing."),
        ("SELECT COUNT(*) FILTER (WHERE a) FROM t", "FILTER is not supported; put the condition into WHERE."),
        ("SELECT UPPER(a) FROM t", f"the function UPPER is not supported in SELECT; {AGGREGATES}"),
        ("SELECT pg_sleep(9) FROM t", f"the function PG_SLEEP is not supported in SELECT; {AGGREGATES}"),
        ("SELECT MEAN(a) FROM t", "MEAN is not supported; use AVG(column)."),
        ("SELECT SUM(a) / COUNT(*) FROM t", f"arithmetic is not supported in SELECT; {AGGREGATES}"),
        ("SELECT a + 1 FROM t", f"arithmetic is not supported in SELECT; {AGGREGATES}"),
        ("SELECT 1 FROM t", f"the value '1' is not supported in SELECT; {AGGREGATES}"),
        (
            "SELECT (SELECT COUNT(*) FROM u) FROM t",
            "a subquery in SELECT is not supported; ask it as a question of its own.",
        ),
        ("SELECT COUNT(a) FROM t", "COUNT(a) is not supported; use COUNT(*) with WHERE a IS NOT NULL."),
        ("SELECT COUNT(1) FROM t", f"this form of COUNT is not supported; {COUNTS}"),
        ("SELECT COUNT() FROM t", f"this form of COUNT is not supported; {COUNTS}"),
        ("SELECT COUNT(DISTINCT a, b) FROM t", f"COUNT(DISTINCT …) takes one column; {COUNTS}"),
        ("SELECT COUNT(DISTINCT *) FROM t", f"COUNT(DISTINCT *) is not supported; {COUNTS}"),
        ("SELECT AVG(DISTINCT a) FROM t", "AVG(DISTINCT …) is not supported; use AVG(column)."),
        ("SELECT AVG(a * 2) FROM t", "AVG takes one column of the study, not arithmetic; write AVG(column)."),
        ("SELECT SUM(1) FROM t", "SUM takes one column of the study, not the value '1'; write SUM(column)."),
        ("SELECT SUM(*) FROM t", "SUM takes one column of the study, not *; write SUM(column)."),
        (
            "SELECT AVG(CASE WHEN a THEN 1 ELSE 0 END) FROM t",
            "AVG takes one column of the study, not CASE; use COUNT(*) and put the condition into WHERE.",
        ),
        (
            "SELECT diagnosis, COUNT(*) FROM t",
            NOT_GROUPED,
        ),
        (
            "SELECT COUNT(*) FROM t GROUP BY diagnosis",
            "GROUP BY names 'diagnosis', which the SELECT list does not; write SELECT diagnosis, COUNT(*).",
        ),
        ("SELECT a, a, COUNT(*) FROM t GROUP BY a", "the SELECT list names 'a' twice; remove one."),
        (
            "SELECT a FROM t GROUP BY a",
            "the question asks for no number; add COUNT(*), SUM(column) or AVG(column).",
        ),
        ("SELECT a, COUNT(*) FROM t GROUP BY 2", "GROUP BY 2 is COUNT(*); GROUP BY takes columns."),
        ("SELECT a, COUNT(*) FROM t GROUP BY 3", "GROUP BY 3 names no item; the SELECT list has 2."),
        ("SELECT a, COUNT(*) FROM t GROUP BY", "GROUP BY names no column."),
        ("SELECT COUNT(*) FROM t GROUP BY a + 1", "GROUP BY takes the names of columns, not arithmetic."),
        ("SELECT a, COUNT(*) FROM t GROUP BY ALL", "GROUP BY ALL is not supported; list the columns."),
        ("SELECT a, COUNT(*) FROM t GROUP BY ROLLUP (a)", "GROUP BY takes the names of columns, not ROLLUP."),
        ("SELECT a, COUNT(*) FROM t GROUP BY a WITH ROLLUP", "GROUP BY ROLLUP is not supported; list the columns."),
        (
            "SELECT u.a, COUNT(*) FROM t GROUP BY u.a",
            "the prefix of 'a' is not the question's table; write the column's name alone.",
        ),
        ("SELECT COUNT(*) FROM t WHERE", f"the SQL cannot be read near WHERE; {GRAMMAR}"),
        (
            "SELECT COUNT(*) FROM t WHERE a = 'x",
            f"the SQL cannot be read; a quotation mark or a comment may not be closed; {GRAMMAR}",
        ),
        ("SELECT COUNT(*) FROM t WHERE a ] 5", f"the SQL cannot be read near ]; {GRAMMAR}"),
        ("SELECT [1] FROM t", f"[ is not supported; {GRAMMAR}"),
    ],
)
def test_a_question_that_cannot_be_read_gets_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(QueryMistaken) as fault:
        parse(text)
    assert fault.value.message == sentence


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a = NULL", "a comparison with NULL selects nothing; use IS NULL or IS NOT NULL."),
        ("a IN (1, NULL)", "a comparison with NULL selects nothing; use IS NULL or IS NOT NULL."),
        ("a IS TRUE", "IS TRUE is not supported; write a = TRUE or a = FALSE."),
        ("a IS 5", "IS takes NULL or NOT NULL, not the value '5'."),
        ("a LIKE 'E%'", "matching a pattern of text is not supported; list the values with IN."),
        ("a ILIKE 'E%'", "matching a pattern of text is not supported; list the values with IN."),
        ("a RLIKE 'E'", "matching a pattern of text is not supported; list the values with IN."),
        ("a < b", "comparing 'a' with 'b' is not supported; compare a column with a value; texts take single quotes."),
        ('a = "E11"', "double quotes mark a column; write the value in single quotes, as in a = 'E11'."),
        ("1 = 1", "a comparison needs a column; compare a column with a value, as in age >= 40."),
        ("TRUE", f"TRUE is not supported in WHERE; {OPERATORS}"),
        ("a + 1 > 5", f"arithmetic is not supported in WHERE; {OPERATORS}"),
        ("a > 5 * 2", f"arithmetic is not supported in WHERE; {OPERATORS}"),
        ("YEAR(d) = 2026", f"the function YEAR is not supported in WHERE; {OPERATORS}"),
        ("random() < 5", f"the function RAND is not supported in WHERE; {OPERATORS}"),
        ("d = DATE('2026-01-31')", "a date is written as DATE '2026-01-31', without parentheses."),
        ("d = DATE '31.1.2026'", "'31.1.2026' is not a date; write one as DATE '2026-01-31'."),
        (
            "d = TIMESTAMP '2026-01-31'",
            "only dates are written with a type; use a number, a 'text' or DATE '2026-01-31'.",
        ),
        ("d < CURRENT_DATE", "today's date is not known to a question; write it out, as DATE '2026-01-31'."),
        ("CASE WHEN a THEN b END = 1", f"CASE is not supported in WHERE; {OPERATORS}"),
        (
            "COUNT(*) > 5",
            "an aggregate cannot stand in a condition on rows; put it into HAVING, or compare a column with a value.",
        ),
        ("EXISTS (SELECT 1)", "a subquery in WHERE is not supported; list the values with IN."),
        ("a = (SELECT 1)", "a subquery in WHERE is not supported; list the values with IN."),
        (
            "a IN (SELECT b FROM u)",
            "IN takes a list of values, such as IN ('E11', 'I10'); subqueries are not supported.",
        ),
        ("a IN ()", "a IN () selects nothing; give at least one value."),
        ("5 IN (1, 2)", "IN needs a column before it, not the value '5'."),
        ("a IN (b)", "'b' is a column where a value is needed; texts take single quotes."),
        ("a BETWEEN b AND 5", "'b' is a column where a value is needed; texts take single quotes."),
        ("a BETWEEN SYMMETRIC 5 AND 1", "BETWEEN SYMMETRIC is not supported; write the smaller value first."),
        ("a = :p", f"a parameter is not supported in WHERE; {OPERATORS}"),
        ("a = ?", f"a parameter is not supported in WHERE; {OPERATORS}"),
        ("a = 5 = 6", "a condition cannot be compared in its turn; compare a column with a value."),
        ("(a = 5) = TRUE", "a condition cannot be compared in its turn; compare a column with a value."),
        ("a = 1e400", "the number 1e400 is too large or not a number."),
        ("a = 9223372036854775808", "the number 9223372036854775808 is too large or not a number."),
        ("a = 'x' || 'y'", f"joining texts is not supported in WHERE; {OPERATORS}"),
        ("(a, b) = (1, 2)", f"a list of values is not supported in WHERE; {OPERATORS}"),
        (f"a = '{'x' * 257}'", "a text value has at most 256 characters."),
        (f"{'a' * 64} = 1", f"'{'a' * 39}…' {NO_NAME}"),
        ('"blood pressure" > 5', f"'blood pressure' {NO_NAME}"),
        ("größe > 5", f"'größe' {NO_NAME}"),
        (
            " OR ".join(["a = 1"] * 257),
            "a condition has at most 256 terms; use IN for lists of values.",
        ),
        (f"a IN ({', '.join(['1'] * 1025)})", "IN takes at most 1024 values."),
        (
            "(" * 33 + "a" + ")" * 33,
            "parentheses are nested deeper than 32; write the condition flatter.",
        ),
        ("NOT " * 40 + "a", "a condition is nested at most 32 deep; write it flatter."),
    ],
)
def test_a_condition_that_cannot_be_read_gets_one_sentence(text: str, sentence: str) -> None:
    for read in (condition, lambda each: parse(f"SELECT COUNT(*) FROM t WHERE {each}")):
        with pytest.raises(QueryMistaken) as fault:
            read(text)
        assert fault.value.message == sentence


@pytest.mark.parametrize("text", ["a = 1; b = 2", "a = 1 GROUP BY b", "a = 1) OR (b = 2", "WHERE a = 1", ""])
def test_a_condition_is_only_a_condition(text: str) -> None:
    with pytest.raises(QueryMistaken):
        condition(text)
