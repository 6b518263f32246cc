"""One patient with very many rows beside a thousand others, as every kind of source, and what must be answered.

Rows follow from a formula, so that the reference needs no source: numpy holds the giant's numbers, puts them in
order and takes those that the rule names. The reference never asks a source but for the hash that its database alone
can compute.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from site_agent.learning.training_step import take
from site_agent.reading.batches import Batch, Fingerprint, batch_of_rows
from site_agent.reading.bounding.contribution_bounding import record_number
from site_agent.reading.bounding.tally import finish, tally_width
from site_agent.reading.columnstore.clustering import KeyedOrder
from site_agent.reading.columnstore.read_examples import read_examples
from site_agent.reading.examples import MOST_ROWS
from site_agent.reading.sources.postgresql.table import _seed as seed_of_site
from tests.site_agent.sources.postgresql_cluster import Cluster
from wardround.federation.forms.parts import AnswerLayout, Part
from wardround.federation.models.step_layout import StepLayout, step_form
from wardround.federation.models.training import Model, ModelKind, Stage, StageKind, Step, Training
from wardround.federation.plan.layout import shape
from wardround.federation.question.query import Aggregate, Grouping, Query, Statistic
from wardround.federation.study.study import Study, Table
from wardround.federation.study.study_file import parse_study
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution
from wardround.simulation.noise import ZeroNoise

KEY = hashlib.sha256(b"a giant").digest()
DIAGNOSES, CAP, GROUPS = 200, 4, 3
OTHERS, ROWS_OF_OTHERS = 1000, 5
GIANT = 7
NO_KEY = b"@no key@"
COUNT, SUM, MEAN, HISTOGRAM, KEYS, STEP = QUESTIONS = ("count", "sum", "mean", "histogram", "keys", "step")
Whole = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Giant:
    """How many rows the giant has, the seed that the rows follow from, and of how many texts; the kind of its keys."""

    rows: int
    seed: int
    whole_keys: bool = True
    texts: int = 10**12

    def columns(self, first: int, end: int) -> dict[str, Whole]:
        """Rows `first` to `end`: their units, the place of the diagnosis, tenths of the pressure, and so on."""
        place = np.arange(first, end, dtype=np.int64)
        others, every = OTHERS * ROWS_OF_OTHERS, self._every
        mine = (place % every != 0) | (place // every >= others)
        return {
            "unit": np.where(mine, GIANT, 100 + place // every % OTHERS),
            "dx": (place * 7919 + self.seed) % DIAGNOSES,
            "sbp": 800 + (place * 104_729 + self.seed) % 1201,
            "age": (place * 31 + self.seed) % 100,
            "note": place % self.texts,
        }

    @property
    def total(self) -> int:
        """How many rows there are in all."""
        return self.rows + OTHERS * ROWS_OF_OTHERS

    @property
    def _every(self) -> int:
        return max(self.total // (OTHERS * ROWS_OF_OTHERS), 1)

    def key(self, unit: int) -> int | str:
        """The key of a unit as the table has it."""
        return unit if self.whole_keys else f"p{unit}"

    def select(self, divided: str = "//", numbers: str = "range(0, {})") -> str:
        """The rows in SQL, unless told otherwise DuckDB's."""
        every = self._every
        mine = f"i % {every} <> 0 OR i {divided} {every} >= {OTHERS * ROWS_OF_OTHERS}"
        unit = f"CASE WHEN {mine} THEN {GIANT} ELSE 100 + i {divided} {every} % {OTHERS} END"
        key = f"CAST({unit} AS BIGINT)" if self.whole_keys else f"'p' || CAST({unit} AS VARCHAR)"
        diagnosis = f"CAST((i * 7919 + {self.seed}) % {DIAGNOSES} AS VARCHAR)"
        return (
            f"SELECT {key} AS patient_id, 'D' || lpad({diagnosis}, 3, '0') AS dx, "
            f"CAST(800 + (i * 104729 + {self.seed}) % 1201 AS DOUBLE PRECISION) / 10 AS sbp, "
            f"CAST((i * 31 + {self.seed}) % 100 AS BIGINT) AS age, 'K' || CAST(i % {self.texts} AS VARCHAR) AS note "
            f"FROM {numbers.format(self.total)} AS t(i)"
        )

    def postgresql(self) -> str:
        """The rows in PostgreSQL's SQL."""
        return self.select("/", "generate_series(CAST(0 AS BIGINT), {} - 1)")


