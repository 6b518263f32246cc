"""One name for one thing, over the whole source."""

from __future__ import annotations

from tools.house import classes, sources, twice

# The same thing in two roles, or for two databases.
IN_TWO_ROLES = frozenset(
    (
        "columns",
        "connection",
        "dialect",
        "enrolment",
        "folder",
        "ledger",
        "link",
        "records",
        "serve",
        "status",
        "table",
        "tallies",
    )
)


def test_no_public_class_name_has_two_meanings() -> None:
    assert twice(sources(), classes) == {}


def test_a_module_name_occurs_twice_only_for_the_same_thing_in_two_roles() -> None:
    found = twice(sources(), lambda source: [] if source.stem == "__init__" else [source.stem])
    assert set(found) - IN_TWO_ROLES == set()
