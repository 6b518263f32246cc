"""A unit with more records than fit: the very choice that is made among records in memory, by counting them."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st

from site_agent.reading.bounding import giants
from site_agent.reading.bounding.contribution_bounding import places_of
from site_agent.reading.bounding.giants import Beginnings, Numbers, Range, numbers_at, texts_at
from site_agent.reading.bounding.unit_shares import Crammed, Key, UnitShare, pieces
from site_agent.reading.dataset import Dataset, TableFiles, TableSource
from site_agent.reading.memory_limits import Limits
from site_agent.reading.sources.duckdb import tallies as duckdb_tallies
from site_agent.reading.sources.duckdb.database import open_duckdb
from site_agent.reading.sources.files.files import DuckdbFiles
from site_agent.reading.sources.sqlite import tallies as sqlite_tallies
from site_agent.reading.sources.sqlite import texts as sqlite_texts
from site_agent.reading.sources.sqlite.table import open_sqlite
from tests.site_agent.sources.database_files import write_duckdb, write_sqlite
from tests.site_agent.sources.tables import ARROW, KEY, Row, form, random_rows, study, write_csv, write_parquet
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.question.query import Aggregate, Grouping, Query, Statistic
from wardround.privacy.noise.distribution import Mechanism
from wardround.privacy.noise.vectors import IntVector

# --- Numbers ----------------------------------------------------------------------------------------------


def counts_of(numbers: Sequence[int]) -> giants.Counts:
    """Counted as a database would, from numbers in memory."""

    def counts(within: Beginnings, moved: int) -> tuple[Numbers, IntVector]:
        first = set(within.first.tolist())
        found = Counter(number >> moved for number in numbers if number >> within.moved in first)
        return np.array(sorted(found), dtype=np.uint64), np.array(
            [found[each] for each in sorted(found)], dtype=np.int64
        )

    return counts


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.integers(1, 54), st.integers(1, 9), st.integers(1, 6), st.integers(0, 2**64), st.data())
def test_numbers_found_by_counting_are_those_of_the_sorted_list(
    bits: int, cap: int, table: int, drawn: int, data: st.DataObject
) -> None:
    few = st.sampled_from(data.draw(st.lists(st.integers(0, 2**bits - 1), min_size=1, max_size=3)))
    numbers = data.draw(st.lists(st.integers(0, 2**bits - 1) | few, max_size=60))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(giants, "_TABLE_BITS", table)
        found = numbers_at(counts_of(numbers), bits, lambda n: places_of(n, drawn % n if n else 0, cap))
    size = len(numbers)
    wanted = range(size) if size <= cap else [(place * size + drawn % size) // cap for place in range(cap)]
    assert found.tolist() == [sorted(numbers)[place] for place in wanted]


@settings(max_examples=100, derandomize=True, deadline=None)
@given(st.lists(st.lists(st.integers(0, 2**12 - 1), max_size=40), min_size=4, max_size=4), st.integers(1, 7))
def test_a_file_that_changes_between_two_passes_still_gives_no_more_than_count(
    states: list[list[int]], cap: int
) -> None:
    turns = itertools.cycle(states)

    def counts(within: Beginnings, moved: int) -> tuple[Numbers, IntVector]:
        return counts_of(next(turns))(within, moved)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(giants, "_TABLE_BITS", 3)
        found = numbers_at(counts, 12, lambda n: places_of(n, 0, cap))
    assert found.size <= cap
    assert set(found.tolist()) <= set(range(2**12))


# --- Texts ------------------------------------------------------------------------------------------------


@dataclass
class Held:
    """Texts in memory, of which only so many fit at once."""

    texts: Sequence[bytes]
    most: int
    most_in_order: int
    asked: list[Range] = field(default_factory=list)

    def inside(self, within: Range) -> list[bytes]:
        low, high = within.low or b"", within.high
        return sorted({text for text in self.texts if low <= text and (high is None or text < high)})

    def number(self, within: Range) -> int:
        self.asked.append(within)
        if len(self.inside(within)) > self.most:
            raise Crammed
        return len(self.inside(within))

    def at(self, within: Range, places: Sequence[int]) -> list[bytes]:
        if len(self.inside(within)) > self.most_in_order:
            raise Crammed
        return [self.inside(within)[place] for place in places]

    def some(self, within: Range) -> list[bytes]:
        return self.inside(within)[::-2]


@settings(max_examples=100, derandomize=True, deadline=None)
@given(
    st.lists(st.binary(max_size=3) | st.sampled_from([b"", b"a", b"ab"]), max_size=80),
    st.integers(3, 20),
    st.integers(2, 20),
    st.integers(1, 9),
    st.integers(0, 2**64),
)
def test_texts_found_range_by_range_are_those_of_the_sorted_list(
    texts: list[bytes], most: int, most_in_order: int, cap: int, drawn: int
) -> None:
    held = Held(texts, most, most_in_order)
    found = texts_at(held, lambda n: places_of(n, drawn % n if n else 0, cap))
    order = sorted(set(texts))
    size = len(order)
    wanted = range(size) if size <= cap else [(place * size + drawn % size) // cap for place in range(cap)]
    assert found == [order[place] for place in wanted]


def test_memory_for_not_one_text_is_a_failure_and_no_endless_search() -> None:
    with pytest.raises(Crammed):
        texts_at(Held([b"a"], most=0, most_in_order=0), lambda n: places_of(n, 0, 1))


# --- Sources ----------------------------------------------------------------------------------------------

SUMS = (Aggregate(Statistic.COUNT), Aggregate(Statistic.SUM, "gain"), Aggregate(Statistic.SUM, "age"))
OTHERS = (
    Aggregate(Statistic.COUNT, "patient_id"),
    Aggregate(Statistic.MEAN, "sbp"),
    Aggregate(Statistic.HISTOGRAM, "sbp", bins=6),
    Aggregate(Statistic.REGRESSION, "sbp", others=("age", "gain", "cost", "ward", "sex")),
)
FEW = Limits(threads=1, memory_mebibytes=512)


def opened(path: Path, limits: Limits) -> Dataset:
    source = TableSource(str(path))
    match path.suffix:
        case ".db":
            return open_sqlite("visits", str(path), source, key=KEY, limits=limits)
        case ".duckdb":
            return open_duckdb("visits", str(path), source, key=KEY, limits=limits)
        case ending:
            return DuckdbFiles({"visits": TableFiles(ending[1:], str(path))}, key=KEY, limits=limits)


def giant_rows(seed: int, *, key: Callable[[int], str | int], rows: int = 400) -> list[Row]:
    """Two giants beside some others; half of one giant's rows are all the same."""
    draw = random.Random(seed)
    found: list[Row] = []
    for place, row in enumerate(random_rows(patients=1, rows=rows, seed=seed)):
        unit = draw.choices(range(8), [120, 60, 8, 8, 8, 8, 8, 1])[0]
        same = {"dx": "I10", "gain": 1.0, "age": 7, "sbp": 100.0} if unit == 1 and place % 2 else {}
        found.append({**row, **same, "patient_id": key(unit)})
    return found


