"""The columns that no entry attests, all of them: hints, which decide neither a charge nor what leaves.

Everything else beside a chain is what some signed entry says, or carries a signature of its own.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hint:
    """A column that `verify` does not judge, and why; `""` is every column, and that a row is there at all.

    `only_missing` is a table of which a row may be missing unnoticed; what its rows say is judged. `among` are the
    values that are not told apart; any other is judged.
    """

    role: str
    table: str
    column: str
    reason: str
    only_missing: bool = False
    among: tuple[str, ...] = ()


HINTS = (
    Hint("site", "plans", "hour", "local time for the site's own history; it never leaves"),
    Hint(
        "site", "readings", "begun", "how often a reading was broken off; such a count closes a table, and opens none"
    ),
    Hint(
        "site",
        "readings",
        "",
        "a reading that is not noted is not counted among those that never ended; the charge stands",
        only_missing=True,
    ),
    Hint(
        "site",
        "receipts",
        "",
        "without a receipt the stored bytes are sent again, and the coordinator gives the same one",
        only_missing=True,
    ),
    Hint("coordinator", "rounds", "reserved_at", "when a question was charged, for the report"),
    Hint("coordinator", "rounds", "opened_at", "until when a steward's decision is waited for"),
    Hint(
        "coordinator",
        "tasks",
        "state",
        "where a site says it is before its answer arrives: it is asked all the same",
        among=("open", "pending", "failed"),
    ),
    Hint(
        "coordinator",
        "required",
        "",
        "of how many hospitals an answer must be, for whoever asked it so; the analyst's own program looks again",
    ),
    Hint("coordinator", "windows", "", "until when a round waits for its sites"),
    Hint("coordinator", "served", "", "for how long coordinators have served the folder, for those deadlines"),
    Hint(
        "coordinator",
        "public_limits",
        "",
        "what a site says of its limits at each greeting, to foretell refusals; the site decides by its own",
    ),
    Hint(
        "coordinator",
        "lacking",
        "",
        "that the ledger is an older copy: the site shows the receipt again at its next call",
        only_missing=True,
    ),
)
