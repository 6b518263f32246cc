"""An analyst's signing key: made once, beside the profile and for its owner only; and what it signs."""

from __future__ import annotations

import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from site_agent.answering.admission import Approval
from site_agent.store.requests import Request
from tests.cli.calling import call
from tests.coordinator.hospitals import study
from tests.site_agent.lone_site import Rows
from wardround.analyst.asking.client import Client
from wardround.analyst.learning.request import parse_request
from wardround.analyst.link.signing import identity_file, own_identity, with_purpose
from wardround.federation.canonical import decode
from wardround.federation.errors import AwaitingApproval, ConfigurationMistaken, QueryMistaken
from wardround.federation.trust.asked_by import AskedBy
from wardround.federation.trust.enrolment import AnalystProfile, write_profile
from wardround.federation.trust.identity import Identity
from wardround.simulation.federation import DirectAnalystLink, SimulatedFederation, SimulatedSite, default_policy

COUNT = "SELECT COUNT(*) FROM encounters"
REQUEST = """\
kind = "linear"
table = "encounters"
target = "sbp"
features = ["age"]
epsilon = 1.0
validation_fraction = 0.0
"""


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "amira.profile"
    write_profile(AnalystProfile("amira", "localhost:1", "cardio", "a", "c", "k"), path)
    return path


def test_the_key_is_made_once_beside_the_profile_and_for_its_owner_only(profile: Path) -> None:
    first = own_identity(profile)
    path = identity_file(profile)
    assert path == profile.with_name("amira.profile.identity.pem")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert own_identity(profile).public == first.public
    assert b"PRIVATE" not in profile.read_bytes()
    assert sorted(file.name for file in profile.parent.iterdir()) == ["amira.profile", "amira.profile.identity.pem"]


MAKER = """
import pathlib, sys
from wardround.analyst.link.signing import own_identity
print(own_identity(pathlib.Path(sys.argv[1])).public.key)
"""


def test_of_several_processes_one_makes_it_and_all_use_it(profile: Path) -> None:
    command = [sys.executable, "-c", MAKER, str(profile)]
    made = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(4)]
    keys = {process.communicate(timeout=120)[0] for process in made}
    assert len(keys) == 1
    assert keys == {f"{own_identity(profile).public.key}\n".encode()}


def test_a_key_that_is_damaged_is_never_replaced(profile: Path) -> None:
    identity_file(profile).write_text("nothing")
    with pytest.raises(ConfigurationMistaken, match=r"restore your backup of it; a new one would be unknown"):
        own_identity(profile)
    assert identity_file(profile).read_text() == "nothing"


def test_a_folder_that_cannot_hold_the_key_is_said_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationMistaken, match=r"cannot be kept beside the profile, in .*: No such file"):
        own_identity(tmp_path / "nowhere" / "amira.profile")


def test_the_fingerprint_command_shows_both_and_keeps_the_key(profile: Path) -> None:
    document = call("analyst", "fingerprint", "--profile", profile, "--json").document()
    key = own_identity(profile).public
    assert document == {"analyst": "amira", "fingerprint": key.fingerprint, "key": f"ed25519:{key.key}"}
    shown = call("analyst", "fingerprint", "--profile", profile)
    assert shown.code == 0
    assert key.fingerprint in shown.out
    assert str(identity_file(profile)) in shown.out
    assert "PRIVATE" not in shown.out


