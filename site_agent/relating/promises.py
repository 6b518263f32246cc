"""What the hospital says about the tables that its SELECT reads."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from site_agent.relating.scopes import Folding


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
        own_keys = [name.rpartition(".")[2] for name in self.keys if name.rpartition(".")[0] == table]
        shared = [name for name in self.keys if "." not in name]
        return frozenset(
            folding.of_text(name) for name in own_keys or shared or (() if self.keys else (self.unit_key,))
        )
