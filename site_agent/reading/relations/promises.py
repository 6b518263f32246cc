"""What the hospital says about the tables that its SELECT reads."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from site_agent.reading.relations.scopes import Folding


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
