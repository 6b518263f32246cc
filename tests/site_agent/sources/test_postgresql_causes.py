"""Why a PostgreSQL table cannot be looked at: told apart on the steward's terminal, in our own words alone."""

from __future__ import annotations

import datetime
import logging
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coordinator.members.authority import Authority
from site_agent.serving.check import _tables
from site_agent.serving.folder import SiteFolder
from site_agent.serving.open_dataset import prepare_site, site_dataset
from tests.fixtures.ports import HOST, take_port
from tests.roles.enrolled import Serving, found, hospital
from tests.site_agent.sources.postgresql_cluster import Cluster, absent, begun
from tests.site_agent.sources.tls_relay import relay
from wardround.federation.errors import SchemaRefused, SourceAway, Unavailable
from wardround.federation.plan.task import Failed
from wardround.federation.trust.certificates import Role, key_to_pem, new_tls_key

psycopg = pytest.importorskip("psycopg")
from site_agent.reading.sources.postgresql import causes  # noqa: E402
from site_agent.reading.sources.postgresql.causes import Cause, unreached  # noqa: E402

pytestmark = pytest.mark.skipif(bool(absent()), reason=absent() or "PostgreSQL is there")

SECRET = "hunter2"
HBA = """\
local all all       trust
host  all sealed    {host}/32 reject
host  all stranger  all       reject
host  all locked_in all       scram-sha-256
host  all sealed    all       trust
host  all reader    all       trust
host  all others    all       trust
host  all crowd     all       trust
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Who vouches for the server, and a password file."""
    folder = tmp_path_factory.mktemp("authority")
    now = datetime.datetime.now(datetime.UTC)
    for name in ("ours", "others"):
        Authority.create(folder / name, name=name, now=now)
    for name, word in (("right.pass", SECRET), ("wrong.pass", "guess")):
        (folder / name).write_text(f"*:*:*:locked_in:{word}\n", encoding="utf-8")
        (folder / name).chmod(0o600)
    return folder


@pytest.fixture(scope="module")
def server() -> Iterator[Cluster]:
    """A server that listens, with roles for every way in, and without TLS."""
    made = begun(shared_buffers="16MB", listen_addresses=HOST, port=str(take_port()))
    try:
        made.run(
            f"CREATE ROLE locked_in LOGIN PASSWORD '{SECRET}' IN ROLE pg_read_all_data",
            "CREATE ROLE sealed LOGIN IN ROLE pg_read_all_data",
            "CREATE ROLE others LOGIN",
            "CREATE ROLE crowd LOGIN CONNECTION LIMIT 0",
            "CREATE DATABASE closed",
            "REVOKE CONNECT ON DATABASE closed FROM PUBLIC",
            "CREATE TABLE visits (patient_id text, age int, sbp float8, code text)",
            "CREATE SCHEMA hidden",
            "CREATE TABLE hidden.visits (patient_id text, age int, sbp float8, code text)",
            "GRANT SELECT ON hidden.visits TO others",
        )
        (made.folder / "rows" / "pg_hba.conf").write_text(HBA.format(host=HOST), encoding="utf-8")
        made.run("SELECT pg_reload_conf()")
        yield made
    finally:
        made.remove()


@pytest.fixture(scope="module")
def tls(server: Cluster, place: Path) -> Iterator[str]:
    """The port at which the same server speaks TLS, with a certificate for localhost."""
    key, life, now = new_tls_key(), datetime.timedelta(days=1), datetime.datetime.now(datetime.UTC)
    ours = Authority.load(place / "ours")
    issued = ours.issue(key.public_key(), role=Role.COORDINATOR, name="db", life=life, now=now, hosts=["localhost"])
    for name, content in (("db.key", key_to_pem(key)), ("db.crt", issued)):
        (place / name).write_bytes(content)
    with relay(int(server.port), certificate=place / "db.crt", key=place / "db.key") as port:
        yield str(port)


def address(port: str, user: str = "reader", database: str = "postgres", **words: object) -> str:
    said = "&".join(f"{word}={value}" for word, value in words.items())
    return f"postgresql://{user}@{HOST}:{port}/{database}?{said}"


def at(server: Cluster, user: str = "reader", database: str = "postgres", **words: object) -> str:
    return address(server.port, user, database, **words)


