"""From what a source adds up to the coordinates of a part: one linear map in whole numbers for every source.

A source hands in, for each group, sums over the records that count: how many there are, their levels, and
the products of their levels; or, where records have codes, how many have each code. What is released follows
from these without another look at a row, so a statement stays small and every source gives the same integers.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from wardround.federation.errors import InvariantBroken
from wardround.federation.forms.grids import Tree
from wardround.federation.plan.layout import PRODUCT_WEIGHT, SQUARE_WEIGHT, Part, PartKind
from wardround.privacy.mechanisms.additive import LARGEST_TOTAL
from wardround.privacy.noise.vectors import Bounded

Tally = NDArray[np.int64] | NDArray[np.object_]
"""One line for each group, `tally_width(part)` sums in each; Python's whole numbers where 64 bits are too few."""

_SAFE, _SAFE_COUNT = 2**20, 2**54
"""Sums below this can be multiplied by any weight of a part without leaving 64 bits, and counts by an increment."""

_WHOLE = 2**63
_AT_ONCE = 2**16
"""So many coordinates at a time: Python's own whole numbers take five times the memory of an array's."""


def tally_width(part: Part) -> int:
    """How many sums a source hands in for each group.

    EVENTS, PATIENTS: the number of records. SUM: Σq. MEAN: n, Σq. MOMENTS: n, Σq, Σq². PRODUCTS: n, then Σqᵢ,
    then Σqᵢqⱼ for i ≤ j, in the order of the part's columns. CODES, TREE: how many have each code. LAST: how
    many have each 2·code + event.
    """
    match part.kind:
        case PartKind.EVENTS | PartKind.PATIENTS | PartKind.SUM:
            return 1
        case PartKind.MEAN:
            return 2
        case PartKind.MOMENTS:
            return 3
        case PartKind.PRODUCTS:
            columns = len(part.columns)
            return 1 + columns + columns * (columns + 1) // 2
        case PartKind.CODES | PartKind.TREE:
            return _codes(part)
        case PartKind.LAST:
            return 2 * _codes(part)


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
        coordinates = _coordinates(part, _exact(part, tally[some]))
        total[some] = np.clip(coordinates, -LARGEST_TOTAL, LARGEST_TOTAL).astype(np.int64)
    return Bounded(total.reshape(-1), part.l1_sensitivity, part.l2_sensitivity_squared, part.grid)


def _exact(part: Part, tally: Tally) -> Tally:
    """The sums as numbers that no weight of the part takes out of their type."""
    safe = _SAFE if part.quantisers and part.coding is None else _SAFE_COUNT
    small = tally.dtype != np.object_ and _largest(tally) < safe
    return tally if small else tally.astype(np.object_)


def _coordinates(part: Part, tally: Tally) -> Tally:
    match part.kind:
        case PartKind.SUM:
            return tally
        case PartKind.MEAN:
            number, levels = tally[:, 0], tally[:, 1]
            return np.stack((levels, part.quantisers[0].high * number - levels), axis=1)
        case PartKind.MOMENTS:
            half = part.quantisers[0].high // 2
            number, levels, squares = tally[:, 0], tally[:, 1], tally[:, 2]
            centred = squares - 2 * half * levels + half**2 * number
            first = half * (levels - half * number)
            return np.stack((half**2 * number, first, centred - half**2 // 2 * number), axis=1)
        case PartKind.PRODUCTS:
            return _products(part, tally)
        case PartKind.TREE if part.tree is not None:
            return part.increment * _levels(part.tree, tally)
        case _:
            return part.increment * tally


def _products(part: Part, tally: Tally) -> Tally:
    """Σzᵢzⱼ from Σqᵢqⱼ with z = q − h; z₀ is the same for every record."""
    columns = len(part.columns)
    halves = [quantiser.high // 2 for quantiser in part.quantisers]
    number, sums = tally[:, 0], [tally[:, 1 + place] for place in range(columns)]
    pairs = list(itertools.combinations_with_replacement(range(columns), 2))
    first = part.increment
    found = [SQUARE_WEIGHT * first**2 * number]
    found += [PRODUCT_WEIGHT * first * (sums[i] - halves[i] * number) for i in range(columns)]
    for place, (i, j) in enumerate(pairs):
        raw = tally[:, 1 + columns + place]
        centred = raw - halves[j] * sums[i] - halves[i] * sums[j] + halves[i] * halves[j] * number
        found.append((SQUARE_WEIGHT if i == j else PRODUCT_WEIGHT) * centred)
    return np.stack(found, axis=1)


def _levels(tree: Tree, tally: Tally) -> Tally:
    """The counts of every level, the coarsest first; leaves beyond the last code are empty."""
    leaves = np.zeros((tally.shape[0], tree.leaves), dtype=tally.dtype)
    leaves[:, : tally.shape[1]] = tally
    return np.concatenate([leaves.reshape(len(leaves), size, -1).sum(axis=2) for size in tree.sizes], axis=1)


def _codes(part: Part) -> int:
    if part.coding is None:
        raise InvariantBroken(private="a part of codes has none")
    return part.coding.codes
