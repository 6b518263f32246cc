"""Answers for pandas and Arrow, wide or long. Who answered is an attribute, since a frame has no line to say it in."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from wardround.analyst.tables.typed_columns import Cell, CellType, TypedColumn, typed_columns
from wardround.analyst.tables.wide_tables import WideTable
from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.question.answer import Answer, Estimate

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_TEXTS = ("statistic", "column", "term", "reason")
_NUMBERS = ("value", "standard_error", "lower", "upper", "confidence")
# Without gaps, and with some: numpy has no gap for these two.
_PANDAS = {
    CellType.TEXT: ("str", "str"),
    CellType.WHOLE: ("int64", "Int64"),
    CellType.NUMBER: ("float64", "float64"),
    CellType.TRUTH: ("bool", "boolean"),
    CellType.DATE: ("datetime64[s]", "datetime64[s]"),
}


def to_pandas(tables: Sequence[WideTable], answer: Answer) -> pd.DataFrame:
    """The rows of the tables; `attrs` says who answered."""
    try:
        import pandas as pd  # noqa: PLC0415 - an extra, loaded only when asked for
    except ImportError:
        raise _absent("pandas") from None
    columns = typed_columns(tables)
    frame = pd.DataFrame({each.name: pd.Series(list(each.cells), dtype=_pandas_type(each)) for each in columns})
    frame.attrs.update(_sites(answer))
    return frame


def to_arrow(tables: Sequence[WideTable], answer: Answer) -> pa.Table:
    """The rows of the tables; the schema's metadata says who answered, each list as JSON."""
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra, loaded only when asked for
    except ImportError:
        raise _absent("pyarrow") from None
    types = {
        CellType.TEXT: pa.string(),
        CellType.WHOLE: pa.int64(),
        CellType.NUMBER: pa.float64(),
        CellType.TRUTH: pa.bool_(),
        CellType.DATE: pa.date32(),
    }
    arrays = {each.name: pa.array(each.cells, type=types[each.type]) for each in typed_columns(tables)}
    return pa.table(arrays).replace_schema_metadata(_metadata(answer))


def to_long_pandas(estimates: Sequence[Estimate], answer: Answer) -> pd.DataFrame:
    """A row for each estimate."""
    try:
        import pandas as pd  # noqa: PLC0415
    except ImportError:
        raise _absent("pandas") from None
    # A column without any estimate is one of numbers still.
    frame = pd.DataFrame(_long_columns(estimates)).astype(dict.fromkeys(_NUMBERS, "float64"))
    frame.attrs.update(_sites(answer))
    return frame


def to_long_arrow(estimates: Sequence[Estimate], answer: Answer) -> pa.Table:
    """A row for each estimate."""
    try:
        import pyarrow as pa  # noqa: PLC0415
    except ImportError:
        raise _absent("pyarrow") from None
    types = {name: pa.string() for name in _TEXTS} | {name: pa.float64() for name in _NUMBERS}
    arrays = {name: pa.array(cells, type=types.get(name)) for name, cells in _long_columns(estimates).items()}
    return pa.table(arrays).replace_schema_metadata(_metadata(answer))


def _long_columns(estimates: Sequence[Estimate]) -> dict[str, list[Cell]]:
    columns: dict[str, list[Cell]] = {}
    own = (*_TEXTS, *_NUMBERS, "sampling")
    for name in dict.fromkeys(name for each in estimates for name, _ in each.group):
        # A study may well have a column called "value".
        columns[f"group_{name}" if name in own else name] = [dict(each.group).get(name) for each in estimates]
    columns["statistic"] = [each.statistic for each in estimates]
    columns["column"] = [each.column for each in estimates]
    columns["term"] = [each.term or None for each in estimates]
    columns["value"] = [each.value for each in estimates]
    columns["standard_error"] = [each.standard_error for each in estimates]
    columns["lower"] = [None if (ends := each.shown_interval) is None else ends[0] for each in estimates]
    columns["upper"] = [None if (ends := each.shown_interval) is None else ends[1] for each in estimates]
    columns["confidence"] = [each.confidence for each in estimates]
    columns["sampling"] = [each.sampling for each in estimates]
    columns["reason"] = [None if each.reason is None else each.reason.value for each in estimates]
    return columns


def _pandas_type(column: TypedColumn) -> str:
    full, with_gaps = _PANDAS[column.type]
    return with_gaps if any(cell is None for cell in column.cells) else full


def _sites(answer: Answer) -> dict[str, list[str] | dict[str, str] | int | None]:
    known = {"lacking_patients": answer.lacking_patients, "asked_patients": answer.asked_patients}
    return {
        "answered": list(answer.answered),
        "refused": dict(answer.refused),
        "missing": list(answer.missing),
        "left_out": list(answer.left_out),
        **(known if answer.lacking_patients is not None else {}),
    }


def _metadata(answer: Answer) -> dict[str, str]:
    return {name: json.dumps(sites) for name, sites in _sites(answer).items()}


def _absent(library: str) -> ConfigurationMistaken:
    return ConfigurationMistaken(f"{library} is not installed; install it with pip install 'wardround[analyst]'.")
