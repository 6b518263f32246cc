"""Which table each column of a relation is of, and what the hospital says about its tables.

A name is resolved as the databases do it, from the inside outwards, but without knowing any table's columns.
So a bare name is taken for a column of the innermost FROM and then written out with its table: a database
that would have read it otherwise finds no such column, and the relation is refused before anything is
charged.
"""

from __future__ import annotations

import string
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from sqlglot import exp

_FOLDED = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


class Unclear(Exception):
    """One sentence about what cannot be resolved; it becomes the refusal of the relation."""


@dataclass(frozen=True, slots=True)
class Folding:
    """When two names are one to a database: PostgreSQL keeps the capitals of quoted ones, the others keep none."""

    dialect: str

    def of(self, identifier: exp.Expr) -> str:
        """The name that `identifier` stands for."""
        kept = self.dialect == "postgres" and bool(identifier.args.get("quoted"))
        return identifier.name if kept else identifier.name.translate(_FOLDED)

    def of_text(self, name: str) -> str:
        """The name of a column that is called exactly so."""
        return name if self.dialect == "postgres" else name.translate(_FOLDED)


@dataclass(frozen=True, slots=True)
class Relation:
    """One table, query or list of values in a FROM."""

    identifier: exp.Identifier
    patients: bool
    # None: a table, whose columns are not known.
    columns: tuple[str, ...] | None = None
    # The columns that hold the unit key.
    keys: frozenset[str] = frozenset()
    # Each row is one row of a patient's, beside public ones.
    rowwise: bool = False
    # The right side of a LEFT JOIN.
    optional: bool = False
    # How FROM writes the name of a table.
    written: str = ""


Place = tuple[int, str, str]
"""A column: how deep its query lies, its source, its name."""


@dataclass(slots=True)
class Scope:
    """The names that one SELECT can use."""

    folding: Folding
    parent: Scope | None = None
    sources: dict[str, Relation] = field(default_factory=dict)
    # A column of USING → the source whose column it is.
    merged: dict[str, str] = field(default_factory=dict)
    # The columns that hold the key of the patient whose row this is.
    keys: set[Place] = field(default_factory=set)
    # Every row that is looked at is of the patient of the row outside.
    tied: bool = False

    @property
    def depth(self) -> int:
        """How many queries are around it."""
        return 0 if self.parent is None else self.parent.depth + 1

    @property
    def patients(self) -> list[str]:
        """The sources that hold patients."""
        return [name for name, source in self.sources.items() if source.patients]

    def add(self, source: Relation) -> str:
        """One more source of FROM.

        Raises:
            Unclear: two have one name.
        """
        name = self.folding.of(source.identifier)
        if name in self.sources:
            raise Unclear(f"must give each table in FROM its own name; {source.identifier.name!r} is there twice")
        self.sources[name] = source
        return name

    def outer_keys(self) -> set[Place]:
        """The unit key's columns in the queries around this one."""
        return set() if self.parent is None else self.parent.keys | self.parent.outer_keys()

    def place(self, column: exp.Column) -> tuple[Place, Relation]:
        """Where a column that names its table is.

        Raises:
            Unclear: no table around it is called so.
        """
        scope: Scope | None = self
        if column.args.get("db") or column.args.get("catalog"):
            raise Unclear(f"must write only the table's last name before the column in {column.sql()}")
        alias = self.folding.of(column.args["table"])
        while scope is not None:
            if (source := scope.sources.get(alias)) is not None:
                return (scope.depth, alias, self.folding.of(column.this)), source
            scope = scope.parent
        raise Unclear(f"uses {column.sql()}, but no table in its FROM is called {column.table!r}")

    def qualify(self, column: exp.Column) -> None:
        """Write the table before a bare column.

        Raises:
            Unclear: it could be of several.
        """
        if column.args.get("table") is None:
            name = self.folding.of(column.this)
            found = self.merged.get(name) or self._holder(column, name)
            column.set("table", self.sources[found].identifier.copy())
        _, source = self.place(column)
        name = self.folding.of(column.this)
        if source.columns is not None and name not in source.columns:
            raise Unclear(f"uses {column.sql()}, which is no column of {source.identifier.name!r}")

    def _holder(self, column: exp.Column, name: str) -> str:
        known = [
            alias for alias, source in self.sources.items() if source.columns is not None and name in source.columns
        ]
        unknown = [alias for alias, source in self.sources.items() if source.columns is None]
        fits = known or unknown
        if len(fits) == 1 and not (known and unknown and len(self.sources) > 1):
            return fits[0]
        if not fits:
            raise Unclear(f"uses {column.name!r}, which no table in its FROM has; write its table before it")
        written = " or ".join(f"{self.sources[alias].identifier.name}.{column.name}" for alias in (*known, *unknown))
        raise Unclear(f"must say whose column {column.name!r} is: write {written}")


def own(query: exp.Expr, *kinds: type[exp.Expr]) -> Iterator[exp.Expr]:
    """What stands in a query itself, not in the queries inside it; a query inside is itself still named."""
    for node in query.walk(prune=lambda found: isinstance(found, exp.Query) and found is not query):
        if node is not query and (not kinds or isinstance(node, kinds)):
            yield node


def conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    """The conditions that all must hold."""
    if condition is None:
        return []
    if isinstance(condition, exp.Paren):
        return conjuncts(condition.this)
    if isinstance(condition, exp.And):
        return [*conjuncts(condition.left), *conjuncts(condition.right)]
    return [condition]


@dataclass(frozen=True, slots=True)
class Promise:
    """Which tables are public, and where the unit key is in the others."""

    unit_key: str
    # What the tables call the unit key: COLUMN, or TABLE.COLUMN for one table; empty: as the study does.
    keys: tuple[str, ...] = ()
    public: tuple[str, ...] = ()
    # Where no other table can be read.
    only: Collection[str] | None = None

    def keys_of(self, table: str, folding: Folding) -> frozenset[str]:
        """The columns of a table that hold its unit key."""
        own_keys = [key for holder, _, key in (name.rpartition(".") for name in self.keys) if _is_one(holder, table)]
        shared = [name for name in self.keys if "." not in name]
        return frozenset(
            folding.of_text(name) for name in own_keys or shared or (() if self.keys else (self.unit_key,))
        )


def _is_one(said: str, written: str) -> bool:
    """Whether both name one table, with or without a schema and whatever the capitals."""
    parts = (said.lower().split("."), written.lower().split("."))
    shared = min(len(each) for each in parts)
    return bool(said) and parts[0][-shared:] == parts[1][-shared:]
