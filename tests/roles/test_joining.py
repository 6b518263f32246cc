"""How a name gets onto the roster and off it: configuration, authority, invitations, profiles."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import json
import sys
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID

from coordinator.members.authority import Authority
from coordinator.members.enrolment import enrol_site, issue_profile, make_invitation, opened, revoke
from coordinator.members.folder import (
    LOOPBACK,
    CoordinatorConfiguration,
    CoordinatorFolder,
    _concrete,
    open_folder,
    parse_coordinator,
)
from coordinator.members.roster import Roster
from coordinator.serving.serve import initialise
from coordinator.store.members import MemberState
from site_agent.answering.admission import Approval
from site_agent.reading.dataset import TableSource
from site_agent.serving.configuration import parse_site
from site_agent.serving.open_dataset import check_sources
from tests.site_agent.lone_site import STUDY
from wardround.federation.errors import ConfigurationMistaken, MalformedMessage, NotAuthorized
from wardround.federation.ledger.verify.verify import verify
from wardround.federation.question.query import Statistic
from wardround.federation.study.study_file import parse_study
from wardround.federation.trust.certificates import Role, holder, make_request, new_tls_key, request_key, validity
from wardround.federation.trust.enrolment import Enrolment, Invitation, read_invitation, read_profile, write_invitation
from wardround.federation.trust.identity import Identity, Purpose

NOW = datetime.datetime(2026, 3, 1, 12, 0, tzinfo=datetime.UTC)
LIFE = datetime.timedelta(days=14)
TLS_KEY = new_tls_key()


@pytest.fixture
def folder(tmp_path: Path) -> CoordinatorFolder:
    initialise(tmp_path / "consortium", study_text=STUDY, configuration_text=None, now=NOW)
    return open_folder(tmp_path / "consortium")


def enrolment(invitation: Invitation, own: Identity, **changes: object) -> Enrolment:
    honest = Enrolment(
        secret=bytes.fromhex(invitation.token),
        site=invitation.site,
        identity=own.public,
        study_hash=invitation.study_hash,
        study_signature=own.sign(Purpose.STUDY, bytes.fromhex(invitation.study_hash)),
        certificate_request=make_request(TLS_KEY, invitation.site),
        patients=1000,
        dataset="ehr",
    )
    return dataclasses.replace(honest, **changes)  # type: ignore[arg-type]


def join(folder: CoordinatorFolder, asked: Enrolment, *, now: datetime.datetime = NOW) -> bytes:
    with opened(folder) as ledger:
        return enrol_site(ledger, folder.authority(), asked, life=LIFE, now=now)


def sites(folder: CoordinatorFolder) -> dict[str, MemberState]:
    with opened(folder) as ledger:
        return {site.name: site.state for site in Roster(ledger).sites()}


# --- invitations ----------------------------------------------------------------------------------------------


def test_an_invited_site_joins_and_its_certificate_speaks_for_it(folder: CoordinatorFolder) -> None:
    certificate = join(folder, enrolment(make_invitation(folder, "north", now=NOW), Identity.generate()))
    who = holder(certificate)
    assert (who.role, who.name) == (Role.SITE, "north")
    assert sites(folder) == {"north": MemberState.ACTIVE}
    assert verify(folder.path).valid


def test_a_lost_reply_is_asked_for_again_and_another_key_is_refused(folder: CoordinatorFolder) -> None:
    invitation, identity = make_invitation(folder, "north", now=NOW), Identity.generate()
    for _ in range(2):
        join(folder, enrolment(invitation, identity))
    with pytest.raises(NotAuthorized, match="already used"):
        join(folder, enrolment(invitation, Identity.generate()))
    assert verify(folder.path).entries == 6, "opened, capped, invited, redeemed, enrolled, certified once"


def test_an_expired_invitation_is_refused(folder: CoordinatorFolder) -> None:
    invitation = make_invitation(folder, "north", now=NOW)
    late = NOW + datetime.timedelta(days=7, seconds=1)
    with pytest.raises(NotAuthorized, match="has expired"):
        join(folder, enrolment(invitation, Identity.generate()), now=late)
    assert sites(folder) == {}


def test_a_new_invitation_ends_the_earlier_one(folder: CoordinatorFolder) -> None:
    first, second = (make_invitation(folder, "north", now=NOW) for _ in range(2))
    with pytest.raises(NotAuthorized, match="not known"):
        join(folder, enrolment(first, Identity.generate()))
    join(folder, enrolment(second, Identity.generate()))


BAD_ENROLMENTS: dict[str, dict[str, object]] = {
    "a guessed secret": {"secret": bytes(32)},
    "another site's name": {"site": "south"},
    "another study": {"study_hash": "0" * 64},
    "an unsigned study": {"study_signature": bytes(64)},
    "a study signed by another key": {"identity": Identity.generate().public},
    "no certificate request": {"certificate_request": b""},
    "a damaged certificate request": {"certificate_request": make_request(TLS_KEY, "north")[:-60]},
    "more patients than δ allows": {"patients": 10**7},
}


@pytest.mark.parametrize("case", BAD_ENROLMENTS)
def test_a_false_enrolment_is_refused_and_leaves_the_invitation_as_it_was(folder: CoordinatorFolder, case: str) -> None:
    invitation, identity = make_invitation(folder, "north", now=NOW), Identity.generate()
    with pytest.raises((NotAuthorized, MalformedMessage, ConfigurationMistaken)):
        join(folder, enrolment(invitation, identity, **BAD_ENROLMENTS[case]))
    assert sites(folder) == {}
    join(folder, enrolment(invitation, identity))


def test_a_name_belongs_to_whoever_has_it(folder: CoordinatorFolder, tmp_path: Path) -> None:
    join(folder, enrolment(make_invitation(folder, "north", now=NOW), Identity.generate()))
    issue_profile(folder, "amira", tmp_path / "amira.profile", now=NOW)
    with pytest.raises(ConfigurationMistaken, match=r"\(an analyst\); invite it under another name"):
        make_invitation(folder, "amira", now=NOW)
    revoke(folder, "north")
    with pytest.raises(ConfigurationMistaken, match=r"\(revoked\); invite it under another name"):
        make_invitation(folder, "north", now=NOW)


def test_a_second_invitation_renews_the_certificate_of_the_key_that_enrolled_and_of_no_other(
    folder: CoordinatorFolder,
) -> None:
    identity = Identity.generate()
    join(folder, enrolment(make_invitation(folder, "north", now=NOW), identity))
    before = sites(folder)
    again = make_invitation(folder, "north", now=NOW)
    with pytest.raises(NotAuthorized, match="another signing key"):
        join(folder, enrolment(again, Identity.generate()))
    assert b"BEGIN CERTIFICATE" in join(folder, enrolment(again, identity))
    assert sites(folder) == before


@pytest.mark.parametrize("name", ["", " ", "a b", "../a", "a\n", "-a", "1a", "a" * 64, "ä", "a/b", "a.b"])
def test_a_bad_name_gets_neither_invitation_nor_profile(folder: CoordinatorFolder, tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationMistaken, match="cannot be used as a name"):
        make_invitation(folder, name, now=NOW)
    with pytest.raises(ConfigurationMistaken, match="cannot be used as a name"):
        issue_profile(folder, name, tmp_path / "profile", now=NOW)
    assert not (tmp_path / "profile").exists()


def test_an_invitation_carries_the_study_and_is_its_owner_s_alone(folder: CoordinatorFolder, tmp_path: Path) -> None:
    invitation = make_invitation(folder, "north", now=NOW)
    file = tmp_path / "north.invitation"
    write_invitation(invitation, file)
    assert file.stat().st_mode & 0o777 == 0o600
    again = read_invitation(file)
    assert again == invitation
    assert again.study() == parse_study(STUDY)
    assert invitation.token not in repr(invitation)
    # The coordinator keeps only its hash.
    assert bytes.fromhex(invitation.token) not in folder.ledger.read_bytes()
    assert invitation.token.encode() not in folder.ledger.read_bytes()


def test_an_invitation_whose_study_was_changed_is_refused(folder: CoordinatorFolder) -> None:
    invitation = make_invitation(folder, "north", now=NOW)
    changed = dataclasses.replace(invitation, study_text=STUDY.replace("epsilon = 4.0", "epsilon = 40.0"))
    with pytest.raises(ConfigurationMistaken, match="does not have the hash it names"):
        changed.study()


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"form": "wardround invitation 1"}', "{" * 5000])
def test_what_is_not_an_invitation_is_one_sentence(tmp_path: Path, text: str) -> None:
    file = tmp_path / "x"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationMistaken, match="is not an invitation; ask the consortium"):
        read_invitation(file)


def test_an_invitation_with_a_number_for_a_text_is_no_invitation(folder: CoordinatorFolder, tmp_path: Path) -> None:
    file = tmp_path / "x"
    write_invitation(make_invitation(folder, "north", now=NOW), file)
    document = json.loads(file.read_text(encoding="utf-8"))
    lacking = {k: document[k] for k in document if k != "token"}
    for changed in ({**document, "token": 7}, {**document, "more": "x"}, lacking):
        file.write_text(json.dumps(changed), encoding="utf-8")
        with pytest.raises(ConfigurationMistaken, match="is not an invitation"):
            read_invitation(file)


# --- profiles and revocation -------------------------------------------------------------------------------------


def test_a_profile_is_its_owner_s_alone_and_the_newest_counts(folder: CoordinatorFolder, tmp_path: Path) -> None:
    file = tmp_path / "amira.profile"
    issue_profile(folder, "amira", file, now=NOW)
    first = read_profile(file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert first.key not in repr(first)
    assert holder(first.certificate.encode()).role is Role.ANALYST
    issue_profile(folder, "amira", file, now=NOW)
    with opened(folder) as ledger, ledger.database.reading() as connection:
        (noted,) = connection.execute("SELECT key_hash FROM tls_keys WHERE name = 'amira'").fetchone()
    newest = holder(read_profile(file).certificate.encode()).tls_key
    assert noted == newest != holder(first.certificate.encode()).tls_key


def test_revoking_says_who_and_lasts(folder: CoordinatorFolder, tmp_path: Path) -> None:
    join(folder, enrolment(make_invitation(folder, "north", now=NOW), Identity.generate()))
    issue_profile(folder, "amira", tmp_path / "amira.profile", now=NOW)
    assert (revoke(folder, "north"), revoke(folder, "amira")) == ("site", "analyst")
    assert sites(folder) == {"north": MemberState.REVOKED}
    with pytest.raises(ConfigurationMistaken):
        issue_profile(folder, "amira", tmp_path / "again.profile", now=NOW)
    with pytest.raises(ConfigurationMistaken, match="the study has amira, north"):
        revoke(folder, "somebody")
    assert verify(folder.path).valid


# --- the authority -----------------------------------------------------------------------------------------------


def test_certificates_live_shortly_and_do_one_thing(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path / "authority", name="trial", now=NOW)
    for role, purpose in (
        (Role.SITE, ExtendedKeyUsageOID.CLIENT_AUTH),
        (Role.ANALYST, ExtendedKeyUsageOID.CLIENT_AUTH),
        (Role.COORDINATOR, ExtendedKeyUsageOID.SERVER_AUTH),
    ):
        pem = authority.issue(TLS_KEY.public_key(), role=role, name="north", life=LIFE, now=NOW, hosts=["::1", "a.org"])
        certificate = x509.load_pem_x509_certificate(pem)
        certificate.verify_directly_issued_by(authority.certificate)
        assert validity(certificate)[1] == NOW + LIFE
        extensions = certificate.extensions
        assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        assert list(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [purpose]
        assert holder(pem).role is role
    assert (tmp_path / "authority" / "key.pem").stat().st_mode & 0o777 == 0o600
    assert Authority.load(tmp_path / "authority").pem == authority.pem


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # P-256 by its number, and a number that no curve has.
        ("06082a8648ce3d030107", "06082a8648ce3d040107"),
        # The version of a request, and one that none has.
        ("020100", "020107"),
    ],
)
def test_a_request_that_no_library_can_read_is_malformed(old: str, new: str) -> None:
    sound = x509.load_pem_x509_csr(make_request(TLS_KEY, "north")).public_bytes(serialization.Encoding.DER)
    assert bytes.fromhex(old) in sound
    changed = sound.replace(bytes.fromhex(old), bytes.fromhex(new), 1)
    pem = (
        b"-----BEGIN CERTIFICATE REQUEST-----\n" + base64.b64encode(changed) + b"\n-----END CERTIFICATE REQUEST-----\n"
    )
    with pytest.raises(MalformedMessage, match="cannot be read"):
        request_key(pem)


def test_nothing_in_a_request_but_its_key_is_believed() -> None:
    assert request_key(make_request(TLS_KEY, "somebody else")).public_numbers() == TLS_KEY.public_key().public_numbers()


def signed_request(key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey) -> bytes:
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return builder.sign(key, algorithm).public_bytes(serialization.Encoding.PEM)


def test_a_request_of_another_kind_of_key_is_refused() -> None:
    for key in (ec.generate_private_key(ec.SECP384R1()), ed25519.Ed25519PrivateKey.generate()):
        with pytest.raises(MalformedMessage):
            request_key(signed_request(key))


def test_a_certificate_that_does_not_say_whom_it_speaks_for_speaks_for_nobody(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path, name="trial", now=NOW)
    for pem in (authority.pem.encode(), b"", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
        with pytest.raises(NotAuthorized):
            holder(pem)


# --- configuration files -----------------------------------------------------------------------------------------


def test_ports_that_are_chosen_together_are_different_ones() -> None:
    # The system gives a port that was given back to whoever asks next; of 500 some would be the same.
    assert len(set(_concrete(*[LOOPBACK] * 500))) == 500


def test_an_empty_coordinator_file_is_the_defaults() -> None:
    assert parse_coordinator("") == CoordinatorConfiguration(listen=LOOPBACK, enrolment_listen=LOOPBACK)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('lisen = "a:1"', "did you mean 'listen'?"),
        ('listen = "a"', "listen must be host:port"),
        ('listen = "a:99999"', "listen must be host:port"),
        ("listen = 7", "listen must be"),
        ('address = "a.org:1"', "give both"),
        ('listen = "0.0.0.0:7443"', "the one that sites connect to"),
        ("certificate_hours = 0", "certificate_hours must be a number"),
        ("analyst_hours = nan", "analyst_hours must be a number"),
        ('invitation_hours = "long"', "invitation_hours must be a number"),
        ("listen = ", "is not valid TOML"),
    ],
)
def test_a_wrong_coordinator_file_is_one_sentence(text: str, says: str) -> None:
    with pytest.raises(ConfigurationMistaken, match=r"^coordinator\.toml: |^coordinator\.toml is") as mistake:
        parse_coordinator(text)
    assert says in mistake.value.message


SITE = """\
[site]
name = "north"
patients = 1000
dataset = "ehr-2026"
[coordinator]
address = "coordinator.example.org:7443"
[tables.visits]
source = "visits.csv"
[policy]
epsilon = 3.0
delta = 1e-6
max_epsilon_per_plan = 1.0
statistics = ["count", "training"]
approval = "manual"
"""


def test_a_site_file_is_what_the_hospital_decided() -> None:
    site = parse_site(SITE, parse_study(STUDY))
    assert (site.name, site.patients, site.dataset, site.address) == (
        "north",
        1000,
        "ehr-2026",
        "coordinator.example.org:7443",
    )
    assert (site.policy.statistics, site.policy.approval) == ((Statistic.COUNT,), Approval.MANUAL)
    assert site.policy.cap.pure_epsilon == 1.0, "the study's pure lane, inside the site's own cap"


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("patients = 1000", "patents = 1000", "site.patients"),
        ("dataset =", "datset =", "did you mean 'dataset'?"),
        ("patients = 1000", "patients = 0", "a whole number from 1"),
        ("patients = 1000", "patients = 1000000", "is not below 1/1000000"),
        ('name = "north"', 'name = "no rth"', "site.name must be letters"),
        ("org:7443", "org", "coordinator.address must be host:port"),
        ("[tables.visits]", "[tables.visit]", "did you mean 'visits'?"),
        ("source =", "sorce =", "tables.visits.source"),
        ("source =", 'rank = "place"\nsource =', "only a PostgreSQL source uses a rank column"),
        ("epsilon = 3.0", "epsilon = 0", "epsilon"),
        ("epsilon = 3.0", "epsilon = -3.0", "policy.epsilon must be a number"),
        ("delta = 1e-6", "delta = 2", "policy.delta must be a number"),
        ("max_epsilon_per_plan", "max_epsilon_per_plam", "did you mean 'max_epsilon_per_plan'?"),
        ('"count", "training"', '"cuont"', "did you mean 'count'?"),
        ('"manual"', '"maybe"', "must be one of automatic, manual"),
        ("[policy]", "[polcy]", "policy must be a table"),
        ("[site]", "[[site]]", "site must be a table"),
    ],
)
def test_a_wrong_site_file_is_one_sentence(before: str, after: str, says: str) -> None:
    assert before in SITE
    with pytest.raises(ConfigurationMistaken, match=r"^site\.toml: ") as mistake:
        parse_site(SITE.replace(before, after), parse_study(STUDY))
    assert says in mistake.value.message
    assert mistake.value.message.endswith((".", "?"))


def test_a_site_without_the_driver_of_its_source_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("site_agent.reading.sources.postgresql.table")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigurationMistaken, match=r"needs psycopg.*pip install 'wardround\[postgresql\]'"):
        check_sources({"visits": TableSource("postgresql://reader@db/ehr")}, folder=Path("/"))
