"""Names are used once, and what is revoked or frozen stays so."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from coordinator.members.roster import MOST_PATIENTS
from coordinator.store.members import MemberState, SiteRecord
from tests.coordinator.hospitals import ANALYST, World, oracle
from wardround.federation.errors import ConfigurationMistaken, NotAuthorized, SiteFrozen
from wardround.federation.trust.identity import Identity


@pytest.fixture
def world(tmp_path: Path) -> World:
    return oracle(tmp_path)


def again(world: World, record: SiteRecord) -> SiteRecord:
    return world.coordinator.roster.enrol_site(
        name=record.name,
        identity=record.identity,
        patients=record.patients,
        dataset=record.dataset,
        study_signature=record.study_signature,
    )


def test_the_same_enrolment_again_changes_nothing(world: World) -> None:
    entries = world.kinds()
    record = world.coordinator.roster.site("one")
    assert again(world, record) == record
    assert world.kinds() == entries


def test_a_name_is_used_once(world: World) -> None:
    roster = world.coordinator.roster
    other = dataclasses.replace(roster.site("one"), identity=Identity.generate().public)
    for record in (other, dataclasses.replace(roster.site("one"), patients=7)):
        with pytest.raises(ConfigurationMistaken, match="the name 'one' is already taken"):
            again(world, record)
    with pytest.raises(ConfigurationMistaken, match="already taken"):
        roster.add_analyst("one")
    with pytest.raises(ConfigurationMistaken, match="already taken"):
        again(world, dataclasses.replace(other, name=ANALYST))


def test_a_revoked_name_does_not_come_back(world: World) -> None:
    roster = world.coordinator.roster
    record = roster.site("one")
    roster.revoke("one")
    with pytest.raises(ConfigurationMistaken, match="already taken"):
        again(world, record)
    roster.revoke(ANALYST)
    with pytest.raises(ConfigurationMistaken, match="already taken"):
        roster.add_analyst(ANALYST)


def test_one_key_is_one_site(world: World) -> None:
    record = dataclasses.replace(world.coordinator.roster.site("one"), name="four")
    with pytest.raises(ConfigurationMistaken, match="a signing key that another site has already enrolled with"):
        again(world, record)


@pytest.mark.parametrize("name", ["", "1a", "a b", "a" * 64, "a;b", "ä"])
def test_a_name_is_plain(world: World, name: str) -> None:
    with pytest.raises(ConfigurationMistaken, match="cannot be used as a name"):
        world.coordinator.roster.add_analyst(name)
    with pytest.raises(ConfigurationMistaken, match="cannot be used as a name"):
        world.enrol(name, count=1)


@pytest.mark.parametrize("patients", [-1, MOST_PATIENTS + 1])
def test_a_declared_number_of_patients_makes_sense(world: World, patients: int) -> None:
    with pytest.raises(ConfigurationMistaken, match="declare a whole number"):
        world.enrol("four", count=1, patients=patients)


def test_revoking_twice_changes_nothing_and_an_unknown_name_is_said(world: World) -> None:
    roster = world.coordinator.roster
    roster.revoke("one")
    roster.revoke("one")
    assert world.kinds().count("revoked") == 1
    with pytest.raises(ConfigurationMistaken) as mistake:
        roster.revoke("onne")
    assert mistake.value.message == "no site or analyst is called 'onne'; the study has ada, one, three, two."


def test_strangers_the_frozen_and_the_revoked_are_not_admitted(world: World) -> None:
    roster = world.coordinator.roster
    assert roster.admit_site("one").state is MemberState.ACTIVE
    roster.freeze("two", "a fork")
    roster.freeze("two", "a fork")
    roster.revoke("three")
    roster.freeze("three", "too late")
    with pytest.raises(NotAuthorized):
        roster.admit_site("nobody")
    with pytest.raises(SiteFrozen):
        roster.admit_site("two")
    with pytest.raises(NotAuthorized, match="revoked this site") as revoked:
        roster.admit_site("three")
    assert revoked.value.final
    for name in ("one", "nobody"):
        with pytest.raises(NotAuthorized):
            roster.admit_analyst(name)
    assert world.kinds().count("frozen") == 1
    assert [site.state.value for site in roster.sites()] == ["active", "revoked", "frozen"]
    assert [analyst.name for analyst in roster.analysts()] == [ANALYST]
    assert world.verified().valid


def test_a_frozen_site_can_still_be_revoked(world: World) -> None:
    world.coordinator.roster.freeze("two", "a fork")
    world.coordinator.roster.revoke("two")
    assert world.coordinator.roster.site("two").state is MemberState.REVOKED
