"""The small words of the SQL reader: names, what to call a thing that is not supported, and what works instead."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from wardround.analyst.sql.offered_words import name_words, offered, question_words
from wardround.federation.errors import QueryMistaken
from wardround.federation.plain_text import escaped
from wardround.federation.statistics import ALL
from wardround.federation.strict_toml import nearest
from wardround.federation.study.study import Study, Table
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

FORMS = {function.name: function.form or f"{function.name}({{number}})" for each in ALL for function in each.functions}
"""How each function is written, with places for names of a study."""

OF_A_ROW = ("CLAMP", "GREATEST", "LEAST", "WIDTH_BUCKET")

_APPROXIMATE = ", because every answer is approximate here"
INSTEAD = {
    **dict.fromkeys(("MEAN", "AVERAGE"), "; use AVG({number})."),
    "TOTAL": "; use SUM({number}).",
    **dict.fromkeys(("VAR", "VARIANCE_POP", "VARIANCE_SAMP"), "; use VARIANCE({number})."),
    **dict.fromkeys(("STD", "STDEV", "SD"), "; use STDDEV({number})."),
    **dict.fromkeys(
        ("APPROX_QUANTILE", "APPROX_PERCENTILE", "PERCENTILE_APPROX"), _APPROXIMATE + "; use QUANTILE({number}, 0.9)."
    ),
    **dict.fromkeys(("QUANTILE_CONT", "QUANTILE_DISC", "PERCENTILE"), "; use QUANTILE({number}, 0.9)."),
    "APPROX_MEDIAN": _APPROXIMATE + "; use MEDIAN({number}).",
    **dict.fromkeys(
        ("APPROX_DISTINCT", "APPROX_COUNT_DISTINCT", "HLL"), _APPROXIMATE + "; use COUNT(DISTINCT {key}) for patients."
    ),
    **dict.fromkeys(("COUNT_IF", "COUNTIF"), "; use COUNT(*) and put the condition into WHERE."),
    **dict.fromkeys(
        ("LOGICAL_AND", "LOGICAL_OR", "EVERY", "BOOL_AND", "BOOL_OR"),
        ", because one patient would decide it; use AVG({event}), the share of TRUE.",
    ),
    **dict.fromkeys(("COVAR_POP", "COVAR_SAMP"), "; use CORR({x}, {y}) and STDDEV({x})."),
    **dict.fromkeys(
        ("REGR_SLOPE", "REGR_INTERCEPT", "REGR_R2", "REGR_COUNT", "REGR_AVGX", "REGR_AVGY", "REGR_SXX", "REGR_SXY"),
        "; use REGRESS({y}, {x}).",
    ),
    **dict.fromkeys(("CORRELATION", "PEARSON", "COVARIANCE"), "; use CORR({x}, {y})."),
    **dict.fromkeys(("LINREG", "LM", "OLS", "REGRESSION", "LINEAR_REGRESSION"), "; use REGRESS({y}, {x})."),
    **dict.fromkeys(("SURVIVAL", "KM", "SURVIVAL_CURVE"), "; use KAPLAN_MEIER({time}, {event})."),
    **dict.fromkeys(("CHISQ", "CHI2", "CHI_SQUARED"), "; use CHI_SQUARE({grouped}, {second})."),
    **dict.fromkeys(("SHARE_ABOVE", "PERCENT_RANK", "CUME_DIST"), "; use SHARE_BELOW({number}, {middle})."),
    **dict.fromkeys(("KURTOSIS", "SKEWNESS", "ENTROPY"), "; use HISTOGRAM({number}, 20)."),
    **dict.fromkeys(("IQR", "MAD"), "; use QUANTILE({number}, 0.25) and QUANTILE({number}, 0.75)."),
    **dict.fromkeys(
        ("TOPK", "APPROX_TOP_K", "APPROX_TOP_COUNT"), "; use GROUP BY {grouped} ORDER BY COUNT(*) DESC LIMIT 10."
    ),
    **dict.fromkeys(
        ("ANY_VALUE", "FIRST", "LAST", "FIRST_VALUE", "LAST_VALUE", "ARG_MIN", "ARG_MAX", "MIN_BY", "MAX_BY"),
        f", because a row's value {OWN}; use MODE({{grouped}}) or MEDIAN({{number}}).",
    ),
    **dict.fromkeys(
        ("ARRAY_AGG", "GROUP_CONCAT", "LIST", "JSON_AGG"),
        ", because rows never leave a hospital; use KEYS({open}) for the values of an open category.",
    ),
    "CLAMP": " alone; it stands inside an aggregate, as in AVG(CLAMP({number}, {low}, {high})).",
    **dict.fromkeys(
        ("LEAST", "GREATEST"),
        " alone; it stands inside an aggregate, as in AVG(LEAST(GREATEST({number}, {low}), {high})).",
    ),
    "PERCENTILE_DISC": f", because a value of the table {OWN}; "
    "use PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY {number}).",
}
"""What follows "X is not supported"."""

NAMES = frozenset((*FUNCTIONS, "MAX", "MIN", *OF_A_ROW, *INSTEAD))
"""Functions that are known by their names, whatever the parser thinks that some database means by them."""


@dataclass(frozen=True, slots=True)
class QuestionTable:
    """The one table of a question, the other name it may have there, and the study if it is known."""

    table: str
    alias: str
    study: Study | None = None

    @property
    def known(self) -> Table | None:
        """What the study declares of the table; nothing where no study is known."""
        return None if self.study is None else self.study.table(self.table)

    @property
    def column_names(self) -> frozenset[str]:
        """The names of the study's columns; none where it is not known."""
        return frozenset() if self.known is None else frozenset(column.name for column in self.known.columns)

    def say(self, template: str, *near: exp.Expr | None) -> str:
        """The template with names of the study in its places, first of all with those that were written nearby."""
        names = [column.name for term in near if term is not None for column in term.find_all(exp.Column)]
        return offered(template, self.known, names)


