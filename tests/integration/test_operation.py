"""Days of operation: stewards, checks, restarts, drop-outs, orderly ends."""

from __future__ import annotations

import contextlib
import datetime
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator.members.enrolment import opened
from coordinator.members.folder import CoordinatorFolder
from coordinator.members.roster import Roster
from protos.calls import SiteCalls
from protos.channels import channel
from protos.tls import TlsKeys
from site_agent.serving.check import check_site
from site_agent.serving.serve import open_ledger
from site_agent.telling.history import departures
from tests.integration.conftest import Make
from tests.integration.stage import PATIENTS, SHARP, Asked, Federation, eventually, is_about, now, sites_in, value
from wardround.analyst.asking.client import connect
from wardround.federation.errors import AwaitingApproval, FederationError, Mistaken, TooFewSites
from wardround.federation.trust.certificates import Role, key_to_pem, new_tls_key, tls_key_hash
from wardround.federation.trust.identity import Identity, Purpose

# --- the steward ----------------------------------------------------------------------------------------------


def test_a_steward_approves_a_question_while_the_agent_serves(make_federation: Make) -> None:
    federation = make_federation(sites=("two",), approval="manual").start()
    first = federation.ask_command()
    assert (first.code, first.error["code"]) == (3, "AwaitingApproval")
    assert str(first.error["message"]) == "The question is waiting for approval at two; ask again later."
    assert federation.entries("two", "charged") == []
    (request,) = federation.run("site", "requests", federation.site("two"), "--json").document["requests"]  # type: ignore[misc]
    assert request["state"] == "pending"  # type: ignore[index,call-overload]
    assert "COUNT(DISTINCT patient_id)" in request["asked"]  # type: ignore[index,call-overload,operator]
    plan_id = str(request["plan_id"])  # type: ignore[index,call-overload]
    assert federation.run("site", "approve", federation.site("two"), plan_id[:12]).code == 0
    eventually(lambda: federation.entries("consortium", "answered", plan_id), what="the approved round is answered")
    answer = federation.ask()
    assert (answer["plan_id"], is_about(answer, 10)) == (plan_id, True)
    federation.check_charged_once(plan_id)
    history = federation.run("site", "history", federation.site("two"), "--json").document["history"]
    assert [(line["plan_id"], line["kind"], line["values"]) for line in history] == [(plan_id, "released", 1)]  # type: ignore[index,call-overload,union-attr]
    with open_ledger(federation.site("two")) as ledger, pytest.raises(Mistaken, match="already answered"):
        ledger.decide(plan_id, approve=False, by="ann")
    federation.check_ledgers()


def test_a_denied_question_says_so_and_is_answered_by_the_others(make_federation: Make) -> None:
    federation = make_federation(sites=("one", "two"))
    config = federation.site("two") / "site.toml"
    config.write_text(config.read_text(encoding="utf-8").replace("automatic", "manual"), encoding="utf-8")
    federation.start()
    with pytest.raises(AwaitingApproval):
        federation.ask()
    plan_id = str(federation.rows("two", "SELECT plan_id FROM requests")[0][0])
    unknown = federation.run("site", "deny", federation.site("two"), ("f" if plan_id[0] != "f" else "e") * 8)
    assert (unknown.code, "no request has a plan id beginning with" in unknown.err) == (2, True)
    assert federation.run("site", "deny", federation.site("two"), plan_id).code == 0
    eventually(lambda: federation.entries("consortium", "answered"), what="the round is answered")
    answer = federation.ask()
    assert is_about(answer, 1)
    assert sites_in(answer) == {
        "answered": ["one"],
        "refused": {"two": "ApprovalDenied"},
        "missing": [],
        "left_out": [],
        "lacking_patients": 1000,
        "asked_patients": 2000,
        "reasons": {"two": "a person there declined it"},
    }
    assert federation.entries("two", "charged") == []
    assert [body["site"] for body in federation.entries("consortium", "voided")] == ["two"]
    assert federation.rows("consortium", "SELECT mu_squared FROM accounts WHERE account = 'two'") == [(0,)]
    assert [(line.line.kind, line.epsilon) for line in departures(federation.site("two"))] == [("refused", 0.0)]
    federation.check_ledgers()


