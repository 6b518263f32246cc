"""A ledger that is gone is restored, never begun anew; an init that was cut short is simply run again."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import coordinator.store.ledger
import site_agent.store.ledger
from coordinator.members.enrolment import opened
from coordinator.members.folder import CoordinatorFolder
from coordinator.members.folder import open_folder as open_coordinator
from site_agent.serving.enrolment import prepare_enrolment
from site_agent.serving.folder import SiteFolder
from site_agent.serving.folder import open_folder as open_site
from site_agent.serving.serve import open_ledger
from tests.cli.calling import call
from tests.roles.enrolled import enrol, found, hospital, invite
from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.ledger.sqlite_file import LEDGER_FILE, Database
from wardround.federation.ledger.verify.verify import verify

RESTORE = "restore the whole folder from its backup before you serve"


@pytest.fixture
def consortium(tmp_path: Path) -> CoordinatorFolder:
    return found(tmp_path / "consortium")


@pytest.fixture
def site(consortium: CoordinatorFolder) -> SiteFolder:
    return hospital(consortium)


def remove(ledger: Path) -> None:
    ledger.unlink()


def empty(ledger: Path) -> None:
    ledger.write_bytes(b"")


def forget(ledger: Path) -> None:
    """Another database in its place, with every table and no entry."""
    with contextlib.closing(sqlite3.connect(ledger)) as old, contextlib.closing(sqlite3.connect(":memory:")) as new:
        for (statement,) in old.execute(
            "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name <> 'sqlite_sequence' ORDER BY rowid"
        ):
            new.execute(statement)
        for mark in ("user_version", "application_id"):
            new.execute(f"PRAGMA {mark} = {old.execute(f'PRAGMA {mark}').fetchone()[0]}")
        content = new.serialize()
    ledger.write_bytes(content)


def clear(ledger: Path) -> None:
    """A sound database with nothing in it."""
    ledger.unlink()
    with contextlib.closing(sqlite3.connect(ledger)) as connection:
        connection.execute("VACUUM")


LOSSES = (remove, empty, forget, clear)
Loss = Callable[[Path], None]


def content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


@pytest.mark.parametrize("lose", LOSSES)
def test_a_site_without_its_ledger_is_told_to_restore_it_and_nothing_is_begun(site: SiteFolder, lose: Loss) -> None:
    lose(site.ledger)
    left = content(site.ledger)
    for command in ("requests", "history", "serve"):
        done = call("site", command, site.path)
        assert (done.code, RESTORE in done.sentence()) == (2, True), (command, done)
    done = call("site", "check", site.path)
    assert done.code == (2 if lose is remove else 1)
    assert RESTORE in done.out + done.err
    assert content(site.ledger) == left


@pytest.mark.parametrize("lose", LOSSES)
def test_renewing_a_certificate_does_not_begin_a_lost_ledger_anew(
    consortium: CoordinatorFolder, site: SiteFolder, lose: Loss
) -> None:
    lose(site.ledger)
    left = content(site.ledger)
    invitation, _ = invite(consortium, "north")
    done = call("site", "init", site.path, "--invite", invitation, "--yes")
    assert (done.code, RESTORE in done.sentence()) == (2, True)
    # Nobody was asked for anything: the invitation is as good as it was.
    assert content(site.ledger) == left
    with opened(consortium) as ledger, ledger.database.reading() as connection:
        assert connection.execute("SELECT count(*) FROM invitations WHERE used_by = ''").fetchone() == (1,)


@pytest.mark.parametrize("name", ["identity.pem", "rows.key"])
def test_renewing_a_certificate_does_not_replace_a_lost_key(
    consortium: CoordinatorFolder, site: SiteFolder, name: str
) -> None:
    (site.path / name).unlink()
    invitation, _ = invite(consortium, "north")
    done = call("site", "init", site.path, "--invite", invitation, "--yes")
    assert (done.code, "restore it from the backup" in done.sentence()) == (2, True)
    assert not (site.path / name).exists()


def test_a_site_without_its_identity_is_told_to_restore_it(site: SiteFolder) -> None:
    (site.path / "identity.pem").unlink()
    assert RESTORE in call("site", "serve", site.path).sentence()


def test_a_certificate_is_renewed_with_the_ledger_that_is_there(
    consortium: CoordinatorFolder, site: SiteFolder
) -> None:
    with open_ledger(site.path) as ledger:
        before = ledger.head()
    (site.tls / "certificate.pem").unlink()
    with pytest.raises(ConfigurationMistaken, match="its keys and ledger stay as they are when you run again"):
        open_site(site.path)
    invitation, _ = invite(consortium, "north")
    enrol(consortium, site.path, invitation, None)
    with open_ledger(site.path) as ledger:
        assert ledger.head() == before


@pytest.mark.parametrize("lose", LOSSES)
def test_a_coordinator_without_its_ledger_does_not_begin_another(
    consortium: CoordinatorFolder, tmp_path: Path, lose: Loss
) -> None:
    lose(consortium.ledger)
    left = content(consortium.ledger)
    for words in (
        ("invite", consortium.path, "north", "--out", tmp_path / "x"),
        ("analyst", consortium.path, "amira", "--out", tmp_path / "x"),
        ("revoke", consortium.path, "north"),
        ("serve", consortium.path),
    ):
        done = call("coordinator", *words)
        assert (done.code, RESTORE in done.sentence()) == (2, True), (words, done)
    (study := tmp_path / "study.toml").write_text(consortium.study_text(), encoding="utf-8")
    done = call("coordinator", "init", consortium.path, "--study", study)
    assert done.code == 2
    assert "is already a coordinator's folder; serve it, or restore it from its backup" in done.sentence()
    assert content(consortium.ledger) == left
    assert not (tmp_path / "x").exists()


def test_a_coordinator_without_its_keys_is_told_to_restore_them(consortium: CoordinatorFolder) -> None:
    (consortium.path / "identity.pem").rename(consortium.path / "elsewhere")
    assert RESTORE in call("coordinator", "serve", consortium.path).sentence()
    (consortium.path / "elsewhere").rename(consortium.path / "identity.pem")
    (consortium.path / "authority").rename(consortium.path / "elsewhere")
    assert RESTORE in call("coordinator", "serve", consortium.path).sentence()


@pytest.mark.parametrize("lose", LOSSES)
def test_verify_says_that_a_lost_ledger_is_to_be_restored(
    consortium: CoordinatorFolder, site: SiteFolder, lose: Loss
) -> None:
    for folder in (consortium.path, site.path):
        lose(folder / LEDGER_FILE)
        done = call("ledger", "verify", folder)
        assert (done.code, RESTORE in done.err) == (2 if lose is remove else 4, True), done


@pytest.mark.parametrize("role", ["site", "coordinator"])
def test_a_real_process_does_not_serve_an_emptied_folder(
    consortium: CoordinatorFolder, site: SiteFolder, role: str
) -> None:
    folder = site.path if role == "site" else consortium.path
    (folder / LEDGER_FILE).write_bytes(b"")
    done = subprocess.run(
        [sys.executable, "-m", "wardround", role, "serve", folder],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == f"wardround: {folder / LEDGER_FILE} is empty; a lost ledger is never replaced by a new one: {RESTORE}.\n"
    )
    assert (folder / LEDGER_FILE).stat().st_size == 0


# --- an init that is killed ---------------------------------------------------------------------------------------

# Seen just before it is done: a file gets its name, a database is opened, the last file goes.
STEPS = frozenset({"os.rename", "sqlite3.connect", "os.remove"})
DEPTHS = (False, pytest.param(True, marks=pytest.mark.slow))


def killed(run: Callable[[], object], *, before: int, everywhere: bool) -> bool:
    """Run in a process that is killed before its n-th step; whether it came so far.

    `everywhere` is also before each file and folder that is made and before each SQL statement.
    """
    pid = os.fork()
    if pid:
        return os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    left = before

    def count(_step: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        match event, arguments:
            case "open", (str() | Path(), _, int(flags)) if everywhere and flags & os.O_CREAT:
                count(event)
            case _ if event in STEPS or (everywhere and event == "os.mkdir"):
                count(event)

    class Traced(Database):
        def _connect(self) -> sqlite3.Connection:
            connection = super()._connect()
            connection.set_trace_callback(count if everywhere else None)
            return connection

    try:
        for module in (site_agent.store.ledger, coordinator.store.ledger):
            module.Database = Traced  # type: ignore[attr-defined]
        sys.addaudithook(watch)
        run()
    finally:
        os._exit(0)


@pytest.mark.parametrize("everywhere", DEPTHS)
def test_a_coordinator_s_init_that_was_killed_anywhere_is_run_again(tmp_path: Path, everywhere: bool) -> None:
    folder, deaths = tmp_path / "c0", 0
    while killed(lambda: found(folder), before=deaths + 1, everywhere=everywhere):  # noqa: B023
        # Half a coordinator is not served, and nobody is told to restore what never was.
        with pytest.raises(ConfigurationMistaken) as told:
            open_coordinator(folder)
        assert f"wardround coordinator init {folder} " in told.value.message
        found(folder)
        assert verify(folder).entries == 2
        assert not list(folder.rglob(".new-*"))
        deaths += 1
        folder = tmp_path / f"c{deaths}"
    assert deaths > (60 if everywhere else 8), "so many changes at least are made"


@pytest.mark.parametrize("everywhere", DEPTHS)
def test_a_site_s_init_that_was_killed_anywhere_is_run_again(
    consortium: CoordinatorFolder, tmp_path: Path, everywhere: bool
) -> None:
    deaths, finished = 0, 0
    while True:
        name = f"n{deaths + 1}"
        files = invite(consortium, name)

        def run(name: str = name, files: tuple[Path, Path] = files) -> None:
            enrol(consortium, tmp_path / name, *files)

        if not killed(run, before=deaths + 1, everywhere=everywhere):
            break
        deaths += 1
        with pytest.raises(ConfigurationMistaken) as told:
            open_site(tmp_path / name)
        assert f"wardround site init {tmp_path / name} --invite FILE" in told.value.message
        identity = content(tmp_path / name / "identity.pem")
        # Where coordinator.json is there already, the folder counts as a site's and only wants its certificate.
        begun = SiteFolder(tmp_path / name).begun
        finished += begun
        run_again = enrol(consortium, tmp_path / name, files[0], None if begun else files[1])
        assert identity in (None, content(run_again.path / "identity.pem"))
        assert verify(run_again.path).valid
        assert verify(run_again.path).entries == 2
        assert open_site(run_again.path) == run_again
    assert deaths > (60 if everywhere else 8)
    assert finished > 0


def test_a_site_that_lost_everything_but_its_coordinator_is_not_begun_anew(
    consortium: CoordinatorFolder, site: SiteFolder
) -> None:
    site.ledger.unlink()
    (site.tls / "certificate.pem").unlink()
    with pytest.raises(ConfigurationMistaken, match=RESTORE):
        open_site(site.path)
    invitation, config = invite(consortium, "north")
    with pytest.raises(ConfigurationMistaken, match=RESTORE):
        prepare_enrolment(site.path, invitation, config)
