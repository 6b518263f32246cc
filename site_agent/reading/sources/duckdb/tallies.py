"""The tally of each part read from DuckDB: all units at once, or as many as fit (`unit_shares`).

Memory is bounded whatever a unit holds. A unit is read by one statement; the records of a giant are only counted, by
several (`site_agent.reading.bounding.giants`), and its different texts in an open category a range of them at a time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import duckdb
import numpy as np
from sqlglot import exp

from site_agent.reading.bounding.contribution_bounding import (
    MOST_RECORDS,
    Coded,
    coded_tally,
    counted_tally,
    keys_as_seeds,
    packed_tally,
    places_of,
    record_number,
)
from site_agent.reading.bounding.giants import Beginnings, Numbers, Range, texts_at
from site_agent.reading.bounding.tally import added, finish, is_collapsed, record_cap
from site_agent.reading.bounding.unit_shares import GIANT, Crammed, Key, UnitShare, pieces
from site_agent.reading.sources.duckdb.dialect import DuckdbDialect
from site_agent.reading.sources.duckdb.records import (
    COPIES,
    FIRST,
    MINE,
    NUMBER,
    SEED,
    Keys,
    among,
    coded_records,
    counted_records,
    giant_units,
    numbered_records,
    one_unit,
    parameters,
    unit_records,
    wide_names,
)
from site_agent.reading.statements.dialect import Dialect
from site_agent.reading.statements.records import UNIT, TypedRows
from site_agent.reading.statements.sql_trees import call, cast, integer, minus, named, paren, ref, text
from site_agent.reading.statements.tally_sql import (
    KEY,
    both_keys,
    is_coded,
    key_rows,
    keys_statement,
    read_keys,
    read_tally,
    tally_from,
    tally_statement,
)
from wardround.federation.forms.parts import AnswerLayout, Part, Tally
from wardround.federation.study.study import Unit
from wardround.privacy.noise.vectors import Bounded, IntVector

_WORD = 64
_AT_ONCE = 2**14

Found = Mapping[str, np.ndarray]
_LOW, _HIGH, _PLACE = "low", "high", "place"
_SAMPLE = 1024


@dataclass(frozen=True, slots=True)
class DuckdbTallies:
    """Typed rows behind a connection; `keys` is None where unit keys are no whole numbers of 64 bits."""

    connection: duckdb.DuckDBPyConnection
    rows: TypedRows
    keys: Keys | None
    key: bytes
    most_records: int

    def bounded(self, form: AnswerLayout) -> tuple[Bounded, ...]:
        """The bounded totals of every part."""
        return tuple(finish(part, self._tally(form, part)) for part in form.parts)

    def open_keys(self, form: AnswerLayout) -> dict[str, int]:
        """How many units hold each text of the question's open column."""
        return functools.reduce(both_keys, pieces(_Texts(self, form)))

    def _tally(self, form: AnswerLayout, part: Part) -> Tally:
        cap = record_cap(form, part)
        reading = _Sums(self, form, part) if cap is None else _Choice(self, form, part, cap)
        return functools.reduce(added, pieces(reading))

    @property
    def dialect(self) -> DuckdbDialect:
        """What DuckDB calls things, with the site's key."""
        return DuckdbDialect(self.key)

    def arrays(self, statement: exp.Query, given: Mapping[str, object]) -> Found:
        """The columns that a statement finds; `Crammed` where DuckDB has too little memory for it."""
        try:
            return self._executed(statement, given).fetchnumpy()
        except duckdb.OutOfMemoryException:
            pass
        raise Crammed

    def lines(self, statement: exp.Query, given: Mapping[str, object]) -> Iterator[tuple[object, ...]]:
        """The lines that a statement finds, some at a time; `Crammed` as above."""
        try:
            found = self._executed(statement, given)
            while some := found.fetchmany(_AT_ONCE):
                yield from some
            return
        except duckdb.OutOfMemoryException:
            pass
        raise Crammed

    def _executed(self, statement: exp.Query, given: Mapping[str, object]) -> duckdb.DuckDBPyConnection:
        # Without the copy that the generator makes by default: no statement is used twice.
        return self.connection.execute(statement.sql(dialect="duckdb", copy=False), dict(given) or None)

    def giants(self, records: exp.Query, share: UnitShare) -> dict[Key, int]:
        """The units that have too many of some records of a share, each with its seed."""
        statement = giant_units(
            records, most=min(self.most_records, MOST_RECORDS) // GIANT, whole_keys=self.keys is not None
        )
        return {unit: int(str(seed)) for unit, seed in self.lines(statement, parameters(share))}  # type: ignore[misc]