def grammar(study: Study | None) -> str:
    """How a question is written: by an example of this study, or in general."""
    if study is None:
        return GRAMMAR
    tables = ", ".join(table.name for table in study.tables)
    return f"a question looks like {question_words(study)}; tables of the study: {tables}."


def identifier(name: str) -> str:
    """A name as written, when a study could have it; the study decides whether it does."""
    if not IDENTIFIER.fullmatch(name):
        raise QueryMistaken(f"'{shown(name)}' cannot be a name in a study; names are up to 63 letters, digits and '_'.")
    return name


def column_name(column: exp.Column, source: QuestionTable, *, key: bool = False) -> str:
    """The column's own name; a prefix must be the question's table. A `key` may be the table's unit key."""
    prefix = column.table
    if column.args.get("db") or column.args.get("catalog") or (prefix and prefix not in (source.table, source.alias)):
        raise QueryMistaken(
            f"the prefix of {shown(column.name)!r} is not the question's table; write the column's name alone."
        )
    if column.args.get("join_mark"):
        raise QueryMistaken(f"the mark (+) is not supported; write {shown(column.name)} alone.")
    name = identifier(column.name)
    if (table := source.known) is not None and not (key and name == table.unit_key):
        _require_column(name, table, source, key=key)
    return name


def _require_column(name: str, table: Table, source: QuestionTable, *, key: bool) -> None:
    """`QueryMistaken` where the table has no such column, with the nearest thing that it has."""
    if name in source.column_names:
        return
    others = () if source.study is None else source.study.tables
    elsewhere = next((each.name for each in others if any(column.name == name for column in each.columns)), None)
    if name != table.unit_key and name.upper() in FORMS:
        raise QueryMistaken(f"{name.upper()} is a function; write {source.say(FORMS[name.upper()])}.")
    if elsewhere is not None and name != table.unit_key:
        raise QueryMistaken(
            f"{name!r} is a column of the table {elsewhere!r} and not of {table.name!r}; "
            f"write FROM {name_words(elsewhere)}."
        )
    if key and nearest(name, [*source.column_names, table.unit_key]) == nearest(name, [table.unit_key]):
        raise QueryMistaken(f"unknown column {name!r} in table {table.name!r}; did you mean {table.unit_key!r}?")
    table.column(name)


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