# --- site check -----------------------------------------------------------------------------------------------


def test_site_check_finds_nothing_wrong_while_the_agent_serves(federation: Federation) -> None:
    done = federation.run("site", "check", federation.site("two"), "--json")
    assert done.code == 0, done.out
    subjects = {f["subject"] for f in done.document["findings"]}  # type: ignore[union-attr,index,call-overload]
    assert {"address", "proxy", "certificate", "clock", "permissions", "ledger", "table encounters"} <= subjects


def loosen(site: Path) -> None:
    (site / "identity.pem").chmod(0o644)


def remove_table(site: Path) -> None:
    (site / "encounters.csv").unlink()


def rename_column(site: Path) -> None:
    table = site / "encounters.csv"
    table.write_text(table.read_text(encoding="utf-8").replace("sbp", "pressure", 1), encoding="utf-8")


def unlist_table(site: Path) -> None:
    config = site / "site.toml"
    text = config.read_text(encoding="utf-8").replace('[tables.encounters]\nsource = "encounters.csv"', "[tables]")
    config.write_text(text, encoding="utf-8")


def misspell(site: Path) -> None:
    config = site / "site.toml"
    config.write_text(config.read_text(encoding="utf-8").replace("approval", "aproval"), encoding="utf-8")


def state_too_much_memory(site: Path) -> None:
    config = site / "site.toml"
    stated = config.read_text(encoding="utf-8").replace("[site]\n", "[site]\nmemory_mebibytes = 16000000\n")
    config.write_text(stated, encoding="utf-8")


def move_coordinator(site: Path) -> None:
    config = site / "site.toml"
    text = config.read_text(encoding="utf-8") + '[coordinator]\naddress = "nowhere.invalid:7443"\n'
    config.write_text(text, encoding="utf-8")


def spoil_certificate(site: Path) -> None:
    (site / "tls" / "certificate.pem").write_text("nothing", encoding="utf-8")


def spoil_ledger(site: Path) -> None:
    (site / "ledger.sqlite").write_bytes(b"nothing" * 1000)


@pytest.mark.parametrize(
    ("spoil", "subjects"),
    [
        (loosen, {"permissions"}),
        (remove_table, {"table encounters"}),
        (rename_column, {"table encounters"}),
        (unlist_table, {"table encounters"}),
        (misspell, {"configuration"}),
        (state_too_much_memory, {"memory"}),
        (move_coordinator, {"address", "coordinator"}),
        (spoil_certificate, {"certificate", "coordinator"}),
        (spoil_ledger, {"ledger"}),
    ],
)
def test_site_check_names_what_is_wrong(
    federation: Federation, tmp_path: Path, spoil: Callable[[Path], None], subjects: set[str]
) -> None:
    site = tmp_path / "two"
    # An agent that has begun to serve and is asked nothing writes nothing: its files can be copied.
    federation.await_sites()
    shutil.copytree(federation.site("two"), site)
    spoil(site)
    wrong = {finding.subject: finding.text for finding in check_site(site) if not finding.ok}
    assert set(wrong) == subjects, wrong
    assert spoil is not remove_table or str(site / "encounters.csv") in wrong["table encounters"]


def test_site_check_says_when_the_coordinator_is_away(make_federation: Make) -> None:
    federation = make_federation(sites=("two",))
    done = federation.run("site", "check", federation.site("two"), "--json")
    wrong = [finding["subject"] for finding in done.document["findings"] if not finding["ok"]]  # type: ignore[union-attr,index,call-overload]
    assert (done.code, wrong) == (1, ["address", "coordinator"])


# --- processes ------------------------------------------------------------------------------------------------


