"""From the analyst's text to a syntax tree, in little time and without a word on standard error.

The text is hostile until shown otherwise. It is bounded in length and nesting before the parser sees it,
and whatever the parser throws becomes one sentence.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from sqlglot import Dialect, ErrorLevel, ParseError, Token, TokenError, TokenType, exp
from sqlglot.parser import Parser

from wardround.analyst.sql.slips import likely, misspelt
from wardround.analyst.sql.terms import NAMES, grammar, shown
from wardround.federation.errors import QueryMistaken
from wardround.federation.plain_text import LAYOUT, text_fault
from wardround.federation.question.cohort import MAX_DEPTH
from wardround.federation.study.study import Study

MAX_CHARACTERS = 20_000
# The parser tries a call such as DECIMAL(…) twice, so nested calls cost it time in powers of two.
MAX_OPEN_CALLS = 3

_BEFORE_A_GROUPING_PARENTHESIS = {
    TokenType.L_PAREN,
    TokenType.COMMA,
    TokenType.WHERE,
    TokenType.HAVING,
    TokenType.WHEN,
    TokenType.AND,
    TokenType.OR,
    TokenType.NOT,
    TokenType.IN,
    TokenType.BETWEEN,
    TokenType.EQ,
    TokenType.NEQ,
    TokenType.LT,
    TokenType.LTE,
    TokenType.GT,
    TokenType.GTE,
    TokenType.DASH,
    TokenType.PLUS,
}

_LOOKING = ("DESC", "DESCRIBE", "EXPLAIN", "SHOW", "\\")
"""How questions about tables begin elsewhere."""

NO_WITH = "WITH is not supported; ask one SELECT over one table of the study."

_Read = TypeVar("_Read")


class _Grammar(Parser):
    """sqlglot's own SQL, in which our functions are nothing but a name with what stands in its parentheses."""

    FUNCTIONS = {name: build for name, build in Parser.FUNCTIONS.items() if name not in NAMES}  # noqa: RUF012


def _parser() -> Parser:
    return _Grammar(error_level=ErrorLevel.IMMEDIATE, dialect=Dialect())


def statement(text: str, study: Study | None = None) -> exp.Expr:
    """The one statement in `text`, which begins with SELECT."""
    tokens = _tokens(text, study)
    first = tokens[0]
    match first.token_type:
        case TokenType.SELECT:
            pass
        case TokenType.WITH:
            raise QueryMistaken(NO_WITH)
        case TokenType.L_PAREN:
            raise QueryMistaken("a question begins with SELECT; remove the parentheses around it.")
        case _:
            # Anything else would be parsed as a command of some database.
            begins = f"only SELECT is supported, and this begins with {shown(first.text)}"
            if first.text.upper() in _LOOKING and study is not None:
                raise QueryMistaken(f"{begins}; wardround describe shows the tables, their columns and values.")
            if (meant := misspelt(first.text)) is not None and study is not None:
                raise QueryMistaken(f"{begins}; did you mean {meant}?")
            raise QueryMistaken(f"{begins}; {grammar(study)}")
    found = _guarded(lambda: _parser().parse(tokens, text), study, tokens)
    statements = [each for each in found if each is not None and not isinstance(each, exp.Semicolon)]
    if len(statements) != 1:
        raise QueryMistaken(f"there are {len(statements)} statements; ask one question at a time.")
    return statements[0]


def condition_tree(text: str) -> exp.Expr:
    """The one condition in `text`."""
    tokens = _tokens(text)
    found = _guarded(lambda: _parser().parse_into(exp.Condition, tokens, text), None, tokens)
    if len(found) != 1 or found[0] is None:
        raise QueryMistaken("a condition is one expression, such as age >= 40 AND diagnosis = 'I10'.")
    return found[0]


def _tokens(text: str, study: Study | None = None) -> list[Token]:
    """The words of `text`, screened so that the parser's work stays small whatever was sent."""
    if len(text) > MAX_CHARACTERS:
        raise QueryMistaken(f"the question has {len(text)} characters; at most {MAX_CHARACTERS} are read.")
    # Lines and tabs lay out a question; inside a literal they are refused with the question.
    if (fault := text_fault(text.translate(LAYOUT))) is not None:
        raise QueryMistaken(f"the question {fault}.")
    tokens = _guarded(lambda: Dialect().tokenize(text), study)
    while tokens and tokens[0].token_type is TokenType.SEMICOLON:
        tokens = tokens[1:]
    if not tokens:
        raise QueryMistaken(f"the question is empty; {grammar(study)}")
    opened: list[bool] = []
    previous: TokenType | None = None
    for token in tokens:
        match token.token_type:
            case TokenType.L_BRACKET | TokenType.L_BRACE:
                raise QueryMistaken(f"{token.text} is not supported; {grammar(study)}")
            case TokenType.L_PAREN:
                opened.append(previous is not None and previous not in _BEFORE_A_GROUPING_PARENTHESIS)
                if len(opened) > MAX_DEPTH:
                    raise QueryMistaken(f"parentheses are nested deeper than {MAX_DEPTH}; write the condition flatter.")
                if sum(opened) > MAX_OPEN_CALLS:
                    raise QueryMistaken("subqueries and functions of functions are not supported; " + grammar(study))
            case TokenType.R_PAREN if opened:
                opened.pop()
            case _:
                pass
        previous = token.token_type
    return tokens


def _guarded(read: Callable[[], _Read], study: Study | None, tokens: Sequence[Token] = ()) -> _Read:
    """What `read` returns; a fault of the text, or of the parser on this text, is one sentence."""
    try:
        with _quiet():
            return read()
    except ParseError as error:
        near = next((str(each["highlight"]) for each in error.errors if each.get("highlight")), "")
        where = f" near {shown(near)}" if near else ""
        raise QueryMistaken(f"the SQL cannot be read{where}; {likely(tokens) or grammar(study)}") from None
    except TokenError:
        raise QueryMistaken(
            f"the SQL cannot be read; a quotation mark or a comment may not be closed; {grammar(study)}"
        ) from None
    except RecursionError:
        raise QueryMistaken("the SQL is nested too deep; write the condition flatter.") from None
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        # The parser's own mistakes on malformed text; its words would mean nothing to an analyst.
        raise QueryMistaken(f"the SQL cannot be read; {likely(tokens) or grammar(study)}") from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep sqlglot's remarks off standard error; what matters is said by `QueryMistaken`."""
    log = logging.getLogger("sqlglot")

    def silence(_: logging.LogRecord) -> bool:
        return False

    log.addFilter(silence)
    try:
        yield
    finally:
        log.removeFilter(silence)
