"""`DIR/<site>/<table>.csv|parquet`: a study tried on a laptop before any hospital is asked."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from site_agent.reading.dataset import Dataset, TableSource
from site_agent.reading.examples import Examples
from site_agent.serving.open_dataset import open_dataset
from wardround.federation.errors import ConfigurationMistaken, SchemaRefused
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.models.step_layout import StepLayout
from wardround.federation.plan.layout import shape
from wardround.federation.question.query import Query
from wardround.federation.statistics.count import units
from wardround.federation.study.study import Study
from wardround.privacy.noise.distribution import Mechanism
from wardround.privacy.noise.vectors import Bounded

SUFFIXES = (".csv", ".parquet")


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
    for place in sorted(path for path in folder.iterdir() if path.is_dir()):
        tables = {
            table.name: TableSource(str(file.absolute()))
            for table in study.tables
            for suffix in SUFFIXES
            if (file := place / f"{table.name}{suffix}").exists()
        }
        if tables:
            # The rows that count when a patient has too many are chosen alike in every run of a simulation.
            key = hashlib.sha256(place.name.encode()).digest()
            datasets[place.name] = Remembering(open_dataset(tables, folder=place, key=key))
    if not datasets:
        wanted = ", ".join(f"<site>/{table.name}.csv" for table in study.tables)
        raise ConfigurationMistaken(f"{folder} holds no site's tables; expected {wanted} (or .parquet) inside it.")
    return datasets


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
