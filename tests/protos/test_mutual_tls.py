"""Who may open a connection, over real TLS on loopback."""

from __future__ import annotations

import dataclasses

import pytest

from protos.calls import EnrolmentCalls, SiteCalls
from protos.channels import channel, enrolment_channel, proxy_uri
from protos.serving import serve
from protos.tls import Presented, renewals
from protos.turns import Turns
from tests.protos.certificates import TestAuthority
from tests.protos.loopback_service import (
    ANYWHERE,
    HASH,
    EnrolmentDesk,
    Loopback,
    SiteDesk,
    enrolments,
    listening,
    sites,
)
from wardround.federation.errors import ConfigurationMistaken, MalformedMessage, NotAuthorized, PeerUnreachable
from wardround.federation.trust.enrolment import Enrolment, Greeting
from wardround.federation.trust.identity import PublicIdentity

ENROLMENT = Enrolment(
    b"s" * 32, "north", PublicIdentity(HASH), HASH, b"s" * 64, b"-----BEGIN CERTIFICATE REQUEST-----", 7, "ehr"
)


def test_a_certificate_says_who_calls(loopback: Loopback) -> None:
    with channel(loopback.address, loopback.authority.issue("north")) as north:
        assert SiteCalls(north).greet() == Greeting("north", HASH, 1_700_000_000_000)


def test_a_caller_without_a_certificate_is_turned_away(loopback: Loopback) -> None:
    with (
        enrolment_channel(loopback.address, authority=loopback.authority.pem) as nobody,
        pytest.raises(PeerUnreachable, match="accept our certificate"),
    ):
        SiteCalls(nobody).greet()


def test_a_certificate_of_another_authority_is_turned_away(loopback: Loopback) -> None:
    stranger = TestAuthority().issue("north")
    keys = type(stranger)(stranger.key, stranger.certificate, loopback.authority.pem)
    with channel(loopback.address, keys) as north, pytest.raises(PeerUnreachable):
        SiteCalls(north).greet()


def test_an_expired_certificate_is_turned_away(loopback: Loopback) -> None:
    with (
        channel(loopback.address, loopback.authority.issue("north", days=-1)) as north,
        pytest.raises(PeerUnreachable),
    ):
        SiteCalls(north).greet()


def test_a_certificate_without_its_key_is_turned_away(loopback: Loopback) -> None:
    north, south = loopback.authority.issue("north"), loopback.authority.issue("south")
    stolen = type(north)(south.key, north.certificate, north.authority)
    with channel(loopback.address, stolen) as thief, pytest.raises(PeerUnreachable):
        SiteCalls(thief).greet()


@pytest.mark.parametrize("name", ["authority", "another"])
def test_a_caller_does_not_believe_another_authority(loopback: Loopback, name: str) -> None:
    north = loopback.authority.issue("north")
    keys = type(north)(north.key, north.certificate, TestAuthority(name).pem)
    with channel(loopback.address, keys) as calling, pytest.raises(NotAuthorized, match="expected authority"):
        SiteCalls(calling).greet()


def test_a_caller_does_not_believe_an_expired_coordinator(loopback: Loopback) -> None:
    loopback.presented.replace(loopback.authority.issue("coordinator", days=-1))
    with (
        channel(loopback.address, loopback.authority.issue("north")) as north,
        pytest.raises(NotAuthorized, match="expired"),
    ):
        SiteCalls(north).greet()


def test_a_caller_does_not_believe_a_certificate_for_another_address(loopback: Loopback) -> None:
    loopback.presented.replace(loopback.authority.issue("coordinator", address="127.9.9.9"))
    with (
        channel(loopback.address, loopback.authority.issue("north")) as north,
        pytest.raises(NotAuthorized, match="another address"),
    ):
        SiteCalls(north).greet()


def test_a_serving_certificate_is_renewed_without_a_restart(loopback: Loopback) -> None:
    old = channel(loopback.address, loopback.authority.issue("north"))
    SiteCalls(old).greet()
    renewed = TestAuthority("another")
    loopback.presented.replace(renewed.issue("coordinator"))
    with channel(loopback.address, renewed.issue("south")) as south:
        assert SiteCalls(south).greet().site == "south"
    # A connection that is open stays open; the certificate counts when it is made.
    assert SiteCalls(old).greet().site == "north"
    old.close()


def test_enrolment_needs_no_certificate_but_pins_the_authority() -> None:
    desk = EnrolmentDesk()
    with listening(enrolments(desk), at=dataclasses.replace(ANYWHERE, strangers=True)) as loopback:
        with enrolment_channel(loopback.address, authority=loopback.authority.pem) as new:
            assert EnrolmentCalls(new).enrol(ENROLMENT).startswith(b"-----BEGIN")
        with (
            enrolment_channel(loopback.address, authority=TestAuthority().pem) as deceived,
            pytest.raises(NotAuthorized, match="expected authority"),
        ):
            EnrolmentCalls(deceived).enrol(ENROLMENT)
    assert desk.enrolled == [ENROLMENT]


def test_a_stranger_can_send_little() -> None:
    desk = EnrolmentDesk()
    long = dataclasses.replace(ENROLMENT, dataset="x" * 64 * 1024)
    with (
        listening(enrolments(desk), at=dataclasses.replace(ANYWHERE, strangers=True)) as loopback,
        enrolment_channel(loopback.address, authority=loopback.authority.pem) as new,
        pytest.raises(MalformedMessage, match="larger"),
    ):
        EnrolmentCalls(new).enrol(long)
    assert desk.enrolled == []


def test_an_address_in_use_is_one_sentence(desk: SiteDesk, loopback: Loopback) -> None:
    with pytest.raises(ConfigurationMistaken, match="another process"):
        serve(
            dataclasses.replace(ANYWHERE, address=loopback.address),
            Presented(loopback.authority.issue("coordinator")),
            sites(desk),
            turns=Turns(),
            broken=lambda error: None,
        )


@pytest.mark.parametrize("proxy", ["proxy:3128", "http://proxy:3128", "http://user:secret@proxy:3128/"])
def test_a_proxy_is_named_in_any_usual_way(proxy: str) -> None:
    assert proxy_uri(proxy).startswith("http://")
    assert proxy_uri(proxy).endswith("proxy:3128")


@pytest.mark.parametrize("proxy", ["https://proxy:3128", "proxy", "http://:secret@", "http://proxy:port", "", "a b:1"])
def test_a_proxy_that_cannot_be_used_is_refused_without_its_password(proxy: str) -> None:
    with pytest.raises(ConfigurationMistaken) as caught:
        proxy_uri(proxy)
    assert "secret" not in caught.value.message


def test_handshakes_are_told_of_new_keys_once_and_otherwise_of_none() -> None:
    """Keys handed out anew at every handshake made gRPC crash when 64 sites connected at once."""
    authority = TestAuthority()
    presented = Presented(authority.issue("coordinator"))
    renewed = renewals(presented)
    assert [renewed(), renewed()] == [None, None]
    newer = authority.issue("coordinator")
    presented.replace(newer)
    assert [renewed(), renewed()] == [newer, None]
