"""An answer of each statistic with fixed numbers, beside the question it answers."""

from __future__ import annotations

import dataclasses

from tests.analyst.stored import estimate, stored
from wardround.analyst.showing.result import Result
from wardround.analyst.sql.read import read
from wardround.federation.question.answer import NOISE_AWARE, Estimate, NoEstimate

Group = tuple[tuple[str, str | int | bool], ...]


def placed(place: int | None, each: Estimate) -> Estimate:
    return dataclasses.replace(each, place=place)


def unknown(each: Estimate, reason: NoEstimate, ends: tuple[float, float]) -> Estimate:
    """There is no such number; this is why, and what is still possible."""
    return dataclasses.replace(each, value=None, standard_error=None, reason=reason, interval=ends)


def terms(place: int, statistic: str, column: str, numbers: dict[str, tuple[float, float]]) -> list[Estimate]:
    """A number and its error for each term."""
    return [
        placed(place, estimate(statistic, column, value, error, term=term)) for term, (value, error) in numbers.items()
    ]


def by_code() -> list[Estimate]:
    counts = {"E11": 6701.2, "I10": 512.7}
    means = {"E11": (131.234, 0.42), "I10": (128.0, 1.7)}
    return [
        *(placed(0, estimate("count", None, each, 45.1, group=(("dx", key),))) for key, each in counts.items()),
        *(placed(1, estimate("mean", "sbp", *each, group=(("dx", key),))) for key, each in means.items()),
    ]


def survival() -> list[Estimate]:
    found: list[Estimate] = []
    for sex, share in (("F", 0.8), ("M", 0.7)):
        group = (("sex", sex),)
        curve = [
            estimate("survival", "months", share / time, 0.01, group=group, term=f"{12 * time}") for time in (1, 2)
        ]
        lost = unknown(
            estimate("survival", "months", 0.0, 0.0, group=group, term="36"), NoEstimate.NOBODY_LEFT, (0.0, 0.4)
        )
        found += [placed(0, dataclasses.replace(each, sampling=True)) for each in (*curve, lost)]
        left = [(f"{12 * time} at risk", 900.0 * share / time, 9.0) for time in (1, 2, 3)]
        found += [placed(0, estimate("survival", "months", *rest, group=group, term=term)) for term, *rest in left]
    found.append(
        placed(0, estimate("survival", "months", 24.0, 3.0, group=(("sex", "M"),), term="median", sampling=True))
    )
    return found


def crossed() -> list[Estimate]:
    test = terms(
        0,
        "chi_square",
        "dx",
        {NOISE_AWARE: (551.6, 0.0), "degrees_of_freedom": (1.0, 0.0), "p_value": (0.0123, 0.0011)},
    )
    counts = {("E11", False): 3582.4, ("E11", True): 1064.3, ("I10", False): 3205.5, ("I10", True): 994.3}
    cells = [
        placed(None, estimate("count", "id", each, 7.3, group=(("dx", dx), ("smoker", smoker))))
        for (dx, smoker), each in counts.items()
    ]
    return [*test, *cells]


def keys() -> list[Estimate]:
    return [
        placed(0, estimate("keys", "note", each, 5.0, group=(("note", key),)))
        for key, each in (("a", 40.0), ("b", 9.0))
    ]


QUESTIONS: dict[str, tuple[str, list[Estimate]]] = {
    "groups": ("SELECT dx, COUNT(*), AVG(sbp) FROM t GROUP BY dx", by_code()),
    "no groups": (
        "SELECT SUM(x), VARIANCE(x), STDDEV(x), QUANTILE(x, 0.9), SHARE_BELOW(x, 140) FROM t",
        [
            placed(0, estimate("sum", "x", 90001.0, 120.0)),
            placed(1, estimate("variance", "x", 291.9, 6.5)),
            placed(2, estimate("std", "x", 17.08, 0.19)),
            *terms(3, "quantile", "x", {"0.9": (150.25, 0.17)}),
            *terms(4, "below", "x", {"140": (0.7241, 0.001)}),
        ],
    ),
    "histogram": (
        "SELECT HISTOGRAM(age, 2) FROM t",
        terms(0, "histogram", "age", {"[18, 58)": (2995.9, 7.3), "[58, 98]": (-3.1, 7.3)}),
    ),
    "survival": ("SELECT sex, KAPLAN_MEIER(months, died, 3) FROM t GROUP BY sex", survival()),
    "table": ("SELECT CHI_SQUARE(dx, smoker) FROM t", crossed()),
    "mode": (
        "SELECT MODE(dx) FROM t",
        terms(0, "choice", "dx", {"E11": (4660.7, 7.3), "gap": (461.0, 10.0), "regret": (0.0, 0.0)}),
    ),
    "keys": ("SELECT KEYS(note) FROM t", keys()),
    "mixed": (
        "SELECT COUNT(*) AS n, CORR(sbp, age), REGRESS(sbp, age) AS fit, CORR(a, b, c) FROM t",
        [
            placed(0, estimate("count", None, 12015.0, 34.0)),
            *terms(1, "correlation", "sbp", {"age": (0.536, 0.029)}),
            *terms(2, "regression", "sbp", {"age": (0.36, 0.016), "intercept": (107.19, 0.99)}),
            *terms(2, "regression", "sbp", {"r_squared": (0.269, 0.027), "residual_sd": (14.78, 0.67)}),
            *terms(3, "correlation", "a", {"b": (0.5, 0.03), "c": (-0.2, 0.02)}),
            *terms(3, "correlation", "b", {"c": (0.1, 0.04)}),
        ],
    ),
    "intervals and months": (
        (
            "SELECT CASE WHEN age < 40 THEN 'rest' WHEN age < 65 THEN 'middle' ELSE 'rest' END AS band, "
            "DATE_TRUNC('month', seen) AS month, COUNT(*) FROM t GROUP BY band, month"
        ),
        [
            placed(0, estimate("count", None, each, 4.0, group=(("age", band), ("seen", "2026-01"))))
            for band, each in (("< 40", 10.0), ("[40, 65)", 20.0), (">= 65", 30.0))
        ],
    ),
}


def result_of(name: str) -> Result:
    sql, estimates = QUESTIONS[name]
    return Result(stored(*estimates), read(sql), cap=3.0)
