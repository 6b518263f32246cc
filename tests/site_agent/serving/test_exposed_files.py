"""`site check` looks at every secret: its mode, its owner, whether it is a file at all; and says what to run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from site_agent.serving.check import CheckFinding, _permissions, check_site
from site_agent.serving.folder import SiteFolder, open_folder
from site_agent.serving.open_dataset import prepare_site
from tests.roles.enrolled import found, hospital
from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.ledger.verify.evidence import export

SOMEBODY = 54321
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
SECRETS = (
    ".",
    "identity.pem",
    "rows.key",
    "coordinator.json",
    "site.toml",
    "study.toml",
    "serving",
    "ledger.sqlite",
    "ledger.sqlite-journal",
    "ledger.sqlite-wal",
    "tls",
    "tls/key.pem",
    "tls/certificate.pem",
    "tls/authority.pem",
    "prepared",
    "prepared/visits",
    "prepared/visits/manifest.json",
    "prepared/visits/@snapshot",
    "prepared/visits/@snapshot/column-0",
    "prepared/visits/@snapshot/patient",
    "../shared/ehr.sqlite",
    "../shared/ehr.sqlite-journal",
    ".new-left",
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> SiteFolder:
    """A hospital with everything a folder can hold, among it files that only a serving agent has."""
    place = tmp_path_factory.mktemp("exposed")
    site = hospital(found(place / "consortium"), more='account = "../shared/ehr.sqlite"')
    (site.path / "visits.csv").write_text("patient_id,age,sbp,code\n1,50,120,a\n", encoding="utf-8")
    prepare_site(site.path, report=lambda _: None)
    (place / "shared").mkdir(mode=0o700)
    for name in ("serving", "ledger.sqlite-wal", "../shared/ehr.sqlite", ".new-left"):
        (site.path / name).touch(mode=0o600)
    # A journal that holds nothing is none: SQLite leaves it and goes on.
    for name in ("ledger.sqlite-journal", "../shared/ehr.sqlite-journal"):
        (site.path / name).touch(mode=0o600)
    return site


def place_of(site: SiteFolder, name: str) -> Path:
    (snapshot,) = (path.name for path in (site.path / "prepared" / "visits").glob("snapshot-*"))
    return site.path / name.replace("@snapshot", snapshot)


def permissions(site: SiteFolder) -> list[CheckFinding]:
    return list(_permissions(site, site.configuration()))


def mend(finding: CheckFinding) -> None:
    """Do what the finding says, to the letter."""
    subprocess.run(["/bin/sh", "-c", finding.text.rpartition(": ")[2]], check=True)


@pytest.fixture
def as_it_was(whole: SiteFolder) -> Iterator[SiteFolder]:
    assert [finding.ok for finding in permissions(whole)] == [True]
    yield whole
    assert [finding.ok for finding in permissions(whole)] == [True]


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize("mode", [0o040, 0o002])
def test_a_secret_that_others_can_reach_is_found_and_the_command_closes_it(
    as_it_was: SiteFolder, name: str, mode: int
) -> None:
    path = place_of(as_it_was, name)
    path.chmod(path.stat().st_mode | mode)
    (finding,) = permissions(as_it_was)
    assert (finding.ok, finding.text) == (False, f"accessible to other users; run: chmod go-rwx {path.resolve()}")
    mend(finding)


@AS_ROOT
@pytest.mark.parametrize("name", SECRETS[1:])
def test_a_secret_of_another_user_is_found_and_the_command_takes_it_back(as_it_was: SiteFolder, name: str) -> None:
    path = place_of(as_it_was, name)
    os.chown(path, SOMEBODY, -1)
    (finding,) = permissions(as_it_was)
    assert (finding.ok, finding.text) == (False, f"owned by another user; run: chown root {path.resolve()}")
    mend(finding)


@AS_ROOT
def test_whoever_looks_at_another_user_s_folder_is_told_whose_it_is(as_it_was: SiteFolder) -> None:
    for path in (as_it_was.path, *as_it_was.path.rglob("*"), *as_it_was.path.parent.joinpath("shared").rglob("*")):
        os.chown(path, SOMEBODY, -1)
    (finding,) = permissions(as_it_was)
    assert (finding.ok, finding.text.partition(";")[0]) == (False, f"the folder is {SOMEBODY}'s")
    for path in (as_it_was.path, *as_it_was.path.rglob("*"), *as_it_was.path.parent.joinpath("shared").rglob("*")):
        os.chown(path, 0, -1)


@pytest.mark.parametrize("name", [name for name in SECRETS if name not in (".", "tls", "site.toml", "study.toml")])
def test_a_link_in_place_of_a_secret_is_found_whatever_it_leads_to(
    as_it_was: SiteFolder, tmp_path: Path, name: str
) -> None:
    path = place_of(as_it_was, name)
    path.rename(tmp_path / "itself")
    path.symlink_to(tmp_path / "itself")
    (finding,) = permissions(as_it_was)
    assert (finding.ok, finding.text.split(": ")[-1]) == (False, f"rm {path.parent.resolve() / path.name}")
    mend(finding)
    (tmp_path / "itself").rename(path)


PIPES = ("site.toml", "study.toml", "coordinator.json", "rows.key", "tls/key.pem", "tls/authority.pem")


@pytest.mark.parametrize("name", PIPES)
def test_no_command_waits_for_a_pipe_in_place_of_a_file(as_it_was: SiteFolder, tmp_path: Path, name: str) -> None:
    path = as_it_was.path / name
    path.rename(tmp_path / "itself")
    os.mkfifo(path, 0o600)
    try:
        # What every command does first; nothing of the folder was opened before.
        with pytest.raises(ConfigurationMistaken) as told:
            open_folder(as_it_was.path)
    finally:
        path.unlink()
        (tmp_path / "itself").rename(path)
    assert (
        told.value.message
        == f"{path} is not a regular file; remove it and restore the file from the backup of this folder."
    )


def test_an_account_in_a_folder_where_others_write_could_be_replaced(as_it_was: SiteFolder) -> None:
    shared = as_it_was.path.parent / "shared"
    shared.chmod(0o770)
    (finding,) = permissions(as_it_was)
    assert finding.text.startswith("others could replace the shared account; run: chmod go-w ")
    mend(finding)
    shared.chmod(0o700)


def test_the_finding_is_one_of_a_check(as_it_was: SiteFolder) -> None:
    (as_it_was.path / "rows.key").chmod(0o644)
    wrong = [finding for finding in check_site(as_it_was.path) if finding.subject == "permissions"]
    (as_it_was.path / "rows.key").chmod(0o600)
    assert [finding.ok for finding in wrong] == [False]


# --- what is written beside secrets is staged like them ---------------------------------------------------------------


def test_an_export_and_a_snapshot_s_manifest_are_not_written_through_what_was_planted(
    as_it_was: SiteFolder, tmp_path: Path
) -> None:
    (loot := tmp_path / "loot").write_bytes(b"as it was")
    planted = [tmp_path / "out.new", as_it_was.path / "prepared" / "visits" / "manifest.json.new"]
    for link in planted:
        link.symlink_to(loot)
    export(as_it_was.path, tmp_path / "out")
    prepare_site(as_it_was.path, report=lambda _: None)
    planted[1].unlink()
    assert loot.read_bytes() == b"as it was"
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o600
