"""Mechanisms broken on purpose. An audit that does not flag every one of them proves nothing by its silence."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from wardround.federation.plan.layout import shape
from wardround.federation.study.study import Study
from wardround.privacy.budget.calibration import laplace_scale
from wardround.privacy.inference.audit_bounds import Statistic, epsilon_bound
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution
from wardround.privacy.noise.vectors import Bounded
from wardround.simulation.audit.coin_claims import lone_key
from wardround.simulation.audit.findings import AuditFinding, Measure, Method, as_control, judged
from wardround.simulation.audit.question_claims import (
    EPSILON,
    QUESTIONS,
    Experiment,
    Setting,
    audited,
    experiment,
    released,
    scaled,
    spread,
)
from wardround.simulation.audit.worlds import CANARY_ROWS, OUT_OF_BOUNDS, Worlds, audit_study

_LAPLACE, _GAUSSIAN = Mechanism.DISCRETE_LAPLACE, Mechanism.DISCRETE_GAUSSIAN
# A double in [1/2, 1) is a whole number of these; one nearer to zero need not be.
_FINEST_NEAR_ONE = 2.0**-53


def broken_controls(study: Study, worlds: Worlds, setting: Setting, tell: Callable[[str], None]) -> list[AuditFinding]:
    """Every control, each a mistake that somebody has made."""
    tell("broken controls")
    events = QUESTIONS["count of events"]
    laplace, gaussian = (experiment(events, study, kind, worlds) for kind in (_LAPLACE, _GAUSSIAN))
    half, less = Fraction(1, 2), Fraction(9, 10)
    found = [
        audited("half the noise, Laplace", laplace, setting, law=scaled(laplace.law, half)),
        audited("half the noise, Gaussian", gaussian, setting, law=scaled(gaussian.law, half)),
        spread("a tenth less noise, Laplace", laplace, setting, law=scaled(laplace.law, less)),
        spread("a tenth less noise, Gaussian", gaussian, setting, law=scaled(gaussian.law, less)),
        audited("no clipping", _unclipped(study, worlds), setting),
        _one_for_all_groups(study, worlds, setting),
        _one_for_all_levels(study, worlds, setting),
        _mean_for_moments(study, worlds, setting),
        _float_laplace(setting),
        _leaking_keys(setting),
        _underpaid_keys(setting),
    ]
    return [as_control(finding) for finding in found]


def _unclipped(study: Study, worlds: Worlds) -> Experiment:
    """The noise of a bounded sum on rows that nobody bounded."""
    query = QUESTIONS["sum"]
    honest = experiment(query, study, _LAPLACE, worlds)
    loose = audit_study(max_rows=CANARY_ROWS, cost=int(OUT_OF_BOUNDS))
    form = shape(query, loose, _LAPLACE)
    return Experiment(
        honest.law,
        _as_if(honest.without, worlds.with_unit.bounded(form)[0]),
        _as_if(honest.without, worlds.without.bounded(form)[0]),
        honest.claimed,
    )


def _as_if(claim: Bounded, loose: Bounded) -> Bounded:
    """The loose total in the steps of the claim's grid, under norms that are false for it."""
    finer = loose.grid / claim.grid
    steps = loose.total * finer.numerator // finer.denominator
    return Bounded(steps, claim.l1_sensitivity, claim.l2_sensitivity_squared, claim.grid)


def _one_for_all_groups(study: Study, worlds: Worlds, setting: Setting) -> AuditFinding:
    """COUNT(DISTINCT patient) GROUP BY with the noise of a single count."""
    tried = experiment(QUESTIONS["count of patients by group"], study, _LAPLACE, worlds)
    return audited("sensitivity 1 for several groups", tried, setting, law=_single_count())


def _one_for_all_levels(study: Study, worlds: Worlds, setting: Setting) -> AuditFinding:
    """A tree of counts with the noise of its leaves alone."""
    tried = experiment(QUESTIONS["median"], study, _LAPLACE, worlds)
    return audited("sensitivity 1 for all levels of a tree", tried, setting, law=_single_count())


def _mean_for_moments(study: Study, worlds: Worlds, setting: Setting) -> AuditFinding:
    """A variance with the noise of its largest number alone, as if the patient moved one of three."""
    tried = experiment(QUESTIONS["variance"], study, _GAUSSIAN, worlds)
    law = scaled(tried.law, Fraction(2, 3))
    return audited("one moment's sensitivity for three", tried, setting, law=law)


def _single_count() -> NoiseDistribution:
    return NoiseDistribution(_LAPLACE, laplace_scale(epsilon=EPSILON, l1_sensitivity=1, shares=Fraction(1), overlap=1))


def _float_laplace(setting: Setting) -> AuditFinding:
    """A count plus `numpy.random.laplace`: the count's own magnitude decides which low bits can be set.

    One plus a double of the noise is a whole number of 2^-53 wherever it is below one; the noise alone is not.
    """
    generator = np.random.default_rng()
    samples: list[Statistic] = []
    for count in (1.0, 0.0):
        answers = count + generator.laplace(0.0, 1.0 / EPSILON, setting.draws)
        samples.append((np.fmod(answers, _FINEST_NEAR_ONE) == 0.0).astype(np.float64))
    bound = epsilon_bound(*samples, alpha=setting.alpha)
    return judged(
        "float Laplace, by its low bits", Method.TWO_WORLDS, Measure.EPSILON, claimed=EPSILON, certified=bound
    )


def _leaking_keys(setting: Setting) -> AuditFinding:
    """GROUP BY whatever keys the rows have: the noise is right, and the presence of a key tells all."""
    samples: list[Statistic] = []
    for counts in ({"E11": 30, "Q87": 1}, {"E11": 30}):
        total = Bounded(np.array(list(counts.values())), 1, 1, Fraction(1))
        answers = released(total, _single_count(), setting.draws)
        samples.append(np.full(answers.shape[0], float("Q87" in counts)))
    bound = epsilon_bound(*samples, alpha=setting.alpha)
    return judged(
        "group keys taken from the rows", Method.TWO_WORLDS, Measure.EPSILON, claimed=EPSILON, certified=bound
    )


def _underpaid_keys(setting: Setting) -> AuditFinding:
    """A threshold for one key a patient, where patients have three."""
    measure, claimed, certified = lone_key(setting, keys=3, paid_keys=1)
    return judged(
        "unknown keys, δ of one key for three", Method.TWO_WORLDS, measure, claimed=claimed, certified=certified
    )
