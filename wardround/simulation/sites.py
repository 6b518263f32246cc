"""A site of a simulation: its tables, `DIR/<site>/<table>.csv|parquet`, its noise, and the production agent."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from site_agent.answering.admission import Approval, Policy
from site_agent.answering.pipeline import Pipeline
from site_agent.reading.dataset import Dataset, TableSource
from site_agent.reading.examples import Examples
from site_agent.serving.agent import Agent, CoordinatorLink
from site_agent.serving.open_dataset import open_dataset
from site_agent.store.ledger import SiteLedger
from wardround.federation.errors import ConfigurationMistaken, SchemaRefused
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.ledger.sqlite_file import Durability
from wardround.federation.models.step_layout import StepLayout
from wardround.federation.plan.layout import shape
from wardround.federation.question.query import Query, Statistic
from wardround.federation.statistics.count import units
from wardround.federation.study.study import Study
from wardround.federation.trust.identity import Identity, PublicIdentity, Purpose
from wardround.federation.trust.public_limits import PublicLimits
from wardround.privacy.mechanisms.randomness import Chance, SecureChance
from wardround.privacy.noise.distribution import Mechanism
from wardround.privacy.noise.vectors import Bounded

_TODAY = datetime.date(2026, 1, 1)

SUFFIXES = (".csv", ".parquet")


@dataclass(frozen=True, slots=True)
class SimulatedSite:
    """A site of the simulation: its tables, its declared number of patients, its noise and its policy."""

    dataset: Dataset
    patients: int
    noise: Chance | None = None
    policy: Policy | None = None


@dataclass(frozen=True, slots=True)
class Ground:
    """What every site of a simulation is given: the study, whose tasks to trust, and where ledgers lie."""

    study: Study
    coordinator: PublicIdentity
    folder: Path
    keeping: Durability


@dataclass(frozen=True, slots=True)
class Newcomer:
    """What the coordinator's roster needs to know of a site."""

    name: str
    identity: PublicIdentity
    patients: int
    study_signature: bytes
    limits: PublicLimits


def begin_site(name: str, site: SimulatedSite, link: CoordinatorLink, ground: Ground) -> tuple[Agent, Newcomer]:
    """The agent over a ledger of its own, and what the roster is told of it."""
    folder, study = ground.folder / name, ground.study
    folder.mkdir(parents=True, exist_ok=True)
    identity = Identity.generate()
    ledger = SiteLedger.create(
        folder,
        identity=identity,
        name=name,
        study_hash=study.study_hash,
        dataset=name,
        coordinator_key=ground.coordinator.key,
        keeping=ground.keeping,
    )
    policy = site.policy or default_policy(study)
    ledger.set_cap(policy.cap)
    noise = SecureChance() if site.noise is None else site.noise
    pipeline = Pipeline(name, study, policy, ground.coordinator, ledger, site.dataset, noise, lambda: _TODAY)
    signature = identity.sign(Purpose.STUDY, bytes.fromhex(study.study_hash))
    return Agent(pipeline, ledger, link), Newcomer(name, identity.public, site.patients, signature, policy.public())


def default_policy(study: Study) -> Policy:
    """A site that allows what the study allows."""
    return Policy(
        cap=study.cap,
        max_epsilon_per_plan=study.cap.epsilon,
        statistics=tuple(Statistic),
        approval=Approval.AUTOMATIC,
        min_sites=study.min_sites,
    )


class Remembering:
    """A dataset whose files do not change while a simulation runs: each question reads them once."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._totals: dict[AnswerLayout, tuple[Bounded, ...]] = {}
        self._keys: dict[AnswerLayout, Mapping[str, int]] = {}

    def check(self, form: AnswerLayout) -> None:
        """Refuse what can be seen to be impossible without reading a row."""
        if form not in self._totals:
            self._dataset.check(form)

    def bounded(self, form: AnswerLayout) -> tuple[Bounded, ...]:
        """The bounded totals, from memory if they were read before."""
        if form not in self._totals:
            self._totals[form] = self._dataset.bounded(form)
        return self._totals[form]

    def keys(self, form: AnswerLayout) -> Mapping[str, int]:
        """How many units hold each key, from memory if they were counted before."""
        if form not in self._keys:
            self._keys[form] = self._dataset.keys(form)
        return self._keys[form]

    def examples(self, form: StepLayout) -> Examples:
        """The rows to learn from; the dataset itself keeps those of a training that is under way."""
        return self._dataset.examples(form)


def find_sites(folder: Path, study: Study) -> dict[str, Dataset]:
    """One dataset for each folder that holds at least one of the study's tables."""
    if not folder.is_dir():
        raise ConfigurationMistaken(f"{folder} is not a folder; expected {folder}/<site>/<table>.csv or .parquet.")
    datasets: dict[str, Dataset] = {}
    for place in _places(folder):
        if tables := {name: TableSource(str(file.absolute())) for name, file in _tables_in(place, study).items()}:
            # The rows that count when a patient has too many are chosen alike in every run of a simulation.
            key = hashlib.sha256(place.name.encode()).digest()
            datasets[place.name] = Remembering(open_dataset(tables, folder=place, key=key))
    if not datasets:
        wanted = ", ".join(f"<site>/{table.name}.csv" for table in study.tables)
        raise ConfigurationMistaken(f"{folder} holds no site's tables; expected {wanted} (or .parquet) inside it.")
    return datasets


def without_tables(folder: Path, study: Study) -> list[str]:
    """The folders beside the sites' that hold none of the study's tables: perhaps a file has another name."""
    return [place.name for place in _places(folder) if place.name[0] not in "._" and not _tables_in(place, study)]


def _places(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir())


def _tables_in(place: Path, study: Study) -> dict[str, Path]:
    return {
        table.name: file
        for table in study.tables
        for suffix in SUFFIXES
        if (file := place / f"{table.name}{suffix}").exists()
    }


def rounded_patients(dataset: Dataset, study: Study) -> int:
    """About how many patients a simulated site would declare: two digits, rounded up."""
    most = 1
    for table in study.tables:
        query = Query(table.name, (units(table),))
        form = shape(query, study, Mechanism.DISCRETE_LAPLACE)
        try:
            dataset.check(form)
        except SchemaRefused:
            continue
        most = max(most, int(dataset.bounded(form)[0].total[0]))
    unit: int = 10 ** max(0, len(str(most)) - 2)
    return -(-most // unit) * unit
