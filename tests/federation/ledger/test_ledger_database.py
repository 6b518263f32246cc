"""The file under a ledger: durable, exclusive, and honest about failure."""

from __future__ import annotations

import gc
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from wardround.federation.errors import ConfigurationMistaken, InvariantBroken, LedgerBusy, LedgerCorrupt, Refused
from wardround.federation.ledger.sqlite_file import Database, Durability, serving_lock

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


def test_every_thread_has_its_own_connection_and_all_writes_arrive(path: Path) -> None:
    database = Database(path, schema=SCHEMA, keeping=Durability.FILE)
    threads = [
        threading.Thread(target=lambda who=who: [mark(database, f"{who}.{n}") for n in range(25)]) for who in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(marks(database))) == 100


def test_the_connection_of_a_thread_that_ended_is_closed(path: Path) -> None:
    database = Database(path, schema=SCHEMA, keeping=Durability.FILE)
    thread = threading.Thread(target=mark, args=(database, "a"))
    thread.start()
    thread.join()
    del thread
    gc.collect()
    assert len(database._handles) == 1


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


def test_after_a_full_disk_the_process_must_stop(path: Path) -> None:
    database = Database(path, schema=SCHEMA)
    with database.reading() as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 1}")
    mark(database, "before")
    with pytest.raises(InvariantBroken):
        mark(database, "x" * 50_000)
    with pytest.raises(InvariantBroken, match="start again from what is on disk"):
        mark(database, "b")
    with pytest.raises(InvariantBroken, match="start again from what is on disk"):
        marks(database)
    assert marks(Database(path, schema=SCHEMA)) == ["before"]


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
from wardround.federation.ledger.sqlite_file import serving_lock
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
