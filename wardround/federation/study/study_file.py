"""study.toml: the study as the consortium writes it down.

Everything a later answer relies on is checked here, once, from the text alone.
"""

from __future__ import annotations

import datetime
import math
import re
from fractions import Fraction
from pathlib import Path

from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.limits import MAX_SITES, MAX_TEXT, NAME
from wardround.federation.strict_toml import Section, check_plain, parse, read_text
from wardround.federation.study.study import Column, ColumnType, Study, Table, Unit, Value, parse_date
from wardround.privacy.budget.filter import Cap
from wardround.privacy.budget.parallel import Group

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
MAX_BOUND = 10**15
MAX_CATEGORIES = 100_000
MAX_UNIT = 32
WEEK_SECONDS = 7 * 24 * 3600.0


def read_study(path: Path) -> Study:
    """The study in a file that somebody hands over."""
    return new_study(read_text(path), name=path.name)


def new_study(text: str, *, name: str = "study.toml") -> Study:
    """The study in a text that somebody hands over: nobody is to sign what does not show what it says."""
    study = parse_study(text, name=name)
    check_plain(text, name=name)
    return study


def parse_study(text: str, *, name: str = "study.toml") -> Study:
    """The study in a text, also in one that was signed before texts had to be plain."""
    top = parse(text, name=name)
    title = top.text("name")
    if not NAME.fullmatch(title):
        raise top.fault("name", "letters, digits, '-' and '_', beginning with a letter")
    unit = Unit(top.text("unit", Unit.PATIENT.value, choices=[u.value for u in Unit]))
    overlap = top.integer("overlap", lower=1, upper=10_000) if top.has("overlap") else None
    study = Study(
        name=title,
        unit=unit,
        overlap=overlap,
        cap=_cap(top.section("budget")),
        min_sites=top.integer("min_sites", 1, lower=1, upper=MAX_SITES),
        deadline_seconds=top.number("deadline_seconds", 60.0, lower=0.1, upper=30 * 24 * 3600.0),
        approval_seconds=top.number("approval_seconds", WEEK_SECONDS, lower=0.0, upper=366 * 24 * 3600.0),
        tables=_tables(top.section("tables"), unit),
        groups=_groups(top.sections("groups")),
    )
    top.close()
    return study


def _cap(section: Section) -> Cap:
    epsilon = section.number("epsilon", lower=0.0, upper=1e4)
    delta = section.number("delta", lower=0.0, upper=1.0)
    pure = section.number("pure_epsilon", 0.0, lower=0.0, upper=1e4)
    section.close()
    try:
        return Cap(epsilon=epsilon, delta=delta, pure_epsilon=pure)
    except ValueError as error:
        raise ConfigurationMistaken(f"{section.file}: {section.path}: {error}.") from None


def _groups(sections: tuple[Section, ...]) -> tuple[Group, ...]:
    groups: list[Group] = []
    for section in sections:
        sites = section.texts("sites")
        overlap = section.integer("overlap", len(sites), lower=1, upper=10_000)
        section.close()
        taken = {site for group in groups for site in group.sites}
        if not sites or len(set(sites)) != len(sites) or taken & set(sites) or not all(map(NAME.fullmatch, sites)):
            raise section.fault("sites", "names of sites, each in one group and once")
        groups.append(Group(tuple(sorted(sites)), min(overlap, len(sites))))
    return tuple(sorted(groups, key=lambda group: group.sites))


def _tables(section: Section, unit: Unit) -> tuple[Table, ...]:
    names = section.names()
    if not names:
        raise ConfigurationMistaken(f"{section.file}: a study needs at least one table, as in [tables.encounters].")
    return tuple(_table(name, section.section(name), unit) for name in names)


def _table(name: str, section: Section, unit: Unit) -> Table:
    _identifier(section, name)
    unit_key = section.text("unit_key")
    _identifier(section, unit_key)
    rows = section.integer("max_rows_per_unit", 1 if unit is Unit.EVENT else None, lower=1, upper=10_000)
    groups = section.integer("max_groups_per_unit", rows, lower=1, upper=10_000)
    windows = (
        section.integer("max_windows_per_unit", lower=1, upper=10_000) if section.has("max_windows_per_unit") else None
    )
    columns = section.section("columns")
    table = Table(
        name=name,
        unit_key=unit_key,
        max_rows_per_unit=rows,
        max_groups_per_unit=groups,
        columns=tuple(_column(key, columns.section(key)) for key in columns.names()),
        max_windows_per_unit=windows,
    )
    section.close()
    if unit_key in {column.name for column in table.columns}:
        raise ConfigurationMistaken(
            f"{section.file}: {section.path}: the unit key {unit_key!r} must not also be a column."
        )
    folded = [column.name.lower() for column in table.columns]
    if len(set(folded)) != len(folded):
        raise ConfigurationMistaken(
            f"{section.file}: {section.path}: two columns differ only in capitals; engines cannot tell them apart."
        )
    return table


