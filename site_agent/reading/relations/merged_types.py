"""Which types DuckDB and PostgreSQL can take into one without failing on any value."""

from __future__ import annotations

import re

from sqlglot import exp

from site_agent.reading.relations.conversions import Merging

_DIGITS = {
    "BOOLEAN": 1, "TINYINT": 3, "UTINYINT": 3, "SMALLINT": 5, "USMALLINT": 5, "INTEGER": 10, "UINTEGER": 10,
    "BIGINT": 19, "UBIGINT": 20, "HUGEINT": 39,
}  # fmt: skip
"""DuckDB's whole numbers, and how many digits each may have."""

_WIDEST = 38
_DECIMAL = re.compile(r"DECIMAL\(([0-9]+),([0-9]+)\)")
_FRACTIONS = {"FLOAT", "DOUBLE"}
_WHOLE = {"int2", "int4", "int8"}
_TEXTS = {"text", "varchar", "bpchar", "name"}
_MOMENTS = {"date", "timestamp", "timestamptz"}


def _in_duckdb(kinds: frozenset[str]) -> bool:
    kinds -= {'"NULL"', "NULL"}
    if len(kinds) <= 1 or "VARCHAR" in kinds:
        # Everything has a text.
        return True
    decimals = {kind: tuple(map(int, found.groups())) for kind in kinds if (found := _DECIMAL.fullmatch(kind))}
    whole = kinds & _DIGITS.keys()
    if kinds <= {*whole, *decimals, *_FRACTIONS}:
        if kinds & _FRACTIONS or not decimals:
            return True
        before = max([*(_DIGITS[kind] for kind in whole), *(width - scale for width, scale in decimals.values())])
        return before + max(scale for _, scale in decimals.values()) <= _WIDEST
    return False


def _compared_in_duckdb(kinds: frozenset[str]) -> bool:
    # A text is read as the other side's type there, and fails where it is none.
    kinds -= {'"NULL"', "NULL"}
    return len(kinds) <= 1 or ("VARCHAR" not in kinds and _in_duckdb(kinds))


def _in_postgresql(kinds: frozenset[str]) -> bool:
    # A quoted text is read as the others' type when the statement is, not when a row is.
    kinds -= {"unknown"}
    if len(kinds) <= 1 or kinds <= _TEXTS:
        return True
    return kinds <= {*_WHOLE, "numeric"} or kinds <= {*_WHOLE, "float4", "float8"}


def _compared_in_postgresql(kinds: frozenset[str]) -> bool:
    # It compares days with moments beyond the last moment, too.
    return _in_postgresql(kinds) or kinds <= _MOMENTS


IN_DUCKDB = Merging(_in_duckdb, _compared_in_duckdb, guards=(exp.Try,), unguarded=(exp.In,))
IN_POSTGRESQL = Merging(_in_postgresql, _compared_in_postgresql)
