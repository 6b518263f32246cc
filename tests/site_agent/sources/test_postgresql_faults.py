"""PostgreSQL: what a hospital's database may lose and forbid, and what the session may do."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from site_agent.reading.batches import BATCH_ROWS
from site_agent.reading.dataset import Dataset, TableSource
from site_agent.serving.open_dataset import open_dataset
from tests.site_agent.sources.conformance.study_rows import UNIT_KEY, agreed, rows_of
from tests.site_agent.sources.postgresql_cluster import Cluster, absent, begun, cluster
from tests.site_agent.sources.postgresql_tables import (
    AB,
    BY_DX,
    KEY,
    ask,
    dataset,
    new_table,
    postgresql_table,
    study,
    totals,
)
from tests.site_agent.sources.reference_totals import Row
from wardround.federation.errors import ConfigurationMistaken, SchemaRefused, SourceAway, SourceFailed
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.question.query import Aggregate, Statistic

psycopg = pytest.importorskip("psycopg")
from site_agent.reading.sources.postgresql.connection import reading  # noqa: E402
from site_agent.reading.sources.postgresql.table import PostgresqlTable, can_write, open_postgresql  # noqa: E402

pytestmark = pytest.mark.skipif(bool(absent()), reason=absent() or "PostgreSQL is there")
COUNT = ask(study(AB), Aggregate(Statistic.COUNT), by=BY_DX)
SECRET = "E11-of-Jane"


def small() -> str:
    return new_table([{"patient_id": SECRET, "dx": "A"}], {"patient_id": "text", "dx": "text"})


def refusal(source: Dataset, asked: AnswerLayout = COUNT) -> str:
    with pytest.raises(SchemaRefused) as refused:
        source.check(asked)
    with pytest.raises(SourceFailed) as failed:
        source.bounded(asked)
    assert str(failed.value) == SourceFailed.sentence
    assert failed.value.__context__ is None
    assert failed.value.__cause__ is None
    return str(refused.value)


def test_a_missing_table_is_named() -> None:
    assert refusal(dataset("absent")) == "The table 'visits' does not exist at this site."


def test_a_missing_column_is_named() -> None:
    name = new_table([], {"patient_id": "text"})
    assert refusal(dataset(name)) == "The table 'visits' has no column 'dx' at this site."


@pytest.mark.parametrize("kind", ["boolean", "date", "jsonb", "text[]", "int4range", "bytea"])
def test_a_column_of_another_type_is_named(kind: str) -> None:
    name = new_table([], {"patient_id": "text", "dx": kind})
    assert "not a column of type category" in refusal(dataset(name))


def test_a_nested_key_is_refused() -> None:
    name = new_table([], {"patient_id": "int4[]", "dx": "text"})
    assert "has a nested type" in refusal(dataset(name))


def test_a_table_without_permission_is_named() -> None:
    cluster().run("DROP ROLE IF EXISTS nobody_special", "CREATE ROLE nobody_special LOGIN")
    assert refusal(dataset(small(), user="nobody_special")) == "The table 'visits' cannot be read by the site's role."


def is_away(source: Dataset, asked: AnswerLayout = COUNT) -> bool:
    """Whether the source says before the charge, and after it, that it is away, and nothing of what the driver says."""
    with pytest.raises(SourceAway) as before:
        source.check(asked)
    with pytest.raises(SourceAway) as after:
        source.bounded(asked)
    assert before.value.message == "The database of the table 'visits' cannot be reached now."
    assert after.value.message == SourceAway.sentence
    assert [each.value.private for each in (before, after)] == ["", ""], "what an agent logs of it is nothing more"
    assert [each.__context__ or each.__cause__ for each in (before.value, after.value)] == [None, None]
    return before.value.unread and after.value.unread


@pytest.mark.parametrize("address", ["postgresql://reader@/postgres?host=/nonexistent", "elsewhere"])
def test_a_database_that_is_not_there_is_away_before_the_charge_and_after_it(address: str) -> None:
    source = TableSource(cluster().address(database=address) if address == "elsewhere" else address)
    assert is_away(open_dataset({"visits": source}, folder=Path("/"), key=KEY))


def test_a_database_in_another_encoding_is_refused() -> None:
    cluster().run("DROP DATABASE IF EXISTS old")
    cluster().run("CREATE DATABASE old TEMPLATE template0 ENCODING SQL_ASCII LOCALE 'C'")
    source = TableSource(cluster().address(database="old"))
    assert "UTF-8" in refusal(open_dataset({"visits": source}, folder=Path("/"), key=KEY))


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://reader:hunter2@db/ehr",
        "postgresql://reader@db/ehr?password=hunter2",
        "postgresql://reader@db/ehr?options=-crole%3Dhunter2",
        "postgresql://[hunter2",
    ],
)
def test_an_address_with_a_password_or_without_sense_is_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(ConfigurationMistaken) as refused:
        open_dataset({"visits": TableSource(address)}, folder=Path("/"), key=KEY)
    assert "hunter2" not in str(refused.value)


def test_time_runs_out_without_a_word() -> None:
    cluster().run(
        "CREATE OR REPLACE VIEW slow AS SELECT i::text AS patient_id, 'A'::text AS dx "
        "FROM generate_series(1, 100000000) AS i"
    )
    patient, hasty = (
        open_dataset(
            {"visits": TableSource(cluster().address(), "slow", timeout_seconds=seconds)}, folder=Path("/"), key=KEY
        )
        for seconds in (600.0, 1.0)
    )
    # Looking takes no time, but a busy machine may take longer than the question has.
    patient.check(COUNT)
    began = time.monotonic()
    with pytest.raises(SourceFailed) as failed:
        hasty.bounded(COUNT)
    assert failed.value.__context__ is None
    assert time.monotonic() - began < 60


def test_an_error_of_the_hospitals_own_view_says_nothing() -> None:
    cluster().run(
        f'CREATE OR REPLACE VIEW torn AS SELECT patient_id, (1 / (length(dx) - 1))::text AS dx FROM "{small()}"'
    )
    torn = open_dataset({"visits": TableSource(cluster().address(), "torn")}, folder=Path("/"), key=KEY)
    torn.check(COUNT)
    with pytest.raises(SourceFailed) as failed:
        torn.bounded(COUNT)
    assert str(failed.value) == SourceFailed.sentence
    assert failed.value.__context__ is None


@pytest.fixture
def own_cluster() -> Iterator[Cluster]:
    found = begun(shared_buffers="16MB")
    yield found
    found.remove()


def test_a_restarted_database_is_asked_again(own_cluster: Cluster) -> None:
    own_cluster.fill("visits", {"patient_id": "text", "dx": "text"}, [("a", "A")])
    source = open_dataset({"visits": TableSource(own_cluster.address())}, folder=Path("/"), key=KEY)
    assert totals(source, COUNT) == [[1, 0]]
    own_cluster.stop()
    assert is_away(source)
    own_cluster.start()
    assert totals(source, COUNT) == [[1, 0]]


def test_a_connection_lost_between_two_batches_is_a_lost_connection(own_cluster: Cluster) -> None:
    own_cluster.run(
        "CREATE TABLE visits AS SELECT i::text AS patient_id, 'A'::text AS dx FROM generate_series(1, 300000) AS i"
    )
    found = open_postgresql("visits", TableSource(own_cluster.address()), key=KEY).batches(COUNT.table)
    assert len(next(found).units) == BATCH_ROWS
    own_cluster.stop()
    with pytest.raises(SourceAway) as lost:
        next(found)
    assert lost.value.__context__ is None
    assert not lost.value.unread, "rows were read, so that it counts"


FAILING = {
    "a number that is none": ("22012", SourceFailed),
    "too slow": ("57014", SourceFailed),
    "no memory": ("53200", SourceFailed),
    "a block that is damaged": ("XX001", SourceFailed),
    "the administrator ends it": ("57P01", SourceAway),
    "another session's crash": ("57P02", SourceAway),
    "a way that is gone": ("08006", SourceAway),
    "a standby that goes on": ("40001", SourceAway),
}


@pytest.mark.parametrize("name", FAILING)
def test_what_the_server_says_decides_whether_rows_may_have(name: str) -> None:
    code, kind = FAILING[name]
    view = f"failing_{code.lower()}"
    cluster().run(
        f"CREATE OR REPLACE FUNCTION public.{view}(text) RETURNS text LANGUAGE plpgsql VOLATILE AS "
        f"$$ BEGIN RAISE EXCEPTION 'canary' USING ERRCODE = '{code}'; END $$",
        f'CREATE OR REPLACE VIEW {view} AS SELECT patient_id, public.{view}(dx) AS dx FROM "{small()}"',
    )
    source = open_dataset({"visits": TableSource(cluster().address(), view)}, folder=Path("/"), key=KEY)
    source.check(COUNT)
    with pytest.raises((SourceAway, SourceFailed)) as raised:
        source.bounded(COUNT)
    assert type(raised.value) is kind
    assert raised.value.message == kind.sentence
    assert raised.value.__context__ is None


def test_a_lock_is_waited_for_and_then_the_table_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("site_agent.reading.sources.postgresql.connection._LOCK_MILLISECONDS", 50)
    name = small()
    with psycopg.connect(cluster().address("postgres")) as writer:
        writer.execute(f'LOCK TABLE "{name}" IN ACCESS EXCLUSIVE MODE')
        with pytest.raises(SourceAway) as away:
            dataset(name).bounded(COUNT)
    assert away.value.unread
    assert totals(dataset(name), COUNT) == [[1, 0]]


# --- What the session may do ------------------------------------------------------------------------------------


def test_the_session_can_read_and_nothing_else() -> None:
    with reading(cluster().address("postgres"), timeout_seconds=60) as connection:
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            connection.execute("CREATE TABLE written (x int)")
        connection.rollback()
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            connection.execute("CREATE TABLE written (x int)")
        connection.rollback()
        shown = connection.execute("SELECT application_name FROM pg_stat_activity WHERE pid = pg_backend_pid()")
        assert shown.fetchone() == ("wardround",)


def test_a_function_put_in_the_way_is_not_called() -> None:
    """Somebody who may create functions in a schema that is searched could read, or lie, with our role."""
    name = new_table([{"patient_id": 1, "dx": "A"}], {"patient_id": "int8", "dx": "text"})
    cluster().run(
        "CREATE OR REPLACE FUNCTION public.least(bigint, bigint) RETURNS bigint LANGUAGE sql AS 'SELECT 9::bigint'",
        "CREATE OR REPLACE FUNCTION public.hashint8extended(bigint, bigint) RETURNS bigint LANGUAGE plpgsql "
        "AS 'BEGIN RAISE EXCEPTION ''called''; END'",
        "ALTER ROLE reader SET search_path = public, pg_catalog",
    )
    try:
        assert totals(dataset(name), ask(study(AB, rows=1), Aggregate(Statistic.COUNT), by=BY_DX)) == [[1, 0]]
    finally:
        cluster().run("ALTER ROLE reader RESET search_path", "DROP FUNCTION public.hashint8extended(bigint, bigint)")


def test_a_role_that_could_write_is_told_of() -> None:
    name = small()
    cluster().run("DROP ROLE IF EXISTS scribe", "CREATE ROLE scribe LOGIN")
    cluster().run(f'GRANT SELECT, INSERT ON "{name}" TO scribe')
    found = {
        user: can_write(COUNT.table, TableSource(cluster().address(user), f'"{name}"'))
        for user in ("reader", "postgres", "scribe")
    }
    cluster().run(f'REVOKE ALL ON "{name}" FROM scribe')
    assert found == {"reader": False, "postgres": True, "scribe": True}
    assert not can_write(COUNT.table, TableSource("postgresql://reader@/postgres?host=/nonexistent"))


def test_a_hospitals_own_select_is_answered() -> None:
    name = small()
    select = f"SELECT patient_id, CASE WHEN dx = 'A' THEN 'B' END AS dx FROM \"{name}\""
    source = open_dataset({"visits": TableSource(cluster().address(), select)}, folder=Path("/"), key=KEY)
    assert totals(source, COUNT) == [[0, 1]]


def test_words_that_look_like_sql_are_words() -> None:
    words = ["it's", "back\\slash", "a\nb", "%s", "$1", "x'); DROP TABLE visits; --", "\ufdd0", "é", "e\u0301"]
    rows: list[Row] = [{"patient_id": str(place), "dx": word} for place, word in enumerate(words)]
    name = new_table(rows, {"patient_id": "text", "dx": "text"})
    listed = json.dumps(words)[1:-1]
    agreed_study = study(f'dx = {{ type = "category", values = [{listed}] }}')
    assert [column.values for column in agreed_study.tables[0].columns] == [tuple(words)]
    asked = ask(agreed_study, Aggregate(Statistic.COUNT), by=BY_DX)
    assert totals(dataset(name), asked) == [[1] * len(words)]


def test_rows_are_handed_out_once_with_their_types() -> None:
    rows = rows_of(random.Random(1), patients=5, rows=30)
    source = postgresql_table(rows, agreed(), Path("/")).sources["visits"]
    if not isinstance(source, PostgresqlTable):
        raise TypeError(source)
    (batch,) = source.batches(agreed().tables[0])
    assert sorted(batch.units) == sorted(str(row[UNIT_KEY]) for row in rows if row[UNIT_KEY])
    assert set(batch.columns) == {column.name for column in agreed().tables[0].columns}