def _identifier(section: Section, name: str) -> None:
    if not IDENTIFIER.fullmatch(name):
        raise ConfigurationMistaken(
            f"{section.file}: {name!r} is not a name; use letters, digits and '_', beginning with a letter."
        )


def _column(name: str, section: Section) -> Column:
    _identifier(section, name)
    kind = ColumnType(section.text("type", choices=[t.value for t in ColumnType]))
    lower = upper = step = None
    values: tuple[str, ...] = ()
    match kind:
        case ColumnType.INTEGER | ColumnType.NUMBER:
            lower, upper, step = _bounds(section, kind)
        case ColumnType.CATEGORY:
            # Without values the category is open.
            values = section.texts("values", ())
            if (
                len(set(values)) != len(values)
                or len(values) > MAX_CATEGORIES
                or (section.has("values") and not values)
            ):
                raise section.fault("values", f"1 to {MAX_CATEGORIES} different texts, or absent in an open category")
            if any(len(value) > MAX_TEXT or "\x00" in value for value in values):
                raise section.fault("values", f"texts of at most {MAX_TEXT} characters")
        case ColumnType.DATE:
            lower, upper = _days(section)
        case ColumnType.BOOLEAN:
            pass
    default = _default(section, kind, lower, upper, values)
    column = Column(name, kind, lower, upper, step, values, default, _measured_in(section, kind))
    section.close()
    return column


def _measured_in(section: Section, kind: ColumnType) -> str:
    """The unit of a column's numbers; empty where the study names none."""
    if not section.has("unit"):
        return ""
    unit = section.text("unit")
    if kind not in (ColumnType.INTEGER, ColumnType.NUMBER) or len(unit) > MAX_UNIT:
        raise section.fault("unit", f"a text of at most {MAX_UNIT} characters, in a column of numbers")
    return unit


def _bounds(section: Section, kind: ColumnType) -> tuple[Fraction | None, Fraction | None, Fraction | None]:
    lower, upper, step = section.exact("lower"), section.exact("upper"), section.exact("step")
    if (lower is None) != (upper is None):
        raise section.fault("lower", "given together with upper")
    if lower is not None and upper is not None:
        if lower >= upper:
            raise section.fault("lower", "below upper")
        if max(abs(lower), abs(upper)) > MAX_BOUND:
            raise section.fault("upper", f"at most {MAX_BOUND:g} in size")
    if step is not None and step <= 0:
        raise section.fault("step", "above zero")
    if kind is ColumnType.INTEGER:
        if step not in (None, 1) or any(b is not None and b.denominator != 1 for b in (lower, upper)):
            raise section.fault("step", "1 (or absent), and the bounds whole, in an integer column")
        return lower, upper, Fraction(1)
    if step is not None and lower is not None and upper is not None and step > upper - lower:
        raise section.fault("step", "at most the width of the bounds")
    return lower, upper, step


def _days(section: Section) -> tuple[Fraction | None, Fraction | None]:
    """The first and last day of a date column, as day numbers."""
    days: list[Fraction | None] = []
    for key in ("lower", "upper"):
        text = section.raw(key)
        day = parse_date(text) if isinstance(text, str) else text
        if day is not None and type(day) is not datetime.date:
            raise section.fault(key, "a date such as 2026-01-31")
        if text is not None and day is None:
            raise section.fault(key, "a date such as 2026-01-31")
        days.append(None if day is None else Fraction(day.toordinal()))
    lower, upper = days
    if (lower is None) != (upper is None):
        raise section.fault("lower", "given together with upper")
    if lower is not None and upper is not None and lower >= upper:
        raise section.fault("lower", "before upper")
    return lower, upper


def _default(
    section: Section, kind: ColumnType, lower: Fraction | None, upper: Fraction | None, values: tuple[str, ...]
) -> Value | None:
    value = section.raw("default")
    if value is None:
        return None
    match kind, value:
        case ColumnType.BOOLEAN, bool():
            return value
        case ColumnType.CATEGORY, str() if value in values or (not values and 0 < len(value) <= MAX_TEXT):
            return value
        case ColumnType.DATE, str() if (day := parse_date(value)) is not None and _inside(
            day.toordinal(), lower, upper
        ):
            return day
        case ColumnType.INTEGER, int() if not isinstance(value, bool) and _inside(value, lower, upper):
            return value
        case ColumnType.NUMBER, int() | float() if not isinstance(value, bool) and _inside(value, lower, upper):
            return float(value)
        case _:
            raise section.fault("default", f"a {kind.value} inside the declared bounds or values")


def _inside(value: float, lower: Fraction | None, upper: Fraction | None) -> bool:
    return math.isfinite(value) and (lower is None or upper is None or lower <= Fraction(repr(value)) <= upper)
