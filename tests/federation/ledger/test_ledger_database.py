"""The file under a ledger: durable, exclusive, and honest about failure."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from wardround.federation.errors import (
    ConfigurationMistaken,
    InvariantBroken,
    LedgerBusy,
    LedgerCorrupt,
    LedgerFull,
    Refused,
)
from wardround.federation.ledger.connections import MOST_READERS
from wardround.federation.ledger.serving_lock import serving_lock
from wardround.federation.ledger.sqlite_file import Database, Durability

SCHEMA = """
CREATE TABLE marks (mark TEXT NOT NULL CHECK (length(mark) < 100000)) STRICT;
CREATE TRIGGER marks_stay BEFORE DELETE ON marks
BEGIN SELECT RAISE(ABORT, 'stays'); END;
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


def marks(database: Database) -> list[str]:
    with database.reading() as connection:
        return [row[0] for row in connection.execute("SELECT mark FROM marks")]


def mark(database: Database, text: str) -> None:
    with database.transaction() as connection:
        connection.execute("INSERT INTO marks VALUES (?)", (text,))


def test_every_commit_waits_for_the_disk_and_its_folder(path: Path) -> None:
    with Database(path, schema=SCHEMA).reading() as connection:
        pragmas = [
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "foreign_keys", "trusted_schema")
        ]
    assert pragmas == ["delete", 3, 1, 0]


def test_only_its_owner_can_read_it(path: Path) -> None:
    Database(path, schema=SCHEMA)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_journal_is_as_private_as_the_database(path: Path) -> None:
    database = Database(path, schema=SCHEMA)
    with database.transaction() as connection:
        connection.execute("INSERT INTO marks VALUES ('a')")
        journal = path.with_name(path.name + "-journal")
        assert stat.S_IMODE(journal.stat().st_mode) == 0o600


def lose(database: Database) -> None:
    with database.transaction() as connection:
        connection.execute("INSERT INTO marks VALUES ('lost')")
        raise KeyError


def test_a_block_that_raises_leaves_nothing(path: Path) -> None:
    database = Database(path, schema=SCHEMA)
    with pytest.raises(KeyError):
        lose(database)
    mark(database, "kept")
    assert marks(database) == ["kept"]


