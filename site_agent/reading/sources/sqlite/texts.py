"""The keys of an open category from rows that SQLite hands out: of each unit at most so many different texts.

A unit's texts are put in the order of their bytes, and those that count are chosen as records are
(`site_agent.reading.bounding`). Those of a giant are looked at a range at a time.
"""

from __future__ import annotations

import functools
import itertools
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from sqlglot import exp

from site_agent.reading.bounding.contribution_bounding import chosen_places, places_of
from site_agent.reading.bounding.giants import Numbers, Range, texts_at
from site_agent.reading.bounding.unit_shares import GIANT, Crammed, Key, UnitShare, pieces
from site_agent.reading.sources.sqlite.connection import seed_of
from site_agent.reading.sources.sqlite.tallies import SqliteTallies, UnitNumbers, same_unit
from site_agent.reading.statements.records import TypedRows
from site_agent.reading.statements.sql_trees import cast, ref
from site_agent.reading.statements.tally_sql import KEY, both_keys, key_rows, read_keys
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.study.study import Unit
from wardround.privacy.noise.vectors import IntVector

_TEXT_BYTES = 256
"""A text's number and its place in a dictionary, beside its own bytes."""

_ONCE_BYTES = 112
"""The same of a text that is only held, with room for the set to grow and for a list in order."""

_PAIR_BYTES = 40
_TEXT_BITS = 32
_SAMPLE = 1024
_PENDING = 2**20
_MINE = "mine"


def most_texts(room_bytes: int) -> int:
    """How many texts that are all different fit beside what else is held."""
    return room_bytes // 2 // _TEXT_BYTES


def open_keys(source: SqliteTallies, form: AnswerLayout) -> dict[str, int]:
    """How many units hold each text of the question's open column."""
    return functools.reduce(both_keys, pieces(_Texts(source, form)))


class _Different:
    """Different texts numbered 0, 1, … as they come."""

    def __init__(self, room_bytes: int) -> None:
        self._room_bytes = room_bytes
        self._numbers: dict[bytes, int] = {}

    def of(self, texts: Sequence[object]) -> IntVector:
        """The numbers of some rows' texts; `Crammed` where there are too many different ones."""
        numbers, before = self._numbers, len(self._numbers)
        found = (numbers.setdefault(text, len(numbers)) for text in texts)  # type: ignore[arg-type]
        every = np.fromiter(found, dtype=np.int64, count=len(texts))
        self._room_bytes -= sum(_TEXT_BYTES + len(text) for text in itertools.islice(numbers, before, None))
        if self._room_bytes < 0:
            raise Crammed
        return every

    def texts(self) -> list[bytes]:
        """All of them, in the order of the numbers."""
        return list(self._numbers)


class _Pairs:
    """Which unit holds which text, each once."""

    def __init__(self, room_bytes: int) -> None:
        self._most = room_bytes // _PAIR_BYTES
        self._held: list[IntVector] = [np.zeros(0, dtype=np.int64)]
        self._waiting = 0

    def add(self, units: IntVector, texts: IntVector) -> None:
        """Some more rows; `Crammed` where there are too many different pairs."""
        self._held.append(units << _TEXT_BITS | texts)
        self._waiting += units.size
        if self._waiting > max(_PENDING, self._held[0].size) and self.once().size > self._most:
            raise Crammed

    def once(self) -> IntVector:
        """Every pair: the unit's number, then the text's."""
        self._held, self._waiting = [np.unique(np.concatenate(self._held))], 0
        return self._held[0]