def test_a_profile_that_is_none_makes_no_key(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text("name = 'x'")
    for name in ("study.toml", "nobody.profile"):
        assert call("analyst", "fingerprint", "--profile", tmp_path / name).code == 2
    assert [file.name for file in tmp_path.iterdir()] == ["study.toml"]


# --- what is signed -------------------------------------------------------------------------------------------


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[SimulatedFederation]:
    """One hospital whose steward sees every question."""
    policy = default_policy(study(min_sites=1))
    by_hand = type(policy)(policy.cap, policy.max_epsilon_per_plan, policy.statistics, Approval.MANUAL)
    made = SimulatedFederation(study(), {"one": SimulatedSite(Rows(), 1000, policy=by_hand)}, folder=tmp_path)
    yield made
    made.close()


def waiting(federation: SimulatedFederation) -> list[Request]:
    return federation.agents["one"].ledger.requests()


def asked(request: Request) -> AskedBy:
    found = request.signed().asked_by
    assert found is not None
    return found


def test_a_question_is_signed_with_its_purpose_and_a_dry_run_is_not(federation: SimulatedFederation) -> None:
    federation.client.preview(COUNT, epsilon=0.5)
    assert waiting(federation) == []
    with pytest.raises(AwaitingApproval):
        federation.client.ask(COUNT, epsilon=0.5, purpose="Do dosages differ? (a pilot)")
    (request,) = waiting(federation)
    word = asked(request)
    assert (word.purpose, word.epsilon, word.delta) == ("Do dosages differ? (a pilot)", 0.5, None)
    assert (word.analyst, word.key) == ("researcher", federation.signer.identity().public)


def test_a_purpose_that_cannot_be_signed_is_told_before_anything_is_asked(federation: SimulatedFederation) -> None:
    for purpose in ("p" * 501, "two\nlines"):
        with pytest.raises(QueryMistaken, match=r"purpose has"):
            federation.client.ask(COUNT, purpose=purpose)
        with pytest.raises(QueryMistaken, match=r"purpose has"):
            federation.client.train(parse_request(REQUEST), purpose=purpose)
    assert waiting(federation) == []


def test_the_purpose_is_no_part_of_the_question(federation: SimulatedFederation) -> None:
    for purpose in ("a pilot", "an audit"):
        with pytest.raises(AwaitingApproval):
            federation.client.ask(COUNT, epsilon=0.5, purpose=purpose)
    (request,) = waiting(federation)
    assert asked(request).purpose == "a pilot"


def test_every_round_of_a_training_is_signed_and_its_request_may_say_why(federation: SimulatedFederation) -> None:
    wanted = parse_request(f'{REQUEST}purpose = "who stays longer"\n')
    with pytest.raises(AwaitingApproval):
        federation.client.train(wanted)
    (first,) = waiting(federation)
    assert asked(first).purpose == "who stays longer"
    ledger = federation.agents["one"].ledger
    ledger.decide(first.plan_id, approve=True, by="ann")
    federation.agents["one"].run_approved()
    # One round of moments and one of products.
    federation.client.train(wanted, purpose="and who pays")
    with ledger._database.reading() as connection:
        rows = connection.execute("SELECT asked_by FROM plans ORDER BY rowid").fetchall()
    assert [decode(AskedBy, row[0]).purpose for row in rows] == ["who stays longer", "and who pays"]


def test_a_request_whose_purpose_cannot_be_signed_is_mistaken() -> None:
    with pytest.raises(ConfigurationMistaken, match=r"request.toml: the purpose has 501 characters"):
        parse_request(f'{REQUEST}purpose = "{"p" * 501}"\n')


def test_a_link_that_signs_nothing_cannot_say_why(federation: SimulatedFederation) -> None:
    plain = Client(DirectAnalystLink(federation.coordinator))
    with pytest.raises(ConfigurationMistaken, match="connect with a profile"):
        plain.ask(COUNT, purpose="a pilot")
    assert with_purpose(plain.link, "") is plain.link


def test_an_identity_is_created_in_place_of_nothing(tmp_path: Path) -> None:
    path = tmp_path / "identity.pem"
    first = Identity.generate()
    first.create(path)
    with pytest.raises(FileExistsError):
        Identity.generate().create(path)
    assert Identity.load(path).public == first.public
    (tmp_path / "link.pem").symlink_to(tmp_path / "elsewhere.pem")
    with pytest.raises(FileExistsError):
        Identity.generate().create(tmp_path / "link.pem")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["identity.pem", "link.pem"]
