"""The study: the agreement every hospital signs.

Bounds, categories, the unit of privacy, the overlap and the budget are all public and all here. A site
signs the hash of this word; a plan that names another hash is refused.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from functools import cached_property

from wardround.federation import canonical
from wardround.federation.errors import QueryMistaken
from wardround.federation.strict_toml import nearest
from wardround.privacy.budget.filter import Cap
from wardround.privacy.budget.parallel import Group, groups_among

Value = bool | int | float | str | datetime.date

MAX_INTEGER_GROUPS = 1024


class Unit(StrEnum):
    """Whose presence is hidden: all rows of one patient, or one event."""

    PATIENT = "patient"
    EVENT = "event"


class ColumnType(StrEnum):
    """The five types a study may declare."""

    INTEGER = "integer"
    NUMBER = "number"
    CATEGORY = "category"
    BOOLEAN = "boolean"
    DATE = "date"


@dataclass(frozen=True, slots=True)
class Column:
    """A column as the study declares it; bounds are exact decimals, those of a date its day numbers.

    A category without values is open: its values are not public, so they are selected before they are grouped by.
    `unit` is what its numbers are measured in, for readers: nothing is computed from it.
    """

    name: str
    type: ColumnType
    lower: Fraction | None = None
    upper: Fraction | None = None
    step: Fraction | None = None
    values: tuple[str, ...] = ()
    default: Value | None = None
    unit: str = field(default="", metadata=canonical.LATER)

    @property
    def numeric_bounds(self) -> tuple[Fraction, Fraction] | None:
        """The public bounds of a column that can be summed, or None."""
        if self.type is ColumnType.BOOLEAN:
            return Fraction(0), Fraction(1)
        if self.type in (ColumnType.INTEGER, ColumnType.NUMBER) and self.lower is not None and self.upper is not None:
            return self.lower, self.upper
        return None

    @property
    def open(self) -> bool:
        """Whether the values of this category are not public."""
        return self.type is ColumnType.CATEGORY and not self.values

    @property
    def domain(self) -> tuple[Value, ...]:
        """The public group keys of this column, in order; empty when it has none."""
        match self.type:
            case ColumnType.CATEGORY:
                return self.values
            case ColumnType.BOOLEAN:
                return (False, True)
            case ColumnType.INTEGER if self.lower is not None and self.upper is not None:
                keys = range(int(self.lower), int(self.upper) + 1)
                return tuple(keys) if len(keys) <= MAX_INTEGER_GROUPS else ()
            case _:
                return ()


@dataclass(frozen=True, slots=True)
class Table:
    """A table: whose rows are whose, and how many of them count."""

    name: str
    unit_key: str
    max_rows_per_unit: int
    max_groups_per_unit: int
    columns: tuple[Column, ...]
    # How many time windows of a series one unit counts in, where that differs from groups.
    max_windows_per_unit: int | None = field(default=None, metadata=canonical.LATER)

    def column(self, name: str) -> Column:
        """The declared column, or a sentence with the nearest one."""
        for column in self.columns:
            if column.name == name:
                return column
        if name == self.unit_key:
            msg = f"{name!r} is the unit key of {self.name!r}; it can only be counted, as COUNT(DISTINCT {name})."
        else:
            msg = (
                f"unknown column {name!r} in table {self.name!r}; {nearest(name, [each.name for each in self.columns])}"
            )
        raise QueryMistaken(msg)


@dataclass(frozen=True)
class Study:
    """The consortium's agreement."""

    name: str
    unit: Unit
    overlap: int | None
    cap: Cap
    tables: tuple[Table, ...]
    min_sites: int
    deadline_seconds: float
    approval_seconds: float
    groups: tuple[Group, ...] = ()

    def table(self, name: str) -> Table:
        """The declared table, or a sentence with the nearest one."""
        for table in self.tables:
            if table.name == name:
                return table
        raise QueryMistaken(f"unknown table {name!r}; {nearest(name, [t.name for t in self.tables])}")

    def groups_among(self, sites: Iterable[str]) -> tuple[Group, ...]:
        """Which of `sites` share units, and how many of them one unit may appear at."""
        return groups_among(sites, declared=self.groups, overlap=self.overlap)

    def overlap_among(self, sites: Iterable[str]) -> int:
        """The most of `sites` that one unit may appear at."""
        return max((group.overlap for group in self.groups_among(sites)), default=1)

    @cached_property
    def study_hash(self) -> str:
        """What a site signs."""
        return canonical.digest(self)


def delta_fault(delta: float, patients: Mapping[str, int]) -> str | None:
    """Why δ is too large for the declared numbers of patients, or None (mission A4).

    The numbers are what each site declares, public; the true ones are never consulted.
    """
    total = sum(patients.values())
    if total > 0 and delta * total >= 1:
        return (
            f"δ = {delta:g} is not below 1/{total} (the patients declared by {len(patients)} "
            f"{'site' if len(patients) == 1 else 'sites'}); choose δ < {1 / total:.3g}."
        )
    return None


def parse_date(text: str) -> datetime.date | None:
    """An ISO calendar date, or None."""
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        return None
