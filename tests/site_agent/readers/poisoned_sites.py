"""Everything that a site lets out about twelve cohorts: what it says, what it logs, what its ledger holds."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from coordinator.planning.plans import plans_for
from site_agent.reading.dataset import Dataset
from site_agent.store.ledger import SiteLedger
from tests.site_agent.columnstore.prepared_source import prepared
from tests.site_agent.lone_site import NAME, LoneSite
from tests.site_agent.readers.poisoned_tables import QUESTIONS, STEP, STUDY, Kind, Poison, worlds
from tests.site_agent.sources.tables import KEY
from wardround.federation.plan.plan import Plan
from wardround.federation.plan.task import AskRequest, Released
from wardround.federation.study.study_file import parse_study
from wardround.privacy.noise.distribution import Mechanism

AGREED = parse_study(STUDY)
_SITES = (NAME, "south", "west")


@dataclass(frozen=True, slots=True)
class Told:
    """A world as the coordinator, the log and the ledger see it; without noise, so that totals are themselves."""

    said: tuple[tuple[str, bytes], ...]
    logged: tuple[str, ...]
    kinds: tuple[str, ...]

    @property
    def answers(self) -> bool:
        """Whether every question was answered."""
        return {name for name, _ in self.said} == {Released.__name__}


def plans() -> list[Plan]:
    """The twelve, as an honest coordinator plans them."""
    asked = [AskRequest(query, epsilon=20.0) for query in QUESTIONS]
    sizes = dict.fromkeys(_SITES, 1000)
    found = [plans_for(request, AGREED, sizes)[0] for request in asked]
    scale = STEP.training.stages[0].scale
    return [*found, Plan(AGREED.study_hash, STEP, Mechanism.DISCRETE_GAUSSIAN, (scale,), tuple(sorted(_SITES)))]


PLANS = plans()


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.name} {record.levelname} {record.getMessage()}")


def told(folder: Path, dataset: Dataset) -> Told:
    """What a site over `dataset` lets out about the twelve."""
    folder.mkdir(parents=True)
    site = LoneSite(folder, study=STUDY, max_epsilon_per_plan=500.0)
    pipeline = dataclasses.replace(site.pipeline, dataset=dataset, key=KEY)
    heard, log = _Lines(), logging.getLogger("wardround")
    before = log.level
    log.addHandler(heard)
    log.setLevel(logging.DEBUG)
    try:
        said = [pipeline.run(site.task(plan)) for plan in PLANS]
        kinds = _kinds(site.ledger)
    finally:
        log.setLevel(before)
        log.removeHandler(heard)
        site.ledger.close()
    payloads = [each.payload if isinstance(each, Released) else b"" for each in said]
    names = [type(each).__name__ for each in said]
    return Told(tuple(zip(names, payloads, strict=True)), tuple(heard.lines), kinds)


def _kinds(ledger: SiteLedger) -> tuple[str, ...]:
    with ledger._database.reading() as connection:
        return tuple(kind for (kind,) in connection.execute("SELECT kind FROM entries ORDER BY sequence"))


def differs(folder: Path, kind: Kind, poisons: Sequence[Poison], *, snapshots: bool) -> str:
    """What tells the two worlds apart, or keeps the poisoned one from answering; empty where nothing does."""
    seen: list[Told] = []
    for name, table in worlds(poisons).items():
        (folder / name).mkdir(parents=True)
        source = kind.opened(folder / name, table)
        dataset = prepared(source, AGREED, folder / name, key=KEY) if snapshots else source
        seen.append(told(folder / name / "site", dataset))
    if seen[0] == seen[1] and seen[1].answers:
        return ""
    return f"{poisons}: {seen[0]} and {seen[1]}"
