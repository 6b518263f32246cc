"""An account adds up loss of one unit; one from before units were noted learns them as its folders open it."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from pathlib import Path

import pytest

from coordinator.members.folder import CoordinatorFolder
from site_agent.serving.enrolment import prepare_enrolment
from tests.cli.calling import call
from tests.roles.enrolled import found, hospital, invite
from tests.site_agent.answering.test_hostile_training import TRAINED
from tests.site_agent.sharing import ACCOUNT, EVENTS, ask, checked, refused, serving
from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.plan.task import Declined, Released


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "shared").mkdir(mode=0o700)
    return tmp_path


@pytest.fixture
def account(place: Path) -> Path:
    return place / "shared" / "ehr.sqlite"


@pytest.fixture
def patients(place: Path) -> CoordinatorFolder:
    return found(place / "patients", study=TRAINED)


@pytest.fixture
def events(place: Path) -> CoordinatorFolder:
    return found(place / "events", study=EVENTS)


def test_loss_of_another_unit_is_not_added(
    patients: CoordinatorFolder, events: CoordinatorFolder, account: Path
) -> None:
    first, second = hospital(patients, "north", more=ACCOUNT), hospital(events, "south", more=ACCOUNT)
    spent = ask(patients, first, "01")
    told = refused(events, second)
    assert "ehr.sqlite counts patient-level loss (of north) and this study counts event-level loss" in told
    assert told.endswith("run for every folder that moves: wardround site account DIR")
    done = call("site", "account", second.path)
    assert (done.code, done.sentence()) == (2, told)
    # Whoever is refused leaves no trace: the first goes on.
    assert checked(first).ok
    assert ask(patients, first) == spent


def test_nor_where_the_folders_call_their_dataset_otherwise(
    patients: CoordinatorFolder, events: CoordinatorFolder
) -> None:
    first, second = hospital(patients, "north", more=ACCOUNT), hospital(events, "south", more=ACCOUNT)
    config = second.path / "site.toml"
    config.write_text(config.read_text("utf-8").replace('dataset = "ehr"', 'dataset = "ward"'), encoding="utf-8")
    ask(patients, first, "01")
    assert "counts patient-level loss (of north) and this study counts event-level loss" in refused(events, second)


def test_a_site_does_not_sign_a_study_whose_loss_its_account_cannot_add(
    patients: CoordinatorFolder, events: CoordinatorFolder, place: Path
) -> None:
    ask(patients, hospital(patients, "north", more=ACCOUNT), "01")
    files = invite(events, "south", more=ACCOUNT)
    with pytest.raises(ConfigurationMistaken, match="this study counts event-level"):
        prepare_enrolment(place / "south", *files)
    assert not (place / "south" / "identity.pem").exists()


def test_whoever_charges_first_decides_the_unit_also_between_two_that_serve(
    patients: CoordinatorFolder, events: CoordinatorFolder
) -> None:
    first, second = hospital(patients, "north", more=ACCOUNT), hospital(events, "south", more=ACCOUNT)
    with serving(patients, first) as one, serving(events, second) as other:
        assert isinstance(other.ask("01"), Released)
        reply = one.ask("02")
        assert isinstance(reply, Declined)
        assert (reply.code, one.rows.events, one.ledger.charges()) == ("PlanRefused", ["check"], [])
        assert isinstance(other.ask("03"), Released)


# --- accounts from before units were noted ---------------------------------------------------------------------------


def age(account: Path) -> None:
    """Make the file what it was before: no units, and marked by another version."""
    with contextlib.closing(sqlite3.connect(account, isolation_level=None)) as connection:
        connection.execute("DROP TABLE shared_units")
        connection.execute("PRAGMA application_id = 1")


def test_an_old_account_of_one_folder_is_used_as_it_is(patients: CoordinatorFolder, account: Path) -> None:
    site = hospital(patients, more=ACCOUNT)
    ask(patients, site, "01")
    age(account)
    assert checked(site).ok
    ask(patients, site, "02")
    assert checked(site).ok


def test_an_old_account_learns_the_units_as_its_folders_open_it(
    patients: CoordinatorFolder, account: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sites = [hospital(patients, name, more=ACCOUNT) for name in ("north", "south")]
    for number, site in enumerate(sites):
        ask(patients, site, f"0{number}")
    age(account)
    caplog.set_level(logging.WARNING)
    ask(patients, sites[0], "02")
    assert "holds charges of south that do not say whether they protect patients or events" in caplog.text
    assert "holds charges of south that do not say" in checked(sites[0]).text
    assert not checked(sites[0]).ok
    ask(patients, sites[1], "03")
    assert [checked(site).ok for site in sites] == [True, True]


@pytest.mark.parametrize("turned", [False, True])
def test_an_old_account_that_holds_both_units_is_refused_by_both_and_mended_by_two_new_ones(
    patients: CoordinatorFolder, events: CoordinatorFolder, account: Path, turned: bool
) -> None:
    pairs = [(patients, hospital(patients, "north", more=ACCOUNT)), (events, hospital(events, "south", more=ACCOUNT))]
    ask(*pairs[0], "01")
    saved = account.rename(account.with_name("aside"))
    ask(*pairs[1], "02")
    with contextlib.closing(sqlite3.connect(account, isolation_level=None)) as connection:
        connection.execute("ATTACH ? AS aside", (str(saved),))
        connection.execute("INSERT INTO shared_charges SELECT * FROM aside.shared_charges")
    age(account)
    if turned:
        pairs.reverse()
    # The first does not know better than before, but says so; the second knows, and from then on both do.
    with serving(*pairs[0]) as agent:
        refused(*pairs[1])
        reply = agent.ask("03")
        assert isinstance(reply, Declined)
        assert reply.code == "PlanRefused"
    for pair in pairs:
        assert "the two cannot be added" in refused(*pair)
    for consortium, site in pairs:
        config = site.path / "site.toml"
        text = config.read_text(encoding="utf-8").replace("ehr.sqlite", f"{site.path.name}.sqlite")
        config.write_text(text, encoding="utf-8")
        assert call("site", "account", site.path).code == 0
        ask(consortium, site, "04")
        assert checked(site).ok
