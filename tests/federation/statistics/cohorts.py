"""Cohorts as arrays: what sites would release for them, exactly or with seeded noise, straight into `combine`.

Every repetition of an experiment is a group of its own, so thousands of them are one question.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from coordinator.planning.plans import plans_for
from coordinator.rounds.combining import combine
from site_agent.reading.bounding.tally import finish, tally_width
from wardround.federation.forms.grids import Quantiser
from wardround.federation.forms.parts import AnswerLayout, Part, Records, Sums
from wardround.federation.forms.totals import NoiseSetting
from wardround.federation.plan.plan import Plan, shape_of
from wardround.federation.plan.task import AskRequest
from wardround.federation.question.answer import Estimate
from wardround.federation.question.query import Aggregate, Grouping, Query, Statistic
from wardround.federation.study.study import Study
from wardround.federation.study.study_file import parse_study
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution

STUDY = """\
name = "trial"
overlap = 1
[budget]
epsilon = 100.0
delta = 1e-6
pure_epsilon = 50.0
[tables.encounters]
unit_key = "patient_id"
max_rows_per_unit = ROWS
max_groups_per_unit = 1
[tables.encounters.columns]
age = { type = "integer", lower = 0, upper = 110 }
sbp = { type = "number", lower = 80, upper = 200, step = 0.1 }
bmi = { type = "number", lower = 10, upper = 60 }
cost = { type = "number", lower = -1000, upper = 9000, step = 0.5 }
smoker = { type = "boolean" }
diagnosis = { type = "category", values = ["E11", "I10", "C50"] }
ward = { type = "category", values = ["north", "south"] }
run = { type = "category" }
months = { type = "integer", lower = 0, upper = 60 }
died = { type = "boolean" }
"""

EXACT = NoiseSetting(noiseless=True)
SITES = NoiseSetting()
SUM = NoiseSetting(trusted_total=True)
Columns = Mapping[str, np.ndarray]


def study(rows: int = 1) -> Study:
    return parse_study(STUDY.replace("ROWS", str(rows)))


@dataclass(frozen=True)
class Experiment:
    """One question over a cohort; `runs` repetitions are as many groups."""

    study: Study
    plan: Plan
    form: AnswerLayout

    @classmethod
    def of(
        cls,
        *aggregates: Aggregate,
        runs: int = 0,
        epsilon: float = 1.0,
        rows: int = 1,
        pure: bool = False,
        sites: int = 1,
    ) -> Experiment:
        agreed = study(rows)
        keys = tuple(f"{run:05d}" for run in range(runs))
        query = Query("encounters", aggregates, None, (Grouping("run", keys=keys),) if runs else ())
        wanted = Mechanism.DISCRETE_LAPLACE if pure else Mechanism.DISCRETE_GAUSSIAN
        request = AskRequest(query, epsilon, 0.0 if pure else 1e-6)
        names = {f"s{place}": 1000 for place in range(sites)}
        (plan,) = [plan for plan in plans_for(request, agreed, names) if plan.mechanism is wanted]
        return cls(agreed, plan, shape_of(plan, agreed))

    def totals(self, columns: Columns, groups: np.ndarray | None = None) -> np.ndarray:
        """The exact integers of a cohort of one record a patient; `groups` says which run a record belongs to."""
        found = [finish(part, tally(part, self.form, columns, groups)).total for part in self.form.parts]
        return np.concatenate(found)

    def noise(self, generator: np.random.Generator) -> np.ndarray:
        """One site's noise, from a seed: tests only."""
        return np.concatenate(
            [
                seeded(law, part.dimension, generator)
                for law, part in zip(self.plan.laws(), self.form.parts, strict=True)
            ]
        )

    def ask(
        self, totals: np.ndarray, *, seed: int | None = None, sites: int = 1, setting: NoiseSetting = SITES
    ) -> tuple[Estimate, ...]:
        """The estimates; without a seed there is no noise."""
        if seed is None:
            return combine(self.plan, self.form, [totals], setting=EXACT)
        generator = np.random.default_rng(seed)
        noised = [self.noise(generator) for _ in range(sites)]
        noised[0] = noised[0] + totals
        return combine(self.plan, self.form, noised, setting=setting)


