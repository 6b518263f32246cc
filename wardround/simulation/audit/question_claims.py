"""Questions of both kinds of noise, planned, read, bounded and noised as a site does it, many times over."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist

import numpy as np

from coordinator.planning.plans import plans_for
from wardround.analyst.asking import builder
from wardround.federation.plan.plan import Plan, price, shape_of
from wardround.federation.plan.task import AskRequest
from wardround.federation.question.query import Query
from wardround.federation.study.study import Study
from wardround.privacy.accounting.cost import MU_UNIT, PURE_UNIT
from wardround.privacy.inference.audit_bounds import Statistic as Samples
from wardround.privacy.inference.audit_bounds import epsilon_bound, kurtosis, likelihood_ratio, mu_bound, variance_score
from wardround.privacy.mechanisms.additive import apply
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution
from wardround.privacy.noise.sampler import SecureNoise
from wardround.privacy.noise.vectors import Bounded, IntVector
from wardround.simulation.audit.findings import AuditFinding, Measure, Method, judged, judged_noise
from wardround.simulation.audit.worlds import SITE, TABLE, Worlds

EPSILON = 2.0

NOISE = {Mechanism.DISCRETE_LAPLACE: "discrete Laplace", Mechanism.DISCRETE_GAUSSIAN: "discrete Gaussian"}

QUESTIONS = {
    "count of events": builder.query(TABLE).count().query,
    "count of patients by group": builder.query(TABLE).count(distinct="patient_id").group_by("diagnosis").query,
    "sum": builder.query(TABLE).sum("cost").query,
    "mean": builder.query(TABLE).mean("cost").query,
    "variance": builder.query(TABLE).variance("cost").query,
    "histogram": builder.query(TABLE).histogram("cost", 10).query,
    "median": builder.query(TABLE).median("cost").query,
    "correlation": builder.query(TABLE).correlation("cost", "ward").query,
}

_TOO_RARE = {("correlation", Mechanism.DISCRETE_LAPLACE)}
"""Six numbers at once under Laplace noise: the event that tells most is too rare to prove enough in so few draws."""


@dataclass(frozen=True, slots=True)
class Setting:
    """How many draws of each world, and how often each bound may be wrong."""

    draws: int
    alpha: float


@dataclass(frozen=True, slots=True)
class Experiment:
    """One part of one plan in both worlds: what the planner decided and what a site would have noised."""

    law: NoiseDistribution
    with_unit: Bounded
    without: Bounded
    claimed: float
    """The price of the plan: ε of Laplace noise, μ of Gaussian noise."""


def plan_of(query: Query, study: Study, mechanism: Mechanism, *, epsilon: float = EPSILON) -> Plan:
    """The coordinator's own plan for the question, with the noise that is to be audited."""
    plans = plans_for(AskRequest(query, epsilon=epsilon, delta=None), study, {SITE: 100})
    return next(plan for plan in plans if plan.mechanism is mechanism)


def experiment(query: Query, study: Study, mechanism: Mechanism, worlds: Worlds) -> Experiment:
    """Plan the question once, and read and bound both worlds as a site would."""
    plan = plan_of(query, study, mechanism)
    form = shape_of(plan, study)
    (law,), (with_unit,), (without,) = plan.laws(), worlds.with_unit.bounded(form), worlds.without.bounded(form)
    return Experiment(law, with_unit, without, claimed_by(plan, study))


def claimed_by(plan: Plan, study: Study) -> float:
    """What the ledger is charged, as ε or μ."""
    cost = price(plan, study).cost
    return math.sqrt(cost.mu_squared / MU_UNIT) if cost.mu_squared else cost.pure / PURE_UNIT


def released(bounded: Bounded, law: NoiseDistribution, draws: int) -> IntVector:
    """`draws` independent releases of the same total, one a row, through the one place where noise is added."""
    repeated = Bounded(
        np.tile(bounded.total, draws), bounded.l1_sensitivity, bounded.l2_sensitivity_squared, bounded.grid
    )
    return apply(repeated, law, SecureNoise()).total.reshape(draws, -1)


def audited(name: str, tried: Experiment, setting: Setting, *, law: NoiseDistribution | None = None) -> AuditFinding:
    """The two worlds of an experiment, told apart as well as possible; `law` is the noise if it is not the plan's."""
    noise = tried.law if law is None else law
    # Every coordinate has noise of its own: one that is the same in both worlds tells nothing about them.
    moved = tried.with_unit.total != tried.without.total
    worlds = [dataclasses.replace(world, total=world.total[moved]) for world in (tried.with_unit, tried.without)]
    totals = worlds[0].total, worlds[1].total
    samples = [
        likelihood_ratio(released(world, noise, setting.draws), noise, with_unit=totals[0], without=totals[1])
        for world in worlds
    ]
    return judged_samples(name, tried.law.mechanism, (samples[0], samples[1]), tried.claimed, setting)


def judged_samples(
    name: str,
    mechanism: Mechanism,
    samples: tuple[Samples, Samples],
    claimed: float,
    setting: Setting,
    *,
    method: Method = Method.TWO_WORLDS,
) -> AuditFinding:
    """A claim of ε or μ against samples of the two worlds' statistic."""
    match mechanism:
        case Mechanism.DISCRETE_LAPLACE:
            bound = epsilon_bound(*samples, alpha=setting.alpha)
            return judged(name, method, Measure.EPSILON, claimed=claimed, certified=bound)
        case Mechanism.DISCRETE_GAUSSIAN:  # pragma: no branch
            bound = mu_bound(*samples, alpha=setting.alpha)
            return judged(name, method, Measure.MU, claimed=claimed, certified=bound)


def spread(name: str, tried: Experiment, setting: Setting, *, law: NoiseDistribution | None = None) -> AuditFinding:
    """Whether the noise on a total is as wide as the plan says, neither less nor more."""
    noise = (released(tried.without, tried.law if law is None else law, setting.draws) - tried.without.total).ravel()
    score = variance_score(noise, tried.law)
    deviation = math.sqrt((kurtosis(tried.law) - 1.0) / noise.size)
    limit = -NormalDist().inv_cdf(setting.alpha / 2.0)
    return judged_noise(name, ratio=math.sqrt(max(0.0, 1.0 + score * deviation)), score=score, limit=limit)


def scaled(law: NoiseDistribution, factor: Fraction) -> NoiseDistribution:
    """The same kind of noise with another scale, to the nearest 1/1024."""
    return NoiseDistribution(law.mechanism, Fraction(round(law.scale * factor * 1024), 1024))


def pipeline_claims(study: Study, worlds: Worlds, setting: Setting, tell: Callable[[str], None]) -> list[AuditFinding]:
    """Every question under both kinds of noise."""
    found: list[AuditFinding] = []
    for mechanism in (Mechanism.DISCRETE_LAPLACE, Mechanism.DISCRETE_GAUSSIAN):
        for name, query in QUESTIONS.items():
            if (name, mechanism) in _TOO_RARE:
                continue
            tell(f"{name}, {NOISE[mechanism]}")
            tried = experiment(query, study, mechanism, worlds)
            found.append(audited(f"{name}, {NOISE[mechanism]}", tried, setting))
            if name == "count of events":
                found.append(spread(f"noise of a {name}, {NOISE[mechanism]}", tried, setting))
    return found
