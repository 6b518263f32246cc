"""The published list of hints is the one that `ledger verify` goes by."""

from __future__ import annotations

from pathlib import Path

from wardround.federation.ledger.verify.hints import HINTS, Hint

PAGE = Path(__file__).parents[2] / "docs" / "coordinator.md"


def line(hint: Hint) -> str:
    what = f"`{hint.table}.{hint.column}`" if hint.column else f"`{hint.table}`"
    what += ", a missing row" if hint.only_missing else ""
    what += f" among {', '.join(hint.among)}" if hint.among else ""
    return f"| {hint.role} | {what} | {hint.reason} |"


def test_the_page_shows_every_hint_and_no_other() -> None:
    _, _, rest = PAGE.read_text(encoding="utf-8").partition("| role | column | what it is |\n|---|---|---|\n")
    assert rest.split("\n\n", 1)[0].splitlines() == [line(hint) for hint in HINTS]
