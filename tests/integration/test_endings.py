"""What is final ends an agent, or a question, with one sentence that says what to do; what may pass ends neither."""

from __future__ import annotations

import datetime
import signal

import pytest

from coordinator.members.enrolment import issue_profile
from coordinator.members.folder import CoordinatorFolder
from tests.integration.conftest import Make
from tests.integration.stage import PATIENCE_SECONDS, Federation, eventually, is_about, now
from wardround.analyst.asking.client import Client
from wardround.analyst.link.grpc_link import GrpcAnalystLink, Persistence
from wardround.federation.errors import NotAuthorized
from wardround.federation.trust.certificates import Role, key_from_pem
from wardround.federation.trust.enrolment import read_profile


def last_words(federation: Federation, name: str) -> tuple[int, str]:
    """How an agent ended by itself, and its last line."""
    code = federation.running.pop(name).wait(PATIENCE_SECONDS)
    return code, federation.log(name).splitlines()[-1]


def expire(federation: Federation, name: str) -> None:
    """Give a site a certificate for its own key that ended an hour ago."""
    tls = federation.site(name) / "tls"
    public = key_from_pem((tls / "key.pem").read_bytes(), name="key.pem").public_key()
    hour = datetime.timedelta(hours=1)
    authority = CoordinatorFolder(federation.consortium).authority()
    issued = authority.issue(public, role=Role.SITE, name=name, life=hour, now=now() - 2 * hour)
    (tls / "certificate.pem").write_bytes(issued)


def test_what_is_final_ends_an_agent_and_a_coordinator_that_is_away_does_not(make_federation: Make) -> None:
    federation = make_federation(sites=("one", "two"))
    federation.start_coordinator()
    for name in ("one", "two"):
        federation.start_site(name)
    assert is_about(federation.ask(), 11)
    assert federation.run("coordinator", "revoke", federation.consortium, "one").code == 0
    # It would hear of it when its poll is over; started again, at once.
    federation.stop("one")
    federation.start_site("one")
    code, words = last_words(federation, "one")
    assert code == 1
    assert words.startswith("wardround: The consortium revoked this site")
    assert "ask the consortium" in words

    # The one that was not revoked outlives a coordinator that is killed, and answers the next.
    federation.stop("consortium", number=signal.SIGKILL)
    eventually(lambda: "trying again" in federation.log("two"), what="two tries again")
    federation.start_coordinator()
    assert is_about(federation.ask(fresh=True), 10)
    assert federation.stop("two") == 0

    # Whoever signed another study is not asked about this one.
    study = federation.site("two") / "study.toml"
    signed = study.read_text("utf-8")
    study.write_text(signed.replace("approval_seconds = 3600", "approval_seconds = 60"), "utf-8")
    federation.start_site("two")
    code, words = last_words(federation, "two")
    assert (code, words.startswith("wardround: The coordinator runs another study")) == (1, True), words
    study.write_text(signed, "utf-8")

    # An expired certificate is final whether or not somebody answers.
    expire(federation, "two")
    for _ in range(2):
        federation.start_site("two")
        code, words = last_words(federation, "two")
        assert code == 1
        assert words.startswith("wardround: The certificate of this site expired on ")
        assert f"wardround site init {federation.site('two')} --invite FILE" in words
        if "consortium" in federation.running:
            done = federation.run("site", "check", federation.site("two"))
            assert any(
                line.startswith("FAIL  certificate") and "--invite FILE" in line for line in done.out.split("\n")
            )
            federation.stop("consortium")


def test_a_revoked_replaced_or_expired_analyst_hears_which_it_is_and_what_to_do(make_federation: Make) -> None:
    federation = make_federation(sites=("two",))
    federation.start_coordinator()
    consortium = CoordinatorFolder(federation.consortium)
    done = federation.ask_command("SELECT COUNT(*) FROM nothing")
    assert done.code == 2, "she may ask"
    old = federation.folder / "old.profile"
    old.write_bytes(federation.profile().read_bytes())
    issue_profile(consortium, "ada", federation.profile(), now=now())
    done = federation.run("ask", "--profile", old, "SELECT COUNT(*) FROM encounters", "--epsilon", "1", "--json")
    assert (done.code, done.error["code"]) == (1, "NotAuthorized")
    assert "A newer certificate was issued for ada" in str(done.error["message"])
    assert "use the newer profile" in str(done.error["message"])

    assert federation.run("coordinator", "revoke", federation.consortium, "ada").code == 0
    done = federation.ask_command()
    assert (done.code, done.error["code"]) == (1, "NotAuthorized")
    assert str(done.error["message"]).startswith("The consortium revoked the analyst ada")
    assert "ask the consortium for a profile under another name" in str(done.error["message"])
    assert len(done.err.strip().splitlines()) == 1

    # Expired before it is used: the profile says so. Expired while it is in use: the connection does.
    ended = federation.folder / "ended.profile"
    issue_profile(consortium, "bob", ended, now=now() - datetime.timedelta(days=4000))
    done = federation.run("ask", "--profile", ended, "SELECT COUNT(*) FROM encounters", "--epsilon", "1", "--json")
    assert done.code == 2
    assert "the certificate expired on" in str(done.error["message"])
    patient = Persistence(pause=lambda _: pytest.fail("an expired certificate is not tried again"))
    link = GrpcAnalystLink(read_profile(ended), persistence=patient)
    with Client(link) as client, pytest.raises(NotAuthorized) as refused:
        client.budget()
    assert refused.value.final
    assert "The certificate of the analyst bob expired on" in refused.value.message
    assert "ask the consortium for a new profile" in refused.value.message
