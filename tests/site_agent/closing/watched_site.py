"""A lone site over real tables, with a list of what was asked of them."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from site_agent.reading.batches import Fingerprint
from site_agent.reading.dataset import Tables
from site_agent.reading.examples import Examples
from site_agent.store.ledger import SiteLedger
from tests.fixtures.asking import ADA, ANALYST
from tests.site_agent.closing.failing_sources import KEY, STUDY
from tests.site_agent.lone_site import LoneSite
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.ledger.sqlite_file import Durability
from wardround.federation.models.step_layout import StepLayout
from wardround.federation.plan.task import Submission
from wardround.federation.study.study import Table
from wardround.privacy.noise.vectors import Bounded


@dataclass
class Watched:
    """Tables that note what is done with them; looking at a fingerprint is nothing."""

    tables: Tables
    events: list[str] = field(default_factory=list)

    def check(self, form: AnswerLayout) -> None:
        self.events.append("check")
        self.tables.check(form)

    def bounded(self, form: AnswerLayout) -> tuple[Bounded, ...]:
        self.events.append("read")
        return self.tables.bounded(form)

    def keys(self, form: AnswerLayout) -> Mapping[str, int]:
        self.events.append("read")
        return self.tables.keys(form)

    def examples(self, form: StepLayout) -> Examples:
        self.events.append("read")
        return self.tables.examples(form)

    def fingerprint(self, table: Table) -> Fingerprint:
        return self.tables.fingerprint(table)


class WatchedSite(LoneSite):
    """One hospital whose policy allows everything here."""

    def __init__(self, folder: Path, tables: Tables) -> None:
        super().__init__(folder, study=STUDY, max_epsilon_per_plan=100.0)
        (folder / "study.toml").write_text(STUDY, encoding="utf-8")
        self.day = datetime.date(2026, 1, 1)
        self.restart()
        self.put(tables)
        # Who asks is known, so that nothing is said of it.
        self.ledger.analysts.trust(ANALYST, ADA.public, by="ann")

    def put(self, tables: Tables) -> None:
        """Let the site answer from these tables."""
        self.watched = Watched(tables)
        self.pipeline = dataclasses.replace(self.pipeline, dataset=self.watched, key=KEY)

    def restart(self) -> None:
        """Lose everything that is not on disk."""
        self.ledger.close()
        self.ledger = SiteLedger(self.folder, identity=self.identity, keeping=Durability.FILE, today=lambda: self.day)
        self.pipeline = dataclasses.replace(self.pipeline, ledger=self.ledger)

    def ask(self, sql: str) -> Submission:
        return self.pipeline.run(self.task(self.plan(sql, epsilon=1.0)))

    @property
    def closed(self) -> list[str]:
        return [each.table for each in self.ledger.tables.listed()]

    def kinds(self) -> list[str]:
        """What the chain says, without what every chain begins with."""
        with self.ledger._database.reading() as connection:
            found = connection.execute(
                "SELECT kind FROM entries WHERE kind NOT IN ('opened', 'capped', 'pinned') ORDER BY sequence"
            )
            return [kind for (kind,) in found]