@dataclass(frozen=True, slots=True)
class _Sums:
    """Where no unit has too many records: DuckDB adds them up. See `Reading`."""

    source: DuckdbTallies
    form: AnswerLayout
    part: Part

    def at_once(self, share: UnitShare) -> Tally:
        rows = among(share, self.source.rows)
        statement = tally_statement(self.form, self.part, rows, self.source.dialect)
        if is_coded(self.part):
            cells, codes, numbers = self.source.arrays(statement, parameters(share)).values()
            return tally_from(self.part, cells, codes, numbers)
        return read_tally(self.part, self.source.lines(statement, parameters(share)))

    def giants(self, share: UnitShare) -> Mapping[Key, Callable[[], Tally]]:
        """None: DuckDB holds one line for each unit and cell, however many rows a unit has."""
        del share
        return {}


@dataclass(frozen=True, slots=True)
class _Choice:
    """Where of each unit at most `cap` records count. See `Reading`."""

    source: DuckdbTallies
    form: AnswerLayout
    part: Part
    cap: int

    def at_once(self, share: UnitShare) -> Tally:
        source, part, record = self.source, self.part, record_number(self.part)
        rows, keys, given = among(share, source.rows), source.keys, parameters(share)
        if keys is not None and not record.wide and keys.bits + record.bits <= _WORD:
            found = self._records(numbered_records(self.form, part, rows, source.dialect, keys), given)
            return packed_tally(found[NUMBER], part, cap=self.cap, key=source.key, seeds=keys_as_seeds(keys.low))
        whole = keys is not None
        statement = coded_records(self.form, part, rows, source.dialect, cap=self.cap, whole_keys=whole)
        found = self._records(statement, given)
        wide = tuple(found[name] for name in wide_names(part))
        coded = Coded(found[UNIT], found[SEED], found[NUMBER], found[COPIES], wide)
        return coded_tally(coded, part, cap=self.cap, key=source.key)

    def giants(self, share: UnitShare) -> Mapping[Key, Callable[[], Tally]]:
        """Units with too many rows; records that are one for each cell are never more than the question's cells."""
        if is_collapsed(self.form, self.part):
            return {}
        records = unit_records(self.form, self.part, among(share, self.source.rows), self.source.dialect)
        found = self.source.giants(records, share)
        return {unit: functools.partial(self._alone, unit, seed) for unit, seed in found.items()}

    def _alone(self, unit: Key, seed: int) -> Tally:
        def counts(within: Beginnings, moved: int) -> tuple[Numbers, IntVector]:
            source = self.source
            statement = counted_records(self.form, self.part, source.rows, source.dialect, of=within.moved, by=moved)
            found = source.arrays(statement, {MINE: unit, FIRST: within.first.tolist()})
            order = np.argsort(found[NUMBER])
            return found[NUMBER][order], found[COPIES][order]

        return counted_tally(counts, self.part, cap=self.cap, seed=seed, key=self.source.key)

    def _records(self, statement: exp.Select, given: Mapping[str, object]) -> Found:
        found = self.source.arrays(statement.limit(self.source.most_records + 1, copy=False), given)
        records = int(found[COPIES].sum()) if COPIES in found else found[NUMBER].size
        if found[NUMBER].size > self.source.most_records or records > MOST_RECORDS:
            raise Crammed
        return found


@dataclass(frozen=True, slots=True)
class _Texts:
    """The keys of an open column, of each patient at most so many. See `Reading`."""

    source: DuckdbTallies
    form: AnswerLayout

    def at_once(self, share: UnitShare) -> dict[str, int]:
        statement = keys_statement(self.form, among(share, self.source.rows), self.source.dialect)
        return read_keys(self.source.lines(statement, parameters(share)))

    def giants(self, share: UnitShare) -> Mapping[Key, Callable[[], dict[str, int]]]:
        if self.form.unit is not Unit.PATIENT:
            return {}
        rows = key_rows(self.form, among(share, self.source.rows), self.source.dialect)
        return {unit: functools.partial(self._alone, unit) for unit in self.source.giants(rows, share)}

    def _alone(self, unit: Key) -> dict[str, int]:
        source, most = self.source, self.form.parts[0].max_groups
        texts = DuckDBTexts(source.connection, key_rows(self.form, one_unit(source.rows), source.dialect), unit)
        chosen = texts_at(texts, lambda number: places_of(number, texts.beginning(number, source.dialect), most))
        return read_keys((text.decode(), 1) for text in chosen)


