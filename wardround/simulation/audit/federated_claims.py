"""The same two worlds through a whole federation: analyst, coordinator, site, ledgers.

A question per ward answers as many independent experiments as there are wards, so that few questions suffice.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np

from site_agent.reading.dataset import Dataset
from wardround.analyst.asking.builder import query
from wardround.federation.plan.plan import shape_of
from wardround.federation.study.study import Study
from wardround.privacy.inference.audit_bounds import likelihood_ratio
from wardround.privacy.noise.distribution import Mechanism
from wardround.privacy.noise.vectors import IntVector
from wardround.simulation.audit.findings import AuditFinding, Method
from wardround.simulation.audit.question_claims import NOISE, Setting, claimed_by, judged_samples, plan_of
from wardround.simulation.audit.worlds import MAX_ROWS, PATIENTS, SITE, TABLE, Worlds, audit_study
from wardround.simulation.federation import SimulatedFederation, SimulatedSite
from wardround.simulation.noise import ZeroNoise
from wardround.simulation.sites import Remembering

QUESTION = query(TABLE).count().group_by("ward").query
LAPLACE_EPSILON, LAPLACE_ASKED = 2.0, 24
GAUSSIAN_EPSILON, GAUSSIAN_ASKED = 12.0, 12


def federated_claims(worlds: Worlds, folder: Path, setting: Setting, tell: Callable[[str], None]) -> list[AuditFinding]:
    """One audit of each kind of noise, as an analyst would see it."""
    found: list[AuditFinding] = []
    for mechanism, epsilon, asked in (
        (Mechanism.DISCRETE_LAPLACE, LAPLACE_EPSILON, LAPLACE_ASKED),
        (Mechanism.DISCRETE_GAUSSIAN, GAUSSIAN_EPSILON, GAUSSIAN_ASKED),
    ):
        name = f"whole federation, {NOISE[mechanism]}"
        tell(name)
        # Without a pure lane the planner has only Gaussian noise to choose.
        study = audit_study() if mechanism is Mechanism.DISCRETE_LAPLACE else audit_study(pure_epsilon=0.0)
        plan = plan_of(QUESTION, study, mechanism, epsilon=epsilon)
        (law,), (part,) = plan.laws(), shape_of(plan, study).parts
        sides = (worlds.with_unit, worlds.without)
        places = folder / mechanism.value / "with", folder / mechanism.value / "without"
        totals = [
            _answers(world, study, place / "true", epsilon=epsilon, asked=1, grid=part.grid, noiseless=True)
            for world, place in zip(sides, places, strict=True)
        ]
        samples = []
        for world, place in zip(sides, places, strict=True):
            answers = _answers(world, study, place / "noised", epsilon=epsilon, asked=asked, grid=part.grid)
            # Every ward by itself: its canary moves no other.
            each = [
                likelihood_ratio(answers[:, [ward]], law, with_unit=totals[0][0, [ward]], without=totals[1][0, [ward]])
                for ward in range(answers.shape[1])
            ]
            samples.append(np.concatenate(each))
        claimed = claimed_by(plan, study)
        found.append(
            judged_samples(name, mechanism, (samples[0], samples[1]), claimed, setting, method=Method.FEDERATION)
        )
    return found


def _answers(
    dataset: Dataset, study: Study, folder: Path, *, epsilon: float, asked: int, grid: Fraction, noiseless: bool = False
) -> IntVector:
    """What an analyst is told, in grid steps: one fresh question a row, one ward a column."""
    folder.mkdir(parents=True)
    noise = ZeroNoise() if noiseless else None
    site = SimulatedSite(Remembering(dataset), patients=PATIENTS * MAX_ROWS, noise=noise)
    federation = SimulatedFederation(study, {SITE: site}, folder=folder, noiseless=noiseless)
    try:
        results = [federation.client.ask(QUESTION, epsilon=epsilon, fresh=True) for _ in range(asked)]
    finally:
        federation.close()
    return np.array([[round((each.value or 0.0) / grid) for each in result] for result in results], np.int64)
