"""A table in a PostgreSQL 18 database, answered inside it: only integer totals come back.

What the driver says stays here: its errors quote rows, so after the charge every failure becomes the one fixed
sentence of `SourceFailed`, raised where no driver error is in flight to be chained to it. The password is never
ours: libpq finds it where the hospital keeps it.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import psycopg
from sqlglot import exp

from site_agent.reading.batches import Batch, Fingerprint, batch_of_rows, digest_text, rows_at_once
from site_agent.reading.columnstore.read_examples import read_examples
from site_agent.reading.dataset import Declared, TableSource, missing_column, nested_key, other_type
from site_agent.reading.examples import Examples
from site_agent.reading.memory_limits import Limits
from site_agent.reading.sources.postgresql.columns import (
    THIS,
    DatabaseType,
    accepts,
    accepts_key,
    held,
    is_costly,
    typed_column,
    typed_key,
)
from site_agent.reading.sources.postgresql.connection import Connection, check_address, fault_of, reading
from site_agent.reading.sources.postgresql.dialect import Places, PostgresqlDialect, is_storable, literal, places_needed
from site_agent.reading.sources.postgresql.schema import CatalogueColumns, check_rank, described, role_can_write
from site_agent.reading.sources.postgresql.tallies import RANK, PostgresqlTallies
from site_agent.reading.statements.records import UNIT, TypedRows, column_name, columns_needed
from site_agent.reading.statements.sql_trees import cast, identifier, integer, minus, named, paren, present, ref, text
from wardround.federation.errors import SchemaRefused, SourceAway
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.models.step_layout import StepLayout
from wardround.federation.study.study import Column, ColumnType, Table
from wardround.privacy.noise.vectors import Bounded

_FAILURES = (psycopg.Error, OSError, MemoryError, RuntimeError, ValueError, ArithmeticError)
_FIRST_DAY = "1970-01-01"
_FEW_WORDS = 1000

Answer = TypeVar("Answer")


def open_postgresql(table: str, source: TableSource, *, key: bytes, limits: Limits | None = None) -> PostgresqlTable:
    """The study's `table` in the database at an address without a password."""
    check_address(table, source.source)
    relation, found = source.relation or table, limits or Limits()
    return PostgresqlTable(source.source, relation, source.rank, source.timeout_seconds, key, found, source.declared)


def can_write(table: Table, source: TableSource) -> bool:
    """Whether the role that a source names could do more than read; False where it cannot be asked."""
    with (
        contextlib.suppress(psycopg.Error, SourceAway),
        reading(source.source, timeout_seconds=source.timeout_seconds) as connection,
    ):
        return role_can_write(connection, table, source.relation or table.name, source.declared)
    return False


@dataclass(frozen=True, slots=True)
class PostgresqlTable:
    """A dataset of one table."""

    address: str = field(repr=False)
    relation: str
    rank: str | None
    timeout_seconds: float
    key: bytes = field(repr=False)
    limits: Limits = field(default_factory=Limits)
    declared: Declared = field(default_factory=Declared)

    def reading(self) -> contextlib.AbstractContextManager[Connection]:
        """A connection for one question."""
        return reading(self.address, timeout_seconds=self.timeout_seconds)

    def check(self, form: AnswerLayout) -> None:
        self._checked(form.table, columns_needed(form))

    def bounded(self, form: AnswerLayout) -> tuple[Bounded, ...]:
        return self._answered(form, lambda tallies: tallies.bounded(form))

    def keys(self, form: AnswerLayout) -> dict[str, int]:
        return self._answered(form, lambda tallies: tallies.open_keys(form))

    def examples(self, form: StepLayout) -> Examples:
        return read_examples(form, self, key=self.key, limits=self.limits)

    def fingerprint(self, table: Table) -> Fingerprint:
        """Where the rows are; PostgreSQL does not say whether they changed."""
        words = ["postgresql", self.address, self.relation, table.name]
        return Fingerprint(digest_text(words), sees_changes=False)

    def batches(self, table: Table) -> Iterator[Batch]:
        """Every row once, from one state, through a cursor of the database; see `Preparable.batches`."""
        self._checked(table, table.columns)
        try:
            with self.reading() as connection:
                layout = self._layout(connection, table, table.columns)
                statement = _handed_out(table, layout)
                with connection.cursor("wardround") as cursor:
                    cursor.execute(statement.sql(dialect="postgres").encode())
                    while rows := cursor.fetchmany(rows_at_once(table)):
                        yield batch_of_rows(table, rows)
                return
        except (*_FAILURES, SchemaRefused, SourceAway) as error:
            fault = fault_of(error)
        raise fault

    def _answered(self, form: AnswerLayout, answer: Callable[[PostgresqlTallies], Answer]) -> Answer:
        try:
            with self.reading() as connection:
                return answer(self.tallies(connection, form))
        except (*_FAILURES, SchemaRefused, SourceAway) as error:
            # Raised below, outside: an error raised here would carry the driver's text as its context.
            fault = fault_of(error)
        raise fault

    def tallies(self, connection: Connection, form: AnswerLayout) -> PostgresqlTallies:
        """The typed rows of a question, ready to be added up."""
        columns = columns_needed(form)
        layout = self._layout(connection, form.table, columns)
        places = places_needed(form)
        whole = layout.stored(form.table.unit_key) is DatabaseType.WHOLE
        rows = _typed_rows(form.table, columns, layout, places, rank=self.rank)
        dialect = PostgresqlDialect(_seed(self.key), whole_keys=whole, places=places)
        return PostgresqlTallies(connection, rows, dialect, ranked=self.rank is not None)

    # --- Schemas ------------------------------------------------------------------------------------------

    def _checked(self, table: Table, columns: Sequence[Column]) -> None:
        try:
            with self.reading() as connection:
                self._layout(connection, table, columns)
                return
        except SourceAway:
            away = True
        except _FAILURES as error:
            away = isinstance(fault_of(error), SourceAway)
        if away:
            raise SourceAway(f"The database of the table {table.name!r} cannot be reached now.", unread=True)
        raise SchemaRefused(f"The database of the table {table.name!r} does not let the site's role read it.")

    def _layout(self, connection: Connection, table: Table, columns: Sequence[Column]) -> CatalogueColumns:
        layout = described(connection, table, self.relation, self.declared)
        for name in (table.unit_key, *(column.name for column in columns)):
            if name not in layout.columns:
                raise missing_column(table.name, name)
        if not accepts_key(layout.stored(table.unit_key)):
            raise nested_key(table.name, table.unit_key)
        for column in columns:
            if not accepts(column.type, layout.stored(column.name)):
                raise other_type(table.name, column)
        if self.rank is not None:
            check_rank(connection, layout, table, self.rank)
        return layout


