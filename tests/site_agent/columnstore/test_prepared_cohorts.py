"""A cohort over prepared columns selects what SQL would: compared with the logic written down in plain Python."""

from __future__ import annotations

import datetime
import random
from pathlib import Path

import pytest

from tests.site_agent.columnstore.prepared_tables import NAMES, form, random_rows, snapshot, study, totals
from tests.site_agent.sources.reference_totals import selects
from wardround.federation.question.cohort import (
    And,
    Between,
    Comparison,
    Expression,
    IsNull,
    Leaf,
    Not,
    Operator,
    Or,
    Within,
)
from wardround.federation.question.query import Aggregate, Query, Statistic
from wardround.federation.study.study import Value

LITERALS: dict[str, tuple[Value, ...]] = {
    "age": (0, 40, 40.5, -5, 110, 2**62),
    "sbp": (80.0, 129.9, 1e18, -0.0, 130),
    "gain": (20.0, -50.0, 0),
    "dx": ("E11", "I10", "it's", "ü"),
    "note": ("a", "b", "never seen"),
    "sex": (True, False),
    "ward": (0, 1, 4, 2.5),
    "seen": (datetime.date(2024, 1, 31), datetime.date(9999, 12, 31), datetime.date(1, 1, 1)),
}
WITHOUT_ORDER = ("dx", "note", "sex")


def leaf(draw: random.Random) -> Leaf:
    name = draw.choice(NAMES)
    value, other = (draw.choice(LITERALS[name]) for _ in range(2))
    plain = name in WITHOUT_ORDER
    match draw.randrange(4):
        case 0:
            operators = (Operator.EQUAL, Operator.UNEQUAL) if plain else tuple(Operator)
            return Comparison(name, draw.choice(operators), value)
        case 1:
            return Within(name, (value, other))
        case 2 if not plain:
            return Between(name, value, other)
        case _:
            return IsNull(name)


def tree(draw: random.Random, depth: int) -> Expression:
    if depth == 0:
        return leaf(draw)
    match draw.randrange(4):
        case 0:
            return Not(tree(draw, depth - 1))
        case 1:
            return And(tuple(tree(draw, depth - 1) for _ in range(2)))
        case 2:
            return Or(tuple(tree(draw, depth - 1) for _ in range(3)))
        case _:
            return leaf(draw)


@pytest.mark.parametrize("seed", range(3))
def test_every_tree_selects_what_plain_logic_selects(seed: int, tmp_path: Path) -> None:
    rows = random_rows(patients=4, rows=80, seed=seed)
    agreed, draw = study(unit="event"), random.Random(seed)
    kept = snapshot(rows, agreed, tmp_path)
    epoch = datetime.date(1970, 1, 1)
    named = [dict(zip(NAMES, each[1:], strict=True)) for each in rows]
    for each in named:
        if each["seen"] is not None:
            each["seen"] = epoch + datetime.timedelta(days=each["seen"])
    some = 0
    for _ in range(70):
        asked = form(Query("visits", (Aggregate(Statistic.COUNT),), tree(draw, 3)), agreed)
        expected = sum(selects(asked, each) for each in named)
        assert totals(asked, kept) == [[64 * expected]], asked.query.cohort
        some += 0 < expected < len(rows)
    assert some > 20, "trees that select some rows and not others"