KINDS: dict[str, Callable[[Path, Sequence[Row]], Path]] = {
    "csv": lambda folder, rows: write_csv(folder / "visits.csv", rows),
    "parquet": lambda folder, rows: write_parquet(folder / "visits.parquet", rows),
    "whole keys": lambda folder, rows: write_parquet(
        folder / "visits.parquet", rows, {**ARROW, "patient_id": pa.int64()}
    ),
    "duckdb": lambda folder, rows: write_duckdb(folder / "visits.duckdb", rows, ARROW),
    "sqlite": lambda folder, rows: write_sqlite(folder / "visits.db", rows, tuple(ARROW)),
}


def lowered(patched: pytest.MonkeyPatch, records: int) -> None:
    """Memory for so few records that a patient alone has too many; for anything else there is enough."""
    patched.setattr(Limits, "records", property(lambda _: records))
    patched.setattr(sqlite_tallies, "most_rows", lambda part, room: records)
    patched.setattr("site_agent.reading.bounding.gathering.most_rows", lambda part, room: records)
    patched.setattr(giants, "_TABLE_BITS", 12)


def same_as_in_memory(folder: Path, kind: str, seed: int, asked: Sequence[AnswerLayout]) -> None:
    key: Callable[[int], str | int] = (lambda unit: unit * 7 - 9) if kind == "whole keys" else "p{}".format
    path = KINDS[kind](folder, giant_rows(seed, key=key))
    whole = [[part.total.tolist() for part in opened(path, FEW).bounded(question)] for question in asked]
    counted: list[int] = []
    with pytest.MonkeyPatch.context() as patched:
        lowered(patched, 64)

        def noted(counts: giants.Counts, bits: int, places: giants.Places) -> Numbers:
            counted.append(bits)
            return numbers_at(counts, bits, places)

        patched.setattr("site_agent.reading.bounding.contribution_bounding.numbers_at", noted)
        few = [[part.total.tolist() for part in opened(path, FEW).bounded(question)] for question in asked]
    assert few == whole
    assert len(counted) >= 2 * len(asked), "the giants were counted and not held"