def in_threads(number: int, work: Callable[[int], object]) -> list[BaseException]:
    """Run the work in so many threads at once; what they raised."""
    errors: list[BaseException] = []
    ready = threading.Barrier(number)

    def run(who: int) -> None:
        ready.wait()
        try:
            work(who)
        except BaseException as error:  # noqa: BLE001 -- for whoever looks afterwards
            errors.append(error)

    threads = [threading.Thread(target=run, args=(who,)) for who in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def test_writes_of_many_threads_all_arrive_and_connections_do_not_grow(path: Path) -> None:
    database = Database(path, schema=SCHEMA, keeping=Durability.FILE)

    def work(who: int) -> None:
        for number in range(25):
            mark(database, f"{who}.{number}")
            assert f"{who}.{number}" in marks(database)

    assert in_threads(32, work) == []
    assert len(set(marks(database))) == 800
    assert database._connections.opened <= MOST_READERS + 1


def commits(path: Path) -> int:
    """How often the file was committed to: SQLite counts it in its header."""
    with closing(sqlite3.connect(path)) as other:
        return int.from_bytes(other.serialize()[24:28], "big")


def test_threads_that_wait_share_one_commit_and_none_returns_before_it(path: Path) -> None:
    database = Database(path, schema=SCHEMA)
    seen: list[int] = []
    inside, go_on = threading.Event(), threading.Event()

    def first() -> None:
        with database.transaction() as connection:
            connection.execute("INSERT INTO marks VALUES ('first')")
            inside.set()
            go_on.wait()
        seen.append(len(marks(database)))

    def later(who: int) -> None:
        mark(database, f"later {who}")
        seen.append(len(marks(database)))

    threads = [threading.Thread(target=first)]
    threads[0].start()
    inside.wait()
    threads += [threading.Thread(target=later, args=(who,)) for who in range(5)]
    for thread in threads[1:]:
        thread.start()
    while database.waiting < 5:
        time.sleep(0.001)
    before = commits(path)
    go_on.set()
    for thread in threads:
        thread.join()
    assert commits(path) == before + 1
    assert seen == [6] * 6


def test_one_that_raises_is_undone_alone(path: Path) -> None:
    database = Database(path, schema=SCHEMA)

    def work(who: int) -> None:
        lose(database) if who % 2 else mark(database, str(who))

    errors = in_threads(16, work)
    assert {type(error) for error in errors} == {KeyError}
    assert sorted(marks(database), key=int) == [str(who) for who in range(0, 16, 2)]


def test_a_ledger_in_memory_is_in_its_file_once_it_is_closed(path: Path) -> None:
    database = Database(path, schema=SCHEMA, keeping=Durability.MEMORY)
    mark(database, "a")
    with pytest.raises(KeyError):
        lose(database)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert marks(Database(path, schema=SCHEMA, existing=True)) == []
    database.close()
    again = Database(path, schema=SCHEMA, keeping=Durability.MEMORY, existing=True)
    mark(again, "b")
    again.close()
    assert marks(Database(path, schema=SCHEMA, existing=True)) == ["a", "b"]


def test_a_ledger_in_memory_is_for_one_thread(path: Path) -> None:
    database = Database(path, schema=SCHEMA, keeping=Durability.MEMORY)
    errors: list[BaseException] = []

    def use() -> None:
        try:
            mark(database, "a")
        except InvariantBroken as error:
            errors.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert [type(error) for error in errors] == [InvariantBroken]
    assert marks(database) == []


def test_a_lock_that_stays_is_busy_and_decides_nothing(path: Path) -> None:
    database = Database(path, schema=SCHEMA, busy_seconds=0.05)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerBusy):
        mark(database, "a")
    holder.execute("ROLLBACK")
    mark(database, "b")
    assert marks(database) == ["b"]
    holder.close()


def test_a_reader_who_stays_makes_the_commit_busy_and_undone(path: Path) -> None:
    database = Database(path, schema=SCHEMA, busy_seconds=0.05)
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM marks").fetchall()
    with pytest.raises(LedgerBusy):
        mark(database, "a")
    reader.execute("ROLLBACK")
    assert marks(database) == []
    mark(database, "b")
    assert marks(database) == ["b"]
    reader.close()


def fill(database: Database) -> None:
    """From now on there is room for one more page, as far as the connection that writes can see."""
    with database.transaction() as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 1}")


def test_a_full_disk_undoes_and_waits_and_the_same_process_goes_on(path: Path) -> None:
    database = Database(path, schema=SCHEMA)
    fill(database)
    mark(database, "before")
    with pytest.raises(LedgerFull, match="no room on the disk"):
        mark(database, "x" * 50_000)
    assert marks(database) == ["before"]
    mark(database, "after")
    assert marks(Database(path, schema=SCHEMA)) == ["before", "after"]


def test_a_full_disk_inside_a_group_undoes_the_whole_group(path: Path) -> None:
    database = Database(path, schema=SCHEMA)
    fill(database)
    inside, go_on = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def write(text: str, *, wait: bool = False) -> None:
        try:
            with database.transaction() as connection:
                connection.execute("INSERT INTO marks VALUES (?)", (text,))
                if wait:
                    inside.set()
                    go_on.wait()
        except LedgerFull as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=("small",), kwargs={"wait": True})]
    threads[0].start()
    inside.wait()
    threads.append(threading.Thread(target=write, args=("x" * 50_000,)))
    threads[1].start()
    while database.waiting < 1:
        time.sleep(0.001)
    go_on.set()
    for thread in threads:
        thread.join()
    # The first one's own part was sound, but it was never committed: it must not believe that it was.
    assert len(errors) == 2
    assert marks(database) == []
    mark(database, "after")
    assert marks(database) == ["after"]