@dataclass(frozen=True, slots=True)
class _Texts:
    """See `Reading`."""

    source: SqliteTallies
    form: AnswerLayout

    def at_once(self, share: UnitShare) -> dict[str, int]:
        source, by_patient = self.source, self.form.unit is Unit.PATIENT
        units, texts = UnitNumbers(source.room_bytes // 8), _Different(source.room_bytes // 2)
        pairs, numbers = _Pairs(source.room_bytes // 4), np.zeros(0, dtype=np.int64)
        rows, given = source.among(share)
        for lines in source.some(key_rows(self.form, rows, source.dialect), given):
            keys, found = zip(*lines, strict=True)
            if by_patient:
                pairs.add(units.of(keys), texts.of(found))
            else:
                numbers = _longer(numbers, np.bincount(texts.of(found)))
        if by_patient:
            numbers = self._chosen(pairs.once(), units.units(), texts.texts())
        counted = zip(texts.texts(), numbers.tolist(), strict=True)
        return _shown((text, number) for text, number in counted if number)

    def giants(self, share: UnitShare) -> Mapping[Key, Callable[[], dict[str, int]]]:
        if self.form.unit is not Unit.PATIENT:
            return {}
        rows, given = self.source.among(share)
        units, sizes = UnitNumbers(self.source.room_bytes // 4), np.zeros(0, dtype=np.int64)
        for lines in self.source.some(key_rows(self.form, rows, self.source.dialect), given):
            sizes = _longer(sizes, np.bincount(units.of([line[0] for line in lines])))
        many = np.flatnonzero(sizes > most_texts(self.source.room_bytes) // GIANT).tolist()
        keys = units.units()
        return {keys[number]: functools.partial(self._alone, keys[number]) for number in many}

    def _alone(self, unit: Key) -> dict[str, int]:
        mine = exp.select("*").from_(self.source.rows.query.subquery("every")).where(same_unit(unit, _MINE))
        texts = SqliteTexts(self.source, key_rows(self.form, TypedRows(mine), self.source.dialect), unit)
        seed, most = self._seed(unit), self.form.parts[0].max_groups
        return _shown((text, 1) for text in texts_at(texts, lambda number: places_of(number, seed % number, most)))

    def _chosen(self, pairs: IntVector, units: Sequence[Key], texts: Sequence[bytes]) -> IntVector:
        """How many units count under each text."""
        order = np.array(sorted(range(len(texts)), key=texts.__getitem__), dtype=np.int64)
        rank = np.empty_like(order)
        rank[order] = np.arange(order.size)
        unit, text = pairs >> _TEXT_BITS, rank[pairs & (2**_TEXT_BITS - 1)]
        sort = np.argsort(unit << _TEXT_BITS | text)
        unit, text = unit[sort], text[sort]

        def beginning(crowded: Numbers, size: IntVector) -> IntVector:
            seeds = np.array([self._seed(units[number]) for number in crowded.tolist()], dtype=np.uint64)
            return (seeds % size.astype(np.uint64)).astype(np.int64)

        within, places = chosen_places(unit.astype(np.uint64), self.form.parts[0].max_groups, beginning)
        kept = text if within is None or places is None else np.concatenate((text[within], text[places]))
        found = np.zeros(len(texts), dtype=np.int64)
        found[order] = np.bincount(kept, minlength=len(texts))
        return found

    def _seed(self, unit: Key) -> int:
        """Of the key as SQLite writes it."""
        written_key = unit if isinstance(unit, bytes) else str(unit).encode()
        if isinstance(unit, float):
            written_key = self.source.connection.execute("SELECT CAST(? AS BLOB)", (unit,)).fetchone()[0]
        return seed_of(written_key, self.source.key)


@dataclass(frozen=True, slots=True)
class SqliteTexts:
    """See `giants.Texts`; `rows` are the (unit, key) of the unit `:mine`, which is `unit`."""

    source: SqliteTallies
    rows: exp.Select
    unit: Key = field(repr=False)

    def number(self, within: Range) -> int:
        """How many different texts the range holds."""
        return len(self._once(within))

    def at(self, within: Range, places: Sequence[int]) -> list[bytes]:
        """The texts at some places of the range."""
        order = sorted(self._once(within))
        return [order[place] for place in places]

    def some(self, within: Range) -> list[bytes]:
        """One of each share of the texts, by a checksum of them."""
        least: dict[int, tuple[int, bytes]] = {}
        for texts in self._texts(within):
            for text in texts:
                sum_of = zlib.crc32(text)
                if (share := sum_of % _SAMPLE) not in least or sum_of < least[share][0]:
                    least[share] = sum_of, text
        return [text for _, text in least.values()]

    def _once(self, within: Range) -> set[bytes]:
        """All different texts of a range; `Crammed` where they do not fit."""
        found: set[bytes] = set()
        room_bytes = self.source.room_bytes // 2
        for texts in self._texts(within):
            fresh = set(texts) - found
            found |= fresh
            room_bytes -= sum(_ONCE_BYTES + len(text) for text in fresh)
            if room_bytes < 0:
                raise Crammed
        return found

    def _texts(self, within: Range) -> Iterator[list[bytes]]:
        found = exp.select(ref(KEY)).from_(self.rows.subquery("mine"))
        ends = {"low": (exp.GTE, within.low), "high": (exp.LT, within.high)}
        given: dict[str, object] = {_MINE: self.unit}
        for name, (comparison, end) in ends.items():
            if end is not None:
                found = found.where(comparison(this=cast(ref(KEY), "BLOB"), expression=exp.Placeholder(this=name)))
                given[name] = end
        for lines in self.source.some(found, given):
            yield [text for (text,) in lines if isinstance(text, bytes)]


def _longer(left: IntVector, right: IntVector) -> IntVector:
    """The sum of two vectors, the shorter of which ends with zeros."""
    total = np.zeros(max(left.size, right.size), dtype=np.int64)
    total[: left.size] += left
    total[: right.size] += right
    return total


def _shown(counted: Iterable[tuple[bytes, int]]) -> dict[str, int]:
    """Keys as text; bytes that are no UTF-8 become characters that no key may have."""
    return read_keys((key.decode("utf-8", "surrogateescape"), number) for key, number in counted)