def key_range(connection: duckdb.DuckDBPyConnection, rows: exp.Query) -> Keys:
    """The lowest and highest unit key of typed rows whose keys are whole numbers."""
    ends = exp.select(exp.Min(this=ref(UNIT)), exp.Max(this=ref(UNIT))).from_(rows.subquery("typed"))
    low, high = connection.execute(ends.sql(dialect="duckdb")).fetchall()[0]
    return Keys(int(low or 0), int(high or 0))


@dataclass(frozen=True, slots=True)
class DuckDBTexts:
    """See `giants.Texts`; `rows` are the (unit, key) of the unit `$mine`, which is `unit`."""

    connection: duckdb.DuckDBPyConnection
    rows: exp.Select
    unit: Key = field(repr=False)

    def number(self, within: Range) -> int:
        """How many different texts the range holds."""
        different = exp.Count(this=exp.Distinct(expressions=[ref(KEY)]))
        return int(str(self._lines(exp.select(different).from_(self._inside(within)), within)[0][0]))

    def at(self, within: Range, places: Sequence[int]) -> list[bytes]:
        """The texts at some places of the range."""
        once = exp.select(ref(KEY)).distinct().from_(self._inside(within)).subquery("once")
        order = exp.Window(this=exp.RowNumber(), order=exp.Order(expressions=[exp.Ordered(this=ref(KEY))]))
        placed = exp.select(ref(KEY), named(minus(order, integer(1)), _PLACE)).from_(once).subquery("placed")
        wanted = exp.In(this=ref(_PLACE), query=exp.select(call("UNNEST", exp.Placeholder(this=FIRST))).subquery())
        statement = exp.select(ref(KEY)).from_(placed).where(wanted, copy=False)
        return self._texts(statement, within, {FIRST: list(places)})

    def some(self, within: Range) -> list[bytes]:
        """One of each share of the texts, by a hash of them."""
        hashed = call("HASH", ref(KEY))
        share = exp.Mod(this=hashed, expression=cast(text(str(_SAMPLE)), "UBIGINT"))
        one = call("ARG_MIN", ref(KEY), hashed.copy())
        return self._texts(exp.select(one).from_(self._inside(within)).group_by(paren(share)), within, {})

    def beginning(self, number: int, dialect: Dialect) -> int:
        """Where the choice among so many texts of the unit begins."""
        unit = exp.select(named(exp.Placeholder(this=MINE), UNIT)).subquery("unit")
        statement = exp.select(dialect.beginning(ref(UNIT), integer(number))).from_(unit)
        return int(self.connection.execute(statement.sql(dialect="duckdb"), {MINE: self.unit}).fetchall()[0][0])

    def _inside(self, within: Range) -> exp.Subquery:
        found = exp.select(ref(KEY)).from_(self.rows.subquery("mine"))
        if within.low is not None:
            found = found.where(exp.GTE(this=ref(KEY), expression=exp.Placeholder(this=_LOW)))
        if within.high is not None:
            found = found.where(exp.LT(this=ref(KEY), expression=exp.Placeholder(this=_HIGH)))
        return found.subquery("inside")

    def _texts(self, statement: exp.Select, within: Range, further: dict[str, object]) -> list[bytes]:
        return [str(line[0]).encode() for line in self._lines(statement, within, further)]

    def _lines(
        self, statement: exp.Select, within: Range, further: dict[str, object] | None = None
    ) -> list[tuple[object, ...]]:
        ends = {_LOW: within.low, _HIGH: within.high}
        given = {name: end.decode() for name, end in ends.items() if end is not None}
        try:
            found = self.connection.execute(
                statement.sql(dialect="duckdb"), {MINE: self.unit, **given, **(further or {})}
            )
            return found.fetchall()
        except duckdb.OutOfMemoryException:
            pass
        raise Crammed
