"""The small words of the SQL reader: names, what to call a thing that is not supported, and what works instead."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from wardround.federation.errors import QueryMistaken
from wardround.federation.plain_text import escaped
from wardround.federation.statistics import ALL
from wardround.federation.study.study_file import IDENTIFIER

GRAMMAR = (
    "a question is SELECT [group columns,] aggregates such as COUNT(*), AVG(column) or MEDIAN(column) FROM table "
    "[WHERE condition] [GROUP BY columns] [HAVING condition] [ORDER BY columns] [LIMIT number]."
)
_SHOWN = 40

OWN = "is one patient's own"

_PARSED = ("AVG", "COUNT", "SUM")
FUNCTIONS = tuple(
    function.name for definition in ALL for function in definition.functions if function.name not in _PARSED
)
"""Those that the parser does not know, or takes for another database's."""

OF_A_ROW = ("CLAMP", "GREATEST", "LEAST", "WIDTH_BUCKET")

_APPROXIMATE = ", because every answer is approximate here"
INSTEAD = {
    **dict.fromkeys(("MEAN", "AVERAGE"), "; use AVG(column)."),
    "TOTAL": "; use SUM(column).",
    **dict.fromkeys(("VAR", "VARIANCE_POP", "VARIANCE_SAMP"), "; use VARIANCE(column)."),
    **dict.fromkeys(("STD", "STDEV"), "; use STDDEV(column)."),
    **dict.fromkeys(
        ("APPROX_QUANTILE", "APPROX_PERCENTILE", "PERCENTILE_APPROX"), f"{_APPROXIMATE}; use QUANTILE(column, 0.9)."
    ),
    **dict.fromkeys(("QUANTILE_CONT", "QUANTILE_DISC", "PERCENTILE"), "; use QUANTILE(column, 0.9)."),
    "APPROX_MEDIAN": f"{_APPROXIMATE}; use MEDIAN(column).",
    **dict.fromkeys(
        ("APPROX_DISTINCT", "APPROX_COUNT_DISTINCT", "HLL"), f"{_APPROXIMATE}; use COUNT(DISTINCT key) for patients."
    ),
    **dict.fromkeys(("COUNT_IF", "COUNTIF"), "; use COUNT(*) and put the condition into WHERE."),
    **dict.fromkeys(
        ("LOGICAL_AND", "LOGICAL_OR", "EVERY", "BOOL_AND", "BOOL_OR"),
        ", because one patient would decide it; use AVG(column), the share of TRUE.",
    ),
    **dict.fromkeys(("COVAR_POP", "COVAR_SAMP"), "; use CORR(x, y) and STDDEV of each column."),
    **dict.fromkeys(
        ("REGR_SLOPE", "REGR_INTERCEPT", "REGR_R2", "REGR_COUNT", "REGR_AVGX", "REGR_AVGY", "REGR_SXX", "REGR_SXY"),
        "; use REGRESS(y, x).",
    ),
    **dict.fromkeys(("KURTOSIS", "SKEWNESS", "ENTROPY"), "; use HISTOGRAM(column, 20)."),
    **dict.fromkeys(("IQR", "MAD"), "; use QUANTILE(column, 0.25) and QUANTILE(column, 0.75)."),
    **dict.fromkeys(
        ("TOPK", "APPROX_TOP_K", "APPROX_TOP_COUNT"), "; use GROUP BY column ORDER BY COUNT(*) DESC LIMIT 10."
    ),
    **dict.fromkeys(
        ("ANY_VALUE", "FIRST", "LAST", "FIRST_VALUE", "LAST_VALUE", "ARG_MIN", "ARG_MAX", "MIN_BY", "MAX_BY"),
        f", because a row's value {OWN}; use MODE(column) or MEDIAN(column).",
    ),
    **dict.fromkeys(
        ("ARRAY_AGG", "GROUP_CONCAT", "LIST", "JSON_AGG"),
        ", because rows never leave a hospital; use KEYS(column) for the values of an open category.",
    ),
    "CLAMP": " alone; it stands inside an aggregate, as in AVG(CLAMP(column, 90, 180)).",
    **dict.fromkeys(
        ("LEAST", "GREATEST"), " alone; it stands inside an aggregate, as in AVG(LEAST(GREATEST(column, 90), 180))."
    ),
    "PERCENTILE_DISC": f", because a value of the table {OWN}; "
    "use PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY column).",
}
"""What follows "X is not supported"."""

NAMES = frozenset((*FUNCTIONS, "MAX", "MIN", *OF_A_ROW, *INSTEAD))
"""Functions that are known by their names, whatever the parser thinks that some database means by them."""


@dataclass(frozen=True, slots=True)
class QuestionTable:
    """The one table of a question, and the other name it may have there."""

    table: str
    alias: str


def identifier(name: str) -> str:
    """A name as written, when a study could have it; the study decides whether it does."""
    if not IDENTIFIER.fullmatch(name):
        raise QueryMistaken(f"'{shown(name)}' cannot be a name in a study; names are up to 63 letters, digits and '_'.")
    return name


def column_name(column: exp.Column, source: QuestionTable) -> str:
    """The column's own name; a prefix must be the question's table."""
    prefix = column.table
    if column.args.get("db") or column.args.get("catalog") or (prefix and prefix not in (source.table, source.alias)):
        raise QueryMistaken(
            f"the prefix of {shown(column.name)!r} is not the question's table; write the column's name alone."
        )
    if column.args.get("join_mark"):
        raise QueryMistaken(f"the mark (+) is not supported; write {shown(column.name)} alone.")
    return identifier(column.name)


def unwrapped(term: exp.Expr) -> exp.Expr:
    """The term without the parentheses around it."""
    while isinstance(term, exp.Paren):
        term = term.this
    return term


def describe(term: exp.Expr | None) -> str:
    """What to call `term` in a sentence that refuses it."""
    match term:
        case None:
            return "nothing"
        case exp.Subquery() | exp.Query() | exp.Exists() | exp.SubqueryPredicate():
            return "a subquery"
        case exp.Window():
            return "a window function"
        case exp.Case() | exp.If():
            return "CASE"
        case exp.Star():
            return "*"
        case exp.Null():
            return "NULL"
        case exp.Boolean():
            return "TRUE" if term.this else "FALSE"
        case exp.Literal():
            return f"the value {shown(term.name)!r}"
        case exp.Column() | exp.Identifier():
            return f"the column {shown(term.name)!r}"
        case exp.Placeholder() | exp.Parameter() | exp.SessionParameter():
            return "a parameter"
        case _:
            return _describe_operation(term)


def _describe_operation(term: exp.Expr) -> str:
    match term:
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Div() | exp.Mod() | exp.IntDiv() | exp.Pow() | exp.Neg():
            return "arithmetic"
        case exp.DPipe() | exp.Concat():
            return "joining texts"
        case exp.And() | exp.Or() | exp.Not() | exp.Predicate():
            return "a condition"
        case exp.Cast() | exp.TryCast():
            return "a cast"
        case exp.Tuple():
            return "a list of values"
        case exp.Anonymous() | exp.AnonymousAggFunc():
            return f"the function {shown(term.name.upper())}"
        case exp.Func():
            return f"the function {shown(term.sql_name())}"
        case _:
            return shown(term.key.upper())


def shown(text: str) -> str:
    """A piece of what was sent, short and escaped."""
    piece = escaped(text)
    return piece if len(piece) <= _SHOWN else piece[: _SHOWN - 1] + "…"
