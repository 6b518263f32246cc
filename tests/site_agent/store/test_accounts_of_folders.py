"""The account that folders share is the one they charged, or it is not used."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator.members.folder import CoordinatorFolder, open_folder
from site_agent.serving.folder import SiteFolder
from site_agent.serving.folder_account import bring_charges
from tests.cli.calling import call
from tests.roles.enrolled import found, hospital
from tests.site_agent.answering.test_hostile_training import TRAINED
from tests.site_agent.sharing import ACCOUNT, ask, checked, refused, serving, train
from wardround.federation.errors import InvariantBroken
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


def test_a_folder_that_has_charged_nothing_makes_the_account_and_check_does_not(
    patients: CoordinatorFolder, account: Path
) -> None:
    site = hospital(patients, more=ACCOUNT)
    assert checked(site).ok
    assert not account.exists()
    with serving(patients, site) as agent:
        assert account.stat().st_mode & 0o777 == 0o600
        assert isinstance(agent.ask(), Released)
        assert agent.pipeline.shared is not None
        assert agent.pipeline.shared.spent() == agent.ledger.spent()
    assert (checked(site).ok, checked(site).text) == (True, "all folders together spent ε = 0.5 of 4")


def test_folders_that_name_one_account_are_added_up_whatever_they_call_their_dataset(
    patients: CoordinatorFolder,
) -> None:
    sites = [hospital(patients, name, more=ACCOUNT) for name in ("north", "old-north")]
    for site in sites:
        # As a hospital writes it that names no dataset: then it is the name of the site.
        config = site.path / "site.toml"
        config.write_text(config.read_text("utf-8").replace('dataset = "ehr"\n', ""), encoding="utf-8")
        assert site.configuration().dataset == site.path.name
    first, second = sites
    ask(patients, first, "01", epsilon=2.9)
    with serving(patients, second) as agent:
        refusal = agent.ask("01", epsilon=2.9)
        assert isinstance(refusal, Declined)
        assert (refusal.code, agent.rows.events) == ("BudgetExceeded", ["check"])
    assert checked(second).text == checked(first).text == "all folders together spent ε = 2.9 of 4"


def remove(account: Path) -> None:
    account.unlink()


def empty(account: Path) -> None:
    account.write_bytes(b"")


def spoil(account: Path) -> None:
    account.write_bytes(b"no database" * 1000)


def renew(account: Path) -> None:
    """An account that another folder would make: sound, and without a charge."""
    with contextlib.closing(sqlite3.connect(account, isolation_level=None)) as connection:
        for table in ("shared_steps", "shared_blocks", "shared_charges", "shared_units"):
            connection.execute(f"DELETE FROM {table}")


def change(statement: str) -> Callable[[Path], None]:
    def changed(account: Path) -> None:
        with contextlib.closing(sqlite3.connect(account, isolation_level=None)) as connection:
            assert connection.execute(statement).rowcount > 0

    return changed


FAULTS: dict[str, tuple[Callable[[Path], None], str]] = {
    "missing": (remove, "is missing; restore it from its backup before you serve"),
    "emptied": (empty, "is empty; restore it from its backup before you serve"),
    "another file": (spoil, "is damaged or is not an account; restore it from its backup"),
    "a new account": (renew, "is missing 4 of the 4 charges of this folder"),
    "a cheaper plan": (
        change(
            "UPDATE shared_charges SET mu_squared = mu_squared - 1 "
            "WHERE plan_id = (SELECT min(plan_id) FROM shared_charges)"
        ),
        "is missing 1 of the 4 charges of this folder",
    ),
    "another plan": (change("UPDATE shared_charges SET plan_id = 'x' || plan_id"), "is missing 2 of the 4"),
    "another owner": (change("UPDATE shared_charges SET owner = 'x' || owner"), "is missing 2 of the 4"),
    "a cheaper training": (change("UPDATE shared_blocks SET slack = slack - 1"), "is missing 1 of the 4"),
    "without a round": (change("DELETE FROM shared_steps WHERE place = 1"), "is missing 1 of the 4"),
    "another round": (change("UPDATE shared_steps SET plan_id = 'x' WHERE place = 1"), "is missing 1 of the 4"),
}


@pytest.fixture(scope="module")
def charged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hospital that has answered two questions and two rounds of a training, made once and copied."""
    place = tmp_path_factory.mktemp("charged") / "place"
    (place / "shared").mkdir(mode=0o700, parents=True)
    patients = found(place / "patients", study=TRAINED)
    site = hospital(patients, more=ACCOUNT)
    ask(patients, site, "01", "02")
    train(patients, site, 0, 1)
    return place


