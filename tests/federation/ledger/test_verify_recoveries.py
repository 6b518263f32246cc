"""`verify` finds every edit of what a recovery wrote, in the tables and in chains that are signed anew."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.federation.ledger.tampering.recovered_federation import recovered_federation
from wardround.federation.ledger.entry_body import encode_body
from wardround.federation.ledger.verify.evidence import read_evidence
from wardround.federation.ledger.verify.verify import judge, verify
from wardround.federation.trust.entry import EMPTY, Entry, make_entry
from wardround.federation.trust.identity import Identity

Body = dict[str, object]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A coordinator and a site that were recovered; one answer is lost."""
    folder = recovered_federation(tmp_path_factory.mktemp("recovered"))
    for name in ("consortium", "two"):
        verdict = verify(folder / name)
        assert (verdict.problems, verdict.unattested) == ((), ())
    return folder


def codes(folder: Path) -> set[str]:
    return {problem.code.value for problem in verify(folder).problems}


@pytest.mark.parametrize(
    ("name", "statement", "code"),
    [
        ("consortium", "DELETE FROM imports WHERE site = 'one'", "WrongIndex"),
        ("consortium", "DELETE FROM lost", "WrongIndex"),
        ("consortium", "UPDATE lost SET block = 'b'", "WrongIndex"),
        ("consortium", "UPDATE rejoins SET state = 'absent' WHERE site = 'one'", "WrongIndex"),
        ("consortium", "UPDATE accounts SET mu_squared = mu_squared - 1 WHERE account = 'one'", "WrongAccount"),
        ("two", "UPDATE accounts SET mu_squared = mu_squared - 1", "WrongAccount"),
        ("two", "DELETE FROM releases", "MissingBytes"),
        ("two", "DELETE FROM pins", "WrongIndex"),
    ],
)
def test_an_edit_of_a_table_is_found(original: Path, tmp_path: Path, name: str, statement: str, code: str) -> None:
    folder = Path(shutil.copytree(original / name, tmp_path / name))
    with closing(sqlite3.connect(folder / "ledger.sqlite", isolation_level=None)) as connection:
        for (lock,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {lock}")
        connection.execute(statement)
    assert code in codes(folder)


def changed(entry: Entry, **others: object) -> Entry:
    return replace(entry, body=encode_body(json.loads(entry.body) | others))


@pytest.mark.parametrize(
    ("name", "kind", "change", "code"),
    [
        ("consortium", "recovered", lambda e: changed(e, incarnation=0), "WrongRecovery"),
        ("consortium", "recovered", lambda e: changed(e, sites=["nobody"]), "UnknownSite"),
        ("consortium", "imported", lambda e: changed(e, mu_squared="1"), "WrongCharge"),
        ("consortium", "imported", lambda e: changed(e, site="nobody"), "UnknownSite"),
        ("consortium", "imported", lambda e: changed(e, incarnation=7), "WrongRecovery"),
        ("consortium", "rejoined", lambda e: changed(e, incarnation=7), "WrongRecovery"),
        ("consortium", "received", lambda e: changed(e, incarnation=7), "WrongRecovery"),
        ("two", "recovered", lambda e: changed(e, mu_squared=str(2**61)), "Overspent"),
        ("two", "recovered", lambda e: changed(e, account="other"), "WrongAccount"),
    ],
)
def test_a_chain_that_is_signed_anew_is_found(
    original: Path, name: str, kind: str, change: Callable[[Entry], Entry], code: str
) -> None:
    evidence = read_evidence(original / name)
    identity, head, entries = Identity.load(original / name / "identity.pem"), EMPTY, []
    for entry in evidence.entries:
        said = change(entry) if entry.kind == kind else entry
        entries.append(make_entry(identity, after=head, kind=said.kind, body=said.body))
        head = entries[-1].head
    found = judge(replace(evidence, entries=tuple(entries), digests=(), store=None))
    assert code in {problem.code.value for problem in found.problems}
