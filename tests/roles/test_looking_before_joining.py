"""`site init` looks at the tables first: what no question could be answered from leaves the invitation unused."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from coordinator.members.enrolment import enrol_site, opened
from coordinator.members.folder import CoordinatorFolder
from coordinator.members.roster import Roster
from site_agent.serving.enrolment import begin, finish, prepare_enrolment
from site_agent.serving.folder import SiteFolder, open_folder
from tests.roles.enrolled import LIFE, NOW, enrol, found, hospital, invite
from wardround.federation.errors import ConfigurationMistaken

HEADER = "patient_id,age,sbp,code\n"
ROW = "Jane,50,120.5,a\n"
TYPES = "patient_id TEXT, age INTEGER, sbp DOUBLE, code TEXT"
UNUSED = "The study was not signed and the invitation is unused. "


@pytest.fixture
def consortium(tmp_path: Path) -> CoordinatorFolder:
    return found(tmp_path / "consortium")


def as_csv(path: Path, *, content: str = HEADER + ROW) -> None:
    path.write_text(content, encoding="utf-8")


def as_sqlite(path: Path) -> None:
    with closing(sqlite3.connect(path)) as made:
        made.execute(f"CREATE TABLE visits ({TYPES})")


def as_duckdb(path: Path) -> None:
    with duckdb.connect(path) as made:
        made.execute(f"CREATE TABLE visits ({TYPES})")


def as_parquet(path: Path) -> None:
    path.mkdir()
    with duckdb.connect() as made:
        made.execute(f"CREATE TABLE visits ({TYPES})")
        made.execute(f"COPY visits TO '{path / 'part.parquet'}' (FORMAT parquet)")


def asked(consortium: CoordinatorFolder, source: str, *, table: str = "") -> tuple[Path, Path, Path]:
    """A folder that is not there yet, the invitation, and a configuration that names a source outside of it."""
    invitation, config = invite(consortium, "north")
    text = config.read_text("utf-8").replace('source = "visits.csv"', f'source = "{source}"\n{table}')
    config.write_text(text, encoding="utf-8")
    return consortium.path.parent / "north", invitation, config


def join(consortium: CoordinatorFolder, folder: Path, invitation: Path, config: Path | None) -> list[str]:
    """`site init`, and what it said meanwhile."""
    said: list[str] = []
    ready = prepare_enrolment(folder, invitation, config, report=said.append)
    with opened(consortium) as ledger:
        finish(ready, enrol_site(ledger, consortium.authority(), begin(ready), life=LIFE, now=NOW))
    return said


KINDS: dict[str, Callable[[Path], None]] = {
    "../rows.csv": as_csv,
    "parquet:../exports": as_parquet,
    "../ehr.sqlite": as_sqlite,
    "sqlite:../ehr": as_sqlite,
    "../ehr.duckdb": as_duckdb,
}


@pytest.mark.parametrize("source", KINDS)
def test_a_site_joins_with_any_kind_of_source_that_is_sound(consortium: CoordinatorFolder, source: str) -> None:
    folder, invitation, config = asked(consortium, source)
    KINDS[source](consortium.path.parent / source.rpartition("/")[2])
    said = join(consortium, folder, invitation, config)
    assert open_folder(folder).configuration().tables["visits"].source == source
    reads = source.endswith(".csv") or source.startswith("parquet")
    assert said == ["reading the files of visits once, to check their format"] * reads


WRONG: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "no file": ("../rows.csv", lambda _: None, "The file of the table 'visits' does not exist."),
    "no column": (
        "../rows.csv",
        lambda path: as_csv(path, content="patient_id,age,sbp\nJane,50,canary\n"),
        "The table 'visits' has no column 'code' at this site.",
    ),
    "a torn file": (
        "../rows.csv",
        lambda path: as_csv(path, content=f'{HEADER}Jane,50,120,"canary\n'),
        "the quotation mark in line 2 is never closed",
    ),
    "no table": (
        "../ehr.sqlite",
        lambda path: sqlite3.connect(path).execute("CREATE TABLE others (canary)").connection.close(),
        "has no relation that can be read as site.toml says.",
    ),
    "no database": (
        "postgresql://canary@/ehr?host=/nonexistent",
        lambda _: None,
        "The database of the table 'visits' cannot be reached: nothing accepts connections",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_table_that_cannot_answer_uses_up_no_invitation_and_leaves_nothing(
    consortium: CoordinatorFolder, case: str
) -> None:
    source, make, says = WRONG[case]
    folder, invitation, config = asked(consortium, source)
    make(consortium.path.parent / source.rpartition("/")[2])
    with pytest.raises(ConfigurationMistaken) as refused:
        join(consortium, folder, invitation, config)
    assert refused.value.message.startswith(UNUSED)
    assert says in refused.value.message
    assert "canary" not in refused.value.message, "no value, no address"
    assert not folder.exists(), "no key was made"
    with opened(consortium) as ledger:
        assert Roster(ledger).sites() == ()
    # The same invitation serves once the table is there, and where it is left out for now.
    text = config.read_text("utf-8")
    left_out = text[: text.index("[tables.visits]")] + "[tables]\n" + text[text.index("[policy]") :]
    config.write_text(left_out, encoding="utf-8")
    assert join(consortium, folder, invitation, config) == []
    assert open_folder(folder).configuration().tables == {}


def test_every_table_that_is_wrong_is_named_at_once(tmp_path: Path) -> None:
    two = found(tmp_path / "two", study=TWO)
    invitation, config = invite(two, "north")
    config.write_text(
        config.read_text("utf-8").replace("[policy]", '[tables.labs]\nsource = "labs.csv"\n[policy]'), encoding="utf-8"
    )
    with pytest.raises(ConfigurationMistaken, match=r"table 'visits' does not exist\..*table 'labs' does not exist"):
        prepare_enrolment(tmp_path / "north", invitation, config)


def test_a_folder_that_was_there_stays(consortium: CoordinatorFolder) -> None:
    folder, invitation, config = asked(consortium, "../rows.csv")
    folder.mkdir(mode=0o700)
    with pytest.raises(ConfigurationMistaken, match="does not exist"):
        prepare_enrolment(folder, invitation, config)
    assert list(folder.iterdir()) == []


def test_a_certificate_is_renewed_whatever_became_of_the_tables(consortium: CoordinatorFolder) -> None:
    """A database that is down must not keep a hospital from coming back; its agent waits for it."""
    site: SiteFolder = hospital(consortium)
    before = (site.tls / "certificate.pem").read_bytes()
    (site.path / "visits.csv").write_text("", encoding="utf-8")
    enrol(consortium, site.path, invite(consortium, "north")[0], None)
    assert (site.tls / "certificate.pem").read_bytes() != before


TWO = """\
name = "two"
unit = "patient"
overlap = 1
[budget]
epsilon = 4.0
delta = 1e-6
[tables.visits]
unit_key = "patient_id"
max_rows_per_unit = 2
[tables.visits.columns]
age = { type = "integer", lower = 0, upper = 110 }
[tables.labs]
unit_key = "patient_id"
max_rows_per_unit = 2
[tables.labs.columns]
age = { type = "integer", lower = 0, upper = 110 }
"""
