"""`wardround status` says of either role's folder how it stands, and ends with 3 where it does not stand well."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from coordinator.members.folder import open_folder
from coordinator.members.presence import Presence
from coordinator.members.recovering import recover
from coordinator.members.roster import Roster
from coordinator.rounds.coordinator import Coordinator
from coordinator.serving.serve import initialise
from coordinator.store.ledger import open_ledger
from coordinator.store.recovery import Confirmed
from site_agent.serving.agent import WAITING, WORKING
from site_agent.store.heartbeat import CALLED_FILE, Heartbeat
from tests.cli.calling import call
from tests.screens.hostile_words import STUDY, Hospital
from wardround.federation.ledger.serving_lock import serving_lock
from wardround.federation.trust.identity import Identity
from wardround.privacy.budget.filter import Cap


@pytest.fixture
def consortium(tmp_path: Path) -> Path:
    folder = tmp_path / "consortium"
    initialise(folder, study_text=STUDY, configuration_text=None, now=datetime.datetime.now(datetime.UTC))
    return folder


@pytest.fixture
def hospital(tmp_path: Path) -> Hospital:
    (tmp_path / "north").mkdir()
    found = Hospital(tmp_path / "north")
    found.ledger.set_cap(Cap(4.0, 1e-6))
    return found


def enrolled(folder: Path, *names: str) -> None:
    opened = open_folder(folder)
    ledger = open_ledger(folder, study=opened.study(), identity=opened.identity())
    for name in names:
        Roster(ledger).enrol_site(
            name=name, identity=Identity.generate().public, patients=100, dataset=name, study_signature=b"s"
        )
    ledger.close()


def told(folder: Path, *, code: int) -> dict[str, object]:
    done = call("status", folder, "--json")
    assert done.code == code, done.out
    assert call("status", folder).code == code
    return done.document()


def note(folder: Path, *sites: str) -> None:
    """What a serving coordinator leaves behind, with these sites there."""
    opened, presence = open_folder(folder), Presence()
    ledger = open_ledger(folder, study=opened.study(), identity=opened.identity())
    coordinator = Coordinator(ledger, presence=presence)
    for site in sites:
        presence.heard(site)
        presence.note_version(site, "0.2.0")
    presence.write(folder, at_work=())
    coordinator.close()


def test_a_coordinator_that_nobody_serves_is_not_well(consortium: Path) -> None:
    enrolled(consortium, "north", "south")
    document = told(consortium, code=3)
    assert (document["role"], document["alive"]) == ("coordinator", False)
    assert document["faults"] == ["no process serves this folder"]


def test_a_coordinator_tells_of_its_sites(consortium: Path) -> None:
    enrolled(consortium, "north", "south", "west")
    opened = open_folder(consortium)
    ledger = open_ledger(consortium, study=opened.study(), identity=opened.identity())
    Roster(ledger).revoke("west")
    ledger.close()
    note(consortium, "north")
    with serving_lock(consortium):
        document = told(consortium, code=0)
        lines = call("status", consortium).out
    sites = document["sites"]
    assert isinstance(sites, dict)
    assert {name: (site["state"], site["version"]) for name, site in sites.items()} == {
        "north": ("active", "0.2.0"),
        "south": ("away", None),
        "west": ("revoked", None),
    }
    assert "  south  away  never seen\n" in lines
    assert document["healthy"] is True


def test_a_coordinator_whose_sites_are_away_is_behind(consortium: Path) -> None:
    enrolled(consortium, "north")
    note(consortium)
    with serving_lock(consortium):
        assert told(consortium, code=3)["faults"] == ["0 sites are there and the study needs 1"]


def test_a_coordinator_that_says_nothing_for_a_minute_is_behind(consortium: Path) -> None:
    enrolled(consortium, "north")
    with serving_lock(consortium):
        assert "the process that serves this folder has said nothing for a minute" in str(told(consortium, code=3))


def test_a_coordinator_that_waits_for_its_sites_after_a_recovery_is_not_well(consortium: Path) -> None:
    enrolled(consortium, "north")
    recover(consortium, Confirmed(("north",)))
    note(consortium, "north")
    with serving_lock(consortium):
        document = told(consortium, code=3)
    assert document["faults"] == ["it came back from a backup and answers no question before north rejoined"]


def test_a_site_is_well_while_it_is_served_and_heard(hospital: Hospital) -> None:
    assert told(hospital.folder, code=3)["faults"] == ["no process serves this folder"]
    with serving_lock(hospital.folder):
        assert told(hospital.folder, code=3)["last_answer"] is None
        Heartbeat(hospital.folder)(WAITING)
        document = told(hospital.folder, code=0)
    assert (document["role"], document["name"], document["working"]) == ("site", "north", False)


def test_a_site_that_works_for_long_is_well_and_one_that_waits_for_long_is_not(hospital: Hospital) -> None:
    import os

    for doing, code in ((WORKING, 0), (WAITING, 3)):
        Heartbeat(hospital.folder)(doing)
        os.utime(hospital.folder / CALLED_FILE, (1e9, 1e9))
        with serving_lock(hospital.folder):
            told(hospital.folder, code=code)


def test_a_folder_of_neither_role_is_a_mistake(tmp_path: Path) -> None:
    done = call("status", tmp_path)
    assert done.code == 2
    assert "is the folder of neither a coordinator nor a site" in done.err


def test_to_look_keeps_nobody_from_serving(hospital: Hospital) -> None:
    """Whoever looks holds the lock for a moment: a process that begins to serve just then waits for it."""
    import fcntl
    import os
    import threading

    descriptor = os.open(hospital.folder / "serving", os.O_RDONLY | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    timer = threading.Timer(0.03, os.close, (descriptor,))
    timer.start()
    with serving_lock(hospital.folder):
        timer.join()
