"""Who may enter, and who is still in: invitations, certificates, the roster, renewal, proxies."""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.members.authority import Authority
from coordinator.members.enrolment import make_invitation, revoke
from coordinator.members.folder import CoordinatorFolder
from protos.calls import AnalystCalls, SiteCalls
from protos.channels import channel
from protos.tls import TlsKeys
from site_agent.serving.check import check_site
from site_agent.serving.enrolment import enrol, prepare_enrolment
from site_agent.serving.folder import open_folder
from site_agent.serving.link import GrpcLink, tls_keys
from tests.integration.building import invite
from tests.integration.conftest import Make
from tests.integration.connect_proxy import ConnectProxy, connect_proxy
from tests.integration.stage import Federation, eventually, is_about, now, sites_in, value
from tests.integration.terms import rows_of
from wardround.analyst.asking.client import connect
from wardround.federation.errors import FederationError, NotAuthorized
from wardround.federation.trust.certificates import Role, key_from_pem, key_to_pem, new_tls_key
from wardround.federation.trust.enrolment import read_invitation, read_profile, write_invitation

LIFE = datetime.timedelta(hours=1)


@pytest.fixture
def proxy() -> Iterator[ConnectProxy]:
    with connect_proxy() as opened:
        yield opened


@pytest.fixture(scope="module")
def consortium(templates: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """A coordinator alone: nobody here answers questions."""
    from tests.integration.conftest import _copies

    with _copies(templates, tmp_path_factory.mktemp("trust")) as make:  # type: ignore[arg-type]
        federation = make()
        federation.start_coordinator()
        yield federation


def profile_keys(federation: Federation, analyst: str = "ada") -> TlsKeys:
    profile = read_profile(federation.profile(analyst))
    return TlsKeys(profile.key.encode(), profile.certificate.encode(), profile.authority.encode())


def address(federation: Federation) -> str:
    return (federation.consortium / "address").read_text(encoding="utf-8").strip()


def folder_with_table(federation: Federation, name: str) -> Path:
    """Tables are looked at before the invitation is used."""
    place = federation.site(name)
    place.mkdir(mode=0o700, exist_ok=True)
    (place / "encounters.csv").write_text(rows_of("one"), encoding="utf-8")
    return place


def init(federation: Federation, name: str, invitation: Path, config: Path) -> tuple[int, str]:
    """What `site init` exits with, and the last line that it says."""
    done = federation.run(
        "site", "init", folder_with_table(federation, name), "--invite", invitation, "--config", config
    )
    return done.code, done.err.strip().splitlines()[-1]


def refusal(federation: Federation, name: str, invitation: Path) -> tuple[int, str]:
    """What `site init` would exit with and say, without the cost of a process."""
    place = folder_with_table(federation, name)
    with pytest.raises(FederationError) as refused:
        enrol(prepare_enrolment(place, invitation, federation.folder / f"{name}.toml"))
    return refused.value.exit_code, refused.value.message


# --- invitations ----------------------------------------------------------------------------------------------


def test_a_used_invitation_is_refused_in_one_sentence(consortium: Federation) -> None:
    code, text = init(consortium, "second-one", consortium.folder / "one.invitation", consortium.folder / "one.toml")
    assert (code, text) == (1, "wardround: the invitation was already used; ask the consortium for a new one.")
    assert not (consortium.site("second-one") / "tls" / "certificate.pem").exists()


def test_an_expired_invitation_is_refused_in_one_sentence(consortium: Federation) -> None:
    invitation = invite(consortium, "late")
    long_ago = now() - datetime.timedelta(days=400)
    write_invitation(make_invitation(CoordinatorFolder(consortium.consortium), "late", now=long_ago), invitation)
    assert refusal(consortium, "late", invitation) == (
        1,
        "the invitation has expired; ask the consortium for a new one.",
    )


def test_an_invitation_serves_no_other_name(consortium: Federation) -> None:
    mine = invite(consortium, "mine")
    (consortium.folder / "yours.toml").write_text(consortium.terms.site("yours"), encoding="utf-8")
    code, text = refusal(consortium, "yours", mine)
    assert (code, "is for 'mine'" in text) == (2, True)
    document = json.loads(mine.read_text(encoding="utf-8"))
    forged = consortium.folder / "forged.invitation"
    forged.write_text(json.dumps(document | {"site": "yours"}), encoding="utf-8")
    assert refusal(consortium, "yours", forged) == (
        1,
        "the invitation is not known for this site; ask the consortium for a new one.",
    )
    roster = consortium.rows("consortium", "SELECT name FROM sites ORDER BY name")
    assert roster == [("one",), ("three",), ("two",)]


def test_an_invitation_with_an_altered_study_or_authority_enrols_nobody(consortium: Federation) -> None:
    invitation = invite(consortium, "wary")
    document = json.loads(invitation.read_text(encoding="utf-8"))
    altered = document | {"study_text": document["study_text"].replace("upper = 110", "upper = 1100")}
    invitation.write_text(json.dumps(altered), encoding="utf-8")
    code, text = refusal(consortium, "wary", invitation)
    assert (code, "does not have the hash it names" in text) == (2, True)
    other = Authority.create(consortium.folder / "other-authority", name="oracle", now=now())
    invitation.write_text(json.dumps(document | {"authority": other.pem}), encoding="utf-8")
    code, text = refusal(consortium, "wary", invitation)
    assert (code, "certificate" in text) == (1, True)
    assert not consortium.rows("consortium", "SELECT 1 FROM sites WHERE name = 'wary'")


def test_an_init_whose_reply_was_lost_is_repeated_under_the_same_keys(make_federation: Make) -> None:
    federation = make_federation(sites=("one", "two"))
    federation.start_coordinator()
    place = federation.site("two")
    # What a site has when the coordinator enrolled it and the reply never came: keys, but no certificate.
    keys = [(place / name).read_bytes() for name in ("identity.pem", "tls/key.pem", "rows.key")]
    for name in ("tls/certificate.pem", "tls/authority.pem", "coordinator.json", "ledger.sqlite"):
        (place / name).unlink()
    code, text = init(federation, "two", federation.folder / "two.invitation", federation.folder / "two.toml")
    assert code == 0, text
    assert keys == [(place / name).read_bytes() for name in ("identity.pem", "tls/key.pem", "rows.key")]
    assert len(federation.entries("consortium", "enrolled")) == 2
    link = GrpcLink(open_folder(place))
    try:
        assert link.greet().site == "two"
    finally:
        link.close()


# --- certificates ---------------------------------------------------------------------------------------------


def test_an_analysts_certificate_opens_no_site_call_and_a_sites_no_analyst_call(consortium: Federation) -> None:
    with channel(address(consortium), profile_keys(consortium)) as opened:
        with pytest.raises(NotAuthorized, match="role site, not analyst"):
            SiteCalls(opened).claim(wait_seconds=0.0)
        with pytest.raises(NotAuthorized, match="role site, not analyst"):
            SiteCalls(opened).greet()
    with channel(address(consortium), tls_keys(consortium.site("one") / "tls")) as opened:
        with pytest.raises(NotAuthorized, match="role analyst, not site"):
            AnalystCalls(opened).budget()
        with pytest.raises(NotAuthorized):
            AnalystCalls(opened).study_text()


@pytest.mark.parametrize("role", [Role.SITE, Role.ANALYST])
def test_a_certificate_of_another_authority_opens_nothing(consortium: Federation, tmp_path: Path, role: Role) -> None:
    other = Authority.create(tmp_path / "authority", name="oracle", now=now())
    key, name = new_tls_key(), "one" if role is Role.SITE else "ada"
    certificate = other.issue(key.public_key(), role=role, name=name, life=LIFE, now=now())
    ours = profile_keys(consortium).authority
    with channel(address(consortium), TlsKeys(key_to_pem(key), certificate, ours)) as opened:
        with pytest.raises(FederationError):
            SiteCalls(opened).greet()
        with pytest.raises(FederationError):
            AnalystCalls(opened).budget()


def test_a_genuine_certificate_for_another_key_speaks_for_nobody(consortium: Federation) -> None:
    authority = CoordinatorFolder(consortium.consortium).authority()
    key = new_tls_key()
    certificate = authority.issue(key.public_key(), role=Role.ANALYST, name="ada", life=LIFE, now=now())
    keys = TlsKeys(key_to_pem(key), certificate, authority.pem.encode())
    with channel(address(consortium), keys) as opened, pytest.raises(NotAuthorized):
        AnalystCalls(opened).budget()


def test_a_wrong_certificate_is_one_sentence_and_exit_code_one_or_two(consortium: Federation, tmp_path: Path) -> None:
    other = Authority.create(tmp_path / "authority", name="oracle", now=now())
    key = new_tls_key()
    certificate = other.issue(key.public_key(), role=Role.ANALYST, name="ada", life=LIFE, now=now())
    document = json.loads(consortium.profile().read_text(encoding="utf-8"))
    stolen = {"certificate": certificate.decode(), "key": key_to_pem(key).decode()}
    profile = tmp_path / "wrong.profile"
    for change, exit_code in ((stolen, 2), ({"authority": other.pem}, 2), (stolen | {"authority": other.pem}, 1)):
        profile.write_text(json.dumps(document | change), encoding="utf-8")
        with pytest.raises(FederationError, match="certificate") as refused, connect(profile) as client:
            client.budget()
        assert refused.value.exit_code == exit_code, change.keys()
    done = consortium.run("budget", "--profile", profile, "--json")
    assert (done.code, done.error["code"]) == (1, "NotAuthorized")
    assert len(done.err.strip().splitlines()) == 1


def test_a_revoked_analyst_and_a_revoked_site_are_refused_at_their_next_call(make_federation: Make) -> None:
    federation = make_federation(sites=("one", "two"))
    federation.start_coordinator()
    link = GrpcLink(open_folder(federation.site("one")))
    with connect(federation.profile()) as client:
        assert client.budget().document()["study"] == "oracle"
        assert link.greet().site == "one"
        assert federation.run("coordinator", "revoke", federation.consortium, "ada").code == 0
        with pytest.raises(NotAuthorized):
            client.budget()
        revoke(CoordinatorFolder(federation.consortium), "one")
        with pytest.raises(NotAuthorized):
            link.greet()
    link.close()
    federation.start_site("two")
    answer = federation.ask(analyst="bob")
    assert is_about(answer, 10), value(answer)
    assert sites_in(answer)["answered"] == ["two"]


def test_the_running_agent_renews_its_certificate_and_goes_on_answering(make_federation: Make) -> None:
    # Every certificate begins ten minutes before it is issued, so half of a life of nine is over at once.
    federation = make_federation(sites=("two",), certificate_hours=0.15)
    federation.start_coordinator()
    certificate = federation.site("two") / "tls" / "certificate.pem"
    folder = CoordinatorFolder(federation.consortium)
    key = open_folder(federation.site("two")).tls / "key.pem"
    _reissue(federation, folder, key, certificate)
    first = certificate.read_bytes()
    federation.start_site("two")
    eventually(lambda: certificate.read_bytes() != first, what="the certificate is renewed")
    second = certificate.read_bytes()
    assert is_about(federation.ask(), 10)
    eventually(lambda: certificate.read_bytes() != second, what="it is renewed again")
    assert is_about(federation.ask(fresh=True), 10)


@pytest.mark.slow
def test_every_certificate_may_expire_while_the_processes_run(make_federation: Make) -> None:
    hours = 0.01
    federation = make_federation(sites=("two",), certificate_hours=hours)
    federation.start_coordinator()
    tls = federation.site("two") / "tls"
    _reissue(federation, CoordinatorFolder(federation.consortium), tls / "key.pem", tls / "certificate.pem")
    federation.start_site("two")
    assert is_about(federation.ask(), 10)
    # Twice the life of every certificate that was there at the beginning.
    time.sleep(2 * hours * 3600)
    assert is_about(federation.ask(fresh=True), 10)


def _reissue(federation: Federation, folder: CoordinatorFolder, key: Path, certificate: Path) -> None:
    """The template may be older than its certificate's short life: issue it again, for the same key."""
    public = key_from_pem(key.read_bytes(), name="key.pem").public_key()
    life = datetime.timedelta(hours=federation.terms.certificate_hours)
    certificate.write_bytes(folder.authority().issue(public, role=Role.SITE, name="two", life=life, now=now()))


# --- proxies --------------------------------------------------------------------------------------------------


def test_a_site_enrols_checks_and_answers_through_a_proxy(make_federation: Make, proxy: ConnectProxy) -> None:
    federation = make_federation(sites=("two",))
    federation.start_coordinator()
    invitation = invite(federation, "one")
    config = federation.folder / "one.toml"
    config.write_text(
        config.read_text(encoding="utf-8") + f'[coordinator]\nproxy = "{proxy.address}"\n', encoding="utf-8"
    )
    code, text = init(federation, "one", invitation, config)
    assert code == 0, text
    # A channel may dial more than once.
    assert set(proxy.opened) == {read_invitation(invitation).enrolment_address}
    assert all(finding.ok for finding in check_site(federation.site("one")))
    federation.start_site("one")
    federation.start_site("two")
    assert is_about(federation.ask(), 11)
    assert proxy.opened.count(address(federation)) >= 2


def test_a_proxy_that_is_away_is_what_site_check_says(make_federation: Make) -> None:
    federation = make_federation(sites=("two",))
    federation.start_coordinator()
    config = federation.site("two") / "site.toml"
    config.write_text(config.read_text(encoding="utf-8") + '[coordinator]\nproxy = "127.0.0.1:9"\n', encoding="utf-8")
    assert [found.subject for found in check_site(federation.site("two")) if not found.ok] == ["proxy", "coordinator"]
