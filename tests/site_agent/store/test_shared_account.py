"""Two studies over one dataset: what they spend adds up, and neither can spend what the other has."""

import dataclasses
from pathlib import Path

import pytest

from site_agent.store.shared_account import Folder, SharedAccount
from tests.site_agent.lone_site import STUDY, LoneSite
from wardround.federation.errors import BudgetExceeded
from wardround.federation.ledger.sqlite_file import Durability
from wardround.federation.plan.plan import price
from wardround.federation.plan.task import Declined, Released

OTHER = STUDY.replace('name = "trial"', 'name = "other"')


def site_with(folder: Path, account: Path, *, study: str) -> LoneSite:
    folder.mkdir()
    site = LoneSite(folder, study=study, max_epsilon_per_plan=4.0)
    who = Folder("north", site.study.study_hash, site.study.unit)
    shared = SharedAccount(account, dataset="ehr", folder=who, cap=site.policy.cap, keeping=Durability.FILE)
    site.pipeline = dataclasses.replace(site.pipeline, shared=shared)
    return site


@pytest.fixture
def studies(tmp_path: Path) -> tuple[LoneSite, LoneSite]:
    account = tmp_path / "ehr.sqlite"
    return site_with(tmp_path / "a", account, study=STUDY), site_with(tmp_path / "b", account, study=OTHER)


def test_what_two_studies_spend_on_a_dataset_adds_up(studies: tuple[LoneSite, LoneSite]) -> None:
    first, second = studies
    for site in studies:
        assert isinstance(site.pipeline.run(site.task(site.plan(epsilon=0.5))), Released)
    assert first.pipeline.shared is not None
    assert first.pipeline.shared.spent() == first.ledger.spent() + second.ledger.spent()


def test_the_second_study_cannot_spend_what_the_first_has_spent(studies: tuple[LoneSite, LoneSite]) -> None:
    first, second = studies
    assert isinstance(first.pipeline.run(first.task(first.plan(epsilon=2.9))), Released)
    refused = second.pipeline.run(second.task(second.plan(epsilon=2.9)))
    assert isinstance(refused, Declined)
    assert refused.code == "BudgetExceeded"
    assert "read" not in second.rows.events
    assert second.ledger.spent().mu_squared == 0


def test_a_repeated_plan_is_charged_to_the_shared_account_once(studies: tuple[LoneSite, LoneSite]) -> None:
    site = studies[0]
    task = site.task(site.plan())
    assert site.pipeline.run(task) == site.pipeline.run(task)
    assert site.pipeline.shared is not None
    assert site.pipeline.shared.spent() == site.ledger.spent()


def test_a_crash_between_the_two_charges_leaves_the_shared_one_ahead_and_is_mended(
    studies: tuple[LoneSite, LoneSite],
) -> None:
    site = studies[0]
    plan = site.plan()
    assert site.pipeline.shared is not None
    site.pipeline.shared.spend(price(plan, site.study))
    assert site.ledger.spent().mu_squared == 0
    assert isinstance(site.pipeline.run(site.task(plan)), Released)
    assert site.pipeline.shared.spent() == site.ledger.spent()


def test_what_the_folder_s_own_ledger_refuses_is_given_back(tmp_path: Path) -> None:
    site = site_with(tmp_path / "a", tmp_path / "ehr.sqlite", study=STUDY)
    site.ledger.set_cap(dataclasses.replace(site.policy.cap, epsilon=1.1, pure_epsilon=1.0))
    assert isinstance(site.pipeline.run(site.task(site.plan(epsilon=1.0))), Declined)
    assert site.pipeline.shared is not None
    assert site.pipeline.shared.spent().mu_squared == 0


def test_an_exhausted_account_says_what_was_asked_and_what_remains(studies: tuple[LoneSite, LoneSite]) -> None:
    site = studies[0]
    shared = site.pipeline.shared
    assert shared is not None
    shared.spend(price(site.plan(epsilon=2.9), site.study))
    with pytest.raises(BudgetExceeded) as caught:
        shared.spend(price(site.plan(epsilon=2.0), site.study))
    assert caught.value.asked > caught.value.remaining > 0