def _seed(key: bytes) -> int:
    """What of the site's key the database may see in its own logs: one number that leads nowhere else."""
    return int.from_bytes(hashlib.sha256(b"postgresql" + key).digest()[:8], "big", signed=True)


def _typed_rows(
    table: Table, columns: Sequence[Column], layout: CatalogueColumns, places: Places, *, rank: str | None
) -> TypedRows:
    wanted = [named(typed_key(table.unit_key, layout.stored(table.unit_key)), UNIT)]
    typed = {column_name(column.name): typed_column(column, layout.stored(column.name)) for column in columns}
    wanted += [named(value.copy(), name) for name, value in typed.items()]
    wanted += [named(exp.column("place", table=name, quoted=True), name) for name in places.values()]
    if rank is not None:
        wanted.append(named(held(rank), RANK))
    query = exp.select(*wanted).from_(layout.query.subquery(THIS))
    for (column, words), name in places.items():
        found = typed[column]
        # No word is empty, so that the text need not be made NULL where it is: a quarter of the join's time.
        bare = found.this if isinstance(found, exp.Nullif) else found
        same = exp.EQ(this=exp.column("word", table=name, quoted=True), expression=paren(bare.copy()))
        query = query.join(_words(words, name), on=same, join_type="LEFT", copy=False)
    if any(is_costly(column.type, layout.stored(column.name)) for column in columns):
        # A fence: without it PostgreSQL would read a text again wherever its number is used.
        query = query.offset(0, copy=False)
    return TypedRows(query)


def _words(words: Sequence[str], name: str) -> exp.Subquery:
    """The words beside their places; what PostgreSQL cannot hold is no row's text, so it is left out."""
    known = [word if word and is_storable(word) else None for word in words]
    source: exp.Expression
    if len(words) > _FEW_WORDS:
        # One literal: as lines of a statement a hundred thousand words take a minute and a gibibyte to write down.
        listed = "{" + ",".join("NULL" if word is None else _element(word) for word in known) + "}"
        columns = [identifier("word"), identifier("number")]
        alias = exp.TableAlias(this=identifier("listed"), columns=columns)
        source = exp.Unnest(expressions=[cast(text(listed), "TEXT[]")], offset=True, alias=alias)
        place: exp.Expression = named(minus(ref("number"), integer(1)), "place")
    else:
        # Lines, of which PostgreSQL knows how many there are: it then joins in half the time.
        lines = [
            exp.Tuple(expressions=[literal(word), integer(place)])
            for place, word in enumerate(known)
            if word is not None
        ] or [exp.Tuple(expressions=[cast(exp.null(), "TEXT"), integer(0)])]
        columns = [identifier("word"), identifier("place")]
        source = exp.Values(expressions=lines, alias=exp.TableAlias(this=identifier("listed"), columns=columns))
        place = ref("place")
    return exp.select(ref("word"), place).from_(source).subquery(identifier(name))


def _element(word: str) -> str:
    """A text as one element of an array that is written as a text."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _handed_out(table: Table, layout: CatalogueColumns) -> exp.Select:
    rows = _typed_rows(table, table.columns, layout, {}, rank=None)
    wanted: list[exp.Expression] = [ref(UNIT)]
    for column in table.columns:
        value: exp.Expression = ref(column_name(column.name))
        if column.type is ColumnType.DATE:
            # Python's own dates end with the year 9999.
            value = exp.Sub(this=value, expression=cast(text(_FIRST_DAY), "DATE"))
        wanted.append(value)
    return exp.select(*wanted).from_(rows.query.subquery("typed")).where(present(ref(UNIT)))
