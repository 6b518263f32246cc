"""A study, a source of rows in memory and its snapshot, for the tests of prepared columns."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from site_agent.reading.batches import Batch, Fingerprint, batch_of_rows
from site_agent.reading.columnstore.build import prepare_table
from site_agent.reading.columnstore.prepared_dataset import PreparedFirst, bounded_totals
from site_agent.reading.columnstore.read_examples import read_examples
from site_agent.reading.columnstore.snapshot import Manifest, Snapshot, read_manifest
from site_agent.reading.dataset import Tables
from site_agent.reading.examples import Examples
from wardround.federation.errors import SourceFailed
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.models.step_layout import StepLayout
from wardround.federation.plan.layout import shape
from wardround.federation.question.cohort import Expression
from wardround.federation.question.query import Aggregate, GroupBy, Grouping, Query, Statistic
from wardround.federation.study.study import Study, Table
from wardround.federation.study.study_file import parse_study
from wardround.privacy.noise.distribution import Mechanism
from wardround.privacy.noise.vectors import Bounded

KEY = hashlib.sha256(b"the site's own key").digest()
TABLE = "visits"
MADE_AT = 1_800_000_000.0

COLUMNS = """
age  = { type = "integer", lower = 0, upper = 110 }
sbp  = { type = "number", lower = 80, upper = 200, step = 0.1 }
gain = { type = "number", lower = -50, upper = 20 }
dx   = { type = "category", values = ["E11", "I10", "it's", "ü"] }
note = { type = "category" }
sex  = { type = "boolean" }
ward = { type = "integer", lower = 1, upper = 3 }
seen = { type = "date", lower = "2024-01-01", upper = "2024-06-30" }
"""
NAMES = ("age", "sbp", "gain", "dx", "note", "sex", "ward", "seen")

Row = tuple[object, ...]
"""The unit key, then the columns in the order of `NAMES`."""


def study(*, unit: str = "patient", rows: int = 3, groups: int = 2, name: str = "trial") -> Study:
    return parse_study(
        f'name = "{name}"\nunit = "{unit}"\n[budget]\nepsilon = 3.0\ndelta = 1e-6\n'
        f'[tables.{TABLE}]\nunit_key = "patient_id"\nmax_rows_per_unit = {rows}\n'
        f"max_groups_per_unit = {groups}\n[tables.{TABLE}.columns]\n{COLUMNS}"
    )


def row(unit: object, **columns: object) -> Row:
    return (unit, *(columns.get(name) for name in NAMES))


@dataclass
class Kept:
    """A source of rows in memory; `state` is what its fingerprint says, and it fails after `fails_after` batches."""

    rows: Sequence[Row]
    state: str = "first"
    sees_changes: bool = True
    batch_rows: int = 1000
    fails_after: int | None = None
    asked: list[str] = field(default_factory=list)

    def check(self, form: AnswerLayout) -> None:
        self.asked.append("check")

    def bounded(self, form: AnswerLayout) -> tuple[Bounded, ...]:
        self.asked.append("bounded")
        return ()

    def keys(self, form: AnswerLayout) -> Mapping[str, int]:
        self.asked.append("keys")
        return {}

    def examples(self, form: StepLayout) -> Examples:
        self.asked.append("examples")
        return read_examples(form, self, key=KEY)

    def fingerprint(self, table: Table) -> Fingerprint:
        return Fingerprint(self.state, self.sees_changes)

    def batches(self, table: Table) -> Iterator[Batch]:
        for number, start in enumerate(range(0, len(self.rows), self.batch_rows)):
            if number == self.fails_after:
                raise SourceFailed
            yield batch_of_rows(table, self.rows[start : start + self.batch_rows])


def prepare(source: Kept, agreed: Study, folder: Path, *, key: bytes = KEY) -> Manifest:
    return prepare_table(
        agreed.table(TABLE),
        source,
        folder=folder / TABLE,
        study_hash=agreed.study_hash,
        key=key,
        now_seconds=MADE_AT,
        report=lambda _: None,
    )


def opened(agreed: Study, folder: Path, *, key: bytes = KEY) -> Snapshot:
    return Snapshot(folder / TABLE, read_manifest(folder / TABLE, key), agreed.table(TABLE))


def snapshot(rows: Sequence[Row], agreed: Study, folder: Path) -> Snapshot:
    prepare(Kept(rows), agreed, folder)
    return opened(agreed, folder)


def dataset(
    source: Kept, agreed: Study, folder: Path, *, hours: float = 1.0, age_seconds: float = 60.0
) -> PreparedFirst:
    return PreparedFirst(
        Tables({TABLE: source}), folder, agreed, KEY, {TABLE: hours}, now_seconds=lambda: MADE_AT + age_seconds
    )


def form(query: Query, agreed: Study) -> AnswerLayout:
    return shape(query, agreed, Mechanism.DISCRETE_GAUSSIAN)


def totals(asked: AnswerLayout, kept: Snapshot) -> list[list[int]]:
    return [part.total.tolist() for part in bounded_totals(asked, kept)]


BY_CELL = (
    Aggregate(Statistic.COUNT),
    Aggregate(Statistic.COUNT, "patient_id"),
    Aggregate(Statistic.SUM, "gain"),
    Aggregate(Statistic.MEAN, "sbp"),
    Aggregate(Statistic.VARIANCE, "gain"),
    Aggregate(Statistic.HISTOGRAM, "age", bins=11),
    Aggregate(Statistic.QUANTILE, "sbp", level=0.5),
    Aggregate(Statistic.BELOW, "sbp", level=120.0),
    Aggregate(Statistic.SURVIVAL, "age", ("sex",)),
    Aggregate(Statistic.CORRELATION, "age", ("sbp", "sex")),
)
GROUPS: Mapping[str, tuple[Grouping, ...]] = {
    "none": (),
    "category": (Grouping("dx"),),
    "two columns": (Grouping("sex"), Grouping("ward")),
    "intervals": (Grouping("gain", GroupBy.BINS, edges=(-20.0, 0.0, 10.5)),),
    "months": (Grouping("seen", GroupBy.MONTH),),
    "listed keys": (Grouping("note", keys=("a", "b", "zz")),),
}


def every_question(cohort: Expression | None = None) -> list[Query]:
    """Each kind of part in each kind of group, and the tables of their own."""
    asked = [Query(TABLE, BY_CELL, cohort, groups) for groups in GROUPS.values()]
    asked.append(Query(TABLE, (Aggregate(Statistic.CHI_SQUARE, "dx", ("sex",)),), cohort))
    asked.append(Query(TABLE, (Aggregate(Statistic.CHOICE, "dx"),), cohort))
    return asked


def random_rows(*, patients: int, rows: int, seed: int, first: int = 0) -> list[Row]:
    """Rows with every kind of absence and excess; patients `first`, `first` + 1, …"""
    draw = random.Random(seed)
    return [
        row(
            f"p{first + draw.randrange(patients)}",
            age=draw.choice([None, draw.randrange(-5, 130), 2**62, -(2**63)]),
            sbp=draw.choice([None, round(draw.gauss(130, 40), 1), 1e308, -0.0]),
            gain=draw.choice([None, draw.gauss(0, 60), 20.0]),
            dx=draw.choice(["E11", "I10", "it's", "ü", "Z99", None]),
            note=draw.choice(["a", "b", "c", "x" * 300, None]),
            sex=draw.choice([True, False, None]),
            ward=draw.randrange(0, 5),
            seen=draw.choice([None, 19_700 + draw.randrange(300), 2_932_896, -719_162]),
        )
        for _ in range(rows)
    ]
