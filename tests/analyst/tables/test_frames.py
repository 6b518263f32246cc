"""Answers as data frames: wide and long, each column with its own type, and who answered beside them."""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
import sys

import pandas as pd
import pyarrow as pa
import pytest

from tests.analyst.showing.fixed_answers import QUESTIONS, by_code, placed, result_of, terms
from tests.analyst.showing.test_result import ANSWER, grouped
from tests.analyst.stored import estimate, stored
from wardround.analyst.showing.result import Result
from wardround.analyst.sql.read import read
from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.study.study import Value


def test_pandas_gets_a_tidy_frame() -> None:
    frame = Result(ANSWER).to_pandas(long=True)
    assert list(frame.columns) == [
        *("diagnosis", "statistic", "column", "term", "value", "standard_error", "lower", "upper", "confidence"),
        *("sampling", "reason"),
    ]
    assert list(frame["diagnosis"]) == ["E11", "I10", "E11"]
    assert list(frame["value"]) == [1234.567, 12.0, 131.2345]
    assert frame["value"].dtype == "float64"
    assert frame["column"].isna().tolist() == [True, False, False]


def test_arrow_keeps_the_types_of_the_groups() -> None:
    for value, kind in [
        ("E11", pa.string()),
        (3, pa.int64()),
        (True, pa.bool_()),
        (datetime.date(2026, 1, 31), pa.date32()),
    ]:
        table = grouped(("key", value)).to_arrow(long=True)
        assert table.schema.field("key").type == kind
        assert table.schema.field("column").type == pa.string()
        assert table.schema.field("value").type == pa.float64()
        assert table.to_pylist()[0]["key"] == value


def test_a_group_column_called_value_does_not_hide_the_value() -> None:
    frame = grouped(("value", "high"), ("value", "low")).to_pandas(long=True)
    assert list(frame["group_value"]) == ["high", "low"]
    assert list(frame["value"]) == [1.0, 1.0]


@pytest.mark.parametrize(("method", "library"), [("to_pandas", "pandas"), ("to_arrow", "pyarrow")])
def test_an_absent_library_is_named(monkeypatch: pytest.MonkeyPatch, method: str, library: str) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ConfigurationMistaken) as fault:
        getattr(Result(ANSWER), method)()
    assert fault.value.message == f"{library} is not installed; install it with pip install 'wardround[analyst]'."


# --- Wide ----------------------------------------------------------------------------------------------------


def types(name: str) -> dict[str, tuple[str, str]]:
    """The type of each key of an answer, in pandas and in Arrow."""
    result = result_of(name)
    frame, table = result.to_pandas(), result.to_arrow()
    assert list(frame.columns) == table.column_names
    return {
        column: (str(frame[column].dtype), str(table.schema.field(column).type))
        for column in frame.columns
        if not numeric(column, name)
    }


def numeric(column: str, name: str) -> bool:
    heads = {each.name for table in result_of(name).tables for each in table.numbers}
    return any(column.removesuffix(end) in heads for end in ("", "_error", "_lower", "_upper", "_reason"))


TEXT, NUMBER, TRUTH, DAY = (
    ("str", "string"),
    ("float64", "double"),
    ("boolean", "bool"),
    ("datetime64[s]", "date32[day]"),
)


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("groups", {"dx": TEXT}),
        ("no groups", {}),
        ("histogram", {"age": TEXT, "age_lower": NUMBER, "age_upper": NUMBER}),
        ("survival", {"table": TEXT, "sex": TEXT, "months": NUMBER}),
        ("table", {"table": TEXT, "dx": TEXT, "smoker": TRUTH}),
        ("mode", {"dx": TEXT}),
        ("keys", {"note": TEXT}),
        ("mixed", {"table": TEXT, "coefficient": TEXT, "column": TEXT, "with": TEXT}),
        ("intervals and months", {"band": TEXT, "band_lower": NUMBER, "band_upper": NUMBER, "month": DAY}),
    ],
)
def test_every_key_has_its_own_type(name: str, keys: dict[str, tuple[str, str]]) -> None:
    assert types(name) == keys


@pytest.mark.parametrize("name", QUESTIONS)
def test_numbers_are_numbers_and_reasons_texts(name: str) -> None:
    result = result_of(name)
    frame, table = result.to_pandas(), result.to_arrow()
    for column in filter(lambda column: numeric(column, name), frame.columns):
        expected = TEXT if column.endswith("_reason") else NUMBER
        assert (str(frame[column].dtype), str(table.schema.field(column).type)) == expected


