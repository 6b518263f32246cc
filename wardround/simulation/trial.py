"""`wardround simulate`: one question or one training on a researcher's own tables, once or many times.

Each run is a federation of its own with a full budget, so that repeated runs show how answers vary and not
how a budget ends.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from site_agent.reading.dataset import Dataset
from wardround.analyst.asking.wanted_errors import WantedError
from wardround.analyst.learning.driver import TrainingRound
from wardround.analyst.learning.request import StepSchedule, TrainingRequest
from wardround.analyst.learning.trained_model import TrainingResult
from wardround.analyst.showing.result import Result
from wardround.federation.errors import Mistaken
from wardround.federation.question.answer import Progress
from wardround.federation.study.study import Study
from wardround.privacy.mechanisms.randomness import Chance
from wardround.simulation.federation import SimulatedFederation, SimulatedSite
from wardround.simulation.noise import ZeroNoise
from wardround.simulation.sites import find_sites, rounded_patients


@dataclass(frozen=True, slots=True)
class Trial:
    """What to ask, how sharp, and with which noise."""

    sql: str
    epsilon: float | None = None
    delta: float | None = None
    noiseless: bool = False
    trusted_total: bool = False
    search: bool = False
    error: WantedError | None = None


def run_trials(
    study: Study, tables: Path, trial: Trial, *, repeat: int = 1, on_progress: Callable[[Progress], None] | None = None
) -> Iterator[Result]:
    """The answers of `repeat` independent federations over the same tables."""
    if trial.trusted_total:
        require_trusted_total(study)
    found = trial_tables(study, tables)
    for _ in range(repeat):
        with trial_federation(study, found, noiseless=trial.noiseless, trusted_total=trial.trusted_total) as federation:
            yield federation.client.ask(
                trial.sql,
                error=trial.error,
                epsilon=trial.epsilon,
                delta=trial.delta,
                search=trial.search,
                on_progress=on_progress,
            )


def trial_tables(study: Study, tables: Path) -> dict[str, tuple[Dataset, int]]:
    """Each site's tables, and how many patients it declares; looked at once for all runs."""
    return {name: (dataset, rounded_patients(dataset, study)) for name, dataset in find_sites(tables, study).items()}


@contextmanager
def trial_federation(
    study: Study, found: Mapping[str, tuple[Dataset, int]], *, noiseless: bool, trusted_total: bool
) -> Iterator[SimulatedFederation]:
    """A federation of its own over these tables, with a full budget, gone when the block is left."""
    sites = {
        name: SimulatedSite(
            dataset,
            patients,
            noise=trial_noise(noiseless=noiseless, trusted_total=trusted_total, first=name == min(found)),
        )
        for name, (dataset, patients) in found.items()
    }
    with tempfile.TemporaryDirectory(prefix="wardround-") as folder:
        federation = SimulatedFederation(
            study, sites, folder=Path(folder), noiseless=noiseless, trusted_total=trusted_total
        )
        try:
            yield federation
        finally:
            federation.close()


def require_trusted_total(study: Study) -> None:
    """One noise on the total is only worked out for patients who are at one site."""
    if study.overlap != 1:
        raise Mistaken("--privacy sum in a simulation needs a study with overlap = 1.")


def trial_noise(*, noiseless: bool, trusted_total: bool, first: bool) -> Chance | None:
    """None is the true, secure noise. One noise on the total is one site's noise and nobody else's."""
    if noiseless or (trusted_total and not first):
        return ZeroNoise()
    return None


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
