"""Names of functions: those that are read here, and for those of other databases the nearest thing that works."""

from __future__ import annotations

from wardround.federation.statistics import ALL

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
