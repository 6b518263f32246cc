"""Who asked, over real processes: the analyst's own key, what a hospital is shown, and what nobody else can say."""

from __future__ import annotations

from pathlib import Path

from protos.calls import AnalystCalls
from protos.channels import channel
from protos.tls import TlsKeys
from tests.integration.conftest import Make
from tests.integration.stage import PATIENTS, SHARP, Federation, eventually, is_about
from wardround.analyst.link.signing import identity_file, own_identity
from wardround.federation.plan.task import AskRequest
from wardround.federation.plan.typed import type_query
from wardround.federation.question.query import Aggregate, Query, Statistic
from wardround.federation.study.study_file import parse_study
from wardround.federation.trust.enrolment import read_profile


def unsigned(federation: Federation, nonce: str = "") -> str:
    """Ask as an analyst of an earlier version, or a coordinator that leaves the signature out; the plan id."""
    profile = read_profile(federation.profile())
    keys = TlsKeys(profile.key.encode(), profile.certificate.encode(), profile.authority.encode())
    study, patients = parse_study(federation.terms.study()), Aggregate(Statistic.COUNT, "patient_id")
    query = type_query(Query("encounters", (patients,)), study)
    with channel(profile.address, keys) as opened:
        return AnalystCalls(opened).ask(AskRequest(query.query, SHARP, None, nonce))


def files(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file())


def test_the_analysts_key_signs_what_is_asked_and_is_seen_by_nobody(make_federation: Make) -> None:
    federation = make_federation(sites=("one", "two")).start()
    done = federation.ask_command(PATIENTS, "--purpose", "Do dosages differ? (a pilot)")
    assert done.code == 0, done.err
    assert is_about(done.document, 11)
    plan_id = str(done.document["plan_id"])
    own = own_identity(federation.profile())
    for name in federation.sites:
        (charged,) = federation.entries(name, "charged", plan_id)
        assert (charged["analyst"], charged["analyst_key"]) == ("ada", own.public.key)
        assert "approved_by" not in charged
        ((stored,),) = federation.rows(name, "SELECT asked_by FROM plans")
        assert b"Do dosages differ? (a pilot)" in bytes(stored)  # type: ignore[call-overload]
        assert "analyst ada asks for the first time" in federation.log(name)
    (reserved,) = federation.entries("consortium", "reserved", plan_id)
    assert reserved["asked"] == charged["asked"]
    pem = identity_file(federation.profile()).read_bytes()
    secret = b"".join(pem.splitlines()[1:-1])
    public, private = bytes.fromhex(own.public.key), own._private.private_bytes_raw()
    for place in (federation.consortium, *(federation.site(name) for name in federation.sites)):
        content = files(place)
        assert own.public.key.encode() in content, "the search finds what is there"
        for needle in (secret, private, private.hex().encode()):
            assert needle not in content, place
    profile = federation.profile().read_bytes()
    assert not any(needle in profile for needle in (secret, private.hex().encode(), public.hex().encode()))
    shown = federation.run("analyst", "fingerprint", "--profile", federation.profile())
    assert own.public.fingerprint in shown.out
    assert "first seen" in federation.run("site", "analyst", "list", federation.site("two")).out
    federation.check_ledgers()


def test_an_unsigned_question_and_another_key_wait_and_run_once_they_are_approved(make_federation: Make) -> None:
    federation = make_federation(sites=("two",)).start()
    assert is_about(federation.ask(), 10)
    charged = len(federation.entries("two", "charged"))
    first = unsigned(federation, nonce="ab")
    # The profile falls into other hands, or the coordinator makes one: another key under the same name.
    identity_file(federation.profile()).rename(federation.folder / "kept.pem")
    second = federation.ask_command(PATIENTS, "--fresh")
    assert (second.code, second.error["code"]) == (3, "AwaitingApproval")

    def waiting() -> list[str]:
        rows = federation.rows("two", "SELECT plan_id FROM requests WHERE state = 'pending' ORDER BY rowid")
        return [str(plan_id) for (plan_id,) in rows]

    eventually(lambda: len(waiting()) == 2, what="both wait")
    assert first in waiting()
    assert len(federation.entries("two", "charged")) == charged
    told = federation.run("site", "requests", federation.site("two"), "--json").document["requests"]
    assert {each["key"] for each in told} == {"unsigned", "another key"}  # type: ignore[union-attr,index,call-overload]
    for plan_id in waiting():
        assert federation.run("site", "approve", federation.site("two"), plan_id).code == 0
        eventually(lambda plan_id=plan_id: federation.entries("consortium", "answered", plan_id), what="it is answered")  # type: ignore[misc]
        (body,) = federation.entries("two", "charged", plan_id)
        assert body["approved_by"]
    (pin,) = federation.entries("two", "pinned")
    assert pin["how"] == "first sight"
    # A steward who compared the new key has it known from now on.
    fingerprint = own_identity(federation.profile()).public.fingerprint
    assert federation.run("site", "analyst", "trust", federation.site("two"), "ada", fingerprint).code == 0
    assert is_about(federation.ask(fresh=True), 10)
    federation.check_ledgers()
