"""What pictures are told: an aggregate's numbers in rows and groups, and what its axes are called."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from wardround.analyst.tables.text_tables import NOISE_NAMES
from wardround.federation.question.answer import Estimate, PrivacyStatement
from wardround.federation.study.study import Value

_MONTH = re.compile(r"(\d{4})-(\d{2})")
_MONTHS_A_YEAR = 12


class ShownEstimate(Protocol):
    """A line of an answer: its estimate, the label over it, and the name that the question gave it, if any."""

    @property
    def label(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def estimate(self) -> Estimate: ...


class Interval(Protocol):
    """A number with its interval and its error; where there is no number, all that is still possible."""

    @property
    def value(self) -> float | None: ...

    @property
    def standard_error(self) -> float | None: ...

    @property
    def interval(self) -> tuple[float, float]: ...


@dataclass(frozen=True, slots=True)
class ColumnWords:
    """What is public about the columns, by the names that are shown: units, and the order of intervals."""

    units: Mapping[str, str] = field(default_factory=dict)
    intervals: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def titled(self, column: str) -> str:
        """The title of an axis along a column."""
        unit = self.units.get(column, "")
        return f"{column} [{unit}]" if unit else column

    def rank(self, column: str, value: Value) -> int | None:
        """The place of a value among its neighbours; None where values have no order."""
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if column in self.intervals:
            names = list(self.intervals[column])
            return names.index(str(value)) if value in names else None
        found = _MONTH.fullmatch(str(value))
        return None if found is None else _MONTHS_A_YEAR * int(found[1]) + int(found[2])


@dataclass(frozen=True, slots=True)
class Cell:
    """A number, in its row and its group; `rank` is the row's place where rows have an order."""

    row: str
    key: str
    estimate: Interval
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class AxisTitles:
    """What the numbers of a panel are measured in, what its rows and its groups are, and how far numbers reach."""

    numbers: str
    rows: str
    keys: str = ""
    limits: tuple[float, float] | None = None


def keys_of(cells: Sequence[Cell]) -> list[str]:
    """The groups, in the order in which they come."""
    return list(dict.fromkeys(cell.key for cell in cells))


def any_known(cells: Sequence[Cell]) -> bool:
    """Whether there is any number at all."""
    return any(cell.estimate.value is not None for cell in cells)


def cut_text(shown: int, number: int, what: str) -> str:
    """That only some are drawn; empty where all are."""
    return f"the first {shown} of {number:,} {what}" if shown < number else ""


def rows_of(cells: Sequence[Cell]) -> list[str]:
    """The rows, in the order in which they come."""
    return list(dict.fromkeys(cell.row for cell in cells))


def without_text(*, missing: Iterable[str], refused: Iterable[str], left_out: Iterable[str]) -> str:
    """Which hospitals an answer lacks; empty where it lacks none."""
    lacking = [
        *(f"{site} (missing)" for site in missing),
        *(f"{site} (refused)" for site in refused),
        *(f"{site} (left out)" for site in left_out),
    ]
    return f"Without {', '.join(lacking)}" if lacking else ""


def price_text(privacy: PrivacyStatement) -> str:
    """What it cost, and which noise protects."""
    noise = NOISE_NAMES.get(privacy.mechanism)
    charged = f"ε = {privacy.charged.epsilon:.3g}, δ = {privacy.charged.delta:.2g}"
    return f"{charged}, {noise} noise." if noise else f"{charged}."
