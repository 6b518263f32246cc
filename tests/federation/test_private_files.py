"""Files with keys: the owner's alone, whole or not at all, and never through what somebody planted."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.ledger.serving_lock import serving_lock
from wardround.federation.ledger.sqlite_file import Database
from wardround.federation.private_files import create_private, make_private_folder, open_lock, write_private

SOMEBODY = 54321
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
# None at all, the usual one, a strict one, and one that takes from the owner too.
UMASKS = (0o000, 0o022, 0o077, 0o377)


@pytest.fixture(params=UMASKS, ids=[f"{mask:03o}" for mask in UMASKS])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_private_file_is_its_owners_alone(tmp_path: Path, umask: int) -> None:
    write_private(tmp_path / "key", b"one")
    write_private(tmp_path / "key", b"two")
    assert (tmp_path / "key").read_bytes() == b"two"
    assert mode(tmp_path / "key") == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_whatever_the_umask_says_files_locks_folders_and_databases_are_the_owners_alone(
    tmp_path: Path, umask: int
) -> None:
    create_private(tmp_path / "rows").close()
    os.close(open_lock(tmp_path / "lock"))
    make_private_folder(tmp_path / "folder")
    database = Database(tmp_path / "ledger.sqlite", schema="CREATE TABLE t (x INTEGER) STRICT;")
    with database.transaction() as connection:
        connection.execute("INSERT INTO t VALUES (1)")
        journal = mode(tmp_path / "ledger.sqlite-journal")
    database.close()
    assert journal == 0o600
    assert [mode(tmp_path / name) for name in ("rows", "lock", "folder", "ledger.sqlite")] == [
        0o600,
        0o600,
        0o700,
        0o600,
    ]


def test_the_folders_above_are_never_open_to_others_hands(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_private_folder(tmp_path / "var" / "lib" / "site")
    finally:
        os.umask(before)
    assert [mode(tmp_path / place) for place in ("var", "var/lib", "var/lib/site")] == [0o755, 0o755, 0o700]


@pytest.mark.parametrize("place", ["nowhere/key", "folder"])
def test_a_file_that_cannot_be_written_is_one_sentence_and_leaves_nothing(tmp_path: Path, place: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigurationMistaken, match="cannot be written"):
        write_private(tmp_path / place, b"secret")
    assert [path.name for path in tmp_path.rglob("*")] == ["folder"]


# --- what somebody planted ---------------------------------------------------------------------------------------


def a_file(place: Path, loot: Path) -> None:
    place.write_bytes(b"theirs")


def a_link(place: Path, loot: Path) -> None:
    place.symlink_to(loot)


def a_link_to_nowhere(place: Path, loot: Path) -> None:
    place.symlink_to(loot.parent / "made-by-us")


def a_hard_link(place: Path, loot: Path) -> None:
    place.hardlink_to(loot)


def a_pipe(place: Path, loot: Path) -> None:
    os.mkfifo(place, 0o666)


PLANTED = (a_file, a_link, a_link_to_nowhere, a_hard_link, a_pipe)
Plant = Callable[[Path, Path], None]


@pytest.fixture
def loot(tmp_path: Path) -> Path:
    """A file of somebody's, outside the folder that is written to."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "loot").write_bytes(b"as it was")
    return tmp_path / "outside" / "loot"