@pytest.mark.parametrize("fault", FAULTS)
def test_an_account_that_is_not_the_one_that_was_charged_is_not_served(
    charged: Path, tmp_path: Path, fault: str
) -> None:
    place = Path(shutil.copytree(charged, tmp_path / "place"))
    patients, site, account = open_folder(place / "patients"), SiteFolder(place / "north"), place / "shared/ehr.sqlite"
    assert checked(site).ok
    copy = account.read_bytes()
    spoilt, says = FAULTS[fault]
    spoilt(account)
    left = account.read_bytes() if account.exists() else None
    told = refused(patients, site)
    assert str(account) in told
    assert says in told
    assert (account.read_bytes() if account.exists() else None) == left, "nothing was made or mended unasked"
    account.write_bytes(copy)
    ask(patients, site, "03")


def test_an_old_copy_lacks_what_was_charged_since_and_the_command_adds_it(
    patients: CoordinatorFolder, account: Path
) -> None:
    site = hospital(patients, more=ACCOUNT)
    ask(patients, site, "01")
    train(patients, site, 0)
    old = account.read_bytes()
    train(patients, site, 1)
    whole = ask(patients, site, "02", "03")
    account.write_bytes(old)
    assert "is missing 3 of the 5 charges of this folder; it is new or an old copy" in refused(patients, site)
    assert bring_charges(site.path).startswith("3 of the 5 charges of this folder were added; all folders together ")
    assert checked(site).ok
    assert ask(patients, site) == whole
    assert bring_charges(site.path).startswith("0 of the 5 charges")


@pytest.mark.parametrize("lose", [remove, empty, renew])
def test_a_lost_account_is_collected_again_from_every_folder(
    patients: CoordinatorFolder, account: Path, lose: Callable[[Path], None]
) -> None:
    sites = [hospital(patients, name, more=ACCOUNT) for name in ("north", "south")]
    ask(patients, sites[0], "01", "02")
    train(patients, sites[0], 0, 1)
    whole = ask(patients, sites[1], "03")
    lose(account)
    for site in sites:
        refused(patients, site)
        done = call("site", "account", site.path)
        assert (done.code, done.err) == (0, "")
    assert [checked(site).ok for site in sites] == [True, True]
    assert ask(patients, sites[0]) == whole


def test_a_folder_that_has_charged_brings_it_to_an_account_that_it_names_later(
    patients: CoordinatorFolder, account: Path
) -> None:
    site = hospital(patients)
    with serving(patients, site) as agent:
        assert isinstance(agent.ask(), Released)
        spent = agent.ledger.spent()
    assert call("site", "account", site.path).sentence().endswith("site.toml names no account; see docs/deploy.md.")
    config = site.path / "site.toml"
    config.write_text(config.read_text(encoding="utf-8").replace('"ehr"', f'"ehr"\n{ACCOUNT}'), encoding="utf-8")
    assert f"wardround site account {site.path}" in refused(patients, site)
    assert not account.exists()
    assert call("site", "account", site.path).code == 0
    assert ask(patients, site) == spent


def test_what_is_brought_may_be_above_the_cap_and_then_nothing_more_is_spent(
    patients: CoordinatorFolder, account: Path
) -> None:
    sites = [hospital(patients, name, more=ACCOUNT) for name in ("north", "south")]
    ask(patients, sites[0], "01", epsilon=2.9)
    account.unlink()
    ask(patients, sites[1], "02", epsilon=2.9)
    done = call("site", "account", sites[0].path)
    assert "1 of the 1 charges of this folder were added" in done.out
    assert "no question is answered until site.toml allows as much as was spent" in done.out
    for site in sites:
        assert not checked(site).ok
        with serving(patients, site) as agent:
            reply = agent.ask("05", epsilon=0.01)
            assert isinstance(reply, Declined)
            assert (reply.code, agent.rows.events) == ("BudgetExceeded", ["check"])


def swap(account: Path) -> None:
    shutil.copy(account, other := account.with_name("other"))
    other.replace(account)


def overwrite(account: Path) -> None:
    """The same file with older bytes, as `cp backup account` leaves it."""
    renew(account)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (remove, "was moved, removed or replaced while it was in use"),
        (swap, "was moved, removed or replaced while it was in use"),
        (overwrite, "lost charges while it was in use"),
        (empty, "The ledger failed"),
    ],
)
def test_an_account_that_changes_under_a_serving_agent_stops_it_before_a_row_is_read(
    patients: CoordinatorFolder, account: Path, spoil: Callable[[Path], None], says: str
) -> None:
    site = hospital(patients, more=ACCOUNT)
    with serving(patients, site) as agent:
        assert isinstance(agent.ask("01"), Released)
        spoil(account)
        agent.rows.events.clear()
        with pytest.raises(InvariantBroken, match=says):
            agent.ask("02")
        assert "read" not in agent.rows.events
        assert len(agent.ledger.charges()) == 1


def test_a_real_process_does_not_serve_without_its_account(patients: CoordinatorFolder, account: Path) -> None:
    site = hospital(patients, more=ACCOUNT)
    ask(patients, site, "01")
    account.unlink()
    done = subprocess.run(
        [sys.executable, "-m", "wardround", "site", "serve", site.path],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"wardround: {account} is missing; restore it from its")
    assert done.stderr.count("\n") == 1
    assert not account.exists()
