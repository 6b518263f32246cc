"""Every sample under deploy/ is one that the real parsers accept, and names every key there is."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator.members.folder import parse_coordinator
from coordinator.serving.descriptors import MEMBERS, connections_within
from protos.serving import workers_for
from protos.turns import Turns
from site_agent.reading.dataset import table_files
from site_agent.serving.configuration import parse_site
from tests.docs.pages import ROOT
from tests.docs.test_pages import unknown_word
from wardround.analyst.learning.planner import outline
from wardround.analyst.learning.request import parse_request
from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.study.study import delta_fault
from wardround.federation.study.study_file import parse_study

DEPLOY = ROOT / "deploy"
SERVING = [DEPLOY / "wardround-coordinator.service", DEPLOY / "wardround-site.service"]
BACKUPS = [DEPLOY / "wardround-coordinator-backup.service", DEPLOY / "wardround-site-backup.service"]
UNITS = [*SERVING, *BACKUPS]


def read(file: str) -> str:
    return (DEPLOY / file).read_text("utf-8")


def test_the_samples_are_read_by_the_parsers_of_the_roles() -> None:
    study = parse_study(read("study.toml"))
    parse_coordinator(read("coordinator.toml"))
    site = parse_site(read("site.toml"), study)
    assert delta_fault(study.cap.delta, {site.name: site.patients}) is None
    for table, source in site.tables.items():
        table_files(table, source, folder=DEPLOY)
    outline(parse_request(read("request.toml")), study, sites=("north", "south"))


def test_no_sample_is_without_a_test() -> None:
    assert {path.name for path in DEPLOY.glob("*.toml")} == {
        "study.toml",
        "coordinator.toml",
        "site.toml",
        "request.toml",
    }


Parse = Callable[[str], object]


def _site(text: str) -> object:
    return parse_site(text, parse_study(read("study.toml")))


@pytest.mark.parametrize(
    ("file", "heading", "parse"),
    [
        ("study.toml", "", parse_study),
        ("study.toml", "[budget]", parse_study),
        ("study.toml", "[tables.encounters]", parse_study),
        ("coordinator.toml", "", parse_coordinator),
        ("site.toml", "", _site),
        ("site.toml", "[site]", _site),
        ("site.toml", "[coordinator]", _site),
        ("site.toml", "[tables.encounters]", _site),
        ("site.toml", "[policy]", _site),
        ("request.toml", "", parse_request),
    ],
)
def test_a_sample_names_every_key_there_is(file: str, heading: str, parse: Parse) -> None:
    text = read(file)
    begins = re.search(rf"(?m)^{re.escape(heading)}.*\n", text) if heading else None
    assert begins or not heading
    place = begins.end() if begins else 0
    # A key that nobody knows makes the parser list those it does.
    with pytest.raises(ConfigurationMistaken) as refused:
        parse(f"{text[:place]}qqqqqqqqqq = 1\n{text[place:]}")
    keys = re.search(r"known keys: (.*)\.", refused.value.message)
    assert keys is not None, refused.value.message
    assert [key for key in keys[1].split(", ") if not re.search(rf"(?m)^#? ?\[*[\w.]*{key}\b", text)] == []


def service_of(path: Path) -> dict[str, str]:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(path.read_text("utf-8"))
    return dict(unit["Service"])


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_service_runs_a_command_that_exists_without_rights(path: Path) -> None:
    service = service_of(path)
    assert unknown_word(service["ExecStart"].partition("wardround ")[2]) is None
    assert service["User"] == "wardround"
    assert service["UMask"] == "0077"
    assert service["NoNewPrivileges"] == "yes"


@pytest.mark.parametrize("path", SERVING, ids=lambda path: path.name)
def test_a_serving_process_is_started_again_unless_a_person_must_look(path: Path) -> None:
    service = service_of(path)
    assert service["StateDirectoryMode"] == "0700"
    # 2: a person must mend the configuration. 4: a person must look before anything else is answered.
    assert service["RestartPreventExitStatus"] == "2 4"


def test_a_services_limits_have_room_for_what_it_may_hold() -> None:
    coordinator, site = (service_of(path) for path in SERVING)
    assert connections_within(int(coordinator["LimitNOFILE"]), MEMBERS, wanted=None) == MEMBERS.connections
    # A thousand members, and the strangers' process.
    assert workers_for(Turns(names=1000)) + 512 < int(coordinator["TasksMax"])
    assert int(site["LimitNOFILE"]) >= 1024
    assert int(site["TasksMax"]) >= 1024


def test_a_site_starts_where_its_tables_are_in_a_database() -> None:
    service = service_of(SERVING[1])
    assert all(path.startswith("-") for path in service["ReadOnlyPaths"].split())
    # By name alone: systemd goes on without a credential that it does not find, but not without a file.
    assert "/" not in service["LoadCredential"]


@pytest.mark.parametrize("given", [True, False])
def test_a_password_file_is_handed_over_as_libpq_wants_it(tmp_path: Path, *, given: bool) -> None:
    service = service_of(SERVING[1])
    credentials, running = tmp_path / "credentials", tmp_path / "run" / service["RuntimeDirectory"]
    credentials.mkdir()
    running.mkdir(parents=True)
    if given:
        (credentials / service["LoadCredential"]).write_text("db:5432:ehr:reader:secret\n", encoding="utf-8")
        (credentials / service["LoadCredential"]).chmod(0o440)
    environment = {"CREDENTIALS_DIRECTORY": str(credentials), "RUNTIME_DIRECTORY": str(running), "PATH": os.defpath}
    command = service["ExecStartPre"]
    # A dash: without a file the service starts all the same.
    assert command.startswith("-")
    done = subprocess.run(["bash", "-c", command[1:]], env=environment, check=False, capture_output=True)
    assert (done.returncode == 0) is given
    named = Path(service["Environment"].removeprefix("PGPASSFILE=").replace("%t", str(tmp_path / "run")))
    assert named.exists() is given
    assert not given or named.stat().st_mode & 0o777 == 0o600


def test_no_service_is_without_a_test() -> None:
    assert sorted(DEPLOY.glob("*.service")) == sorted(UNITS)


@pytest.mark.parametrize(("backup", "serving"), list(zip(BACKUPS, SERVING, strict=True)), ids=["coordinator", "site"])
def test_a_timer_copies_the_folder_that_is_served_and_keeps_some_copies(backup: Path, serving: Path) -> None:
    words = service_of(backup)["ExecStart"].split()
    assert words[3] == service_of(serving)["ExecStart"].split()[-1]
    assert {words[3].rpartition("/")[0], words[4]} == set(service_of(backup)["ReadWritePaths"].split())
    assert words[5] == "--keep"
    timer = configparser.RawConfigParser(strict=False)
    timer.read_string(backup.with_suffix(".timer").read_text("utf-8"))
    assert dict(timer["Timer"])["persistent"] == "true"
    assert dict(timer["Install"])["wantedby"] == "timers.target"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed here")
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_reads_a_service(path: Path, tmp_path: Path) -> None:
    text = re.sub(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", path.read_text("utf-8"))
    (tmp_path / path.name).write_text(text, encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / path.name)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    complaints = [line for line in done.stderr.splitlines() if path.name in line]
    assert complaints == []