@pytest.mark.parametrize("kind", KINDS)
def test_giants_give_the_totals_that_they_give_in_memory(tmp_path: Path, kind: str) -> None:
    asked = form(Query("visits", (*SUMS[:2], OTHERS[1]), None, (Grouping("dx"),)), study(rows=3, groups=2))
    same_as_in_memory(tmp_path, kind, 1, [asked])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", KINDS)
def test_giants_give_the_same_totals_to_every_question(tmp_path: Path, kind: str, seed: int) -> None:
    ways = itertools.product((1, 3, 40), ((), (Grouping("dx"),), (Grouping("dx"), Grouping("ward"))))
    asked = [form(Query("visits", (*SUMS, *OTHERS), None, by), study(rows=rows, groups=2)) for rows, by in ways]
    same_as_in_memory(tmp_path, kind, seed, asked)


def own_choice(unit: str | int, records: list[tuple[int, ...]], cap: int, seed: int) -> list[tuple[int, ...]]:
    """The rule once more, in plain Python: every n/cap-th of the sorted records, from a keyed beginning."""
    if len(records) <= cap:
        return records
    cipher = Cipher(algorithms.AES(KEY), modes.ECB()).encryptor()  # noqa: S305
    drawn = int.from_bytes(cipher.update((seed % 2**64).to_bytes(8, "little") + bytes(8))[:8], "little")
    size = len(records)
    return [sorted(records)[(place * size + drawn % size) // cap] for place in range(cap)]


@pytest.mark.parametrize("records", [10**6, 64])
@pytest.mark.parametrize("kind", ["whole keys", "sqlite"])
def test_the_choice_is_the_one_that_is_written_down(
    tmp_path: Path, kind: str, records: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = giant_rows(9, key=lambda unit: unit * 7 - 9)
    path = KINDS[kind](tmp_path, rows)
    agreed = study(rows=3, columns='dx = { type = "category", values = ["E11", "I10"] }\nage = { type = "integer", '
                   'lower = 0, upper = 110 }\n')  # fmt: skip
    asked = form(
        Query("visits", (Aggregate(Statistic.SUM, "age"),), None, (Grouping("dx"),)), agreed, Mechanism.DISCRETE_LAPLACE
    )
    mine: dict[int, list[tuple[int, ...]]] = {}
    grid = asked.parts[0].grid
    for row in rows:
        if row["dx"] in ("E11", "I10"):
            age = min(max(int(str(row["age"])), 0), 110)
            cell = ("E11", "I10").index(str(row["dx"]))
            mine.setdefault(int(str(row["patient_id"])), []).append((cell, int(age / grid)))
    totals = [0, 0]
    for unit, held in mine.items():
        seed = unit
        if kind == "sqlite":
            seed = int.from_bytes(hashlib.blake2b(str(unit).encode(), digest_size=8, key=KEY).digest(), "big")
        for cell, level in own_choice(unit, held, 3, seed):
            totals[cell] += level
    lowered(monkeypatch, records)
    assert opened(path, FEW).bounded(asked)[0].total.tolist() == totals


KEYS = Query("visits", (Aggregate(Statistic.KEYS, "dx"),))


def text_rows(seed: int) -> list[Row]:
    draw = random.Random(seed)
    return [
        {"patient_id": draw.choice(["a", "a", "a", "b"]) if place % 3 else f"p{place % 9}",
         "dx": draw.choice(["", "n", "ü", "K"]) + str(draw.randrange(90)) * draw.randrange(1, 3)}
        for place in range(500)
    ]  # fmt: skip


class Narrow:
    """A reading as if there were memory for nobody but giants."""

    def __init__(self, reading: duckdb_tallies._Texts | sqlite_texts._Texts) -> None:
        self._reading = reading
        self.giants_read = 0

    def at_once(self, share: UnitShare) -> dict[str, int]:
        if share.of < 8:
            raise Crammed
        return self._reading.at_once(share)

    def giants(self, share: UnitShare) -> Mapping[Key, Callable[[], dict[str, int]]]:
        found = self._reading.giants(share)
        self.giants_read += len(found)
        return found


@pytest.mark.parametrize("groups", [1, 3, 70])
@pytest.mark.parametrize("kind", ["parquet", "csv", "duckdb", "sqlite"])
def test_keys_of_giants_are_the_same(tmp_path: Path, kind: str, groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    types = {"patient_id": pa.string(), "dx": pa.string()}
    rows = text_rows(groups)
    path = {
        "parquet": lambda: write_parquet(tmp_path / "visits.parquet", rows, types),
        "csv": lambda: write_csv(tmp_path / "visits.csv", rows, tuple(types)),
        "duckdb": lambda: write_duckdb(tmp_path / "visits.duckdb", rows, types),
        "sqlite": lambda: write_sqlite(tmp_path / "visits.db", rows, tuple(types)),
    }[kind]()
    asked = form(KEYS, study(groups=groups, rows=100, columns='dx = { type = "category" }\n'))
    source = opened(path, FEW)
    once = source.keys(asked)
    held = {
        unit: len({row["dx"] for row in rows if row["patient_id"] == unit}) for unit in {r["patient_id"] for r in rows}
    }
    assert sum(once.values()) == sum(min(groups, number) for number in held.values())
    narrow: list[Narrow] = []

    def in_pieces(reading: duckdb_tallies._Texts | sqlite_texts._Texts) -> list[dict[str, int]]:
        narrow.append(Narrow(reading))
        return list(pieces(narrow[-1]))

    monkeypatch.setattr(duckdb_tallies, "pieces", in_pieces)
    monkeypatch.setattr(sqlite_texts, "pieces", in_pieces)
    monkeypatch.setattr(Limits, "records", property(lambda _: 8 * 60))
    monkeypatch.setattr(sqlite_texts, "most_texts", lambda _: 8 * 60)
    for most in (10**6, 20):
        monkeypatch.setattr(duckdb_tallies, "DuckDBTexts", lambda *a, most=most: few_texts(DUCKDB_TEXTS(*a), most))
        monkeypatch.setattr(sqlite_texts, "SqliteTexts", lambda *a, most=most: few_texts(SQLITE_TEXTS(*a), most))
        assert source.keys(asked) == once
    assert [each.giants_read for each in narrow] == [2, 2]


DUCKDB_TEXTS, SQLITE_TEXTS = duckdb_tallies.DuckDBTexts, sqlite_texts.SqliteTexts


def few_texts(texts: giants.TextsInOrder, most: int) -> giants.TextsInOrder:
    """The texts of a unit as if only so many fitted."""
    number = type(texts).number

    def narrow(self: giants.TextsInOrder, within: Range) -> int:
        if (found := number(self, within)) > most:
            raise Crammed
        return found

    return type("Few", (type(texts),), {"number": narrow})(*(getattr(texts, name) for name in texts.__slots__))