def seeded(law: NoiseDistribution, size: int, generator: np.random.Generator) -> np.ndarray:
    scale = float(law.scale)
    if law.mechanism is Mechanism.DISCRETE_GAUSSIAN:
        return np.rint(generator.normal(0.0, scale, size)).astype(np.int64)
    geometric = -math.expm1(-1.0 / scale)
    return generator.geometric(geometric, size) - generator.geometric(geometric, size)


def levels(quantiser: Quantiser, values: np.ndarray) -> np.ndarray:
    placed = np.floor((values.astype(float) - float(quantiser.origin)) * float(quantiser.per_unit) + 0.5)
    return np.clip(placed, quantiser.low, quantiser.high).astype(np.int64)


def tally(part: Part, form: AnswerLayout, columns: Columns, groups: np.ndarray | None) -> np.ndarray:
    """The sums a source would hand in for one record a patient."""
    size = len(next(iter(columns.values())))
    cells = np.zeros(size, dtype=np.int64) if groups is None else groups
    q = [levels(quantiser, columns[name]) for quantiser, name in zip(part.quantisers, part.columns, strict=False)]

    def added(weights: np.ndarray | None = None) -> np.ndarray:
        if weights is None:
            return np.bincount(cells, minlength=part.groups)
        # Sums below 2^53 are exact in doubles, and these are.
        found = np.bincount(cells, weights=weights.astype(float), minlength=part.groups)
        assert np.abs(found).max(initial=0.0) < 2**53
        return found.astype(np.int64)

    def coded(codes: np.ndarray) -> np.ndarray:
        width = tally_width(part)
        return np.bincount(cells * width + codes, minlength=part.groups * width).reshape(part.groups, width)

    match part.sums:
        case Sums.COUNT if part.columns:
            domains = [form.table.column(name).domain for name in part.columns]
            places = [np.array([domain.index(value) for value in columns[name].tolist()])
                      for domain, name in zip(domains, part.columns, strict=True)]  # fmt: skip
            cells = np.ravel_multi_index(places, [len(domain) for domain in domains])
            return added()[:, None]
        case Sums.COUNT:
            return added()[:, None]
        case Sums.LEVELS:
            return added(q[0])[:, None]
        case Sums.COUNTED_LEVELS:
            return np.stack((added(), added(q[0])), axis=1)
        case Sums.PRODUCTS:
            pairs = itertools.combinations_with_replacement(range(len(q)), 2)
            return np.stack([added(), *map(added, q), *(added(q[i] * q[j]) for i, j in pairs)], axis=1)
        case _:
            assert part.coding is not None
            codes = np.minimum((q[0] + part.coding.offset) // part.coding.width, part.coding.codes - 1)
            return coded(2 * codes + q[1] if part.records is Records.LAST else codes)


def covered(estimates: Sequence[Estimate], truths: Sequence[float] | float, *, shrunk: float = 1.0) -> float:
    """The share of intervals that hold the truth; `shrunk` about their values, they are the broken control."""
    each = [truths] * len(estimates) if isinstance(truths, float) else truths
    hits = [
        e.interval[0] <= truth <= e.interval[1]
        if e.value is None
        else e.value - shrunk * (e.value - e.interval[0]) <= truth <= e.value + shrunk * (e.interval[1] - e.value)
        for e, truth in zip(estimates, each, strict=True)
    ]
    return sum(hits) / len(hits)


def band(runs: int, confidence: float = 0.95) -> tuple[float, float]:
    """Where a coverage lies but for one time in a million."""
    reach = 4.9 * math.sqrt(confidence * (1.0 - confidence) / runs)
    return confidence - reach, confidence + reach


__all__ = ["EXACT", "SITES", "SUM", "Aggregate", "Experiment", "Statistic", "band", "covered", "seeded", "study"]
