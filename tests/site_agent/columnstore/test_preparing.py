"""Making a snapshot: whole or not at all, readable by its owner alone, and no more in it than the study asks for."""

from __future__ import annotations

import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
import sqlglot
from sqlglot import exp

from site_agent.reading.batches import Batch, Preparable
from site_agent.reading.columnstore.build import prepare_table
from site_agent.reading.dataset import TableSource
from site_agent.reading.sources.duckdb.export_batches import duckdb_batches
from site_agent.reading.statements.records import TypedRows
from site_agent.serving.open_dataset import open_dataset
from tests.site_agent.columnstore.prepared_tables import (
    KEY,
    TABLE,
    Kept,
    every_question,
    form,
    opened,
    prepare,
    random_rows,
    row,
    snapshot,
    study,
    totals,
)
from wardround.federation.errors import ConfigurationMistaken, Unavailable
from wardround.federation.question.query import Aggregate, Query, Statistic
from wardround.federation.study.study import Table

COUNT = form(Query(TABLE, (Aggregate(Statistic.COUNT),)), study())


def test_only_its_owner_can_read_a_snapshot(tmp_path: Path) -> None:
    prepare(Kept(random_rows(patients=3, rows=50, seed=1)), study(), tmp_path)
    for path in [tmp_path / TABLE, *(tmp_path / TABLE).rglob("*")]:
        wanted = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path


def test_no_unit_key_and_no_row_on_its_way_is_left_in_a_snapshot(tmp_path: Path) -> None:
    rows = [row(f"canary-{number}", dx="E11", note="shown") for number in range(30)]
    prepare(Kept(rows), study(), tmp_path)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert all(b"canary" not in path.read_bytes() for path in files)
    assert not [path for path in files if path.name.startswith("rows-")]


def test_an_empty_table_has_a_snapshot_too(tmp_path: Path) -> None:
    kept = snapshot([], study(), tmp_path)
    for query in every_question():
        assert all(not any(part) for part in totals(form(query, study()), kept))


def test_a_source_that_fails_leaves_the_earlier_snapshot(tmp_path: Path) -> None:
    prepare(Kept([row(1), row(2)]), study(), tmp_path)
    with pytest.raises(Unavailable, match="no new snapshot was made; read all of them") as failure:
        prepare(Kept([row(n) for n in range(50)], batch_rows=10, fails_after=3), study(), tmp_path)
    assert failure.value.__context__ is None
    assert totals(COUNT, opened(study(), tmp_path)) == [[2 * 64]]
    assert len([path for path in (tmp_path / TABLE).iterdir() if path.is_dir()]) == 1


def test_a_source_that_changes_while_it_is_read_is_not_prepared(tmp_path: Path) -> None:
    class Restless(Kept):
        def batches(self, table: Table) -> Iterator[Batch]:
            yield from super().batches(table)
            self.state = "second"

    with pytest.raises(Unavailable, match="changed while it was read"):
        prepare(Restless([row(1)]), study(), tmp_path)
    assert [path.name for path in (tmp_path / TABLE).iterdir()] == ["lock"]


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / TABLE).mkdir()
    (tmp_path / TABLE / "lock").mkdir()
    with pytest.raises(ConfigurationMistaken, match="cannot be written"):
        prepare(Kept([row(1)]), study(), tmp_path)


def test_a_newer_snapshot_takes_the_place_of_an_older_one_and_of_what_a_killed_one_left(tmp_path: Path) -> None:
    (tmp_path / TABLE / "0123456789abcdef").mkdir(parents=True)
    (tmp_path / TABLE / "0123456789abcdef" / "rows-000").write_bytes(b"left behind")
    for count in (1, 5):
        manifest = prepare(Kept([row(n) for n in range(count)]), study(), tmp_path)
        assert [path.name for path in (tmp_path / TABLE).iterdir() if path.is_dir()] == [manifest.folder]
        assert totals(COUNT, opened(study(), tmp_path)) == [[count * 64]]


def test_a_question_goes_on_while_its_snapshot_is_replaced(tmp_path: Path) -> None:
    older = snapshot([row(n) for n in range(7)], study(), tmp_path)
    older.verify()
    prepare(Kept([row(n) for n in range(2)]), study(), tmp_path)
    patients = older._verified["patient"][1]
    assert len(patients) == 7 * 4


def test_two_preparations_at_once_take_turns(tmp_path: Path) -> None:
    sources = [Kept([row(n) for n in range(count)]) for count in (3, 4)]
    threads = [threading.Thread(target=prepare, args=(source, study(), tmp_path)) for source in sources]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert totals(COUNT, opened(study(), tmp_path)) in ([[3 * 64]], [[4 * 64]])


