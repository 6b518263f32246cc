"""A picture of every statistic, of a model and of a budget, with few and many groups, short and long names.

`make pictures` draws all of them into a folder, to be looked at: python -m tests.analyst.pictures.gallery FOLDER
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from wardround.analyst.estimation.fitted import Coefficient, Fitted, Metric, ScoreTable, Standardisation
from wardround.analyst.pictures.answers import answer_picture
from wardround.analyst.pictures.budgets import budget_picture
from wardround.analyst.pictures.figure import Picture
from wardround.analyst.pictures.models import ModelWords, model_picture
from wardround.analyst.pictures.picture_files import write_picture
from wardround.analyst.pictures.picture_words import ColumnWords
from wardround.analyst.tables.presentation import ShownLine, shown
from wardround.federation.models.training import ModelKind
from wardround.federation.question.answer import Answer, Estimate, Loss, NoEstimate, PrivacyStatement, Remaining
from wardround.federation.question.study_budget import BudgetReport, ByOverlap, SiteBudget, Spending, Statement
from wardround.federation.study.study import Value

Group = tuple[tuple[str, Value], ...]

PRIVACY = PrivacyStatement("discrete_gaussian", Loss(0.5, 1e-6), Loss(0.9, 1e-6), Remaining(2.0, 0.7), 1, "parallel")
VOTES = dataclasses.replace(PRIVACY, mechanism="permute_and_flip")
LONG = "Malignant neoplasm of bronchus and lung, unspecified part, with secondary neoplasm of brain and meninges {}"
HOSTILE = (
    "$\\frac{1}{2}$",
    "_hidden",
    "a\nb\x1b[31m\u202ec",
    "<b>&amp;",
    "100 % $",
    "\\input{x}",
    "漢字と🙂",
    "W" * 300,
)
UNITS = ColumnWords(
    {"sbp": "mmHg", "age": "years", "days": "days", "cost": "EUR"}, {"band": ("< 40", "[40, 60)", "[60, 80)", ">= 80")}
)


def estimate(
    statistic: str, column: str | None, value: float, error: float, group: Group = (), term: str = ""
) -> Estimate:
    """An estimate with an interval of two errors."""
    ends = (value - 1.96 * error, value + 1.96 * error)
    return Estimate(statistic, column, group, value, error, ends, 0.95, term, sampling=column is not None)


def unknown(statistic: str, column: str | None, group: Group = (), term: str = "") -> Estimate:
    return Estimate(statistic, column, group, None, None, (0.0, 1.0), 0.95, term, reason=NoEstimate.TOO_FEW)


def answered(*estimates: Estimate, privacy: PrivacyStatement = PRIVACY, missing: tuple[str, ...] = ()) -> Answer:
    sites = ("lakeside", "north", "st-mary")
    return Answer(
        "ab" * 32,
        "patient",
        False,
        False,
        sites,
        (),
        missing,
        estimates,
        privacy,
        left_out=("west",) if missing else (),
    )


def drawn(answer: Answer, columns: ColumnWords = UNITS, *, label: str = "") -> Picture:
    lines = shown(answer.estimates, None).lines
    lines = tuple(ShownLine(label, "", line.estimate) for line in lines) if label else lines
    return answer_picture(answer, lines, columns)


def grouped(statistic: str, column: str | None, groups: list[Group], scale: float = 100.0) -> list[Estimate]:
    """A number for each group, the third of more than four unknown."""
    return [
        unknown(statistic, column, group)
        if place == 2 and len(groups) > 4
        else estimate(statistic, column, scale * (1 + math.sin(place)), scale * 0.08, group)
        for place, group in enumerate(groups)
    ]


def categories(number: int, name: str = "C{:02d}") -> list[Group]:
    return [(("diagnosis", name.format(place)),) for place in range(number)]


def months(number: int) -> list[Group]:
    return [(("admitted", f"{2020 + place // 12}-{place % 12 + 1:02d}"),) for place in range(number)]


def crossed(rows: list[Group], keys: tuple[str, ...], name: str = "sex") -> list[Group]:
    return [(*row, (name, each)) for row in rows for each in keys]


def histogram(groups: list[Group], bins: int = 12) -> list[Estimate]:
    found = []
    for number, group in enumerate(groups):
        for place in range(bins):
            low, high = 80 + 120 * place / bins, 80 + 120 * (place + 1) / bins
            height = 900 * math.exp(-(((place - bins / 2.5 - number) / 2.2) ** 2)) - (20 if place == bins - 1 else 0)
            term = f"[{low:g}, {high:g}{']' if place == bins - 1 else ')'}"
            found.append(estimate("histogram", "sbp", height, 25.0, group, term))
    return found


def survival(groups: list[Group], *, at_risk: bool = True) -> list[Estimate]:
    """Curves of 25 times; answers of before have no numbers at risk."""
    found = []
    for number, group in enumerate(groups):
        for place in range(25):
            share = math.exp(-place * (0.03 + 0.02 * (number % 6)))
            if share < 0.12:
                found.append(unknown("survival", "days", group, f"{place * 15}"))
            else:
                found.append(estimate("survival", "days", share, 0.01 + place * 0.001, group, f"{place * 15}"))
        for place in range(25 if at_risk else 0):
            left = max(12_400.0 * math.exp(-place * (0.05 + 0.02 * (number % 6))) - 60.0, 0.0)
            counted = estimate("survival", "days", left, 4.0 * math.sqrt(25 - place), group, f"{place * 15} at risk")
            found.append(dataclasses.replace(counted, sampling=False))
        found.append(estimate("survival", "days", 150.0 - number, 8.0, group, "median"))
    return found


def regression(groups: list[Group], predictors: tuple[str, ...] = ("age", "smoker", "cost")) -> list[Estimate]:
    found = []
    for number, group in enumerate(groups):
        for place, name in enumerate(predictors):
            found.append(estimate("regression", "sbp", 0.4 - 0.5 * place + 0.05 * number, 0.11, group, name))
        for name, value in (("intercept", 98.0), ("r_squared", 0.31), ("residual_sd", 9.7)):
            found.append(estimate("regression", "sbp", value, value / 50, group, name))
    return found


def correlation(names: tuple[str, ...], groups: list[Group]) -> list[Estimate]:
    return [
        estimate("correlation", one, math.cos(place + number) * 0.8, 0.07, group, other)
        for number, group in enumerate(groups)
        for place, (one, other) in enumerate((a, b) for i, a in enumerate(names) for b in names[i + 1 :])
    ]


def crosstab(rows: tuple[str, ...], columns: tuple[str, ...]) -> list[Estimate]:
    test = [("noise_aware_statistic", 34.2), ("degrees_of_freedom", 5.0), ("p_value", 0.0021)]
    found = [dataclasses.replace(estimate("chi_square", "diagnosis", value, 0.0), term=term) for term, value in test]
    return found + [
        estimate(
            "count", "patient_id", 40.0 + 211 * abs(math.sin(3 * i + j)), 9.0, (("diagnosis", one), ("sex", other))
        )
        for i, one in enumerate(rows)
        for j, other in enumerate(columns)
    ]


def quantiles(groups: list[Group]) -> list[Estimate]:
    return [
        estimate("quantile", "sbp", 100 + 60 * float(level) + 3 * number, 2.0, group, level)
        for level in ("0.25", "0.5", "0.9")
        for number, group in enumerate(groups)
    ]


def model(kind: ModelKind = ModelKind.LOGISTIC, *, few: bool = False) -> Picture:
    names = ("(intercept)", "age", "sbp", "smoker", "diagnosis=I10", LONG.format(1))
    found = tuple(
        Coefficient(name, value, 0.05, (value - 0.098, value + 0.098))
        for name, value in zip(names, (-7.2, 0.31, 0.12, 0.9, -0.2, 0.02), strict=True)
    )
    scores = np.linspace(-3.5, 2.5, 32)
    chance = 1 / (1 + np.exp(-scores))
    number = np.full(32, 3.0 if few else 220.0)
    noise = 12.0
    wave = noise * np.sin(np.arange(32) * 1.7)
    table = ScoreTable(chance, number * (1 - chance) + wave, number * chance - wave, noise)
    metrics = (
        Metric("auc", None, None, NoEstimate.TOO_FEW) if few else Metric("auc", 0.791, 0.012),
        Metric("accuracy", 0.74, 0.01),
        Metric("calibration", 0.011, 0.009),
    )
    nothing = Standardisation(np.zeros(0), np.zeros(0))
    fitted = Fitted(kind, np.zeros(6), found, metrics, nothing, (), table)
    words = ModelWords("died", UNITS, "Without north (missing)", "Bars: 95% intervals of the noise and sample. ε = 1.")
    return model_picture(fitted, words)


def perceptron() -> Picture:
    nothing = Standardisation(np.zeros(0), np.zeros(0))
    metrics = (Metric("rmse", 12.3, 0.4), Metric("r2", None, None, NoEstimate.NO_SPREAD))
    fitted = Fitted(ModelKind.LINEAR, np.zeros(3), (), metrics, nothing)
    return model_picture(fitted, ModelWords("sbp", UNITS, "", "ε = 1."))


def report(charges: int, sites: int, *, every_seconds: float = 86_400.0) -> BudgetReport:
    history = tuple(
        Spending(1_700_000_000.0 + every_seconds * place**2, place + 1, 3.0 * math.sqrt((place + 1) / 40))
        for place in range(charges)
    )
    return BudgetReport(
        "cardio",
        "patient",
        2,
        Loss(3.0, 1e-6),
        Loss(history[-1].epsilon if history else 0.0, 1e-6),
        Remaining(1.2, 0.6),
        (("filter", 1.5),),
        tuple(
            SiteBudget(f"hospital-{place}", Loss(0.2 + 0.1 * (place % 7), 1e-6), place == 1) for place in range(sites)
        ),
        charges,
        ByOverlap(0.9, 1.5, 2.1),
        (
            Statement("cap", 3.0, True),
            Statement("filter", 1.5, True),
            Statement("rdp", 1.41, False),
            Statement("pure", math.inf, False),
        ),
        history,
    )


SEXES = ("F", "M")
WARDS = tuple(f"ward {letter}" for letter in "abcdefgh")
PICTURES: dict[str, Callable[[], Picture]] = {
    "count": lambda: drawn(answered(estimate("count", None, 6701.0, 45.0))),
    "count-by-diagnosis": lambda: drawn(answered(*grouped("count", None, categories(7)), missing=("south", "east"))),
    "count-by-60-long-names": lambda: drawn(answered(*grouped("count", "patient_id", categories(60, LONG)))),
    "count-and-mean": lambda: drawn(
        answered(*grouped("count", None, categories(4)), *grouped("mean", "sbp", categories(4), 60.0))
    ),
    "mean-by-diagnosis-and-sex": lambda: drawn(answered(*grouped("mean", "sbp", crossed(categories(5), SEXES)))),
    "mean-by-diagnosis-and-ward": lambda: drawn(answered(*grouped("mean", "sbp", crossed(categories(4), WARDS)))),
    "mean-by-60-and-sex": lambda: drawn(answered(*grouped("mean", "sbp", crossed(categories(60), SEXES)))),
    "sum": lambda: drawn(answered(*grouped("sum", "cost", categories(3), 3.4e9))),
    "variance": lambda: drawn(answered(*grouped("variance", "sbp", categories(3)))),
    "std-one-group": lambda: drawn(answered(*grouped("std", "sbp", categories(1)))),
    "share-below": lambda: drawn(
        answered(*(estimate("below", "sbp", 0.2 * n, 0.02, (("sex", each),), "140") for n, each in enumerate(SEXES, 1)))
    ),
    "months": lambda: drawn(answered(*grouped("count", None, months(7)))),
    "60-months-by-sex": lambda: drawn(answered(*grouped("count", None, crossed(months(60), SEXES)))),
    "ages": lambda: drawn(answered(*grouped("mean", "sbp", [(("age", age),) for age in range(18, 100)]))),
    "intervals-by-sex": lambda: drawn(
        answered(
            *grouped(
                "mean",
                "sbp",
                crossed([(("band", each),) for each in UNITS.intervals["band"]], SEXES),
            )
        )
    ),
    "histogram": lambda: drawn(answered(*histogram([()]))),
    "histogram-by-sex": lambda: drawn(answered(*histogram([(("sex", each),) for each in SEXES], 8))),
    "histogram-60-groups": lambda: drawn(answered(*histogram(categories(60, LONG)[:14], 6))),
    "histogram-60-intervals": lambda: drawn(answered(*histogram([()], 60))),
    "quantiles": lambda: drawn(answered(*quantiles([()]))),
    "quantiles-by-diagnosis": lambda: drawn(answered(*quantiles(categories(6)))),
    "quantiles-by-month": lambda: drawn(answered(*quantiles(months(12)))),
    "median": lambda: drawn(answered(estimate("quantile", "sbp", 131.0, 0.7, term="0.5"))),
    "crosstab": lambda: drawn(answered(*crosstab(("E11", "I10", "C50", "I25"), SEXES))),
    "crosstab-60": lambda: drawn(
        answered(*crosstab(tuple(LONG.format(n) for n in range(12)), tuple(f"ward {n}" for n in range(60))))
    ),
    "correlation": lambda: drawn(
        answered(*correlation(("age", "sbp", "days", "cost"), [()])), label="CORR(age, sbp, days, cost)"
    ),
    "correlation-by-sex": lambda: drawn(
        answered(*correlation(("age", "sbp", "days"), [(("sex", e),) for e in SEXES])), label="CORR(age, sbp, days)"
    ),
    "regression": lambda: drawn(answered(*regression([()]))),
    "regression-by-sex": lambda: drawn(answered(*regression([(("sex", each),) for each in SEXES]))),
    "survival": lambda: drawn(answered(*survival([()]))),
    "survival-by-sex": lambda: drawn(answered(*survival([(("sex", each),) for each in SEXES]))),
    "survival-of-before": lambda: drawn(answered(*survival(categories(2), at_risk=False))),
    "survival-by-diagnosis": lambda: drawn(answered(*survival(categories(4)))),
    "survival-long-names": lambda: drawn(answered(*survival(categories(8, LONG)))),
    "keys": lambda: drawn(answered(*grouped("keys", "code", [(("code", name),) for name in (*HOSTILE, "plain")]))),
    "mode": lambda: drawn(
        answered(
            *(
                estimate("choice", "diagnosis", value, error, term=term)
                for term, value, error in (("E11", 812.0, 14.0), ("gap", 120.0, 20.0), ("regret", 0.0, 0.0))
            )
        )
    ),
    "mode-votes": lambda: drawn(
        answered(
            *(
                estimate("choice", "diagnosis", value, 0.0, term=term)
                for term, value in ((LONG.format(1), 3.0), ("gap", 2.0), ("regret", 12.0))
            ),
            privacy=VOTES,
        )
    ),
    "hostile": lambda: drawn(answered(*grouped("mean", "sbp", crossed([(("x", n),) for n in HOSTILE], HOSTILE[:4])))),
    "nothing-known": lambda: drawn(answered(*(unknown("mean", "sbp", group) for group in categories(3)))),
    "nothing": lambda: drawn(answered()),
    "one-huge-number": lambda: drawn(answered(estimate("sum", "cost", 1e12 + 7, 2.0))),
    "huge-numbers-by-long-names": lambda: drawn(
        answered(
            *(
                estimate("sum", "cost", 1e13 + place, 1.0, group)
                for place, group in enumerate(crossed(categories(3, LONG), (LONG.format("a"), LONG.format("b"))))
            )
        )
    ),
    "crosstab-170": lambda: drawn(
        answered(*crosstab(tuple(f"row {n}" for n in range(170)), tuple(f"column {n}" for n in range(160))))
    ),
    "model": model,
    "model-few-patients": lambda: model(few=True),
    "model-of-numbers": perceptron,
    "budget": lambda: budget_picture(report(12, 4)),
    "budget-60-hospitals": lambda: budget_picture(report(40, 60)),
    "budget-in-seconds": lambda: budget_picture(report(6, 2, every_seconds=0.4)),
    "budget-one-charge": lambda: budget_picture(report(1, 1)),
    "budget-unspent": lambda: budget_picture(report(0, 0)),
}


def main(folder: Path) -> Iterator[Path]:
    """Draw every picture into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, picture in PICTURES.items():
        write_picture(picture().draw(), folder / f"{name}.png")
        yield folder / f"{name}.png"


if __name__ == "__main__":
    for path in main(Path(sys.argv[1])):
        print(path)
