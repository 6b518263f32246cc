"""Slips of the pen in SQL that cannot be read, and what was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from sqlglot import Token, TokenType

_KEYWORDS = ("SELECT", "FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "BETWEEN", "DISTINCT")
_CLOSE = 0.7
_SIGNS = {"=>": ">=", "=<": "<=", "><": "<>", "&&": "AND"}


def misspelt(word: str) -> str | None:
    """The keyword that was probably meant by a word that is none."""
    near = difflib.get_close_matches(word.upper(), _KEYWORDS, n=1, cutoff=_CLOSE)
    return near[0] if near else None


def likely(tokens: Sequence[Token]) -> str | None:
    """The end of a sentence about a text that cannot be read, or None where nothing is likely."""
    for place, token in enumerate(tokens):
        found = _slip(token, [each.text for each in tokens[place + 1 : place + 4]], tokens[place + 1 :][:1])
        if found is not None:
            return found
    words = [token.text for token in tokens if token.token_type is TokenType.VAR]
    meant = next((near for word in words if (near := misspelt(word)) is not None), None)
    return None if meant is None else f"did you mean {meant}?"


def _slip(token: Token, behind: Sequence[str], follower: Sequence[Token]) -> str | None:
    """What one word and those behind it have wrong."""
    word = token.text.upper()
    match word, list(behind):
        case (("GROUP" | "ORDER"), [str() as after, *_]) if after.upper() != "BY":
            return f"write {word} BY."
        case "TOP", [str() as count, *_] if count.isdigit():
            return f"leave TOP out and write LIMIT {count} at the end."
        case "BETWEEN", [str() as low, ",", str() as high]:
            return f"write BETWEEN {low} AND {high}."
        case "`", _:
            return "texts take single quotes, and names need none."
        case _, [str() as after, *_] if (sign := _SIGNS.get(word) or _SIGNS.get(word + after)) is not None:
            return f"did you mean {sign}?"
        case _ if token.token_type is TokenType.NUMBER and follower and follower[0].token_type is TokenType.VAR:
            return None if misspelt(follower[0].text) else f"write {word} alone, without {follower[0].text}."
        case _:
            return None
