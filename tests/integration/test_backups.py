"""Copies of both roles, made while they serve: whole, private, valid, and never served before they are recovered."""

from __future__ import annotations

import json
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration.stage import AGES, Federation, eventually
from wardround.federation.ledger.verify.verify import verify


@pytest.fixture
def serving(federation: Federation) -> Federation:
    for name in federation.sites:
        if name not in federation.running:
            federation.start_site(name)
    federation.ask(fresh=True)
    return federation


def loose(folder: Path) -> list[Path]:
    return [path for path in (folder, *folder.rglob("*")) if stat.S_IMODE(path.stat().st_mode) & 0o077]


def test_copies_made_while_questions_run_are_valid_private_and_not_behind(serving: Federation, tmp_path: Path) -> None:
    folders = {"consortium": ("coordinator", serving.consortium), "two": ("site", serving.site("two"))}
    with ThreadPoolExecutor(1) as asking:
        questions = [asking.submit(serving.ask, AGES, fresh=True) for _ in range(6)]
        for name, (role, folder) in folders.items():
            for number in range(2):
                before = int(str(serving.rows(name, "SELECT max(sequence) FROM entries")[0][0]))
                out = tmp_path / f"{name}-{number}"
                done = serving.run(role, "backup", folder, out)
                assert done.code == 0, done.err
                verdict = verify(out)
                assert verdict.valid, verdict.problems
                assert verdict.entries >= before
                assert loose(out) == []
                assert json.loads((out / "backup.json").read_text())["sequence"] == verdict.entries
        for question in questions:
            question.result()
    assert not (tmp_path / "two-0" / "prepared").exists()
    assert not (tmp_path / "two-0" / "serving").exists()
    assert (tmp_path / "two-0" / "rows.key").read_bytes() == (serving.site("two") / "rows.key").read_bytes()


def test_a_copy_is_not_served_and_says_what_to_do(serving: Federation, tmp_path: Path) -> None:
    for role, folder in (("coordinator", serving.consortium), ("site", serving.site("one"))):
        out = tmp_path / role
        assert serving.run(role, "backup", folder, out).code == 0
        done = serving.run(role, "serve", out)
        assert done.code == 2
        assert f"{out} is a backup made at " in done.err
        assert f"run: wardround {role} recover {out}" in done.err
    eventually(lambda: serving.running["consortium"].poll() is None, what="the original serves on")


@pytest.mark.parametrize("taken", ["folder", "file", "nowhere"])
def test_a_copy_is_never_written_over_anything(serving: Federation, tmp_path: Path, taken: str) -> None:
    out = tmp_path / "copy"
    if taken == "folder":
        out.mkdir()
    elif taken == "file":
        out.write_text("mine")
    else:
        out = tmp_path / "absent" / "copy"
    done = serving.run("site", "backup", serving.site("one"), out)
    assert done.code == 2
    assert "name a new folder" in done.err
    assert sorted(path.name for path in tmp_path.iterdir()) == (["copy"] if taken != "nowhere" else [])


def test_a_series_keeps_its_newest_copies_and_touches_nothing_else(serving: Federation, tmp_path: Path) -> None:
    kept = {"one-2020-01-01T000000.000000Z", "one-of-mine", "notes.txt"}
    (tmp_path / "one-2020-01-01T000000.000000Z").mkdir()
    (tmp_path / "one-of-mine").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    older = tmp_path / "one-2026-01-02T030405.000000Z"
    assert serving.run("site", "backup", serving.site("one"), older).code == 0
    assert serving.run("site", "backup", serving.site("two"), tmp_path / "two-2026-01-02T030405.000000Z").code == 0
    first = serving.run("site", "backup", serving.site("one"), tmp_path, "--keep", "2")
    assert (first.code, older.exists()) == (0, True), first.err
    done = serving.run("site", "backup", serving.site("one"), tmp_path, "--keep", "1")
    assert done.code == 0, done.err
    assert f"{older} is removed." in done.out
    (newest,) = {path.name for path in tmp_path.iterdir()} - kept - {"two-2026-01-02T030405.000000Z"}
    assert verify(tmp_path / newest).valid
    assert kept < {path.name for path in tmp_path.iterdir()}
