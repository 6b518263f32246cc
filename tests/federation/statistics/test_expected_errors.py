"""A dry run promises the errors that answers have, and says for whom; parts share a charge by their need."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from coordinator.planning.expected import expected_errors
from coordinator.planning.plans import plans_for
from tests.coordinator.losses import charged
from tests.federation.statistics.cohorts import SUM, Aggregate, Experiment, Statistic, study
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.forms.totals import NoiseSetting
from wardround.federation.plan.layout import shares
from wardround.federation.plan.plan import shape_of
from wardround.federation.plan.task import AskRequest
from wardround.federation.question.answer import ExpectedError
from wardround.federation.question.query import Query
from wardround.privacy.noise.distribution import Mechanism

PEOPLE = 20_000


def expected(experiment: Experiment, setting: NoiseSetting = SUM) -> tuple[ExpectedError, ...]:
    return expected_errors(experiment.plan, experiment.form, {"s0": PEOPLE}, setting)


def even() -> dict[str, np.ndarray]:
    """Columns spread evenly over their bounds and unrelated."""
    draw = np.random.default_rng(3)
    return {
        "age": draw.permutation(np.linspace(0, 110, PEOPLE)),
        "sbp": draw.permutation(np.linspace(80, 200, PEOPLE)),
        "bmi": draw.permutation(np.linspace(10, 60, PEOPLE)),
        "months": draw.permutation(np.linspace(0, 60, PEOPLE)).round(),
        "died": np.ones(PEOPLE),
    }


@pytest.mark.parametrize(
    ("aggregate", "term"),
    [
        (Aggregate(Statistic.COUNT), ""),
        (Aggregate(Statistic.VARIANCE, "sbp"), ""),
        (Aggregate(Statistic.STD, "sbp"), ""),
        (Aggregate(Statistic.HISTOGRAM, "sbp", bins=10), "[80, 92)"),
        (Aggregate(Statistic.QUANTILE, "sbp", level=0.25), "0.25"),
        (Aggregate(Statistic.CORRELATION, "sbp", ("age", "bmi")), "age"),
        (Aggregate(Statistic.REGRESSION, "sbp", ("age", "bmi")), "age"),
        (Aggregate(Statistic.SURVIVAL, "months", ("died",)), "30"),
    ],
    ids=lambda value: value.statistic.value if isinstance(value, Aggregate) else "",
)
def test_the_expected_error_is_the_one_an_even_cohort_gets(aggregate: Aggregate, term: str) -> None:
    experiment = Experiment.of(aggregate)
    (promised,) = expected(experiment)
    totals = experiment.totals(even())
    found = [next(e for e in experiment.ask(totals, seed=seed) if e.term == term).standard_error for seed in range(40)]
    assert promised.standard_error == pytest.approx(float(np.median(found)), rel=0.08)
    assert promised.share == 1.0


def test_the_expected_error_of_a_mean_or_a_share_is_for_its_worst_value() -> None:
    experiment = Experiment.of(Aggregate(Statistic.MEAN, "sbp"), Aggregate(Statistic.BELOW, "sbp", level=140.0))
    mean, share = expected(experiment)
    law, below = experiment.plan.laws()
    part, other = experiment.form.parts
    assert mean.standard_error == pytest.approx(math.sqrt(law.variance) * float(part.grid) / PEOPLE)
    assert share.standard_error == pytest.approx(math.sqrt(below.variance) * float(other.grid) / PEOPLE)


def test_the_expected_error_of_a_curve_that_the_noise_hides_is_a_share_still() -> None:
    """Who is at risk has a number always, and a larger error than any share."""
    experiment = Experiment.of(Aggregate(Statistic.SURVIVAL, "months", ("died",), bins=5))
    (promised,) = expected_errors(experiment.plan, experiment.form, {"s0": 3}, SUM)
    assert promised.standard_error == 0.5
    assert promised.note.endswith("; the noise will probably hide it")


def test_ten_sites_have_the_error_of_one_noise_times_the_root_of_ten() -> None:
    aggregates = (Aggregate(Statistic.QUANTILE, "sbp", level=0.5), Aggregate(Statistic.VARIANCE, "age"))
    experiment = Experiment.of(*aggregates, sites=10)
    each = expected_errors(experiment.plan, experiment.form, {"s0": PEOPLE}, NoiseSetting())
    once = expected(experiment)
    for many, one in zip(each, once, strict=True):
        assert many.standard_error == pytest.approx(math.sqrt(10) * one.standard_error, rel=0.35)


def test_notes_say_for_whom_and_shares_say_how_the_charge_is_split() -> None:
    experiment = Experiment.of(
        Aggregate(Statistic.COUNT, "patient_id"),
        Aggregate(Statistic.QUANTILE, "sbp", level=0.5),
        Aggregate(Statistic.MEAN, "sbp"),
        Aggregate(Statistic.QUANTILE, "sbp", level=0.9),
    )
    count, median, mean, tail = expected(experiment)
    assert count.note == ""
    assert median.note == "for 20000 declared patients: values spread evenly over their bounds"
    assert mean.note == "for 20000 declared patients: a mean near a bound, where the error is largest"
    # A tree of four levels has twice the sensitivity of a count; both quantiles are of one tree.
    assert (count.share, mean.share) == (0.25, 0.25)
    assert median.share == tail.share == 0.5


def test_shares_add_up_to_the_whole_and_are_spent_to_the_last() -> None:
    query = Query(
        "encounters",
        (
            Aggregate(Statistic.COUNT),
            Aggregate(Statistic.SUM, "cost"),
            Aggregate(Statistic.REGRESSION, "sbp", ("age", "bmi")),
            Aggregate(Statistic.QUANTILE, "sbp", level=0.5),
        ),
    )
    agreed = study(rows=4)
    for plan in plans_for(AskRequest(query, 1.0, 1e-6), agreed, {"s0": 1000}):
        form = shape_of(plan, agreed)
        assert sum(shares(form, plan.mechanism)) == 1
        assert 0.99 < charged(plan, agreed, delta=1e-6).epsilon <= 1.0


def test_no_other_split_has_a_smaller_sum_of_squared_errors() -> None:
    experiment = Experiment.of(
        Aggregate(Statistic.COUNT),
        Aggregate(Statistic.QUANTILE, "sbp", level=0.5),
        Aggregate(Statistic.VARIANCE, "age"),
        rows=4,
    )
    assert experiment.plan.mechanism is Mechanism.DISCRETE_GAUSSIAN
    # Four rows, one code on each level of the tree, and 3/2 of a moment: in units of one contribution.
    norms = [4.0, math.sqrt(_levels(experiment.form)), 1.5]
    _no_split_is_better(shares(experiment.form, Mechanism.DISCRETE_GAUSSIAN), norms, power=1)


def test_no_other_split_of_pure_noise_is_better() -> None:
    experiment = Experiment.of(
        Aggregate(Statistic.COUNT),
        Aggregate(Statistic.QUANTILE, "sbp", level=0.5),
        Aggregate(Statistic.VARIANCE, "age"),
        rows=4,
        pure=True,
    )
    norms = [4.0, float(_levels(experiment.form)), 2.5]
    _no_split_is_better(shares(experiment.form, Mechanism.DISCRETE_LAPLACE), norms, power=2)


def _levels(form: AnswerLayout) -> int:
    return next(part.tree.levels for part in form.parts if part.tree is not None)


def _no_split_is_better(best: tuple[Fraction, ...], norms: list[float], *, power: int) -> None:
    def size(split: Sequence[Fraction]) -> float:
        return sum(norm**2 / float(share) ** power for norm, share in zip(norms, split, strict=True))

    for moved in (Fraction(1, 50), Fraction(-1, 50)):
        for i, j in ((0, 1), (0, 2), (1, 2)):
            other = list(best)
            other[i] += moved
            other[j] -= moved
            assert size(other) > size(best)