def in_time(work: Callable[[], object]) -> None:
    """A pipe that is opened to be written waits for a reader; here it is the test that waits, and not for ever."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(60.0)
    assert not thread.is_alive()


@pytest.mark.parametrize("plant", PLANTED)
@pytest.mark.parametrize("name", ["key", "key.new"])
def test_what_was_planted_is_replaced_and_never_followed(tmp_path: Path, loot: Path, plant: Plant, name: str) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    plant(folder / name, loot)
    in_time(lambda: write_private(folder / "key", b"secret"))
    written = (folder / "key").lstat()
    assert (stat.S_IFMT(written.st_mode), stat.S_IMODE(written.st_mode)) == (stat.S_IFREG, 0o600)
    assert (folder / "key").read_bytes() == b"secret"
    assert loot.read_bytes() == b"as it was"
    assert [path.name for path in loot.parent.iterdir()] == ["loot"]


@AS_ROOT
def test_a_file_of_somebody_else_s_is_replaced_by_ours(tmp_path: Path) -> None:
    write_private(tmp_path / "key", b"theirs")
    os.chown(tmp_path / "key", SOMEBODY, SOMEBODY)
    write_private(tmp_path / "key", b"ours")
    assert ((tmp_path / "key").stat().st_uid, (tmp_path / "key").read_bytes()) == (os.geteuid(), b"ours")


RACE = """
import os, sys
from pathlib import Path
from wardround.federation.private_files import write_private
folder = Path(sys.argv[1])
seen = []
def somebody(event, arguments):
    # The worst moment of all: the file is written and is about to get its name.
    if event == "os.rename" and not seen:
        seen.append(staged := Path(arguments[0]))
        staged.unlink()
        staged.write_bytes(b"theirs")
sys.addaudithook(somebody)
try:
    write_private(folder / "key", b"ours")
except Exception as error:
    print(len(seen), type(error).__name__, error)
"""


def test_a_file_that_is_swapped_while_it_is_written_is_noticed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RACE, str(tmp_path)], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.startswith("1 ConfigurationMistaken "), done
    assert "was replaced by somebody while it was written" in done.stdout


@pytest.mark.parametrize("plant", PLANTED)
def test_a_new_file_is_not_made_where_something_was_planted(tmp_path: Path, loot: Path, plant: Plant) -> None:
    plant(tmp_path / "rows", loot)
    with pytest.raises(FileExistsError):
        create_private(tmp_path / "rows")
    assert loot.read_bytes() == b"as it was"


@pytest.mark.parametrize("plant", [a_link, a_link_to_nowhere])
def test_a_lock_and_a_ledger_are_not_made_through_a_link(tmp_path: Path, loot: Path, plant: Plant) -> None:
    folder = tmp_path / "site"
    folder.mkdir()
    plant(folder / "serving", loot)
    with pytest.raises(ConfigurationMistaken, match="cannot be served"), serving_lock(folder):
        pass
    a_link_to_nowhere(folder / "ledger.sqlite", loot)
    with pytest.raises(ConfigurationMistaken, match="is not a regular file"):
        Database(folder / "ledger.sqlite", schema="CREATE TABLE t (x INTEGER) STRICT;")
    assert [path.name for path in loot.parent.iterdir()] == ["loot"]


# --- folders -----------------------------------------------------------------------------------------------------


def test_a_folder_of_ours_is_closed_to_others(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site").chmod(0o777)
    make_private_folder(tmp_path / "site")
    assert mode(tmp_path / "site") == 0o700


def test_a_link_in_place_of_a_folder_is_not_followed(tmp_path: Path, loot: Path) -> None:
    loot.parent.chmod(0o755)
    (tmp_path / "site").symlink_to(loot.parent)
    with pytest.raises(ConfigurationMistaken, match="is a link; name the folder itself"):
        make_private_folder(tmp_path / "site")
    assert mode(loot.parent) == 0o755


@AS_ROOT
def test_a_folder_of_somebody_else_s_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir(mode=0o755)
    os.chown(tmp_path / "site", SOMEBODY, SOMEBODY)
    with pytest.raises(ConfigurationMistaken, match="belongs to another user"):
        make_private_folder(tmp_path / "site")
    assert mode(tmp_path / "site") == 0o755


def test_a_file_in_place_of_a_folder_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "site").touch()
    with pytest.raises(ConfigurationMistaken, match="cannot be made a folder of yours: Not a directory"):
        make_private_folder(tmp_path / "site")
