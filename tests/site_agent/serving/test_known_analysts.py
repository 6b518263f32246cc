"""A steward sees who asks and why, and decides which key is whose."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from site_agent.serving.configuration import parse_site
from tests.cli.calling import call
from tests.fixtures.asking import ADA, ANALYST, asked_by
from tests.screens.hostile_words import SITE, STUDY, Hospital, asked, plan_of
from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.ledger.verify.verify import verify
from wardround.federation.plan.plan import Plan
from wardround.federation.plan.task import SignedTask, Task, sign_task
from wardround.federation.study.study_file import parse_study
from wardround.federation.trust.asked_by import AskedBy
from wardround.federation.trust.entry import EMPTY
from wardround.federation.trust.identity import Identity

MALLORY = Identity.generate()
FORGED = "purpose: none  0123456789abcdef  approved  2026-01-01  ε = 0.001"


@pytest.fixture
def hospital(tmp_path: Path) -> Hospital:
    return Hospital(tmp_path)


def holds(hospital: Hospital, place: int, **who: object) -> str:
    """A question that waits, asked by ada unless it is said otherwise; its plan id."""
    plan = plan_of(asked(f"word {place}"))
    word = asked_by(plan, **who) if who.get("identity", ADA) is not None else None  # type: ignore[arg-type]
    hospital.ledger.hold(shown(hospital, plan, word), summary="")
    return plan.plan_id


def shown(hospital: Hospital, plan: Plan, word: AskedBy | None) -> SignedTask:
    return sign_task(Task(plan, "north", EMPTY), hospital.coordinator, word)


def test_a_request_says_who_asks_by_which_key_and_why(hospital: Hospital) -> None:
    first = holds(hospital, 1, purpose="Do dosages differ?")
    other = holds(hospital, 2, identity=MALLORY)
    nobody = holds(hospital, 3, identity=None)
    lines = call("site", "requests", hospital.folder).out.splitlines()
    begin = [re.sub(r"^\S+  pending   \S+  ", "", line) for line in lines]
    assert begin[0].startswith("ε = 0.5    ada (not compared)  SELECT COUNT(*)")
    assert begin[1].startswith("ε = 0.5    ada (ANOTHER KEY)  SELECT COUNT(*)")
    assert begin[2].startswith("ε = 0.5    unsigned  SELECT COUNT(*)")
    assert lines[0].endswith("  purpose: Do dosages differ?")
    assert "purpose:" not in lines[1] + lines[2]
    found = call("site", "requests", hospital.folder, "--json").document()["requests"]
    told = [(each["analyst"], each["key"], each["fingerprint"], each["purpose"]) for each in found]
    assert told == [
        ("ada", "first sight", ADA.public.fingerprint, "Do dosages differ?"),
        ("ada", "another key", MALLORY.public.fingerprint, ""),
        (None, "unsigned", None, ""),
    ]
    for plan_id, sentence in (
        (first, f"Asked by ada under the key {ADA.public.fingerprint}, the one first seen here, which nobody compared"),
        (other, f"Asked by ada under the key {MALLORY.public.fingerprint}, NOT the one known here under this name."),
        (nobody, "Nobody signed it: it is not proved who asks."),
    ):
        assert sentence in call("site", "requests", hospital.folder, plan_id[:12]).out


def test_a_compared_key_is_said_by_the_name_alone(hospital: Hospital) -> None:
    plan_id = holds(hospital, 1)
    assert call("site", "analyst", "trust", hospital.folder, ANALYST, *ADA.public.fingerprint.split()).code == 0
    (line,) = call("site", "requests", hospital.folder).out.splitlines()
    assert "  ada  SELECT" in line
    assert "the one that a steward compared." in call("site", "requests", hospital.folder, plan_id[:12]).out


def test_a_purpose_comes_last_and_forges_nothing(hospital: Hospital) -> None:
    holds(hospital, 1, purpose=FORGED)
    (line,) = call("site", "requests", hospital.folder).out.splitlines()
    assert re.fullmatch(rf"\S+  pending   \S+  ε = 0.5    ada \(not compared\)  SELECT .*  purpose: {FORGED}", line)


def test_an_analyst_is_listed_with_every_key_that_was_shown(hospital: Hospital) -> None:
    assert call("site", "analyst", "list", hospital.folder).out == "No analyst has asked yet.\n"
    holds(hospital, 1)
    holds(hospital, 2, identity=MALLORY)
    first, other = call("site", "analyst", "list", hospital.folder).out.splitlines()
    assert re.fullmatch(rf"ada  {ADA.public.fingerprint}  first seen \d{{4}}-\d\d-\d\d, not compared", first)
    assert other == f"  also asked under another key: {MALLORY.public.fingerprint}"
    (known,) = call("site", "analyst", "list", hospital.folder, "--json").document()["analysts"]
    assert (known["analyst"], known["how"], known["key"]) == (ANALYST, "first sight", ADA.public.key)
    assert known["other_fingerprints"] == [MALLORY.public.fingerprint]


def test_a_steward_gives_a_name_the_key_that_was_compared(hospital: Hospital) -> None:
    holds(hospital, 1, identity=MALLORY)
    holds(hospital, 2)
    done = call("site", "analyst", "trust", hospital.folder, ANALYST, ADA.public.fingerprint)
    assert (done.code, ADA.public.fingerprint in done.out) == (0, True)
    (pin,) = hospital.ledger.analysts.listed()
    assert (pin.key, pin.how.value) == (ADA.public, "steward")
    again = call("site", "analyst", "trust", hospital.folder, ANALYST, ADA.public.written)
    assert (again.code, "known by this key already" in again.err) == (2, True)
    assert verify(hospital.folder).problems == ()
    (entry,) = [entry for entry in entries(hospital) if '"steward"' in entry]
    assert '"by":"' in entry


def entries(hospital: Hospital) -> list[str]:
    with hospital.ledger._database.reading() as connection:
        return [body for (body,) in connection.execute("SELECT body FROM entries WHERE kind = 'pinned'")]


def test_a_key_that_was_never_shown_is_trusted_as_a_whole(hospital: Hospital) -> None:
    unseen = call("site", "analyst", "trust", hospital.folder, "ben", MALLORY.public.fingerprint)
    assert unseen.code == 2
    assert "no question of ben under a key with this fingerprint has arrived here; give the whole key" in unseen.err
    assert call("site", "analyst", "trust", hospital.folder, "ben", MALLORY.public.written).code == 0
    (pin,) = hospital.ledger.analysts.listed()
    assert (pin.analyst, pin.key) == ("ben", MALLORY.public)


@pytest.mark.parametrize("words", ["3f9c", "ed25519:3f9c", "x" * 64, "0" * 63, "0" * 65])
def test_what_is_no_fingerprint_is_said_in_one_sentence(hospital: Hospital, words: str) -> None:
    done = call("site", "analyst", "trust", hospital.folder, ANALYST, words)
    assert (done.code, "a fingerprint is 64 hexadecimal digits in groups of four" in done.err) == (2, True)
    assert hospital.ledger.analysts.listed() == []


def test_a_name_that_is_none_is_said_in_one_sentence(hospital: Hospital) -> None:
    done = call("site", "analyst", "trust", hospital.folder, "ada\x1b[2J", ADA.public.written)
    assert (done.code, "is no analyst's name" in done.err) == (2, True)


def test_who_approved_is_whoever_called_sudo(hospital: Hospital, monkeypatch: pytest.MonkeyPatch) -> None:
    decided: list[str] = []
    for place, (caller, expected) in enumerate((("eve", "eve"), ("eve\x1b[2J", None), ("", None))):
        monkeypatch.setenv("SUDO_USER", caller)
        plan_id = holds(hospital, place)
        assert call("site", "approve", hospital.folder, plan_id).code == 0
        with hospital.ledger._database.reading() as connection:
            (body,) = connection.execute(
                "SELECT body FROM entries WHERE kind = 'approved' ORDER BY sequence DESC LIMIT 1"
            ).fetchone()
        decided.append(body)
        assert (f'"by":"{expected}"' in body) is (expected is not None), body
    assert all("x1b" not in body for body in decided)
    assert verify(hospital.folder).problems == ()


def test_check_says_who_may_ask_and_what_waits(hospital: Hospital) -> None:
    holds(hospital, 1)
    found = call("site", "check", hospital.folder, "--json").document()["findings"]
    (finding,) = [each for each in found if each["subject"] == "analysts"]
    assert finding["ok"] is True
    assert finding["text"].startswith("any analyst may ask; 1 known by their keys, 0 of them compared; unsigned")
    text = (hospital.folder / "site.toml").read_text().replace("[policy]", '[policy]\nanalysts = ["amira", "ben"]')
    (hospital.folder / "site.toml").write_text(text)
    found = call("site", "check", hospital.folder, "--json").document()["findings"]
    (finding,) = [each for each in found if each["subject"] == "analysts"]
    assert finding["text"].startswith("only amira, ben may ask; ")


@pytest.mark.parametrize("wrong", ["[]", '"amira"', '["amira", "two words"]', "[1]"])
def test_a_list_of_analysts_that_is_none_is_mistaken(wrong: str) -> None:
    text = SITE.replace("[policy]", f"[policy]\nanalysts = {wrong}")
    with pytest.raises(ConfigurationMistaken, match=r"policy\.analysts"):
        parse_site(text, parse_study(STUDY))