@pytest.mark.parametrize(
    ("value", "kinds"),
    [
        ("E11", TEXT),
        (3, ("int64", "int64")),
        (2.5, NUMBER),
        (True, ("bool", "bool")),
        (datetime.date(2026, 1, 31), DAY),
    ],
)
def test_a_group_keeps_the_type_of_its_value(value: Value, kinds: tuple[str, str]) -> None:
    result = grouped(("key", value))
    assert (str(result.to_pandas()["key"].dtype), str(result.to_arrow().schema.field("key").type)) == kinds
    assert result.to_arrow()["key"].to_pylist() == [value]


def test_edges_and_months_are_what_they_say() -> None:
    frame = result_of("intervals and months").to_pandas()
    assert frame["band"].tolist() == ["rest", "middle", "rest"]
    assert frame["band_lower"].tolist() == [-math.inf, 40.0, 65.0]
    assert frame["band_upper"].tolist() == [40.0, 65.0, math.inf]
    assert frame["month"].tolist() == [pd.Timestamp(2026, 1, 1)] * 3
    bins = result_of("histogram").to_pandas()
    assert (bins["age_lower"].tolist(), bins["age_upper"].tolist()) == ([18.0, 58.0], [58.0, 98.0])
    times = result_of("survival").to_pandas()["months"].dropna().tolist()
    assert times == [12.0, 24.0, 36.0] * 2


@pytest.mark.parametrize("name", QUESTIONS)
def test_wide_long_and_json_have_the_same_numbers(name: str) -> None:
    result = result_of(name)
    told = json.loads(json.dumps(result.document()))["estimates"]
    document = [(each["value"], each["standard_error"], *each["interval"]) for each in told]
    rows = result.to_arrow(long=True).to_pylist()
    assert [(row["value"], row["standard_error"], row["lower"], row["upper"]) for row in rows] == document
    wide = []
    for row in result.to_arrow().to_pylist():
        for head in {each.name for table in result.tables for each in table.numbers}:
            cell = (row[head], *(row[f"{head}_{end}"] for end in ("error", "lower", "upper")))
            wide += [cell] if any(each is not None for each in cell) else []
    assert sorted(wide, key=str) == sorted(document, key=str)


def test_several_tables_stand_under_each_other() -> None:
    frame = result_of("mixed").to_pandas()
    assert frame["table"].tolist() == ["groups", "fit", "fit", "fit_summary", *["CORR(a, b, c)"] * 3]
    fit = frame[frame["table"] == "fit"].set_index("coefficient")
    assert fit["fit"].to_dict() == {"age": 0.36, "intercept": 107.19}
    assert frame["fit_r_squared"].dropna().tolist() == [0.269]


def test_names_that_meet_are_kept_apart() -> None:
    """A key called like a number, and an alias called like another number's error."""
    sql = "SELECT dx AS n_error, COUNT(*) AS n, AVG(sbp) AS n_lower FROM t GROUP BY dx"
    frame = Result(stored(*by_code()), read(sql)).to_pandas()
    assert frame["group_n_error"].tolist() == ["E11", "I10"]
    assert frame["n"].tolist() == [6701.2, 512.7]
    assert frame["n_error"].tolist() == [45.1, 45.1]
    assert frame["n_lower_2"].tolist() == [131.234, 128.0]
    crossed = [placed(0, estimate("count", None, 1.0, 0.5)), *terms(1, "histogram", "age", {"[0, 1]": (2.0, 0.5)})]
    frame = Result(stored(*crossed), read("SELECT COUNT(*) AS age, HISTOGRAM(age, 1) FROM t")).to_pandas()
    assert frame["age"].dtype == "float64"
    assert frame["group_age"].dropna().tolist() == ["[0, 1]"]


@pytest.mark.parametrize("long", [True, False])
def test_a_frame_says_who_answered(long: bool) -> None:
    lacking = Result(dataclasses.replace(ANSWER, left_out=("south",), asked_patients=500, lacking_patients=70))
    sites = {
        "answered": ["north", "st-mary"],
        "refused": {"west": "BudgetExceeded"},
        "missing": ["east"],
        "left_out": ["south"],
        "lacking_patients": 70,
        "asked_patients": 500,
    }
    assert lacking.to_pandas(long=long).attrs == sites
    metadata = lacking.to_arrow(long=long).schema.metadata
    assert {key.decode(): json.loads(value) for key, value in metadata.items()} == sites
