"""`wardround simulate --train`: one training on a researcher's own tables, once or many times.

Each run is a federation of its own with a full budget, as for questions; what a budget allows is still said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from wardround.analyst.learning.driver import TrainingRound
from wardround.analyst.learning.request import StepSchedule, TrainingRequest
from wardround.analyst.learning.trained_model import TrainingResult
from wardround.federation.errors import Mistaken
from wardround.federation.study.study import Study
from wardround.simulation.study_trial import require_trusted_total, trial_federation, trial_tables


@dataclass(frozen=True, slots=True)
class TrainingTrial:
    """What to train, and with which noise."""

    request: TrainingRequest
    noiseless: bool = False
    trusted_total: bool = False


def run_trainings(
    study: Study,
    tables: Path,
    trial: TrainingTrial,
    *,
    repeat: int = 1,
    out: Path | None = None,
    on_round: Callable[[TrainingRound], None] | None = None,
) -> Iterator[TrainingResult]:
    """The models of `repeat` independent federations over the same tables."""
    request = _summed(trial.request, study) if trial.trusted_total else trial.request
    found = trial_tables(study, tables)
    for _ in range(repeat):
        with trial_federation(study, found, noiseless=trial.noiseless, trusted_total=trial.trusted_total) as federation:
            yield federation.client.train(request, out=out, on_round=on_round)


def _summed(request: TrainingRequest, study: Study) -> TrainingRequest:
    """The request for one noise on the total, which nothing but the total may be made from."""
    require_trusted_total(study)
    if request.shows_sites or request.schedule is StepSchedule.LOCAL_STEPS:
        raise Mistaken(
            "--privacy sum has one noise on the total, so no site's sums can be shown: "
            "leave out by_site, schedule and strategy."
        )
    return replace(request, schedule=StepSchedule.SUM_PER_ROUND)