NO_DESCRIPTORS = """
import os, pathlib, resource, sys
from wardround.federation.errors import LedgerFull
from wardround.federation.ledger.sqlite_file import Database
database = Database(pathlib.Path(sys.argv[1]), schema=sys.argv[2])
def mark(text):
    with database.transaction() as connection:
        connection.execute("INSERT INTO marks VALUES (?)", (text,))
mark("before")
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
held = []
while True:
    try:
        held.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        break
try:
    mark("lost")
except LedgerFull as error:
    print(error.code, error.message)
for descriptor in held:
    os.close(descriptor)
mark("after")
with database.reading() as connection:
    print([row[0] for row in connection.execute("SELECT mark FROM marks")])
"""


def test_without_a_descriptor_nothing_is_written_and_the_same_process_goes_on(path: Path) -> None:
    command = [sys.executable, "-c", NO_DESCRIPTORS, str(path), SCHEMA]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout.splitlines(), done.stderr, done.returncode) == (
        [f"LedgerFull {LedgerFull.sentence}", "['before', 'after']"],
        "",
        0,
    )


def test_a_ledger_that_is_gone_is_not_a_full_disk(path: Path) -> None:
    database = Database(path, schema=SCHEMA)
    mark(database, "a")
    database.close()
    path.unlink()
    with pytest.raises(InvariantBroken, match="moved, removed or replaced"):
        mark(database, "b")


def test_what_the_database_itself_refuses_is_our_fault(path: Path) -> None:
    database = Database(path, schema=SCHEMA)
    mark(database, "a")
    with pytest.raises(InvariantBroken), database.transaction() as connection:
        connection.execute("DELETE FROM marks")
    assert marks(Database(path, schema=SCHEMA)) == ["a"]


def test_a_transaction_inside_another_is_our_fault(path: Path) -> None:
    database = Database(path, schema=SCHEMA)
    with pytest.raises(InvariantBroken), database.transaction(), database.transaction():
        pass


def test_a_view_does_not_move_while_others_write(path: Path) -> None:
    database = Database(path, schema=SCHEMA, busy_seconds=0.05)
    other = Database(path, schema=SCHEMA, busy_seconds=0.05)
    with database.reading() as connection:
        before = connection.execute("SELECT count(*) FROM marks").fetchone()
        with pytest.raises(LedgerBusy):
            mark(other, "a")
        assert connection.execute("SELECT count(*) FROM marks").fetchone() == before


def test_a_file_for_other_tables_is_refused(path: Path) -> None:
    Database(path, schema=SCHEMA)
    with pytest.raises(LedgerCorrupt, match="another version"):
        Database(path, schema="CREATE TABLE others (x TEXT) STRICT;")


def test_a_file_that_is_not_a_database_is_corrupt(path: Path) -> None:
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(LedgerCorrupt):
        Database(path, schema=SCHEMA)


def test_a_missing_ledger_is_never_made_anew_by_opening_it(path: Path) -> None:
    with pytest.raises(
        ConfigurationMistaken, match="is missing; a lost ledger is never replaced by a new one: restore"
    ):
        Database(path, schema=SCHEMA, existing=True)
    assert not path.exists()


OTHER = """
import sys, pathlib
from wardround.federation.ledger.serving_lock import serving_lock
with serving_lock(pathlib.Path(sys.argv[1])):
    print('serving', flush=True)
    sys.stdin.read()
"""


def test_a_folder_is_served_by_one_process(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OTHER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"serving\n"
        with pytest.raises(Refused, match="another process is serving"), serving_lock(tmp_path):
            pass
        other.kill()
        other.wait()
        with serving_lock(tmp_path):
            pass


def test_a_folder_that_is_not_there_cannot_be_served(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationMistaken), serving_lock(tmp_path / "absent"):
        pass
