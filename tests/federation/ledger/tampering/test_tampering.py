"""`ledger verify` finds whatever is changed beside a chain, outside the published hints: `make test-tampering`."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from coordinator.members.folder import open_folder
from coordinator.serving.serve import served_ledger
from coordinator.store import ledger as coordinator_tables
from tests.federation.ledger.tampering.busy_federation import busy_federation
from tests.federation.ledger.tampering.changing import apply, changes, copied, differs, dump
from tests.federation.ledger.tampering.recovered_federation import recovered_federation
from tests.recorded.kept_folders import unpacked
from wardround.federation.ledger import site_tables
from wardround.federation.ledger.sqlite_file import LEDGER_FILE
from wardround.federation.ledger.table_schema import template
from wardround.federation.ledger.verify.hints import HINTS
from wardround.federation.ledger.verify.verify import verify

SCHEMAS = {
    "coordinator": template(coordinator_tables.SCHEMA, coordinator_tables.LATER),
    "site": template(site_tables.SCHEMA, site_tables.LATER),
}
# A row of it is a proof that the ledger is an older copy: that is found whatever it says (see below).
PROOFS = {"lacking"}
# It can have one value only.
FIXED = {"chain_end.row"}
# A busy federation has no answer that is long enough: tests/coordinator/rounds/test_long_answers.py changes them.
LONG_ANSWERS = {"answer_pages.plan_id", "answer_pages.number", "answer_pages.page"}
FLIPS, PARTS = 10_000, 10


@dataclass(frozen=True, slots=True)
class Kept:
    """One ledger to be changed: whose it is, where, and which tables of it, all where none are named."""

    role: str
    folder: Path
    only: frozenset[str] = frozenset()


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Kept]:
    """Coordinators: a busy one, one that an earlier version began, a recovered one; a site, and one closed table."""
    folder = busy_federation(tmp_path_factory.mktemp("busy") / "federation")
    before = unpacked("unreleased-3", tmp_path_factory.mktemp("kept")) / "consortium"
    served_ledger(open_folder(before)).close()
    recovered = recovered_federation(tmp_path_factory.mktemp("recovered")) / "consortium"
    return {
        "coordinator": Kept("coordinator", folder),
        "site": Kept("site", folder / "two"),
        "closed": Kept("site", folder / "one", frozenset({"closed_tables"})),
        "recovered": Kept(
            "coordinator", recovered, frozenset({"rejoins", "imports", "lost", "rounds", "tasks", "submissions"})
        ),
        "before": Kept(
            "coordinator",
            before,
            frozenset({"places", "analysts", "tls_keys", "invitations", "accounts", "tasks", "submissions"}),
        ),
    }


def unnoticed(place: Kept, to: Path, *, rows: int) -> Iterator[tuple[str, str]]:
    """The column and the words for every change that alters a row and is not found; "" for each that is."""
    copy = copied(place.folder, to)
    file = copy / LEDGER_FILE
    content, truth = file.read_bytes(), dump(file, place.role)
    assert verify(copy).problems == ()
    assert verify(copy).unattested == ()
    seen: set[str] = set()
    for change in changes(file, rows=rows, only=place.only):
        if rows == 1 and change.column in seen - {""}:
            continue
        file.write_bytes(content)
        if apply(file, change) and differs(truth, dump(file, place.role), place.role):
            seen.add(change.column)
            yield change.column, "" if not verify(copy).valid else f"{change.what}: {change.values}"


def columns(role: str, folder: Path) -> set[str]:
    """Every column of every table that this version makes for a role."""
    file = folder / f"{role}.sqlite"
    file.write_bytes(SCHEMAS[role])
    with closing(sqlite3.connect(file)) as made:
        tables = [name for (name,) in made.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {
            f"{table}.{column[1]}"
            for table in tables
            for column in made.execute(f"PRAGMA table_info({table})").fetchall()
        }


def test_every_column_is_attested_or_a_hint(kept: dict[str, Kept], tmp_path: Path) -> None:
    tried: dict[str, set[str]] = {"coordinator": set(), "site": set()}
    for name, place in kept.items():
        for column, what in unnoticed(place, tmp_path / name, rows=1):
            assert not what, (name, what)
            tried[place.role].add(column)
    for role, found in tried.items():
        hints = {f"{hint.table}.{hint.column}" for hint in HINTS if hint.role == role and not hint.among}
        whole = {hint.table for hint in HINTS if hint.role == role and not hint.column and not hint.only_missing}
        rest = {
            column
            for column in columns(role, tmp_path) - found - FIXED - LONG_ANSWERS
            if column not in hints and column.partition(".")[0] not in whole | PROOFS
        }
        assert rest == set(), "neither changed in this test nor a hint"


def test_every_hint_is_a_column_that_there_is(tmp_path: Path) -> None:
    for role in SCHEMAS:
        found = columns(role, tmp_path)
        for hint in HINTS:
            if hint.role == role:
                assert f"{hint.table}.{hint.column}" in found or any(c.startswith(f"{hint.table}.") for c in found)


def test_the_cut_end_of_a_chain_is_found(kept: dict[str, Kept], tmp_path: Path) -> None:
    for name, place in kept.items():
        copy = copied(place.folder, tmp_path / name)
        with closing(sqlite3.connect(copy / LEDGER_FILE)) as ledger, ledger:
            ledger.execute("DELETE FROM entries WHERE sequence = (SELECT MAX(sequence) FROM entries)")
        assert not verify(copy).valid, name


def flipped(place: Kept, to: Path, *, times: int, seed: int) -> tuple[int, int]:
    """How many of so many flipped bits altered a row, and how many of these were found."""
    copy, chance = copied(place.folder, to), random.Random(seed)
    file = copy / LEDGER_FILE
    content, truth, altered, found = file.read_bytes(), dump(file, place.role), 0, 0
    for _ in range(times):
        bits, at = bytearray(content), chance.randrange(len(content))
        bits[at] ^= 1 << chance.randrange(8)
        file.write_bytes(bits)
        if differs(truth, dump(file, place.role), place.role):
            altered += 1
            assert not verify(copy).valid, f"seed {seed}: byte {at} of {place.role}"
            found += 1
    return altered, found


@pytest.mark.parametrize("name", ["coordinator", "site"])
def test_flipped_bits_are_found(kept: dict[str, Kept], tmp_path: Path, name: str) -> None:
    altered, found = flipped(kept[name], tmp_path / "copy", times=20, seed=1)
    assert altered == found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["coordinator", "site", "closed", "recovered", "before"])
def test_every_change_of_every_row_is_found(kept: dict[str, Kept], tmp_path: Path, name: str) -> None:
    told = list(unnoticed(kept[name], tmp_path / "copy", rows=12))
    assert [what for _, what in told if what] == []
    print(f"\n{name}: {len(told)} changes of rows, all found")


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS), ids=lambda part: f"part{part + 1}")
def test_ten_thousand_flipped_bits_of_a_busy_federation_are_found(
    kept: dict[str, Kept], tmp_path: Path, part: int
) -> None:
    for name in ("coordinator", "site"):
        altered, found = flipped(kept[name], tmp_path / name, times=FLIPS // PARTS // 2, seed=(seed := 1000 + part))
        print(f"\npart {part + 1} of {PARTS}, seed {seed}, {name}: {altered} bits altered a row, {found} were found")
    shutil.rmtree(tmp_path)