@pytest.mark.serial
def test_one_process_serves_a_folder_and_a_signal_ends_it_within_seconds(federation: Federation) -> None:
    federation.await_sites()
    second = federation.run("site", "serve", federation.site("two"))
    assert (second.code, "another process is serving" in second.err) == (1, True)
    second = federation.run("coordinator", "serve", federation.consortium)
    assert (second.code, "another process is serving" in second.err) == (1, True)
    federation.ask(fresh=True)
    for name, number in (("two", signal.SIGTERM), ("three", signal.SIGINT), ("consortium", signal.SIGTERM)):
        begun = time.monotonic()
        assert federation.stop(name, number=number) == 0, name
        # A poll for work lasts 20 seconds: whoever waits for its end is later.
        assert time.monotonic() - begun < 15.0, name
    federation.start_coordinator()
    federation.start_site("two")
    federation.start_site("three")
    # Site one was never touched: it found the coordinator again by itself.
    answer = federation.ask(fresh=True)
    assert is_about(answer, 111), value(answer)
    assert sites_in(answer)["missing"] == []


def test_a_stopped_site_is_missing_and_too_few_sites_are_refused(make_federation: Make) -> None:
    federation = make_federation(min_sites=2)
    federation.start_timeless_coordinator()
    federation.start_site("one")
    federation.start_site("three")
    answer = federation.after_the_deadline(
        federation.asking(), when=lambda: federation.received() == 2, what="one and three answered"
    )
    assert is_about(answer, 101), value(answer)
    assert sites_in(answer) == {
        "answered": ["one", "three"],
        "refused": {},
        "missing": ["two"],
        "left_out": [],
        "lacking_patients": 1000,
        "asked_patients": 3000,
    }
    for form in ((), ("--long",), ("--intervals", "--explain")):
        shown = federation.run("ask", "--profile", federation.profile(), PATIENTS, "--epsilon", SHARP, *form)
        assert shown.out.startswith("Without two (no answer): 2 of 3 hospitals answered, "), shown
    with connect(federation.profile()) as client:
        frame = client.ask(PATIENTS, epsilon=SHARP).to_pandas()
    assert frame["COUNT(DISTINCT patient_id)"].tolist() == [value(answer)]
    assert (frame.attrs["answered"], frame.attrs["missing"]) == (["one", "three"], ["two"])
    assert federation.stop("three") == 0
    # It called long ago, as this coordinator counts time.
    with (federation.consortium / "days").open("ab") as days:
        days.write(b".")
    done = federation.ask_command("SELECT COUNT(*) FROM encounters")
    assert (done.code, done.error["code"]) == (3, "SitesAway")
    assert "of 3 hospitals are there and the study needs 2; away: " in str(done.error["message"])
    assert len(federation.entries("consortium", "reserved")) == 1
    states = federation.run("budget", "--profile", federation.profile(), "--json").document["sites"]
    assert (states["two"]["state"], states["three"]["state"]) == ("away", "away")  # type: ignore[index,call-overload]
    federation.check_ledgers()


def test_required_hospitals_are_waited_for_over_restarts_and_paid_once(make_federation: Make) -> None:
    federation = make_federation(sites=("one", "two"))
    federation.start_timeless_coordinator()
    federation.start_site("one")
    federation.start_site("two", failpoint="after_claim")
    done = federation.after_the_deadline(
        Asked(lambda: federation.ask_command(PATIENTS, "--require", "all")),
        when=lambda: federation.received() == 1,
        what="one answered",
    )
    assert (done.code, done.error["code"]) == (3, "SitesAway"), done.err
    assert "1 of 2 hospitals answered and this question requires 2; missing: two" in str(done.error["message"])
    federation.await_death("two")
    assert federation.stop("consortium") == 0
    federation.start_coordinator()
    assert federation.entries("consortium", "answered") == []
    federation.start_site("two")
    again = federation.ask_command(PATIENTS, "--require", "2")
    assert again.code == 0, again.err
    assert is_about(again.document, 11)
    assert len(federation.entries("consortium", "reserved")) == 1
    assert [len(federation.entries(name, "charged")) for name in ("one", "two")] == [1, 1]
    federation.check_ledgers()


