"""A profile that cannot be used says why, and how to get another."""

from __future__ import annotations

import dataclasses
import datetime
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from wardround.analyst.link.grpc_link import open_profile
from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.trust.certificates import key_to_pem, new_tls_key, subject
from wardround.federation.trust.enrolment import AnalystProfile, write_profile

BEGINS = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
ENDS = datetime.datetime(2026, 2, 1, tzinfo=datetime.UTC)
NOW = datetime.datetime(2026, 1, 15, tzinfo=datetime.UTC)
NEW = "ask the consortium for a new profile (wardround coordinator analyst)."


def certificate(key: ec.EllipticCurvePrivateKey) -> str:
    builder = x509.CertificateBuilder().subject_name(subject("ada")).issuer_name(subject("ada"))
    builder = builder.public_key(key.public_key()).serial_number(1).not_valid_before(BEGINS).not_valid_after(ENDS)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


KEY = new_tls_key()
PROFILE = AnalystProfile(
    name="ada",
    address="coordinator.example.org:7443",
    study="cardio",
    authority=certificate(KEY),
    certificate=certificate(KEY),
    key=key_to_pem(KEY).decode(),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ada.profile"


def sentence(path: Path, *, now: datetime.datetime = NOW) -> str:
    with pytest.raises(ConfigurationMistaken) as fault:
        open_profile(path, now=now)
    return fault.value.message


def test_a_profile_comes_back_as_it_was_written_and_is_its_owners_alone(path: Path) -> None:
    write_profile(PROFILE, path)
    assert open_profile(path, now=NOW) == PROFILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_missing_profile_is_named(path: Path) -> None:
    assert sentence(path) == f"{path} does not exist; name an existing file."


@pytest.mark.parametrize("content", ["", "{}", "[]", "name = 'ada'", '{"form": "wardround profile 1"}', "\x00"])
def test_another_file_is_not_a_profile(path: Path, content: str) -> None:
    path.write_text(content)
    assert "is not an analyst's profile" in sentence(path)


def test_an_expired_certificate_says_how_to_get_a_new_one(path: Path) -> None:
    write_profile(PROFILE, path)
    assert sentence(path, now=ENDS) == f"{path}: the certificate expired on 2026-02-01; {NEW}"


def test_a_certificate_of_tomorrow_points_at_the_clock(path: Path) -> None:
    write_profile(PROFILE, path)
    early = BEGINS - datetime.timedelta(seconds=1)
    assert sentence(path, now=early) == (
        f"{path}: the certificate is not valid before 2026-01-01 00:00 UTC; check this computer's clock."
    )


def test_a_key_of_another_certificate_is_refused(path: Path) -> None:
    write_profile(dataclasses.replace(PROFILE, key=key_to_pem(new_tls_key()).decode()), path)
    assert sentence(path) == f"{path}: the key is not the certificate's; {NEW}"


@pytest.mark.parametrize("part", ["authority", "certificate", "key"])
def test_a_broken_part_is_refused_without_repeating_it(path: Path, part: str) -> None:
    write_profile(dataclasses.replace(PROFILE, **{part: "canary"}), path)
    assert "canary" not in sentence(path)


def test_an_address_without_a_port_is_refused(path: Path) -> None:
    write_profile(dataclasses.replace(PROFILE, address="coordinator.example.org"), path)
    assert "the coordinator's address must be host:port" in sentence(path)
