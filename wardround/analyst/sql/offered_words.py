"""The words that a sentence offers instead of what was written.

Where the study is known they are its own names and values, so that they are accepted when they are typed as they
stand. Only the study is looked at, never an answer. Without a study a name says what belongs in its place.
"""

from __future__ import annotations

import datetime
import difflib
from collections.abc import Mapping, Sequence
from fractions import Fraction

from sqlglot import Dialect, TokenType

from wardround.federation.forms.definition import ORDERED
from wardround.federation.plain_text import escaped
from wardround.federation.plan.sql_text import literal_text
from wardround.federation.study.study import Column, ColumnType, Study, Table

_PLAIN = {
    "table": "encounters",
    "key": "key",
    "number": "column",
    "other": "column",
    "least": "0",
    "low": "90",
    "middle": "140",
    "high": "180",
    "most": "100",
    "time": "time",
    "event": "event",
    "category": "column",
    "grouped": "column",
    "second": "column",
    "value": "'E11'",
    "values": "'E11', 'I10'",
    "open": "column",
    "date": "column",
    "day": "DATE '2026-01-31'",
    "x": "x",
    "y": "y",
    "aged": "age",
    "years": "40",
}
_SHOWN_VALUES = 2
_DIGITS = ".6g"


def offered(template: str, table: Table | None, near: Sequence[str] = ()) -> str:
    """The template with names of the table in its places, first of all with those that were written nearby."""
    return template.format_map(_PLAIN if table is None else {**_PLAIN, **_names(table, near)})


def question_words(study: Study, table: Table | None = None) -> str:
    """A whole question that could be asked of this study."""
    first = table or study.tables[0]
    names = _names(first, ())
    if "category" not in names:
        return "SELECT COUNT(*) FROM {table}".format_map(names)
    return "SELECT {category}, COUNT(*) FROM {table} GROUP BY {category}".format_map(names)


def condition_words(column: Column, written: str = "") -> str:
    """A condition on a column; on a category with the value that is nearest to what was written."""
    name = name_words(column.name)
    match column.type:
        case ColumnType.CATEGORY:
            return f"{name} = {quoted(_nearest_value(column, written))}"
        case ColumnType.BOOLEAN:
            return f"{name} = {'FALSE' if written.lower() in ('no', 'false', '0') else 'TRUE'}"
        case ColumnType.DATE:
            return f"{name} >= {_day(column)}"
        case ColumnType.INTEGER | ColumnType.NUMBER:
            bounds = column.numeric_bounds
            return f"{name} >= {'1' if bounds is None else _between(column, bounds, Fraction(1, 2))}"


def name_words(name: str) -> str:
    """A name as SQL writes it: in double quotes where it is one of SQL's own words."""
    return name if [token.token_type for token in Dialect().tokenize(name)] == [TokenType.VAR] else f'"{name}"'


def quoted(value: str) -> str:
    """A text as SQL writes it."""
    return literal_text(escaped(value))


def _nearest_value(column: Column, written: str) -> str:
    if column.open:
        return written or "A01"
    folded = {value.casefold(): value for value in reversed(column.values)}
    near = difflib.get_close_matches(written.casefold(), folded, n=1, cutoff=0.5)
    return folded[near[0]] if near else column.values[0]


def _names(table: Table, near: Sequence[str]) -> Mapping[str, str]:
    columns = sorted(table.columns, key=lambda column: [*near, column.name].index(column.name))
    numbers = [each for each in columns if each.type in ORDERED and each.numeric_bounds is not None]
    groups = [each for each in columns if each.domain]
    categories = [each for each in groups if each.type is ColumnType.CATEGORY]
    dates = [each for each in columns if each.type is ColumnType.DATE and each.lower is not None]
    names = {"table": name_words(table.name), "key": name_words(table.unit_key)}
    for word, found in (
        ("number", numbers),
        ("time", numbers),
        ("aged", numbers),
        ("y", numbers),
        ("other", numbers[1:]),
        ("x", numbers[1:]),
        ("event", [each for each in columns if each.type is ColumnType.BOOLEAN]),
        ("category", categories),
        ("grouped", groups),
        ("second", groups[1:]),
        ("open", [each for each in columns if each.open]),
        ("date", dates),
    ):
        if found:
            names[word] = name_words(found[0].name)
    if categories:
        values = categories[0].values
        names |= {"value": quoted(values[0]), "values": ", ".join(map(quoted, values[:_SHOWN_VALUES]))}
    if dates:
        names["day"] = _day(dates[0])
    if numbers and (bounds := numbers[0].numeric_bounds) is not None:
        shares = {"least": 0, "low": 1, "middle": 2, "years": 2, "high": 3, "most": 4}
        names |= {word: _between(numbers[0], bounds, Fraction(share, 4)) for word, share in shares.items()}
    return names


def _between(column: Column, bounds: tuple[Fraction, Fraction], share: Fraction) -> str:
    value = bounds[0] + share * (bounds[1] - bounds[0])
    return str(round(value)) if column.type is ColumnType.INTEGER else format(float(value), _DIGITS)


def _day(column: Column) -> str:
    """The first day of a date column, or any."""
    return _PLAIN["day"] if column.lower is None else literal_text(datetime.date.fromordinal(int(column.lower)))