@pytest.mark.slow
def test_a_round_with_too_few_sites_is_continued_by_asking_again_at_no_new_charge(make_federation: Make) -> None:
    federation = make_federation(min_sites=2)
    federation.start_timeless_coordinator()
    federation.start_site("one")
    federation.start_site("three", failpoint="after_claim")
    with pytest.raises(TooFewSites, match="Asking again costs nothing more"):
        federation.after_the_deadline(federation.asking(), when=lambda: federation.received() == 1, what="one answered")
    plan_id = str(federation.rows("consortium", "SELECT plan_id FROM rounds")[0][0])
    federation.await_death("three")
    federation.start_site("three")
    again = federation.after_the_deadline(
        federation.asking(), when=lambda: federation.received() == 2, what="three answered"
    )
    assert is_about(again, 101), value(again)
    assert (again["plan_id"], sites_in(again)["missing"]) == (plan_id, ["two"])
    assert len(federation.entries("consortium", "reserved")) == 1
    assert len(federation.entries("one", "charged")) == 1
    federation.check_ledgers()


@pytest.mark.slow
def test_a_site_is_not_charged_for_what_its_schema_shows_to_be_impossible(make_federation: Make) -> None:
    federation = make_federation(sites=("one", "two"))
    rename_column(federation.site("two"))
    federation.start()
    answer = federation.ask("SELECT AVG(sbp) FROM encounters")
    assert sites_in(answer)["refused"] == {"two": "SchemaRefused"}
    assert sites_in(answer)["reasons"] == {
        "two": "its table does not have the columns or types that the study describes"
    }
    assert federation.entries("two", "charged") == []
    assert is_about(federation.ask(), 11)


def enrol_directly(federation: Federation, name: str) -> TlsKeys:
    """A site on the roster with a certificate, without a folder of its own."""
    folder, identity, key = CoordinatorFolder(federation.consortium), Identity.generate(), new_tls_key()
    authority = folder.authority()
    with opened(folder) as ledger:
        signature = identity.sign(Purpose.STUDY, bytes.fromhex(ledger.study.study_hash))
        Roster(ledger).enrol_site(
            name=name, identity=identity.public, patients=1000, dataset=name, study_signature=signature
        )
        ledger.members.note_tls_key(name, tls_key_hash(key.public_key()))
    life = datetime.timedelta(hours=1)
    certificate = authority.issue(key.public_key(), role=Role.SITE, name=name, life=life, now=now())
    return TlsKeys(key_to_pem(key), certificate, authority.pem.encode())


@pytest.mark.serial
def test_sixty_four_parked_sites_do_not_starve_a_submission(make_federation: Make) -> None:
    federation = make_federation(sites=("two", "three")).start()
    federation.await_calls()
    # A question is begun for hospitals that were just there.
    for name in ("two", "three"):
        federation.stop(name)
    asked = federation.asking()
    eventually(lambda: federation.rows("consortium", "SELECT 1 FROM tasks"), what="the round is open")
    # They enrol after the question, so that it is not theirs: each has nothing to do but wait.
    address = (federation.consortium / "address").read_text(encoding="utf-8").strip()
    channels = [channel(address, enrol_directly(federation, f"idle-{number}")) for number in range(64)]
    stopping, parked = threading.Event(), threading.Barrier(65)
    answered_early: list[str] = []

    def park(calls: SiteCalls) -> None:
        site = calls.greet().site
        parked.wait(300.0)
        while not stopping.is_set():
            with contextlib.suppress(FederationError):
                begun = time.monotonic()
                calls.claim(wait_seconds=20.0, pause=stopping.wait)
                if time.monotonic() - begun < 10.0 and not stopping.is_set():
                    answered_early.append(site)

    threads = [threading.Thread(target=park, args=(SiteCalls(one),), daemon=True) for one in channels]
    for thread in threads:
        thread.start()
    try:
        parked.wait(300.0)
        federation.start_site("two")
        federation.start_site("three")
        assert is_about(asked.answer(), 110)
        assert federation.run("budget", "--profile", federation.profile(), "--json").code == 0
        assert answered_early == []
    finally:
        stopping.set()
        for one in channels:
            one.close()
        for thread in threads:
            thread.join(30.0)
