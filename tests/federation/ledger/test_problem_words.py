"""What `ledger verify` finds is told in a sentence, not only by its code."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tests.cli.calling import call
from tests.federation.ledger.ledger_bench import Bench
from wardround.federation.ledger.sqlite_file import LEDGER_FILE
from wardround.federation.ledger.verify.problems import Code


@pytest.mark.parametrize("code", Code)
def test_every_code_has_one_sentence(code: Code) -> None:
    assert code.sentence[0].isupper()
    assert code.sentence.endswith(".")
    assert code.value not in code.sentence


def test_a_person_reads_where_and_what(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "site")
    bench.answer("a")
    bench.ledger.close()
    connection = sqlite3.connect(bench.folder / LEDGER_FILE, isolation_level=None)
    connection.execute("DROP TRIGGER entries_are_never_changed")
    connection.execute("UPDATE entries SET signature = randomblob(64) WHERE sequence = 2")
    connection.execute("UPDATE accounts SET mu_squared = mu_squared - 1")
    connection.close()
    done = call("ledger", "verify", bench.folder)
    assert done.code == 4
    assert "  entry 2: BadSignature. The entry is not signed by the ledger's key.\n" in done.out
    assert "  the whole ledger: WrongAccount. An account is not the sum of its charges.\n" in done.out
