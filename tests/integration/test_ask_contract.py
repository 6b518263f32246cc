"""The analyst's commands as scripts use them: one JSON document, exit codes, replays, races."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.conftest import Make
from tests.integration.stage import (
    AGES,
    PATIENCE_SECONDS,
    PATIENTS,
    SHARP,
    Done,
    Federation,
    command,
    eventually,
    is_about,
    sites_in,
    values,
)
from wardround.analyst.asking.client import connect
from wardround.federation.ledger.verify.evidence import export
from wardround.federation.ledger.verify.verify import verify

ANSWER = {"plan_id", "unit", "replayed", "noiseless", "sites", "estimates", "privacy"}
ESTIMATE = {
    "statistic", "column", "group", "value", "standard_error", "interval", "confidence", "term", "sampling", "reason",
}  # fmt: skip
PRIVACY = {"mechanism", "charged", "spent", "remaining", "overlap", "composition", "adjacency", "meaning"}


def test_an_answer_is_one_document_and_a_repeat_is_the_same_and_free(federation: Federation) -> None:
    first = federation.ask_command("SELECT diagnosis, COUNT(*), AVG(sbp) FROM encounters GROUP BY diagnosis")
    assert first.code == 0, first.err
    document = first.document
    # Two aggregates share one charge.
    assert set(document) == ANSWER | {"shares"}
    assert [set(estimate) for estimate in document["estimates"]] == [ESTIMATE] * 4  # type: ignore[union-attr,arg-type]
    assert set(document["privacy"]) == PRIVACY  # type: ignore[arg-type]
    assert (document["replayed"], document["noiseless"], document["unit"]) == (False, False, "patient")
    assert len(first.out.splitlines()) == 1
    spent = document["privacy"]["spent"]  # type: ignore[index,call-overload]
    again = federation.ask_command(
        "SELECT diagnosis, COUNT(*), AVG(sbp) FROM encounters GROUP BY diagnosis", analyst="bob"
    )
    same = again.document
    assert (same["plan_id"], same["replayed"], same["estimates"]) == (document["plan_id"], True, document["estimates"])
    assert same["privacy"]["spent"] == spent  # type: ignore[index,call-overload]
    federation.check_charged_once(str(document["plan_id"]))


def test_a_question_loads_no_picture_no_table_and_no_driver(federation: Federation) -> None:
    look = (
        "import sys\nfrom wardround.cli.main import main\n"
        "try:\n    main(sys.argv[1:])\nfinally:\n    print('\\n'.join(sys.modules), file=sys.stderr)"
    )
    words = ["ask", "--profile", str(federation.profile("ada")), PATIENTS, "--epsilon", str(SHARP)]
    done = subprocess.run([sys.executable, "-c", look, *words], capture_output=True, text=True, check=True)
    assert "Answered: " in done.stdout
    loaded = {name.partition(".")[0] for name in done.stderr.split()}
    assert loaded & {"matplotlib", "flwr", "duckdb", "psycopg", "pandas", "pyarrow", "rich", "scipy"} == set()
    assert {"grpc", "sqlglot", "wardround"} <= loaded
    assert not any(name.startswith(("site_agent", "coordinator")) for name in loaded)


def test_a_fresh_question_pays_anew(federation: Federation) -> None:
    first, fresh = federation.ask(AGES), federation.ask(AGES, fresh=True)
    assert first["plan_id"] != fresh["plan_id"]
    assert values(first) != values(fresh)
    assert values(first) == pytest.approx(values(fresh), abs=2.0)
    before, after = (answer["privacy"]["spent"]["epsilon"] for answer in (first, fresh))  # type: ignore[index,call-overload]
    assert after > before  # type: ignore[operator]
    federation.check_charged_once(str(fresh["plan_id"]))


def test_a_dry_run_spends_nothing(federation: Federation) -> None:
    before = federation.rows("consortium", "SELECT count(*) FROM entries")
    done = federation.ask_command("SELECT AVG(age) FROM encounters", "--dry-run")
    assert (done.code, done.document["dry_run"], done.document["refusal"]) == (0, True, None)
    assert federation.rows("consortium", "SELECT count(*) FROM entries") == before


@pytest.mark.parametrize(
    ("sql", "options", "code", "exit_code"),
    [
        ("SELECT COUNT(*) FROM encounters WHERE weight > 3", (), "QueryMistaken", 2),
        (PATIENTS, ("--epsilon", "-1"), "QueryMistaken", 2),
        (PATIENTS, ("--privacy", "sum"), "Mistaken", 2),
        (PATIENTS, ("--no-such-option",), "Mistaken", 2),
    ],
)
def test_every_mistake_is_one_document_one_sentence_and_free(
    federation: Federation, sql: str, options: tuple[str, ...], code: str, exit_code: int
) -> None:
    before = federation.rows("consortium", "SELECT count(*) FROM entries")
    done = federation.ask_command(sql, *options)
    assert (done.code, done.error["code"]) == (exit_code, code), done
    assert set(done.error) == {"code", "message"}
    assert len(done.err.strip().splitlines()) == 1
    assert federation.rows("consortium", "SELECT count(*) FROM entries") == before


def test_a_missing_profile_is_a_document_too(federation: Federation) -> None:
    done = federation.run("ask", "--profile", federation.folder / "nobody.profile", PATIENTS, "--json")
    assert (done.code, done.error["code"]) == (2, "ConfigurationMistaken")


def test_above_the_budget_nothing_is_charged_and_the_numbers_say_why(make_federation: Make) -> None:
    federation = make_federation(epsilon=1.0, sites=("two",)).start()
    answer = federation.ask_command(PATIENTS, epsilon=0.8)
    assert answer.code == 0, answer.err
    remaining = answer.document["privacy"]["remaining"]["epsilon"]  # type: ignore[index,call-overload]
    before = federation.rows("consortium", "SELECT count(*) FROM entries")
    done = federation.ask_command(PATIENTS, "--fresh", epsilon=0.8)
    assert done.code == 1
    error = done.error
    assert set(error) == {"code", "message", "asked", "remaining", "difference", "charged"}
    assert (error["code"], error["asked"], error["charged"]) == ("BudgetExceeded", 0.8, 0)
    assert error["remaining"] == remaining
    assert error["difference"] == pytest.approx(0.8 - float(str(remaining)))
    foretold = federation.ask_command("SELECT AVG(age) FROM encounters", "--dry-run", epsilon=0.8)
    assert (foretold.code, foretold.document["refusal"]) == (0, error)
    assert federation.rows("consortium", "SELECT count(*) FROM entries") == before
    with connect(federation.profile()) as client:
        budget = client.budget().document()
    assert set(budget) == {
        "study", "unit", "overlap", "cap", "spent", "remaining", "accountants", "sites", "events",
        "adjacency", "groups", "meaning", "overlaps", "statements", "history",
    }  # fmt: skip
    assert (budget["events"], set(budget["sites"])) == (1, set(federation.sites))  # type: ignore[arg-type]
    federation.check_ledgers()


def test_of_two_analysts_racing_for_the_last_of_the_budget_one_succeeds(make_federation: Make) -> None:
    federation = make_federation(epsilon=1.0, sites=("two",)).start()
    racing = [
        subprocess.Popen(
            command("ask", "--profile", federation.profile(analyst), PATIENTS, "--epsilon", 0.8, "--fresh", "--json"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for analyst in ("ada", "bob", "ada")
    ]
    done = []
    for process in racing:
        out, err = process.communicate(timeout=2 * PATIENCE_SECONDS)
        done.append(Done(process.returncode, out.decode(), err.decode()))
    assert sorted(one.code for one in done) == [0, 1, 1], done
    assert {str(one.error["code"]) for one in done if one.code} == {"BudgetExceeded"}
    assert len(federation.entries("consortium", "reserved")) == 1
    assert all(len(federation.entries(name, "charged")) == 1 for name in federation.sites)
    federation.check_ledgers()


def test_a_coordinator_that_is_away_is_exit_code_three(make_federation: Make) -> None:
    federation = make_federation()
    done = federation.ask_command()
    assert (done.code, done.error["code"]) == (3, "PeerUnreachable")


@pytest.mark.slow
def test_a_killed_question_is_continued_by_asking_again(make_federation: Make) -> None:
    federation = make_federation()
    federation.start_coordinator()
    federation.start_site("one")
    federation.start_site("three")
    process = subprocess.Popen(
        command("ask", "--profile", federation.profile(), PATIENTS, "--epsilon", SHARP, "--json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    eventually(lambda: len(federation.entries("consortium", "received")) == 2, what="two sites answered")
    process.send_signal(signal.SIGKILL)
    out, _ = process.communicate()
    assert out == b""
    federation.start_site("two")
    answer = federation.ask()
    assert is_about(answer, 111)
    assert sites_in(answer)["missing"] == []
    federation.check_charged_once(str(answer["plan_id"]))


def test_the_exported_ledgers_verify_elsewhere(federation: Federation, tmp_path: Path) -> None:
    federation.ask()
    for name in ("consortium", "two"):
        out = tmp_path / f"{name}.ledger"
        export(federation.folder / name, out)
        assert verify(out).valid
    verdict = federation.run("ledger", "verify", out, "--json")
    assert (verdict.code, verdict.document["valid"], verdict.document["problems"]) == (0, True, [])
    out.write_bytes(out.read_bytes().replace(b"mu_squared", b"mu_squareD", 1))
    verdict = federation.run("ledger", "verify", out, "--json")
    assert (verdict.code, verdict.document["valid"]) == (4, False)