def study() -> Study:
    listed = ", ".join(f'"D{place:03d}"' for place in range(DIAGNOSES))
    return parse_study(
        'name = "large"\n[budget]\nepsilon = 3.0\ndelta = 1e-6\n[tables.visits]\nunit_key = "patient_id"\n'
        f"max_rows_per_unit = {CAP}\nmax_groups_per_unit = {GROUPS}\n[tables.visits.columns]\n"
        f'dx = {{ type = "category", values = [{listed}] }}\n'
        'sbp = { type = "number", lower = 80, upper = 200, step = 0.1 }\n'
        'age = { type = "integer", lower = 0, upper = 110 }\nnote = { type = "category" }\n'
    )


def form_of(name: str) -> AnswerLayout | StepLayout:
    by = (Grouping("dx"),) if name in (COUNT, SUM) else ()
    aggregate = {
        COUNT: Aggregate(Statistic.COUNT),
        SUM: Aggregate(Statistic.SUM, "sbp"),
        MEAN: Aggregate(Statistic.MEAN, "sbp"),
        HISTOGRAM: Aggregate(Statistic.HISTOGRAM, "sbp", bins=100),
        KEYS: Aggregate(Statistic.KEYS, "note"),
    }
    if name == STEP:
        model = Model(ModelKind.LINEAR, "visits", "age", ("sbp",))
        stages = (Stage(StageKind.MOMENTS, Fraction(2**20), 1),)
        return step_form(Step(Training(model, stages, Fraction(1, 4)), 0, 0), study())
    return shape(Query("visits", (aggregate[name],), None, by), study(), Mechanism.DISCRETE_GAUSSIAN)


# --- Tables -----------------------------------------------------------------------------------------------


def write(giant: Giant, kind: str, folder: Path) -> Path:
    """The rows as one kind of file."""
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("SET enable_progress_bar = false")
        match kind:
            case "csv" | "parquet":
                path = folder / f"visits.{kind}"
                connection.execute(f"COPY ({giant.select()}) TO '{path}' (FORMAT {kind})")
            case "mended csv" | "mended parquet":
                path = folder / f"visits.{kind.removeprefix('mended ')}"
                write_poisoned(connection, giant, path)
            case "duckdb":
                path = folder / "visits.duckdb"
                connection.execute(f"ATTACH '{path}' AS made")
                connection.execute(f"CREATE TABLE made.visits AS {giant.select()}")
            case "sqlite":
                path = folder / "visits.db"
                write_sqlite(connection, giant, path)
            case _:
                raise ValueError(kind)
    return path


def write_poisoned(connection: duckdb.DuckDBPyConnection, giant: Giant, path: Path) -> None:
    """One row more, whose key is no text: it is nobody's, and counts nowhere."""
    rows = f"{giant.select()} UNION ALL SELECT '{NO_KEY.decode()}', 'D000', 120.0, 50, 'K0'"
    plain = ", COMPRESSION uncompressed" if path.suffix == ".parquet" else ""
    connection.execute(f"COPY ({rows}) TO '{path}' (FORMAT {path.suffix[1:]}{plain})")
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
        place = content.find(NO_KEY)
        # In the statistics of Parquet too.
        while place >= 0:
            content[place : place + 1] = b"\xff"
            place = content.find(NO_KEY, place)


