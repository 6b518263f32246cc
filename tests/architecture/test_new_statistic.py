"""A statistic of known sums is four files: a copy of the tree gets one by exactly these and is asked it end to end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.architecture.copied_tree import changed_copy, run
from tests.architecture.rules import ROOT

ASKED = Path(__file__).with_name("ask_new_statistic.py")
RATE = '''"""RATE(x): the share of units with a yes, over units of their own shares."""

from __future__ import annotations

from wardround.federation.errors import QueryMistaken
from wardround.federation.forms.definition import Definition, Function
from wardround.federation.question.query import Aggregate, Statistic
from wardround.federation.statistics import mean
from wardround.federation.study.study import ColumnType, Table


def check(aggregate: Aggregate, table: Table) -> None:
    """A column of yes and no."""
    column = table.column(aggregate.column or "")
    if column.type is not ColumnType.BOOLEAN:
        raise QueryMistaken(f"{column.name!r} is of type {column.type.value}; a rate needs yes and no.")


RATE = Definition(
    statistic=Statistic.RATE,
    functions=(Function("RATE"),),
    check=check,
    part=mean.part,
    coordinates=mean.coordinates,
    estimates=mean.estimates,
    typical=mean.typical,
)
'''
FEDERATION = "wardround/federation"
ADDED = f"{FEDERATION}/statistics/rate.py"
# File, line, and what is written below it.
LINES = (
    (f"{FEDERATION}/question/query.py", '    KEYS = "keys"\n', '    RATE = "rate"\n'),
    (
        f"{FEDERATION}/statistics/__init__.py",
        "from wardround.federation.statistics.quantile import QUANTILE\n",
        "from wardround.federation.statistics.rate import RATE\n",
    ),
    (
        f"{FEDERATION}/statistics/__init__.py",
        "        case Statistic.KEYS:\n            return KEYS\n",
        "        case Statistic.RATE:\n            return RATE\n",
    ),
    ("protos/plan.proto", "  STATISTIC_KEYS = 14;\n", "  STATISTIC_RATE = 15;\n"),
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is shipped, with one more statistic in it."""
    lines = ((name, above, above + line) for name, above, line in LINES)
    return changed_copy(tmp_path_factory.mktemp("tree"), added={ADDED: RATE}, lines=lines)


def test_a_statistic_of_known_sums_is_four_files(tree: Path) -> None:
    written = {
        path.relative_to(tree).as_posix()
        for path in tree.rglob("*")
        if path.suffix in (".py", ".proto") and "_generated" not in path.parts
    }
    differing = {
        name
        for name in written
        if not (ROOT / name).is_file() or (ROOT / name).read_bytes() != (tree / name).read_bytes()
    }
    assert differing == {ADDED, *(name for name, _, _ in LINES)}
    assert len(differing) == 4


def test_it_is_asked_end_to_end(tree: Path, tmp_path: Path) -> None:
    told = json.loads(run(tree, str(ASKED), str(tmp_path)))
    assert Path(told["from"]).is_relative_to(tree)
    # Two hospitals of forty patients; a fourth of them died, in ward a two in five and in ward b one in ten.
    assert told["sql"] == {"RATE(died)": [[{}, 0.25]]}
    assert told["groups"] == {"RATE(died)": [[{"ward": "a"}, 0.4], [{"ward": "b"}, 0.1]]}
    assert told["ordered"] == [["b", 0.1]]
    assert told["beside"] == {"RATE(died)": [[{}, 0.25]], "COUNT(*)": [[{}, 80.0]], "AVG(died)": [[{}, 0.25]]}
    assert told["built"] == told["sql"]
    text, error = told["promised"]
    assert "RATE(died)" in text
    assert error == 0.0
    assert told["mistaken"] == "'age' is of type integer; a rate needs yes and no."
    assert told["nearest"] == "the function RATES is not supported in SELECT; did you mean RATE(age)?"
    assert told["again"] == [True, told["sql"]]
    assert "rate" in told["allowed"]
    assert told["drawn"] == "RATE(died)"
