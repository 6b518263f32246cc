"""The rows of a test as a table of the tests' own PostgreSQL."""

from __future__ import annotations

import datetime
import hashlib
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from site_agent.reading.dataset import Dataset, Tables, TableSource
from site_agent.serving.open_dataset import open_dataset
from tests.site_agent.sources.postgresql_cluster import cluster
from tests.site_agent.sources.reference_totals import Cell, Row
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.plan.layout import shape
from wardround.federation.question.query import Aggregate, Grouping, Query
from wardround.federation.study.study import Column, ColumnType, Study
from wardround.federation.study.study_file import parse_study
from wardround.privacy.noise.distribution import Mechanism

if TYPE_CHECKING:
    from site_agent.reading.sources.postgresql.table import PostgresqlTable

KEY = hashlib.sha256(b"the site's own key").digest()
TYPES = {
    ColumnType.INTEGER: "bigint",
    ColumnType.NUMBER: "double precision",
    ColumnType.CATEGORY: "text",
    ColumnType.BOOLEAN: "boolean",
    ColumnType.DATE: "date",
}
PYTHON = {
    ColumnType.INTEGER: int,
    ColumnType.NUMBER: float,
    ColumnType.CATEGORY: str,
    ColumnType.BOOLEAN: bool,
    ColumnType.DATE: datetime.date,
}
_NUMBERS = itertools.count()


def written(value: Cell) -> str | None:
    """The value as PostgreSQL reads it; it holds no NUL."""
    match value:
        case None | bool():
            return None if value is None else str(value).lower()
        case float():
            return repr(value)
        case datetime.date():
            return value.isoformat()
        case _:
            return str(value).replace("\x00", "\ufdd0")


def new_table(rows: Sequence[Row], types: Mapping[str, str]) -> str:
    """A table of these columns, and its name."""
    name = f"visits {next(_NUMBERS)}"
    cluster().fill(name, types, ([written(row.get(column)) for column in types] for row in rows))
    return name


def dataset(name: str, *, rank: str | None = None, user: str = "reader") -> Tables:
    source = TableSource(cluster().address(user), f'"{name}"', rank=rank)
    return open_dataset({"visits": source}, folder=Path("/"), key=KEY)


def fitting(value: Cell, column: Column) -> Cell:
    return value if type(value) is PYTHON[column.type] else None


def postgresql_table(rows: Sequence[Row], study: Study, folder: Path) -> Tables:
    """Columns of the study's own types."""
    del folder
    table = study.tables[0]
    typed = [
        {table.unit_key: row.get(table.unit_key)} | {c.name: fitting(row.get(c.name), c) for c in table.columns}
        for row in rows
    ]
    types = {table.unit_key: "text"} | {column.name: TYPES[column.type] for column in table.columns}
    return dataset(new_table(typed, types))


def postgresql_texts(rows: Sequence[Row], study: Study, folder: Path) -> Tables:
    """The same rows in columns of text."""
    del folder
    table = study.tables[0]
    names = (table.unit_key, *(column.name for column in table.columns))
    return dataset(new_table(rows, dict.fromkeys(names, "text")))


AB = 'dx = { type = "category", values = ["A", "B"] }'
BY_DX = (Grouping("dx"),)


def study(columns: str, *, rows: int = 100, groups: int = 100) -> Study:
    return parse_study(
        'name = "trial"\n[budget]\nepsilon = 3.0\ndelta = 1e-6\n[tables.visits]\nunit_key = "patient_id"\n'
        f"max_rows_per_unit = {rows}\nmax_groups_per_unit = {groups}\n[tables.visits.columns]\n{columns}"
    )


def ask(agreed_study: Study, *aggregates: Aggregate, by: tuple[Grouping, ...] = ()) -> AnswerLayout:
    return shape(Query("visits", aggregates, None, by), agreed_study, Mechanism.DISCRETE_LAPLACE)


def totals(source: Dataset, asked: AnswerLayout) -> list[list[int]]:
    source.check(asked)
    return [part.total.tolist() for part in source.bounded(asked)]


def opened(name: str, user: str = "reader") -> PostgresqlTable:
    """The table itself, for what only preparation and `site check` ask."""
    # Imported here: a machine without the driver skips these tests.
    from site_agent.reading.sources.postgresql.table import PostgresqlTable

    source = dataset(name, user=user).sources["visits"]
    if not isinstance(source, PostgresqlTable):
        raise TypeError(name)
    return source