def test_shares_hand_out_every_row_once() -> None:
    query = sqlglot.parse_one(
        "SELECT i % 37 AS unit, i AS c_age, NULL::DOUBLE AS c_sbp, i / 3 AS c_gain, 'E11' AS c_dx, "
        "'n' || (i % 5) AS c_note, "
        "i % 2 = 0 AS c_sex, NULL::BIGINT AS c_ward, DATE '2024-02-01' AS c_seen FROM range(1000) t(i)",
        dialect="duckdb",
    )
    assert isinstance(query, exp.Query)
    with duckdb.connect(config={"threads": 1}) as connection:
        every = duckdb_batches(connection, TypedRows(query), study().table(TABLE), whole_keys=True, share_rows=90)
        found = list(every)
    ages = [age for batch in found for age in batch.columns["age"].values.tolist()]
    assert sorted(ages) == list(range(1000))
    assert len(found) == 12
    units = [set(batch.units.tolist()) for batch in found]
    assert sum(map(len, units)) == 37, "a unit is whole in one share"


@pytest.mark.parametrize("key_type", ["BIGINT", "VARCHAR", "UUID"])
def test_a_parquet_file_is_prepared_whatever_the_type_of_its_keys(key_type: str, tmp_path: Path) -> None:
    key = "md5((i % 11)::VARCHAR)::UUID" if key_type == "UUID" else f"(i % 11)::{key_type}"
    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (SELECT CASE WHEN i % 13 = 0 THEN NULL ELSE {key} END AS patient_id, i % 90 AS age, "
            "'secret' AS other, "
            "80 + i / 10 AS sbp, i / 7 AS gain, 'I10' AS dx, 'a' AS note, true AS sex, 1 AS ward, "
            "DATE '2024-02-01' AS seen "
            f"FROM range(600) t(i)) TO '{tmp_path / 'visits.parquet'}' (FORMAT parquet)"
        )
    agreed = study(rows=1000, groups=1000)
    tables = open_dataset({TABLE: TableSource("visits.parquet")}, folder=tmp_path, key=KEY)
    source = tables.sources[TABLE]
    assert isinstance(source, Preparable)
    prepare_table(
        agreed.table(TABLE),
        source,
        folder=tmp_path / "prepared" / TABLE,
        study_hash=agreed.study_hash,
        key=KEY,
        now_seconds=0.0,
        report=lambda _: None,
    )
    kept = opened(agreed, tmp_path / "prepared")
    asked = form(every_question()[1], agreed)
    assert totals(asked, kept) == [part.total.tolist() for part in tables.bounded(asked)]
    files = [path for path in (tmp_path / "prepared").rglob("*") if path.is_file()]
    assert all(b"secret" not in path.read_bytes() for path in files), "columns outside the study are not copied"


PROGRAM = """
import os, signal, sys
from pathlib import Path
from tests.site_agent.columnstore.prepared_tables import TABLE, Kept, form, opened, prepare, row, study, totals
from wardround.federation.question.query import Aggregate, Query, Statistic

folder, agreed = Path(sys.argv[1]), study()
asked = form(Query(TABLE, (Aggregate(Statistic.COUNT),)), agreed)


def prepare_until(moment):
    seen = 0

    def count(event, _):
        nonlocal seen
        if event in ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.chmod"):
            seen += 1
            if seen == moment:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    prepare(Kept([row(n) for n in range(5)]), agreed, folder)


moment, killed = 0, True
while killed:
    moment += 1
    prepare(Kept([row(n) for n in range(3)]), agreed, folder)
    child = os.fork()
    if child == 0:
        prepare_until(moment)
        os._exit(0)
    killed = os.waitpid(child, 0)[1] == signal.SIGKILL
    kept = opened(agreed, folder)
    kept.verify()
    print(totals(asked, kept)[0][0] // 64)
"""


def test_killed_at_any_moment_it_leaves_the_old_snapshot_or_the_new_one(tmp_path: Path) -> None:
    """Killed before each single thing it asks of the file system."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    found = [int(line) for line in done.stdout.split()]
    old = found.count(3)
    assert found == [3] * old + [5] * (len(found) - old)
    assert old > 20
    assert len(found) - old > 2, "once the new one is in place, what is left is tidying"
    assert len([path for path in (tmp_path / TABLE).iterdir() if path.is_dir()]) == 1
