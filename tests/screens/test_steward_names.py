"""Which request a steward means: one that is named beyond doubt, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from site_agent.store.requests import RequestState
from tests.cli.calling import call
from tests.screens.hostile_words import FORGED_LINE, HOSTILE, Hospital, asked, plan_of
from wardround.federation import canonical
from wardround.federation.plain_text import is_plain

PENDING, APPROVED, DENIED = RequestState


@pytest.fixture
def hospital(tmp_path: Path) -> Hospital:
    found = Hospital(tmp_path)
    found.holds(asked("a"))
    return found


def states(hospital: Hospital) -> list[RequestState]:
    return [request.state for request in hospital.ledger.requests()]


def plan_id(hospital: Hospital) -> str:
    return hospital.ledger.requests()[0].plan_id


@pytest.mark.parametrize("command", ["approve", "deny"])
@pytest.mark.parametrize("length", [0, 1, 7])
def test_a_name_that_is_too_short_means_nothing(hospital: Hospital, command: str, length: int) -> None:
    done = call("site", command, hospital.folder, plan_id(hospital)[:length])
    assert done.code == 2
    assert "give at least the first 8 of its hexadecimal digits" in done.sentence()
    assert states(hospital) == [PENDING]


@pytest.mark.parametrize("name", [" ", "\t", "        ", "%", "pending ", "../../..", "\x1b[2J\u202e\n", "0x12345678"])
def test_what_is_no_plan_id_means_nothing(hospital: Hospital, name: str) -> None:
    for command in ("approve", "deny", "requests"):
        done = call("site", command, hospital.folder, name)
        assert (done.code, is_plain(done.sentence())) == (2, True)
        assert "is not a plan id" in done.sentence()
    assert call("site", "approve", hospital.folder, f"{plan_id(hospital)[:12]} ").code == 2
    assert call("site", "approve", hospital.folder, f"{plan_id(hospital)}00").code == 2
    assert states(hospital) == [PENDING]


def test_a_name_of_several_requests_or_of_none_means_nothing(hospital: Hospital) -> None:
    # Who asks can try nonces until two plans begin alike; here the second one is written down by hand.
    task, beginning = canonical.encode(hospital.task(plan_of(asked("b")))), plan_id(hospital)[:12]
    with hospital.ledger._database.transaction() as connection:
        connection.execute(
            "INSERT INTO requests (plan_id, task, summary, state, asked_on) VALUES (?, ?, '', 'approved', '')",
            (beginning.ljust(64, "0"), task),
        )
    for command in ("approve", "deny", "requests"):
        done = call("site", command, hospital.folder, beginning)
        assert (done.code, "several requests have a plan id beginning with" in done.sentence()) == (2, True)
        other = "f" * 8 if beginning[0] != "f" else "e" * 8
        done = call("site", command, hospital.folder, other)
        assert (done.code, "no request has a plan id beginning with" in done.sentence()) == (2, True)
    assert states(hospital) == [PENDING, APPROVED]
    assert call("site", "approve", hospital.folder, plan_id(hospital)).code == 0


def test_what_was_decided_is_not_decided_again(hospital: Hospital) -> None:
    name = plan_id(hospital)[:8]
    assert call("site", "approve", hospital.folder, name).code == 0
    done = call("site", "approve", hospital.folder, name)
    assert (done.code, "was already approved" in done.sentence()) == (2, True)
    # Until it is answered a yes can become a no, which is final.
    assert call("site", "deny", hospital.folder, name).code == 0
    for command in ("approve", "deny"):
        done = call("site", command, hospital.folder, name)
        assert (done.code, "was already answered" in done.sentence()) == (2, True)
    assert states(hospital) == [DENIED]


def test_scripts_get_the_price_as_a_number_and_every_character_of_the_question(hospital: Hospital) -> None:
    hospital.holds(asked(HOSTILE["a line of its own"] + "\x7f"), epsilon=0.7)
    done = call("site", "requests", hospital.folder, "--json")
    assert done.out.isascii()
    assert is_plain(done.out.removesuffix("\n"))
    _, found = done.document()["requests"]
    assert found["epsilon"] == pytest.approx(0.7, rel=1e-3)
    assert f"note = 'x\n{FORGED_LINE}\x7f'" in found["asked"]
    # A pipe gets a line for each request, whole: `awk` finds the plan in the first word.
    lines = call("site", "requests", hospital.folder).out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        [request.plan_id[:16], "pending"] for request in hospital.ledger.requests()
    ]


def test_a_request_that_cannot_be_answered_any_more_is_listed_without_a_price(hospital: Hospital) -> None:
    with hospital.ledger._database.transaction() as connection:
        connection.execute("UPDATE requests SET task = ?", (b"\xff",))
    (line,) = call("site", "requests", hospital.folder).out.splitlines()
    assert line.startswith(f"{plan_id(hospital)[:16]}  pending")
    assert "ε = –" in line
    assert "cannot be answered any more: A message was malformed." in line


def test_a_price_without_a_bound_is_no_number(hospital: Hospital) -> None:
    site = hospital.folder / "site.toml"
    site.write_text(site.read_text("utf-8").replace("delta = 1e-6", "delta = 0.0"), encoding="utf-8")
    (found,) = call("site", "requests", hospital.folder, "--json").document()["requests"]
    assert found["epsilon"] is None
    assert "ε = inf" in call("site", "requests", hospital.folder).out
