"""A closing that could not be written down holds all the same: until there is room, nothing of the table is read."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from site_agent.answering.closing import Closing
from site_agent.store.closed_tables import ClosedTables
from tests.site_agent.lone_site import LoneSite, Rows
from wardround.federation.errors import LedgerFull
from wardround.federation.plan.task import Failed


@dataclass(frozen=True, slots=True)
class Crowded(ClosedTables):
    """A ledger with room for a number in place of another, and for no new entry while `full`."""

    full: list[bool] = field(default_factory=lambda: [True])

    def close(self, table: str, *, source: str) -> None:
        if self.full:
            raise LedgerFull
        ClosedTables.close(self, table, source=source)


def test_a_failure_that_could_not_be_written_down_closes_the_table_for_every_question(tmp_path: Path) -> None:
    site = LoneSite(tmp_path, rows=Rows(failures=1))
    tables = site.ledger.tables
    crowded = Crowded(tables.database, tables.identity, tables.today)
    object.__setattr__(site.pipeline, "closing", Closing(crowded, site.rows, b""))
    failing, other = (site.task(site.plan(epsilon=0.2, nonce=nonce)) for nonce in ("01", "02"))
    with pytest.raises(LedgerFull) as full:
        site.pipeline.run(failing)
    assert full.value.__context__ is None, "what failed is not the cause of anything that is said"
    for task in (failing, other, other):
        with pytest.raises(LedgerFull):
            site.pipeline.run(task)
    assert site.rows.events.count("read") == 1
    assert len(site.ledger.charges()) == 1, "the other question was not charged"
    crowded.full.clear()
    for task in (other, failing):
        assert isinstance(site.pipeline.run(task), Failed)
    assert [closed.table for closed in tables.listed()] == ["visits"]
    assert site.rows.events.count("read") == 1
    site.ledger.close()
