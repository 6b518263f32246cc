"""What PostgreSQL's catalogue says about a relation, without a row of it.

Text that comes from the driver stays here: what is refused is said in our own words, by the number that
PostgreSQL gives an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import psycopg
from psycopg import errors
from sqlglot import exp

from site_agent.reading.dataset import Declared
from site_agent.reading.relations.conversions import Types, require_total_conversions
from site_agent.reading.relations.hospital_select import placed, relation_query
from site_agent.reading.relations.merged_types import IN_POSTGRESQL
from site_agent.reading.sources.postgresql.columns import DatabaseType, StoredType
from site_agent.reading.sources.postgresql.connection import OLDEST, Connection, fault_of, lines
from wardround.federation.errors import ConfigurationMistaken, SchemaRefused, SourceAway
from wardround.federation.study.study import Table

_PUBLIC = "public"
_WHOLE = ("int2", "int4", "int8")
_TYPES = "SELECT oid::bigint, typname::text, typtype::text, typcategory::text FROM pg_type WHERE oid = ANY(%s)"
_UNIQUE = """
SELECT 1 FROM pg_index AS i JOIN pg_class AS t ON t.oid = i.indrelid
WHERE t.oid = to_regclass(%s) AND (t.relkind IN ('p', 'm') OR (t.relkind = 'r' AND NOT t.relhassubclass))
  AND i.indisunique AND i.indisvalid AND i.indimmediate
  AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indnkeyatts = 2
  AND (SELECT array_agg(a.attname::text ORDER BY a.attname::text) FROM pg_attribute AS a
       WHERE a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey[0:1])) = %s
"""
_WRITES = """
SELECT rolsuper OR rolcreaterole OR pg_has_role('pg_write_all_data', 'USAGE')
  OR EXISTS (SELECT 1 FROM pg_class WHERE oid = to_regclass(%s)
             AND has_table_privilege(oid, 'INSERT, UPDATE, DELETE, TRUNCATE'))
FROM pg_roles WHERE rolname = current_user
"""


@dataclass(frozen=True, slots=True)
class CatalogueColumns:
    """A relation that can be read: its query, and what each of its columns holds."""

    query: exp.Query
    columns: Mapping[str, StoredType]

    def stored(self, name: str) -> DatabaseType:
        """What a column holds."""
        return self.columns[name].stored


def described(connection: Connection, table: Table, relation: str, declared: Declared) -> CatalogueColumns:
    """The columns of a relation.

    Raises:
        SchemaRefused: one sentence; never what the driver said.
        psycopg.Error: the connection failed.
    """
    query = qualified(table, relation, declared)
    version, encoding = lines(connection, "SELECT current_setting('server_version_num')::int, getdatabaseencoding()")[0]
    if int(str(version)) < OLDEST:
        raise SchemaRefused(f"The database of the table {table.name!r} is older than PostgreSQL 18.")
    if encoding != "UTF8":
        raise SchemaRefused(f"The database of the table {table.name!r} does not keep its text in UTF-8.")
    fault, found = "", None
    try:
        # LIMIT 0: the names and types of the columns, and no row.
        found = connection.execute(query.copy().limit(0).sql(dialect="postgres").encode())
    except psycopg.Error as error:
        if connection.broken or isinstance(fault_of(error), SourceAway):
            # It says nothing about the table.
            raise
        fault = _fault(error)
    if found is None:
        raise SchemaRefused(f"The table {table.name!r} {fault}.")
    names = [(column.name, column.type_code) for column in found.description or ()]
    types = _types(connection, [oid for _, oid in names])
    check_merged_types(connection, table, query)
    for name, _ in names:
        if [other for other, _ in names].count(name) > 1:
            raise SchemaRefused(f"The table {table.name!r} has the column {name!r} twice at this site.")
    return CatalogueColumns(query, {name: types[oid] for name, oid in names})


def _types(connection: Connection, oids: Sequence[int]) -> dict[int, StoredType]:
    return {
        int(str(oid)): StoredType(str(name), str(kind), str(category))
        for oid, name, kind, category in lines(connection, _TYPES, (list(oids),))
    }


def check_merged_types(connection: Connection, table: Table, query: exp.Query) -> None:
    """Refuse a relation that leaves a conversion to PostgreSQL which some value could fail.

    Raises:
        SchemaRefused: one sentence.
        psycopg.Error: the connection failed.
    """

    def asked(probe: exp.Query) -> Types | None:
        try:
            with connection.transaction():
                found = connection.execute(probe.limit(0).sql(dialect="postgres").encode())
        except psycopg.Error as error:
            if connection.broken or isinstance(fault_of(error), SourceAway):
                raise
            return None
        oids = [column.type_code for column in found.description or ()]
        named = _types(connection, oids)
        return tuple(named[oid].name for oid in oids)

    require_total_conversions(query, asked, IN_POSTGRESQL, table=table.name)


def qualified(table: Table, relation: str, declared: Declared) -> exp.Query:
    """The relation with a schema beside each table's name: the session looks for tables nowhere by itself.

    Raises:
        SchemaRefused: the sentence that refuses the relation.
    """
    try:
        query = relation_query(table, relation, "postgres", declared=declared)
    except ConfigurationMistaken as error:
        raise SchemaRefused(error.message) from None
    return placed(query, schema=_PUBLIC)


def check_rank(connection: Connection, layout: CatalogueColumns, table: Table, rank: str) -> None:
    """Refuse a rank that the database itself does not keep different within a unit.

    Raises:
        SchemaRefused: one sentence.
    """
    if rank not in layout.columns or layout.columns[rank].name not in _WHOLE:
        raise SchemaRefused(f"The rank column {rank!r} of the table {table.name!r} does not hold whole numbers.")
    name = _plain_name(layout.query)
    if name is None or not lines(connection, _UNIQUE, (name, sorted((table.unit_key, rank)))):
        raise SchemaRefused(f"The table {table.name!r} has no unique index on exactly {table.unit_key!r} and {rank!r}.")


def role_can_write(connection: Connection, table: Table, relation: str, declared: Declared) -> bool:
    """Whether the session's role could change the relation, or anything at all."""
    name = _plain_name(qualified(table, relation, declared))
    return any(bool(line[0]) for line in lines(connection, _WRITES, (name,)))


def _plain_name(query: exp.Query) -> str | None:
    """The name of the table where the relation is all of one."""
    first = query.find(exp.Table)
    if first is None or exp.select("*").from_(first.copy()) != query:
        return None
    return first.sql(dialect="postgres")


def _fault(error: psycopg.Error) -> str:
    match error:
        case errors.UndefinedTable() | errors.InvalidSchemaName():
            return "does not exist at this site"
        case errors.InsufficientPrivilege():
            return "cannot be read by the site's role"
        case errors.UndefinedColumn() | errors.UndefinedFunction() | errors.SyntaxError() | errors.DataError():
            return "has a relation that the database cannot read as site.toml says"
        case errors.LockNotAvailable() | errors.QueryCanceled():
            return "is locked at this site; ask again"
        case _:
            return "cannot be read at this site"
