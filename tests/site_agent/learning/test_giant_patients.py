"""A patient with more rows than a public number: a keyed choice of its own stands for them, and nobody else notices."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

from site_agent.learning.training_step import take
from site_agent.reading.batches import Batch, Fingerprint, batch_of_rows
from site_agent.reading.columnstore import read_examples as reading
from site_agent.reading.columnstore.clustering import KeyedOrder
from site_agent.reading.columnstore.read_examples import read_examples
from site_agent.reading.examples import MOST_ROWS, Examples, row_bytes
from site_agent.reading.memory_limits import Limits
from tests.site_agent.learning.plain_steps import LAW, SCALE
from wardround.federation.errors import SourceFailed
from wardround.federation.models.step_layout import StepLayout, step_form
from wardround.federation.models.training import Model, ModelKind, Stage, StageKind, Step, Training
from wardround.federation.study.study import Table
from wardround.federation.study.study_file import parse_study
from wardround.simulation.noise import ZeroNoise

KEY = bytes(range(32))
Line = tuple[object, ...]


@dataclass
class Lines:
    """A source of rows in memory: (unit, x, y)."""

    rows: Sequence[Line]
    batch_rows: int = 1000

    def fingerprint(self, table: Table) -> Fingerprint:
        return Fingerprint("", sees_changes=True)

    def batches(self, table: Table) -> Iterator[Batch]:
        for start in range(0, len(self.rows), self.batch_rows):
            yield batch_of_rows(table, self.rows[start : start + self.batch_rows])


def asked(unit: str = "patient") -> StepLayout:
    study = parse_study(
        f'name = "s"\nunit = "{unit}"\n[budget]\nepsilon = 3.0\ndelta = 1e-6\n[tables.t]\nunit_key = "p"\n'
        'max_rows_per_unit = 1\n[tables.t.columns]\nx = { type = "number", lower = -1, upper = 1 }\n'
        'y = { type = "number", lower = 0, upper = 9 }\n'
    )
    stages = (Stage(StageKind.MOMENTS, SCALE, 1),)
    return step_form(Step(Training(Model(ModelKind.LINEAR, "t", "y", ("x",)), stages, Fraction(1, 4)), 0, 0), study)


def rows_of(unit: object, number: int, draw: random.Random) -> list[Line]:
    return [(unit, round(draw.uniform(-1, 1), 3), float(draw.randrange(10))) for _ in range(number)]


def crowd(seed: int, *, whole: bool = False, giant: int = 90) -> list[Line]:
    draw = random.Random(seed)
    key = (lambda place: place * 3 - 5) if whole else "p{}".format
    rows = rows_of(key(0), giant, draw)
    rows += [(key(1), 0.25, 1.0)] * 40
    for place in range(2, 12):
        rows += rows_of(key(place), draw.randrange(1, 6), draw)
    draw.shuffle(rows)
    return rows


def held(examples: Examples) -> list[tuple[tuple[float, float], ...]]:
    """The rows of every unit, unit by unit."""
    pairs = list(zip(examples.inputs[:, 0].tolist(), examples.target.tolist(), strict=True))
    parts = zip(examples.starts, examples.starts[1:], strict=False)
    return sorted(tuple(sorted(pairs[low:high])) for low, high in parts)


def first_rows(rows: Sequence[Line], unit: object, most: int) -> list[tuple[float, float]]:
    """The first of a unit's rows in the keyed order of what they hold, once more."""
    mine = [(float(str(x)), float(str(y))) for key, x, y in rows if key == unit]
    words = [np.array([line[place] + 0.0 for line in mine]).view(np.uint64) for place in (0, 1)]
    order = KeyedOrder(KEY).of_rows(words).tolist()
    return [line for _, line in sorted(zip(order, mine, strict=True))][:most]


@pytest.fixture
def five(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_ROWS", 5)
    monkeypatch.setattr(reading, "_PENDING", 12)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("batch_rows", [1, 7, 1000])
def test_the_first_rows_of_the_keyed_order_stand_for_all(five: None, batch_rows: int, whole: bool) -> None:
    rows = crowd(1, whole=whole)
    units = {row[0] for row in rows}
    expected = sorted(tuple(sorted(first_rows(rows, unit, 5))) for unit in units)
    for order in (rows, rows[::-1]):
        assert held(read_examples(asked(), Lines(order, batch_rows), key=KEY)) == expected


def test_the_choice_depends_on_the_sites_key(five: None) -> None:
    rows = crowd(2)
    found = {tuple(held(read_examples(asked(), Lines(rows), key=bytes([place]) * 32))) for place in range(4)}
    assert len(found) > 1


def test_below_the_number_nothing_changes_to_the_last_bit() -> None:
    """Read in one piece and in many, by the order that the rows had before there was such a number."""
    rows = crowd(3, giant=30)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reading, "MOST_ROWS", 10**9)
        before = read_examples(asked(), Lines(rows), key=KEY)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reading, "_PENDING", 3)
        after = read_examples(asked(), Lines(rows, 4), key=KEY)
    for name in ("inputs", "target", "starts", "held_out"):
        assert getattr(before, name).tobytes() == getattr(after, name).tobytes()
    assert MOST_ROWS == 4096


def test_a_giant_moves_nobody_elses_part(five: None) -> None:
    rows, form = crowd(4), asked()
    others, giant = [row for row in rows if row[0] != "p0"], [row for row in rows if row[0] == "p0"]
    totals = [take(form, read_examples(form, Lines(each), key=KEY), LAW, ZeroNoise()) for each in (rows, others, giant)]
    assert (totals[0] - totals[1]).tolist() == totals[2].tolist()
    assert int((totals[2].astype(object) ** 2).sum()) <= form.l2_sensitivity_squared


def test_where_a_row_is_a_unit_every_row_counts(five: None) -> None:
    rows = crowd(5)
    examples = read_examples(asked("event"), Lines(rows, 7), key=KEY)
    assert examples.target.size == len(rows) == examples.starts.size - 1


@dataclass
class Endless:
    """A patient's rows made as they are asked for, so that none is in memory but what somebody holds."""

    number: int

    def fingerprint(self, table: Table) -> Fingerprint:
        return Fingerprint("", sees_changes=True)

    def batches(self, table: Table) -> Iterator[Batch]:
        draw = random.Random(7)
        for _ in range(self.number // 500):
            yield batch_of_rows(table, rows_of("p", 500, draw))


def peak_bytes(number: int) -> int:
    tracemalloc.start()
    try:
        assert read_examples(asked(), Endless(number), key=KEY).target.size == 5
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_a_giants_rows(five: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_PENDING", 1000)
    peak_bytes(2000)
    few, many = peak_bytes(2000), peak_bytes(40_000)
    assert many < 2 * few


def test_a_giants_rows_are_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory for a few rows is enough for any number of one patient's, and never for as many patients."""
    monkeypatch.setattr(reading, "MOST_ROWS", 5)
    monkeypatch.setattr(reading, "_PENDING", 12)
    monkeypatch.setattr(Limits, "training_bytes", property(lambda _: 40 * row_bytes(1)))
    draw = random.Random(6)
    assert read_examples(asked(), Lines(rows_of("p", 2000, draw), 10), key=KEY).target.size == 5
    with pytest.raises(SourceFailed) as failed:
        read_examples(asked(), Lines([(f"p{place}", 0.5, 1.0) for place in range(2000)], 10), key=KEY)
    assert failed.value.__context__ is None
