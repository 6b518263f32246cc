"""Random studies, questions and errors, each from a seed of its own."""

from __future__ import annotations

import random
from dataclasses import dataclass

from coordinator.planning.by_error import ByError
from coordinator.planning.expected import expected_errors
from coordinator.planning.plans import planned_for, target_of
from wardround.federation.errors import QueryMistaken
from wardround.federation.forms.totals import NoiseSetting
from wardround.federation.plan.task import AskRequest
from wardround.federation.question.query import Aggregate, Grouping, Query, Statistic
from wardround.federation.study.study import Study
from wardround.federation.study.study_file import parse_study

_ONE_COLUMN = (Statistic.SUM, Statistic.MEAN, Statistic.VARIANCE, Statistic.STD)
_MOST_AGGREGATES = 3


@dataclass(frozen=True)
class Asked:
    """A question with errors that a study of ample budget reaches."""

    seed: int
    study: Study
    query: Query
    errors: tuple[float, ...]
    participants: dict[str, int]

    def by_error(self, errors: tuple[float, ...] | None = None) -> ByError:
        request = AskRequest(self.query, errors=errors or self.errors)
        return ByError.of(request, self.query, self.study, self.participants, NoiseSetting())


def random_asked(seed: int) -> Asked:
    """A question at the errors that some ε would give, moved a little: every one of them can be reached."""
    chance = random.Random(seed)
    while True:
        study, participants = _study(chance)
        query = _query(chance)
        try:
            target = target_of(AskRequest(query, epsilon=chance.uniform(0.05, 1.0)), study, participants)
            plan = planned_for(AskRequest(query), query, target, study, tuple(participants))[0]
        except QueryMistaken:
            continue
        expected = expected_errors(plan.plan, plan.layout, participants, NoiseSetting())
        widths = [each.half_width for each in expected]
        # Laplace noise that is almost always 0 has an interval of no width.
        if all(widths):
            errors = tuple(chance.uniform(1.0, 1.5) * width for width in widths if width is not None)
            return Asked(seed, study, query, errors, participants)


def _study(chance: random.Random) -> tuple[Study, dict[str, int]]:
    rows = chance.choice((1, 1, 2, 4, 8))
    lower = chance.choice((0, -50, 80))
    upper = lower + chance.choice((1, 10, 120, 5000))
    step = chance.choice(("", ", step = 0.5", ", step = 0.1"))
    unit = chance.choice(("patient", "patient", "event"))
    text = (
        f'name = "trial"\noverlap = {chance.choice((1, 1, 2))}\nunit = "{unit}"\n'
        f"[budget]\nepsilon = 2000.0\ndelta = 1e-7\npure_epsilon = {chance.choice((500.0, 1000.0, 1900.0))}\n"
        f'[tables.visits]\nunit_key = "patient_id"\nmax_rows_per_unit = {rows}\n'
        f"max_groups_per_unit = {chance.randint(1, rows)}\n[tables.visits.columns]\n"
        f'x = {{ type = "number", lower = {lower}, upper = {upper}{step} }}\n'
        'age = { type = "integer", lower = 0, upper = 110 }\n'
        'months = { type = "integer", lower = 0, upper = 24 }\n'
        'died = { type = "boolean" }\n'
        'ward = { type = "category", values = ["a", "b", "c"] }\nsex = { type = "category", values = ["f", "m"] }\n'
    )
    participants = {f"s{place}": chance.choice((500, 2000, 9000)) for place in range(chance.randint(2, 6))}
    return parse_study(text), participants


def _query(chance: random.Random) -> Query:
    if chance.random() < 0.05:
        return Query("visits", (Aggregate(Statistic.CHI_SQUARE, "ward", ("sex",)),))
    wanted = {_aggregate(chance): None for _ in range(chance.randint(1, _MOST_AGGREGATES))}
    groups = chance.choice(((), (), (Grouping("ward"),), (Grouping("ward"), Grouping("sex"))))
    return Query("visits", tuple(wanted), None, groups)


def _aggregate(chance: random.Random) -> Aggregate:
    column = chance.choice(("x", "age"))
    match chance.randrange(9):
        case 0:
            return Aggregate(Statistic.COUNT)
        case 1:
            return Aggregate(Statistic.COUNT, "patient_id")
        case 2:
            return Aggregate(Statistic.HISTOGRAM, column, bins=chance.randint(2, 12))
        case 3:
            return Aggregate(Statistic.QUANTILE, column, level=chance.choice((0.1, 0.5, 0.75)))
        case 4:
            return Aggregate(Statistic.BELOW, "age", level=40.0)
        case 5:
            return Aggregate(Statistic.CORRELATION, "x", ("age",))
        case 6:
            return Aggregate(Statistic.SURVIVAL, "months", ("died",))
        case _:
            return Aggregate(chance.choice(_ONE_COLUMN), column)
