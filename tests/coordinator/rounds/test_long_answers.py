"""An answer of many numbers is stored on pages, and reading some of it costs the pages they are on."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from coordinator.rounds.statements import Wanted
from coordinator.rounds.stored_answers import PAGE_ESTIMATES, read_answer, read_page
from tests.coordinator.hospitals import ANALYST, World, ask
from wardround.federation.errors import LedgerCorrupt
from wardround.federation.ledger.sqlite_file import LEDGER_FILE
from wardround.federation.ledger.verify.verify import verify
from wardround.federation.question.answer import Answer, Excerpt
from wardround.federation.question.query import Aggregate, GroupBy, Grouping, Query, Statistic

AGES = 1_000
GROUPS = AGES * 3 * 2
PAGES = -(-GROUPS // PAGE_ESTIMATES)
LONG = Query(
    "encounters",
    (Aggregate(Statistic.COUNT, "patient_id"),),
    group_by=tuple(Grouping(column, GroupBy.VALUE) for column in ("age", "diagnosis", "smoker")),
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    ages = f'{{ type = "integer", lower = 0, upper = {AGES - 1} }}'
    world = World(tmp_path_factory.mktemp("coordinator"), age=ages)
    world.enrol("one", count=1)
    world.enrol("two", count=10)
    yield world
    world.close()


@pytest.fixture(scope="module")
def whole(world: World) -> Answer:
    return world.ask(ask(query=LONG))


@pytest.fixture
def folder(world: World, whole: Answer, tmp_path: Path) -> Path:
    """A copy of the coordinator's folder with the answer in it."""
    assert len(whole.estimates) == GROUPS
    return Path(shutil.copytree(world.folder, tmp_path / "copy"))


def excerpt(world: World, whole: Answer, wanted: Wanted) -> Excerpt:
    told = world.coordinator.watch_excerpt(ANALYST, whole.plan_id, seen=0, wait_seconds=0.0, wanted=wanted)
    assert isinstance(told, Excerpt)
    return told


def edit(folder: Path, statement: str) -> None:
    with closing(sqlite3.connect(folder / LEDGER_FILE, isolation_level=None)) as connection:
        for (trigger,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {trigger}")
        connection.execute(statement)


def test_every_number_of_a_long_answer_arrives(world: World, whole: Answer) -> None:
    assert [estimate.value for estimate in whole.estimates] == [11.0] * GROUPS
    assert len({estimate.group for estimate in whole.estimates}) == GROUPS
    assert world.verified().valid


@pytest.mark.parametrize(
    ("first", "most", "pages"),
    [
        (0, PAGE_ESTIMATES, 1),
        (PAGE_ESTIMATES, PAGE_ESTIMATES, 1),
        (PAGE_ESTIMATES - 1, 2, 2),
        (GROUPS - 1, 100, 1),
        (0, GROUPS, PAGES),
        (GROUPS, 100, 0),
    ],
)
def test_what_is_read_is_what_is_wanted(
    world: World, whole: Answer, monkeypatch: pytest.MonkeyPatch, first: int, most: int, pages: int
) -> None:
    answers, read = world.coordinator.ledger.answers, []
    stored = answers.pages

    def counted(plan_id: str, *, first: int, end: int) -> tuple[bytes, ...]:
        found = stored(plan_id, first=first, end=end)
        read.extend(found)
        return found

    monkeypatch.setattr(answers, "pages", counted)
    told = excerpt(world, whole, Wanted(first, most))
    assert (told.first, told.total) == (first, GROUPS)
    assert told.answer.estimates == whole.estimates[first : first + most]
    assert len(read) == pages


def test_a_stored_number_takes_a_few_bytes(world: World, whole: Answer) -> None:
    pages = world.coordinator.ledger.answers.pages(whole.plan_id, first=0, end=PAGES)
    assert sum(len(page) for page in pages) / GROUPS < 20


def test_an_answer_of_few_numbers_is_one_text(world: World) -> None:
    few = world.ask(ask(query=Query("encounters", (Aggregate(Statistic.COUNT, "patient_id"),))))
    assert world.coordinator.ledger.answers.pages(few.plan_id, first=0, end=PAGES) == ()
    text = world.coordinator.ledger.answers.text(few.plan_id)
    assert text is not None
    assert read_answer(text).answer.estimates == few.estimates


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE answer_pages SET page = CAST(substr(page, 2) AS BLOB) WHERE number = 1",
        "DELETE FROM answer_pages WHERE number = 2",
        "DELETE FROM answer_pages",
        "UPDATE answer_pages SET number = 9 WHERE number = 0",
        "INSERT INTO answer_pages SELECT plan_id, 7, page FROM answer_pages WHERE number = 0",
    ],
)
def test_a_changed_page_is_found(folder: Path, statement: str) -> None:
    assert verify(folder).valid
    edit(folder, statement)
    assert {problem.code.value for problem in verify(folder).problems} == {"AlteredBytes"}


def test_a_changed_page_is_not_told(world: World, whole: Answer) -> None:
    text = world.coordinator.ledger.answers.text(whole.plan_id)
    assert text is not None
    (page,) = world.coordinator.ledger.answers.pages(whole.plan_id, first=0, end=1)
    named = read_answer(text).pages[0]
    assert read_page(page, named) == whole.estimates[:PAGE_ESTIMATES]
    with pytest.raises(LedgerCorrupt):
        read_page(page[:-1] + b"\x00", named)