Addressed = Callable[[Cluster, Path], str]
WAYS: dict[str, tuple[Addressed, Cause | None]] = {
    "there": (lambda server, _: at(server), None),
    "another host": (lambda *_: "postgresql://reader@no.such.host.invalid/postgres", Cause.UNRESOLVED),
    "a closed port": (lambda *_: f"postgresql://reader@{HOST}:{take_port()}/postgres", Cause.UNREACHED),
    "no socket": (lambda *_: "postgresql://reader@/postgres?host=/nonexistent", Cause.UNREACHED),
    "TLS that is not offered": (lambda server, _: at(server, sslmode="require"), Cause.NO_TLS),
    "an unknown role": (lambda server, _: at(server, "stranger"), Cause.LOGIN),
    "a role without a rule": (lambda server, _: at(server, "nobody_special"), Cause.LOGIN),
    "a role for TLS alone, which is off": (lambda server, _: at(server, "sealed"), Cause.LOGIN),
    "no password": (lambda server, _: at(server, "locked_in"), Cause.PASSFILE_LACKS),
    "a wrong password": (lambda server, place: at(server, "locked_in", passfile=place / "wrong.pass"),
        Cause.PASSFILE_WRONG),
    "the right password": (lambda server, place: at(server, "locked_in", passfile=place / "right.pass"), None),
    "no such database": (lambda server, _: at(server, database="ehr"), Cause.NO_DATABASE),
    "no such database behind a password": (
        lambda server, place: at(server, "locked_in", "ehr", passfile=place / "right.pass"), Cause.NO_DATABASE),
    "a database without the right": (lambda server, _: at(server, "others", "closed"), Cause.NO_CONNECT),
    "too many sessions": (lambda server, _: at(server, "crowd"), Cause.CROWDED),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_each_way_into_a_database_has_its_own_sentence(
    way: str, server: Cluster, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSFILE", "/nonexistent")
    addressed, cause = WAYS[way]
    assert unreached(addressed(server, place)) is cause


@pytest.mark.parametrize(
    ("user", "words", "cause"),
    [
        ("reader", {"sslmode": "require"}, None),
        ("reader", {"sslmode": "verify-full", "sslrootcert": "others"}, Cause.UNTRUSTED),
        ("reader", {"sslmode": "verify-full", "sslrootcert": "ours"}, Cause.UNTRUSTED),  # for localhost, not its number
        ("reader", {"sslmode": "verify-ca", "sslrootcert": "ours"}, None),
        ("reader", {"sslmode": "verify-ca", "sslrootcert": "nowhere"}, Cause.UNTRUSTED),
        ("reader", {"sslmode": "require", "ssl_max_protocol_version": "TLSv1"}, Cause.TLS),
        ("sealed", {"sslmode": "disable"}, Cause.TLS_ONLY),
        ("sealed", {}, None),
        ("stranger", {"sslmode": "disable"}, Cause.LOGIN),
    ],
)
def test_what_a_server_with_tls_wants_is_told_apart(
    user: str, words: dict[str, str], cause: Cause | None, tls: str, place: Path
) -> None:
    files = {word: place / value / "certificate.pem" for word, value in words.items() if word == "sslrootcert"}
    if "ssl_max_protocol_version" in words:
        words = {**words, "ssl_min_protocol_version": "TLSv1"}
    assert unreached(address(tls, user, **(words | files))) is cause


def test_the_most_telling_of_several_attempts_is_told(tls: str, place: Path) -> None:
    """Without an sslmode, libpq tries again without TLS after whatever failed; and one host after the other."""
    assert unreached(address(tls, "locked_in", passfile=place / "wrong.pass")) is Cause.PASSFILE_WRONG
    two = address(tls, database="ehr").replace(f"@{HOST}:", f"@{HOST}:{take_port()},{HOST}:")
    assert unreached(two) is Cause.NO_DATABASE


def test_a_server_that_is_silent_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causes, "CONNECT_SECONDS", 0.2)
    with socket.create_server((HOST, 0)) as silent:
        assert unreached(f"postgresql://reader@{HOST}:{silent.getsockname()[1]}/postgres") is Cause.SILENT


def test_the_words_of_a_server_are_not_even_heard(server: Cluster) -> None:
    """Its codes are, whatever language it speaks."""
    heard: list[str] = []
    session = psycopg.pq.PGconn.connect_start(at(server, database="canary").encode())
    causes._hear_only_codes(session)
    assert causes._polled(session)
    heard.append(session.get_error_message())
    session.finish()
    assert heard[0].endswith("FATAL:  3D000")
    assert "canary" not in heard[0]


# --- what the steward sees ------------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path: Path) -> SiteFolder:
    return hospital(found(tmp_path / "consortium"))


def keep_in(site: SiteFolder, address: str, relation: str = "") -> None:
    """Have the hospital's table in a database."""
    config = site.path / "site.toml"
    text = config.read_text("utf-8")
    begins, ends = text.index("[tables.visits]"), text.index("[policy]")
    more = f'relation = "{relation}"\n' if relation else ""
    said = f'[tables.visits]\nsource = "{address}"\n{more}'
    config.write_text(text[:begins] + said + text[ends:], encoding="utf-8")


def shown(site: SiteFolder) -> tuple[str, str]:
    """What `site check` and `site prepare` say about the table."""
    checked = next(_tables(site, site.configuration(), site.study(), lambda _: None))
    assert not checked.ok
    with pytest.raises((SourceAway, SchemaRefused)) as refused:
        prepare_site(site.path, report=lambda _: None)
    assert (refused.value.__cause__, refused.value.private) == (None, "")
    return checked.text, refused.value.message


REACHED = "The database of the table 'visits' cannot be reached: {}."
READ = "The table 'visits' cannot be read: {}."
SEEN: dict[str, tuple[Addressed, str, str, Cause]] = {
    "another host": (*WAYS["another host"][:1], "", REACHED, Cause.UNRESOLVED),
    "a closed port": (*WAYS["a closed port"][:1], "", REACHED, Cause.UNREACHED),
    "no TLS": (*WAYS["TLS that is not offered"][:1], "", REACHED, Cause.NO_TLS),
    "a wrong password": (*WAYS["a wrong password"][:1], "", REACHED, Cause.PASSFILE_WRONG),
    "no database": (*WAYS["no such database"][:1], "", REACHED, Cause.NO_DATABASE),
    "no table": (*WAYS["there"][:1], "elsewhere", READ, Cause.NO_TABLE),
    "no schema": (*WAYS["there"][:1], "elsewhere.visits", READ, Cause.NO_TABLE),
    "no right to read": (lambda server, _: at(server, "others"), "", READ, Cause.NO_RIGHT),
    "no right to the schema": (lambda server, _: at(server, "others"), "hidden.visits", READ, Cause.NO_RIGHT),
}


@pytest.mark.parametrize("case", SEEN)
def test_the_steward_sees_what_stands_in_the_way_and_nothing_of_the_address(
    case: str, server: Cluster, place: Path, site: SiteFolder
) -> None:
    addressed, relation, sentence, cause = SEEN[case]
    keep_in(site, addressed(server, place), relation)
    checked, prepared = shown(site)
    assert checked == prepared == sentence.format(cause)
    assert not any(word in checked for word in (server.port, HOST, "wrong.pass", "others", "postgresql://"))


def test_a_table_that_another_session_has_locked_is_told_of(
    server: Cluster, site: SiteFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("site_agent.reading.sources.postgresql.connection._LOCK_MILLISECONDS", 50)
    keep_in(site, at(server))
    with psycopg.connect(server.address("postgres")) as writer:
        writer.execute("LOCK TABLE visits IN ACCESS EXCLUSIVE MODE")
        assert shown(site) == (READ.format(Cause.LOCKED),) * 2


def test_a_column_that_is_missing_keeps_its_own_sentence(server: Cluster, site: SiteFolder) -> None:
    server.run("CREATE OR REPLACE VIEW narrow AS SELECT patient_id, age FROM visits")
    keep_in(site, at(server), "narrow")
    assert shown(site) == ("The table 'visits' has no column 'sbp' at this site.",) * 2


def test_a_function_that_fails_while_rows_are_prepared_says_nothing_of_them(server: Cluster, site: SiteFolder) -> None:
    server.run(
        "INSERT INTO visits VALUES ('Jane', 4, 120, 'canary')",
        "CREATE OR REPLACE VIEW torn AS SELECT patient_id, (1 / (age - 4))::int AS age, sbp, code FROM visits",
    )
    keep_in(site, at(server), "torn")
    try:
        with pytest.raises(Unavailable, match="could not be read to the end") as refused:
            prepare_site(site.path, report=lambda _: None)
    finally:
        server.run("TRUNCATE visits")
    assert "canary" not in refused.value.message + refused.value.private


def test_the_agent_says_no_more_than_before(server: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its log is read by more people than the steward, and its answers leave the hospital."""
    consortium = found(tmp_path / "consortium")
    site = hospital(consortium)
    keep_in(site, at(server, database="ehr"))
    serving = Serving(consortium, site)
    dataset = site_dataset(site, site.configuration(), site.study())
    object.__setattr__(serving.pipeline, "dataset", dataset)
    serving.pipeline.__post_init__()
    with caplog.at_level(logging.DEBUG):
        assert isinstance(serving.ask(), Failed)
    serving.close()
    said = [record.getMessage() for record in caplog.records if record.name.startswith("wardround")]
    assert said == ["the source of the table visits cannot be reached or is being changed; trying again"]
    assert not any(cause.value in caplog.text for cause in Cause)
