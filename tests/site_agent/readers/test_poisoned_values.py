"""A value that cannot be read is absent: whole sites answer the same, log the same and keep the same without it."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from site_agent.reading.dataset import Dataset
from site_agent.reading.sources.files import file_layouts
from site_agent.reading.sources.files.file_soundness import Reading, Soundness
from tests.site_agent.readers.poisoned_sites import AGREED, differs
from tests.site_agent.readers.poisoned_tables import KINDS, QUESTIONS, STEP, Cell, Poison, csv_file, drawn, rows, worlds
from tests.site_agent.sources.postgresql_cluster import absent
from wardround.federation.models.training import Step
from wardround.federation.plan.task import AskRequest
from wardround.federation.plan.typed import type_query
from wardround.federation.question.answer import Answer
from wardround.simulation.federation import SimulatedFederation, SimulatedSite
from wardround.simulation.noise import ZeroNoise

NO_POSTGRESQL = pytest.mark.skipif(bool(absent()), reason=absent())
EVERY = [pytest.param(name, marks=[NO_POSTGRESQL] if name == "postgresql" else []) for name in KINDS]
PARTS = 10


@pytest.mark.parametrize("snapshots", [False, True], ids=["source", "snapshot"])
@pytest.mark.parametrize("name", EVERY)
def test_a_site_lets_out_what_it_would_without_the_values(tmp_path: Path, name: str, snapshots: bool) -> None:
    kind = KINDS[name]
    every = [(column, cell) for column, cells in kind.poisons.items() for cell in cells]
    poisons = [Poison(column, cell, 3 * number) for number, (column, cell) in enumerate(every)]
    assert not differs(tmp_path, kind, poisons, snapshots=snapshots)


# 200 places in each source: four are alone in their files in each part, eight share one; every other file is read
# as a snapshot. `make test-readers ARGS="-k part3"` runs one part.
@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS), ids=lambda part: f"part{part}")
@pytest.mark.parametrize("name", EVERY)
def test_no_place_tells_two_worlds_apart(tmp_path: Path, name: str, part: int) -> None:
    kind, seed = KINDS[name], f"{name} {part}"
    draw = random.Random(seed)
    for turn, number in enumerate((1, 1, 1, 1, 8, 8)):
        poisons = drawn(kind, draw, number)
        found = differs(tmp_path / str(turn), kind, poisons, snapshots=bool(turn % 2))
        assert not found, f"seed {seed!r}: {found}"
    # The other stream: what a parallel test prints is lost.
    print(f"seed {seed!r}: 20 places, twelve cohorts each", file=sys.stderr)


# --- Three sites ------------------------------------------------------------------------------------------


def answers(folder: Path, sites: dict[str, Dataset]) -> list[tuple[object, ...]]:
    """Who answered what, of three sites."""
    folder.mkdir()
    simulated = {name: SimulatedSite(dataset, 1000, ZeroNoise()) for name, dataset in sites.items()}
    federation = SimulatedFederation(AGREED, simulated, folder=folder, noiseless=True)
    link, found = federation.client.link, []
    for query in (*QUESTIONS, STEP):
        exact = query if isinstance(query, Step) else type_query(query, AGREED).query
        plan_id = link.ask(AskRequest(exact, epsilon=None if query is STEP else 20.0))
        answer: object = None
        while not isinstance(answer, Answer):
            answer = link.watch(plan_id, seen=0, wait_seconds=0.0)
        found.append((answer.answered, answer.refused, answer.missing, answer.left_out, answer.estimates))
    federation.close()
    return found


@pytest.mark.parametrize("name", ["parquet", "csv", "sqlite", "duckdb, keys of times"])
def test_the_same_three_sites_answer(tmp_path: Path, name: str) -> None:
    kind, draw = KINDS[name], random.Random(name)
    seen = []
    for world, table in worlds(drawn(kind, draw, 3)).items():
        sites: dict[str, Dataset] = {}
        for site in ("north", "south", "west"):
            (tmp_path / world / site).mkdir(parents=True)
            opened = (kind.opened, table) if site == "north" else (csv_file, rows())
            sites[site] = opened[0](tmp_path / world / site, opened[1])
        seen.append(answers(tmp_path / world / "federation", sites))
    assert {each[0] for world in seen for each in world} == {("north", "south", "west")}
    assert seen[0] == seen[1]


# --- The readers of before --------------------------------------------------------------------------------


class EverythingIsClean(Soundness):
    """The reader of before: every file is given to DuckDB as it is."""

    def parquet(self, path: str, columns: object, limits: object) -> Reading:
        return Reading()

    def csv(self, path: str, header: object) -> Reading:
        return Reading()


@pytest.mark.parametrize(
    ("name", "column", "cell"),
    [
        ("parquet", "dx", b"M\xfcller"),
        ("parquet", "patient_id", b"\xff"),
        ("parquet", "seen", 2**62),
        ("csv", "dx", b"M\xfcller"),
    ],
)
def test_the_reader_of_before_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, column: str, cell: Cell
) -> None:
    monkeypatch.setattr(file_layouts, "SOUNDNESS", EverythingIsClean())
    assert differs(tmp_path, KINDS[name], [Poison(column, cell, 17)], snapshots=False)
