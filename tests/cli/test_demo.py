"""The demo tells its story with real processes, and leaves its pictures and nothing running."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from wardround.cli.demo import CHAPTERS, run_demo
from wardround.federation.errors import ConfigurationMistaken

PICTURES = {*(chapter.picture for chapter in CHAPTERS), "model", "budget"}


def test_the_demo_tells_its_story(tmp_path: Path) -> None:
    told: list[str] = []
    kept = tmp_path / "kept"
    document = run_demo(sites=2, keep=kept, pictures=None, tell=told.append, patients=3000)
    story = "\n".join(told)
    assert [story.index(chapter.title) for chapter in CHAPTERS] == sorted(map(story.index, (c.title for c in CHAPTERS)))
    answers, replayed = document["answers"], document["replayed"]
    assert isinstance(answers, list)
    assert isinstance(replayed, dict)
    assert all(answer["sites"]["answered"] == ["north-general", "st-mary"] for answer in answers)
    assert replayed["estimates"] == answers[0]["estimates"]
    assert f"  cd {kept}\n" in story, "how to go on with what was kept"
    assert "for site in north-general st-mary; do wardround site serve $site & done" in story
    assert "(identical) and cost nothing" in story
    # The last time of both curves is known with this many patients, whatever the noise.
    assert re.search(r"→ After 48 months survival is -?[0-9.]+ ± [0-9.]+ percentage points higher", story)
    assert document["refused"]["error"]["code"] == "BudgetExceeded"  # type: ignore[index]
    assert all(ledger["valid"] for ledger in document["ledgers"].values())  # type: ignore[attr-defined]
    drawn = sorted((kept / "pictures").iterdir())
    assert {path.stem for path in drawn} == PICTURES
    assert all(path.stat().st_size > 1000 for path in drawn)
    # One line for each answer, the model's rounds among them, as a data steward sees it.
    assert len(document["history"]) == len(CHAPTERS) + 9  # type: ignore[arg-type]
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert str(kept).encode() not in process.read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue


def test_a_folder_that_is_not_empty_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept", encoding="utf-8")
    with pytest.raises(ConfigurationMistaken, match="exists and is not empty"):
        run_demo(sites=2, keep=tmp_path, pictures=None, tell=print)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_pictures_that_have_no_place_are_said_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    told: list[str] = []
    with pytest.raises(ConfigurationMistaken, match="cannot be made"):
        run_demo(sites=2, keep=None, pictures=tmp_path / "file" / "pictures", tell=told.append)
    assert told == []