def write_sqlite(connection: duckdb.DuckDBPyConnection, giant: Giant, path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as writer, writer:
        writer.execute("PRAGMA journal_mode = OFF")
        writer.execute("PRAGMA synchronous = OFF")
        writer.execute("CREATE TABLE visits (patient_id, dx TEXT, sbp REAL, age INTEGER, note TEXT)")
        lines = connection.execute(giant.select())
        while some := lines.fetchmany(2**16):
            writer.executemany("INSERT INTO visits VALUES (?, ?, ?, ?, ?)", some)


# --- The reference ----------------------------------------------------------------------------------------

Choose = Callable[[int, Part, Whole, Whole], tuple[Whole, Whole]]
"""Of a unit's records, cells and values, those that count."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What decides where a unit's choice begins: of its records, and of its texts."""

    records: Callable[[int | str, int], int]
    texts: Callable[[int | str, int], int]


def keyed(seed: int) -> int:
    """64 bits of a seed under the site's key."""
    cipher = Cipher(algorithms.AES(KEY), modes.ECB()).encryptor()  # noqa: S305
    return int.from_bytes(cipher.update((seed % 2**64).to_bytes(8, "little") + bytes(8))[:8], "little")


def duckdb_rule(*, whole_keys: bool) -> Rule:
    connection = duckdb.connect()

    def hashed(*values: object) -> int:
        places = ", ".join("?" * len(values))
        return int(connection.execute(f"SELECT hash({places})", list(values)).fetchall()[0][0])

    def records(unit: int | str, number: int) -> int:
        return keyed(int(unit) if whole_keys else hashed(unit)) % number

    return Rule(records, lambda unit, number: hashed(str(unit), KEY.hex()) % number)


def sqlite_rule() -> Rule:
    def seed(unit: int | str) -> int:
        return int.from_bytes(hashlib.blake2b(str(unit).encode(), digest_size=8, key=KEY).digest(), "big")

    return Rule(lambda unit, number: keyed(seed(unit)) % number, lambda unit, number: seed(unit) % number)


def postgresql_rule(cluster: Cluster, *, whole_keys: bool) -> Rule:
    """By windows, as records of text keys and all texts are chosen there."""
    kind, seed = ("int8", "bigint") if whole_keys else ("text", "text"), seed_of_site(KEY)

    def beginning(unit: int | str, number: int) -> int:
        (line,) = cluster.run(f"SELECT hash{kind[0]}extended('{unit}'::{kind[1]}, {seed})")
        return (int(str(line[0])) & (2**63 - 1)) % number

    return Rule(beginning, beginning)


def by_sorted_numbers(giant: Giant, cluster: Cluster) -> Choose:
    """As PostgreSQL chooses where keys are whole numbers: the last records of a keyed order of unit and record."""
    hash_bits, mask = 12, 2**12 - 1

    def choose(unit: int, part: Part, cell: Whole, value: Whole) -> tuple[Whole, Whole]:
        form = record_number(part)
        if cell.size <= CAP:
            return cell, value
        moved = sum(form.value_bits)
        lowest = form.lowest[0] if form.lowest else 0
        number = (cell << moved) | (value - lowest) if moved else cell
        different, back, copies = np.unique(number, return_index=True, return_counts=True)
        folded = form.bits + hash_bits + 31 > 63
        rest_bits = form.bits - hash_bits
        whole = (unit << rest_bits) | (different >> hash_bits) if folded else (unit << form.bits) | different
        listed = ", ".join(map(str, whole.tolist()))
        lines = cluster.run(
            f"SELECT hashint8extended(x, {seed_of_site(KEY)}) FROM unnest(ARRAY[{listed}]::bigint[]) AS x"
        )
        mixed = np.array([int(str(line[0])) for line in lines], dtype=np.int64)
        if folded:
            order = (((different ^ mixed) & mask) << rest_bits) | (different >> hash_bits)
        else:
            order = (mixed & (mask << form.bits)) | different
        last = np.argsort(order)[::-1]
        places = np.repeat(back[last], np.minimum(copies[last], CAP))[:CAP]
        return cell[places], value[places]

    return choose


def spread(number: int, beginning: int, cap: int) -> list[int]:
    if number <= cap:
        return list(range(number))
    return [(place * number + beginning) // cap for place in range(cap)]


def levels(part: Part, tenths: Whole) -> Whole:
    quantiser = part.quantisers[0]
    scaled = (tenths / 10.0 - float(quantiser.origin)) * float(quantiser.per_unit) + 0.5
    return np.clip(np.floor(scaled), quantiser.low, quantiser.high).astype(np.int64)


def units_of(giant: Giant) -> Iterator[tuple[int, dict[str, Whole]]]:
    """Unit by unit, all of its rows."""
    every = giant.columns(0, giant.total)
    order = np.argsort(every["unit"], kind="stable")
    units, starts = np.unique(every["unit"][order], return_index=True)
    for unit, rows in zip(units.tolist(), np.split(order, starts[1:]), strict=True):
        yield unit, {name: column[rows] for name, column in every.items()}


def chosen_totals(giant: Giant, name: str, choose: Choose) -> list[int]:
    """A count or a sum of rows by diagnosis, of each unit those records that `choose` leaves."""
    form = form_of(name)
    assert isinstance(form, AnswerLayout)
    part = form.parts[0]
    tally = np.zeros((part.groups, tally_width(part)), dtype=np.int64)
    for unit, rows in units_of(giant):
        value = levels(part, rows["sbp"]) if name == SUM else np.ones(rows["dx"].size, dtype=np.int64)
        cell, kept = choose(unit, part, rows["dx"], value)
        np.add.at(tally[:, 0], cell, kept)
    return [int(each) for each in finish(part, tally).total]


def evenly(giant: Giant, rule: Rule) -> Choose:
    def choose(unit: int, part: Part, cell: Whole, value: Whole) -> tuple[Whole, Whole]:
        order = np.lexsort((value, cell))
        places = spread(cell.size, rule.records(giant.key(unit), cell.size), CAP)
        return cell[order[places]], value[order[places]]

    return choose


def mean_totals(giant: Giant, name: str) -> list[int]:
    form = form_of(name)
    assert isinstance(form, AnswerLayout)
    part = form.parts[0]
    tally = np.zeros((1, tally_width(part)), dtype=np.int64)
    for _, rows in units_of(giant):
        level = levels(part, rows["sbp"])
        mean = (2 * int(level.sum()) + level.size) // (2 * level.size)
        if part.coding is None:
            tally[0] += [1, mean]
        else:
            tally[0, min((mean + part.coding.offset) // part.coding.width, part.coding.codes - 1)] += 1
    return [int(each) for each in finish(part, tally).total]


def key_totals(giant: Giant, rule: Rule) -> dict[str, int]:
    found: dict[str, int] = {}
    for unit, rows in units_of(giant):
        texts = np.unique(np.char.add(b"K", rows["note"].astype("S9")))
        for place in spread(texts.size, rule.texts(giant.key(unit), texts.size), GROUPS):
            key = texts[place].decode()
            found[key] = found.get(key, 0) + 1
    return dict(sorted(found.items()))


def first_rows(giant: Giant, name: str) -> list[int] | dict[str, int]:
    """A count, a sum or keys from a snapshot: of each patient what comes first in a keyed order of all columns."""
    order = KeyedOrder(KEY)
    form = form_of(name)
    assert isinstance(form, AnswerLayout)
    part, keys = form.parts[0], dict[str, int]()
    tally = np.zeros((part.groups, 1), dtype=np.int64)
    texts = min(giant.texts, giant.total)
    words = np.array([order.of_text(f"K{place}") for place in range(texts)], dtype=np.uint64)
    for unit, rows in units_of(giant):
        pressure = (rows["sbp"] / 10.0).view(np.uint64)
        held = [np.full(pressure.size, unit, dtype=np.uint64), rows["dx"].view(np.uint64), pressure]
        place = order.of_rows([*held, rows["age"].view(np.uint64), words[rows["note"]]])
        line = np.argsort(place)
        if name == KEYS:
            for note in list(dict.fromkeys(rows["note"][line[:10_000]].tolist()))[:GROUPS]:
                keys[f"K{note}"] = keys.get(f"K{note}", 0) + 1
        else:
            value = levels(part, rows["sbp"]) if name == SUM else np.ones(line.size, dtype=np.int64)
            np.add.at(tally[:, 0], rows["dx"][line[:CAP]], value[line[:CAP]])
    return dict(sorted(keys.items())) if name == KEYS else [int(each) for each in finish(part, tally).total]


@dataclass
class Remaining:
    """Only those rows that stand for their patients, as a source of their own."""

    rows: list[tuple[object, ...]]

    def fingerprint(self, table: Table) -> Fingerprint:
        return Fingerprint("", sees_changes=True)

    def batches(self, table: Table) -> Iterator[Batch]:
        yield batch_of_rows(table, self.rows)


def step_totals(giant: Giant) -> list[int]:
    form = form_of(STEP)
    assert isinstance(form, StepLayout)
    kept: list[tuple[object, ...]] = []
    for unit, rows in units_of(giant):
        pressure, age = rows["sbp"] / 10.0, rows["age"].astype(np.float64)
        first = np.argsort(KeyedOrder(KEY).of_rows([pressure.view(np.uint64), age.view(np.uint64)]))[:MOST_ROWS]
        kept += [(giant.key(unit), float(pressure[place]), int(age[place])) for place in first.tolist()]
    examples = read_examples(form, Remaining(kept), key=KEY)
    return [int(each) for each in take(form, examples, LAW, ZeroNoise())]


LAW = NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, Fraction(2**20))
