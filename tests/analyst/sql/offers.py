"""The words that a sentence offers, taken out of it and typed again in place of what was wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator

_CALL = r"[A-Z_]+\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)(?: WITHIN GROUP \([^()]*\))?"
_VALUE = r"(?:DATE '[^']*'|'(?:[^']|'')*'|TRUE|FALSE|-?[0-9.]+)"
_COLUMN = r'(?:"\w+"|\b(?!(?:write|use|or|takes|names) )[a-z]\w*)'
_LEAF = (
    rf"(?:{_COLUMN} (?:=|<>|<=|>=|<|>) {_VALUE}|{_VALUE} <=? {_COLUMN}|{_COLUMN} IN \([^()]*\)"
    rf"|{_COLUMN} BETWEEN {_VALUE} AND {_VALUE}|{_COLUMN} IS (?:NOT )?NULL)"
)
_KINDS = {
    "case": r"CASE WHEN .* END",
    "select": r"SELECT (?:\w+, )?[A-Z]+\(.*?(?=[;?]|\.$)",
    "from": rf"FROM {_COLUMN}(?=\.)",
    "between": rf"(?<![a-z] )BETWEEN {_VALUE} AND {_VALUE}",
    "having": rf"HAVING {_CALL} > [0-9]+",
    "group": rf"GROUP BY (?:[0-9, ]*[0-9]|{_COLUMN})(?: ORDER BY {_CALL} DESC)?(?: LIMIT [0-9]+)?",
    "limit": r"LIMIT [0-9]+",
    "condition": rf"{_LEAF}(?: (?:AND|OR) {_LEAF})*",
    "call": _CALL,
    "meant": r"(?<=did you mean )[^?]+(?=\?)",
    "column": rf"(?<=, such as ){_COLUMN}(?=\.)",
    "number": r"(?:(?<=write )0\.[0-9]+|(?<=such as )[0-9]+(?=\.))",
    "listed": r"(?<=there is )[^.]+(?=\.)",
    "value": rf"(?:(?<=such as )|(?<=, as )|(?<=one as )|(?<=written as )|(?<=write )|(?<=or )){_VALUE}(?=[.,])",
}
_ANY = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in _KINDS.items()))
_WRONG = re.compile(r"(?:unknown (?:column|table)|no value|names|begins with) '?([^';]+?)'?(?: in |, which|;|$)")
_MISSPELT = {"SELECT": "SELCT", "FROM": "FORM", "WHERE": "WERE", ">=": "=>", "AND": "&&"}


def offers(sentence: str) -> Iterator[tuple[str, str]]:
    """Every piece of SQL that a sentence offers, with its kind; what stands before the last semicolon was wrong."""
    told, _, way = sentence.rpartition("; ")
    if way.startswith(("tables of the study", "subqueries")):
        way = told.rpartition("; ")[2]
    for found in _ANY.finditer(way):
        if found.lastgroup == "listed":
            # Of several columns or tables only some fit; every value does.
            yield from (("meant", name) for name in found[0].split(", ") if "no value" in told)
        else:
            yield found.lastgroup or "", found[0]


def typed(question: str, sentence: str, kind: str, words: str) -> str:
    """The question in which somebody typed the words that the sentence offered."""
    table = "labs" if "'labs'" in sentence else "stays"
    match kind:
        case "condition":
            return f"SELECT COUNT(*) FROM {table} WHERE {words}"
        case "having" | "limit":
            return f"SELECT sex, COUNT(*) FROM stays GROUP BY sex {words}"
        case "group" if not words.split()[2].rstrip(",").isdigit():
            return f"SELECT {words.split()[2]}, COUNT(*) FROM {table} {words}"
        case "call" | "case":
            return _alone(words, table)
        case "meant":
            return _as_meant(question, sentence, words)
        case "select" if " FROM " in words:
            return words
        case _:
            return _in_place(question, sentence, kind, words)


def _alone(words: str, table: str) -> str:
    """A function or a CASE in a question of its own."""
    if words.startswith(("DATE_TRUNC", "WIDTH_BUCKET", "CASE")):
        return f"SELECT {words} AS g, COUNT(*) FROM {table} GROUP BY g"
    return f"SELECT {f'AVG({words})' if words.startswith('CLAMP') else words} FROM {table}"


def _in_place(question: str, sentence: str, kind: str, words: str) -> str:
    """Words in the place of what was wrong."""
    places = {
        "select": r"SELECT .*?(?= FROM)",
        "from": r"FROM \S+",
        "between": r"BETWEEN .*",
        "group": r"GROUP BY.*|$",
        "number": r"-?\b[0-9.]+(?=\))",
        "column": rf"\b{sentence.split(chr(39))[1] if kind == 'column' else ''}\b",
        "value": r"(?<= )(?:TIMESTAMP )?(?:'[^']*'|[0-9-]+|[A-Z_]+\(\)|CURRENT_DATE - 30)$",
    }
    return re.sub(places[kind], lambda _: f" {words}" if kind == "group" else words, question, count=1)


def _as_meant(question: str, sentence: str, words: str) -> str:
    if words.startswith(("COUNT", "MEDIAN", "STDDEV", "HISTOGRAM")) and "(" in words:
        return f"SELECT {words} FROM stays"
    if words in _MISSPELT:
        return question.replace(_MISSPELT[words], words)
    wrong = _WRONG.search(sentence)
    name = words.strip("'")
    return question if wrong is None else re.sub(rf"(?<!\w){re.escape(wrong[1])}(?!\w)", name, question)
