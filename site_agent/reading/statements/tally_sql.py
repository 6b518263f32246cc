"""The tally of a part in one statement, and its lines as an array.

The statement adds up records where no unit has too many of them; where a unit may, a choice comes between:
by the database (`choosing`), or outside it over whole numbers (`site_agent.reading.bounding.contribution_bounding`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import assert_never

import numpy as np
from sqlglot import exp

from site_agent.reading.bounding.tally import is_weighed, tally_width
from site_agent.reading.statements.dialect import Dialect
from site_agent.reading.statements.records import CELL, RECORDS, WEIGHT, TypedRows, value_names, with_records
from site_agent.reading.statements.sql_trees import counted, grouped, named, ref, relation, times
from wardround.federation.forms.parts import AnswerLayout, Part, Sums, Tally

_LARGEST = 2**63
_AT_ONCE = 2**14


def tally_statement(form: AnswerLayout, part: Part, rows: TypedRows, dialect: Dialect) -> exp.Select:
    """The tally over all records: right where `record_cap` is None."""
    return with_records(tally_of(RECORDS, form, part, dialect), form, part, rows, dialect)


def is_coded(part: Part) -> bool:
    """Whether records are counted by code, so that a line of the tally is (cell, code, number)."""
    return part.sums is Sums.CODES


def tally_of(source: str, form: AnswerLayout, part: Part, dialect: Dialect) -> exp.Select:
    """The lines of the tally over an earlier part of the statement that holds records; see `read_tally`."""
    if is_coded(part):
        return grouped(relation(source), [ref(CELL), ref(value_names(part)[0])], [named(counted(), "n")])
    sums = [named(total, f"t{place}") for place, total in enumerate(_totals(form, part, dialect))]
    return grouped(relation(source), [ref(CELL)], [*sums])


def _totals(form: AnswerLayout, part: Part, dialect: Dialect) -> list[exp.Expression]:
    names = value_names(part)
    sums = [dialect.total(ref(name)) for name in names]
    match part.sums:
        case Sums.COUNT if is_weighed(form, part):
            return [dialect.total(ref(WEIGHT))]
        case Sums.COUNT | Sums.CODES:
            return [counted()]
        case Sums.LEVELS:
            return sums
        case Sums.COUNTED_LEVELS:
            return [counted(), *sums]
        case Sums.PRODUCTS:
            pairs = itertools.combinations_with_replacement(names, 2)
            return [counted(), *sums, *(dialect.total(times(ref(left), ref(right))) for left, right in pairs)]
        case _:
            assert_never(part.sums)


def read_tally(part: Part, lines: Iterable[Sequence[object]]) -> Tally:
    """The tally from the statement's lines: (cell, code, number) or (cell, sums); groups without a line are empty."""
    tally: Tally = np.zeros((part.groups, tally_width(part)), dtype=np.int64)
    every = iter(lines)
    # Some at a time: a number of Python's own takes five times the memory of an array's.
    while some := [[int(str(number)) for number in line] for line in itertools.islice(every, _AT_ONCE)]:
        if is_coded(part):
            cells, codes, numbers = np.array(some, dtype=np.int64).T
            tally[cells, codes] = numbers
            continue
        if any(not -_LARGEST <= number < _LARGEST for line in some for number in line):
            tally = tally.astype(np.object_)
        tally[[line[0] for line in some]] = np.array([line[1:] for line in some], dtype=tally.dtype)
    return tally


def tally_from(part: Part, cells: Tally, codes: Tally, numbers: Tally) -> Tally:
    """The tally of records with codes from its lines."""
    tally = np.zeros((part.groups, tally_width(part)), dtype=np.int64)
    tally[cells.astype(np.intp), codes.astype(np.intp)] = numbers
    return tally
