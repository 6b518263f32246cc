"""A value that cannot be read is absent: no question fails for it, and no other patient's numbers change."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from site_agent.sources import file_layouts
from site_agent.sources.file_soundness import Reading, Soundness
from tests.prepared.prepared_source import prepared
from tests.readers.poisoned_tables import KINDS, PATIENTS, STUDY, Cell, Kind, told, worlds
from tests.sources.postgresql_cluster import absent
from tests.sources.tables import KEY
from wardround.federation.errors import SourceFailed

NO_POSTGRESQL = pytest.mark.skipif(bool(absent()), reason=absent())
EVERY = [pytest.param(name, marks=[NO_POSTGRESQL] if name == "postgresql" else []) for name in KINDS]


def differs(folder: Path, kind: Kind, column: str, poison: Cell, place: int, *, snapshots: bool) -> str:
    """What tells the two worlds apart; a failure is raised."""
    answers = []
    for name, table in zip(("with", "without"), worlds(kind, column, poison, place), strict=True):
        (folder / name).mkdir(parents=True)
        source = kind.opened(folder / name, table)
        answers.append(told(prepared(source, STUDY, folder / name, key=KEY) if snapshots else source))
    return "" if answers[0] == answers[1] else f"{column} {poison!r} at {place}: {answers[0]} and {answers[1]}"


@pytest.mark.parametrize("snapshots", [False, True], ids=["source", "snapshot"])
@pytest.mark.parametrize("name", EVERY)
def test_twelve_cohorts_are_told_what_they_would_be_told_without_the_value(
    tmp_path: Path, name: str, snapshots: bool
) -> None:
    kind, draw = KINDS[name], random.Random(name)
    for column, poisons in kind.poisons.items():
        place = draw.randrange(2 * PATIENTS)
        assert not differs(tmp_path / column, kind, column, draw.choice(poisons), place, snapshots=snapshots)


# 200 places in each source and its snapshots, in ten parts: ARGS="-k part3" runs one.
@pytest.mark.slow
@pytest.mark.parametrize("part", range(10), ids=lambda part: f"part{part}")
@pytest.mark.parametrize("name", EVERY)
def test_no_place_tells_two_worlds_apart(tmp_path: Path, name: str, part: int) -> None:
    kind, seed = KINDS[name], f"{name} {part}"
    draw = random.Random(seed)
    for turn in range(20):
        column = draw.choice(sorted(kind.poisons))
        poison, place = draw.choice(kind.poisons[column]), draw.randrange(2 * PATIENTS)
        found = differs(tmp_path / str(turn), kind, column, poison, place, snapshots=bool(turn % 2))
        assert not found, f"seed {seed!r}: {found}"
    print(f"seed {seed!r}: 20 places, twelve cohorts each")


class EverythingIsClean(Soundness):
    """The reader of before: every file is given to DuckDB as it is."""

    def parquet(self, path: str, columns: object, limits: object) -> Reading:
        return Reading()

    def csv(self, path: str, header: object, limits: object) -> Reading:
        return Reading()


@pytest.mark.parametrize(
    ("name", "column", "poison"),
    [("parquet", "dx", b"M\xfcller"), ("parquet", "patient_id", b"\xff"), ("parquet", "seen", 2**62)],
)
def test_the_reader_of_before_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, column: str, poison: Cell
) -> None:
    monkeypatch.setattr(file_layouts, "SOUNDNESS", EverythingIsClean())
    with pytest.raises(SourceFailed):
        differs(tmp_path, KINDS[name], column, poison, 17, snapshots=False)


def test_the_reader_of_before_loses_a_record_of_csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_layouts, "SOUNDNESS", EverythingIsClean())
    assert differs(tmp_path, KINDS["csv"], "dx", b"M\xfcller", 17, snapshots=False)


@pytest.mark.parametrize("column", ["patient_id", "dx", "note"])
def test_sqlite_reads_text_that_is_none_as_its_bytes(tmp_path: Path, column: str) -> None:
    kind = KINDS["sqlite"]
    for poison in (b"M\xfcller", b"\xff", b"\xc3"):
        found = told(kind.opened(tmp_path, worlds(kind, column, poison, 17)[0]))
        other = told(kind.opened(tmp_path, worlds(kind, column, "another text", 17)[0]))
        # Neither a public value nor a key that could be shown: one patient's own row, and nobody else's.
        assert found[:10] == other[:10]
