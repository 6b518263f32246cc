"""Trainings of a small model at a site, whole and many times over: what all their sums together tell of one patient.

A patient is one contribution to each sum, whatever the number of its rows, is in one fold for ever, and is taken
by coins that fall anew in each step. Each of these is broken once, and must be flagged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from site_agent.learning.training_step import take
from site_agent.reading.examples import Examples
from wardround.federation.models.step_layout import LENGTH, StepLayout, step_form
from wardround.federation.models.training import StageKind, Training
from wardround.federation.plan.training_budget import StagePlan, exact_training
from wardround.federation.study.study import Study
from wardround.privacy.accounting.gaussian_dp import epsilon_of
from wardround.privacy.inference.audit_bounds import epsilon_bound, mu_bound
from wardround.privacy.mechanisms.additive import apply
from wardround.privacy.mechanisms.randomness import SecureChance
from wardround.privacy.noise.vectors import Bounded, IntVector
from wardround.simulation.audit.findings import AuditFinding, Measure, Method, as_control, judged
from wardround.simulation.audit.question_claims import Experiment, Setting, audited, scaled
from wardround.simulation.audit.training_runs import (
    EPSILON,
    HELD_OUT,
    MODEL,
    START,
    Hospitals,
    Tried,
    hospitals,
    law_of,
    rounds_of,
    site,
    telling,
    trained,
    training_study,
)
from wardround.simulation.noise import ZeroNoise

DRAWS_PER_TRAINING = 1000
"""So many draws take about as long as one training."""

LEAST_PROVED, LEAST_PROVED_OF_SAMPLES = 0.25, 0.2
"""A few hundred trainings prove less than many draws, and now and then much less than their usual 0.6; and what is
charged for sums over samples is one Gaussian that tells more than all of them, of which they use a part."""

_FEWEST = 20
_ENOUGH_FOR_ROWS, _EPSILON_OF_ROWS = 150, 6.0
_REUSED_RATE, _REUSED_STEPS, _REUSED_EPSILON, _REUSED_DELTA = Fraction(1, 8), 36, 3.0, 0.01
_MOST_REUSED = 20_000


def plan_of_sums() -> tuple[StagePlan, ...]:
    """Moments, products and two rounds of gradients, each over everybody."""
    return (
        StagePlan(StageKind.MOMENTS, Fraction(1, 10)),
        StagePlan(StageKind.PRODUCTS, Fraction(2, 10)),
        StagePlan(StageKind.GRADIENT, Fraction(7, 10), rounds=2),
    )


def plan_of_folds() -> tuple[StagePlan, ...]:
    """One gradient over some patients, and the model tried on the others, for one price."""
    return StagePlan(StageKind.GRADIENT, Fraction(1)), StagePlan(StageKind.SCORES, Fraction(1))


def plan_of_steps(steps: int, *, rate: Fraction = Fraction(1)) -> tuple[StagePlan, ...]:
    """One round of several steps, between which the site moves the model itself."""
    return (StagePlan(StageKind.GRADIENT, Fraction(1), steps=steps, rate=rate),)


def training_of(plan: tuple[StagePlan, ...], study: Study, *, epsilon: float = EPSILON) -> Training:
    """The training that a request with these stages would be."""
    return exact_training(
        MODEL,
        study,
        epsilon=epsilon,
        delta=study.cap.delta,
        overlap=1,
        plan=plan,
        held_out=HELD_OUT,
        clip=0.5,
        by_site=False,
    )


def training_claims(folder: Path, setting: Setting, tell: Callable[[str], None]) -> list[AuditFinding]:
    """Every way of adding up, and both folds."""
    study, count = training_study(), trainings_of(setting)
    crowd, alone = hospitals(folder / "crowd"), hospitals(folder / "alone", learning_from_others=False)
    tried = {
        "trainings, sums over everybody": (plan_of_sums(), crowd.learning, crowd.without, LEAST_PROVED),
        "trainings, a patient held out": (plan_of_folds(), crowd.trying, crowd.without, LEAST_PROVED),
        "trainings, local steps": (plan_of_steps(4), crowd.learning, crowd.without, LEAST_PROVED),
        "trainings, secret samples": (
            plan_of_steps(16, rate=Fraction(3, 4)),
            alone.learning,
            alone.without,
            LEAST_PROVED_OF_SAMPLES,
        ),
    }
    found: list[AuditFinding] = []
    for name, (plan, with_unit, without, least) in tried.items():
        tell(name)
        found.append(
            judged_trainings(
                name, Tried(training_of(plan, study), study, with_unit, without), count, setting.alpha, least
            )
        )
    return found


def trainings_of(setting: Setting) -> int:
    """How many trainings of each world."""
    return max(setting.draws // DRAWS_PER_TRAINING, _FEWEST)


def judged_trainings(name: str, tried: Tried, count: int, alpha: float, least_share: float) -> AuditFinding:
    """So many whole trainings of each world, told apart as well as possible."""
    samples = [
        np.array([trained(tried.training, tried.study, site(world)) for _ in range(count)])
        for world in (tried.with_unit, tried.without)
    ]
    return judged_sums(name, tried, (samples[0], samples[1]), alpha, least_share)


def judged_sums(
    name: str, tried: Tried, samples: tuple[IntVector, IntVector], alpha: float, least_share: float
) -> AuditFinding:
    """Every noised sum of some trainings of each world against what was charged."""
    claim = tried.claim()
    bound = mu_bound(*(telling(sums, tried) for sums in samples), alpha=alpha, delta=claim.slack)
    return judged(name, Method.TRAININGS, Measure.MU, claimed=claim.mu, certified=bound, least_share=least_share)


# --- Broken on purpose ------------------------------------------------------------------------------------


def training_controls(folder: Path, setting: Setting, tell: Callable[[str], None]) -> list[AuditFinding]:
    """Every mistake, under the price of the right thing."""
    tell("broken trainings")
    study = training_study()
    crowd, alone = hospitals(folder / "crowd"), hospitals(folder / "alone", learning_from_others=False)
    found = [
        _row_by_row(study, crowd, setting),
        _half_the_noise(study, crowd, setting),
        _both_folds(study, crowd, setting),
        _same_coins(study, alone, setting),
    ]
    return [as_control(finding) for finding in found]


def by_rows(examples: Examples) -> Examples:
    """Every row a unit of its own."""
    rows = np.repeat(examples.held_out, np.diff(examples.starts))
    return Examples(examples.inputs, examples.target, np.arange(rows.size + 1), rows)


def _row_by_row(study: Study, crowd: Hospitals, setting: Setting) -> AuditFinding:
    """Rows are clipped instead of patients."""
    training = training_of(plan_of_steps(4), study, epsilon=_EPSILON_OF_ROWS)
    tried = Tried(training, study, by_rows(crowd.learning), by_rows(crowd.without))
    count = min(trainings_of(setting), _ENOUGH_FOR_ROWS)
    return judged_trainings("clipping by row, in training", tried, count, setting.alpha, LEAST_PROVED)


def _half_the_noise(study: Study, crowd: Hospitals, setting: Setting) -> AuditFinding:
    tried = Tried(training_of(plan_of_folds(), study), study, crowd.learning, crowd.without)
    gradient, _ = _forms(tried)
    law = law_of(gradient.step)
    with_unit, without = (_bounded(gradient, examples) for examples in (tried.with_unit, tried.without))
    stated = Experiment(law, with_unit, without, tried.claim().mu)
    return audited("half the noise, in training", stated, setting, law=scaled(law, Fraction(1, 2)))


def _both_folds(study: Study, crowd: Hospitals, setting: Setting) -> AuditFinding:
    """Patients who are learnt from and tried on, for the price of one."""
    tried = Tried(training_of(plan_of_folds(), study), study, crowd.learning, crowd.without)
    gradient, scores = _forms(tried)
    with_unit, without = (
        replace(first, total=np.concatenate((first.total, second.total)))
        for first, second in (
            (_bounded(gradient, crowd.learning), _bounded(scores, crowd.trying)),
            (_bounded(gradient, crowd.without), _bounded(scores, crowd.without)),
        )
    )
    stated = Experiment(law_of(gradient.step), with_unit, without, tried.claim().mu)
    return audited("a patient in both folds", stated, setting)


def _same_coins(study: Study, alone: Hospitals, setting: Setting) -> AuditFinding:
    """One sample for all steps, where one for each is charged."""
    plan = plan_of_steps(_REUSED_STEPS, rate=_REUSED_RATE)
    tried = Tried(training_of(plan, study, epsilon=_REUSED_EPSILON), study, alone.learning, alone.without)
    (form,) = _forms(replace(tried, training=without_samples(tried.training)))
    canary, nobody = (_bounded(form, examples) for examples in (alone.learning, alone.without))
    count, chance = min(setting.draws, _MOST_REUSED), SecureChance()
    samples = []
    for world in (canary, nobody):
        totals = np.zeros((count, form.dimension), np.int64)
        totals[chance.sample(count, _REUSED_RATE)] = world.total
        noised = apply(replace(world, total=totals.reshape(-1)), law_of(form.step), chance).total
        samples.append(noised.reshape(count, -1) @ (canary.total / LENGTH))
    claimed = epsilon_of(_REUSED_DELTA - tried.claim().slack, tried.claim().mu)
    bound = epsilon_bound(*samples, alpha=setting.alpha, delta=_REUSED_DELTA)
    return judged(
        "coins of a sample kept for all steps", Method.TWO_WORLDS, Measure.EPSILON, claimed=claimed, certified=bound
    )


def without_samples(training: Training) -> Training:
    """The same sums over everybody."""
    return replace(training, stages=tuple(replace(stage, rate=Fraction(1)) for stage in training.stages))


def _forms(tried: Tried) -> list[StepLayout]:
    """Every round, of a model that stays where it began."""
    return [step_form(replace(asked(START), learning_rate=0.0), tried.study) for _, asked in rounds_of(tried.training)]


def _bounded(form: StepLayout, examples: Examples) -> Bounded:
    total = take(form, examples, law_of(form.step), ZeroNoise())
    return Bounded(total, form.l1_sensitivity, form.l2_sensitivity_squared, form.grid)
