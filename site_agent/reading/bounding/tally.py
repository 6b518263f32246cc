"""From what a source adds up to the coordinates of a part: one linear map in whole numbers for every source.

A source hands in, for each group, sums over the records that count: how many there are, their levels, and
the products of their levels; or, where records have codes, how many have each code. What is released follows
from these without another look at a row, so a statement stays small and every source gives the same integers.
"""

from __future__ import annotations

from typing import assert_never

import numpy as np

from wardround.federation.errors import InvariantBroken
from wardround.federation.forms.parts import AnswerLayout, Part, Records, Sums, Tally
from wardround.federation.statistics import own_definition
from wardround.federation.study.study import Unit
from wardround.privacy.mechanisms.additive import LARGEST_TOTAL
from wardround.privacy.noise.vectors import Bounded

_SAFE, _SAFE_COUNT = 2**20, 2**54
"""Sums below this can be multiplied by any weight of a part without leaving 64 bits, and counts by an increment."""

_WHOLE = 2**63
_AT_ONCE = 2**16
"""So many coordinates at a time: Python's own whole numbers take five times the memory of an array's."""


def tally_width(part: Part) -> int:
    """How many sums a source hands in for each group; see `Sums`."""
    columns = len(part.columns)
    match part.sums:
        case Sums.COUNT:
            return 1
        case Sums.LEVELS:
            return columns
        case Sums.COUNTED_LEVELS:
            return 1 + columns
        case Sums.PRODUCTS:
            return 1 + columns + columns * (columns + 1) // 2
        case Sums.CODES:
            return part.codes.codes * (2 if part.records is Records.LAST else 1)
        case _:
            assert_never(part.sums)


def added(left: Tally, right: Tally) -> Tally:
    """The exact sum of two tallies: of one array for as long as 64 bits are enough; `left` is used up."""
    if np.object_ in (left.dtype, right.dtype) or _largest(left) + _largest(right) >= _WHOLE:
        return np.add(left.astype(np.object_), right.astype(np.object_))
    return np.add(left, right, out=left)


def _largest(tally: Tally) -> int:
    """The greatest magnitude in it; the lowest of all 64-bit numbers has no positive counterpart among them."""
    return max(int(tally.max()), -int(tally.min())) if tally.size else 0


def finish(part: Part, tally: Tally) -> Bounded:
    """The bounded total that these sums amount to; what 2^61 cannot hold saturates, which moves nothing apart."""
    if tally.shape != (part.groups, tally_width(part)):
        raise InvariantBroken(private="a source did not hand in the sums its part asks for")
    total = np.empty((part.groups, part.coordinates), dtype=np.int64)
    at_once = max(_AT_ONCE // max(part.coordinates, tally.shape[1]), 1)
    for start in range(0, part.groups, at_once):
        some = slice(start, start + at_once)
        coordinates = own_definition(part).coordinates(part, _exact(part, tally[some]))
        total[some] = np.clip(coordinates, -LARGEST_TOTAL, LARGEST_TOTAL).astype(np.int64)
    return Bounded(total.reshape(-1), part.l1_sensitivity, part.l2_sensitivity_squared, part.grid)


def _exact(part: Part, tally: Tally) -> Tally:
    """The sums as numbers that no weight of the part takes out of their type."""
    safe = _SAFE if part.quantisers and part.coding is None else _SAFE_COUNT
    small = tally.dtype != np.object_ and _largest(tally) < safe
    return tally if small else tally.astype(np.object_)


def is_collapsed(form: AnswerLayout, part: Part) -> bool:
    """Whether a unit has one record for each cell, whatever the number of its rows there.

    Where every event is a unit every row is a record; only units by themselves are still counted once.
    """
    if form.unit is Unit.EVENT:
        return part.records is Records.UNITS
    return part.records is not Records.ROWS


def record_cap(form: AnswerLayout, part: Part) -> int | None:
    """How many records of a unit count, or None where no unit can have too many."""
    if form.unit is not Unit.PATIENT:
        return None
    if is_weighed(form, part):
        # With one cell it does not matter which rows count, only how many: see `records`.
        return None
    if part.records is Records.ROWS:
        return form.table.max_rows_per_unit
    return part.max_groups if part.max_groups < part.groups else None


def is_weighed(form: AnswerLayout, part: Part) -> bool:
    """Whether a record stands for several rows and says for how many, under the name "weight"."""
    counted = part.records is Records.ROWS and part.sums is Sums.COUNT
    return counted and part.groups == 1 and form.unit is Unit.PATIENT
