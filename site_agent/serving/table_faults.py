"""What is wrong with a table of the hospital's, for the people who can mend it; nothing of it is logged or sent.

Schemas are looked at, and files read once to see that they are sound; no value decides a sentence or is shown.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from site_agent.reading.dataset import FORMATS, Dataset, TableSource, kind_of, source_path
from wardround.federation.errors import FederationError, SourceAway
from wardround.federation.plan.layout import shape, whole_table
from wardround.federation.study.study import Study, Table
from wardround.privacy.noise.distribution import Mechanism


def table_fault(
    dataset: Dataset,
    study: Study,
    table: Table,
    source: TableSource,
    *,
    folder: Path,
    report: Callable[[str], None] = lambda _: None,
) -> str | None:
    """Why no question about the table could be answered now; None where they could."""
    if kind_of(source.source) in FORMATS:
        report(f"reading the files of {table.name} once, to check their format")
    try:
        dataset.check(shape(whole_table(table), study, Mechanism.DISCRETE_GAUSSIAN))
    except SourceAway as away:
        return told(table, source) or f"{away.message} {away.private}".strip()
    except FederationError as error:
        return told(table, source) or f"{error.message}{_place(table.name, source, folder)}"
    return None


def told(table: Table, source: TableSource) -> str | None:
    """Which of the ways into a database is closed, if one is; only PostgreSQL has several."""
    if kind_of(source.source) != "postgresql":
        return None
    from site_agent.reading.sources.postgresql.causes import why_unread  # noqa: PLC0415

    return why_unread(table, source)


def _place(table: str, source: TableSource, folder: Path) -> str:
    """Which files were meant, for whoever must fix it; of a database's address nothing is ever said."""
    if kind_of(source.source) == "postgresql" or source.source in FORMATS:
        return ""
    return f" In site.toml: {os.path.normpath(source_path(table, source, folder))}"
