"""One patient with twenty million rows beside a thousand others, in every source: right answers in the stated memory.

`make test-large` runs it; `make test-large ARGS="-k sqlite"` one source. ROWS and SEED in the environment change how
many rows the patient has, and which.
"""

from __future__ import annotations

import functools
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from site_agent.reading.memory_limits import Limits
from tests.large.asking import PREPARE
from tests.large.giant_table import (
    COUNT,
    KEYS,
    QUESTIONS,
    STEP,
    SUM,
    Choose,
    Giant,
    Rule,
    by_sorted_numbers,
    chosen_totals,
    duckdb_rule,
    evenly,
    first_rows,
    key_totals,
    mean_totals,
    postgresql_rule,
    sqlite_rule,
    step_totals,
    write,
)
from tests.site_agent.sources.postgresql_cluster import Cluster, absent, begun

pytestmark = [pytest.mark.large, pytest.mark.slow]

ROWS = int(os.environ.get("ROWS", "20000000"))
SEED = int(os.environ.get("SEED", secrets.randbelow(100_000)))
STATED = Limits().memory_mebibytes
FEW_TEXTS = 50_000
WHOLE, TEXT = Giant(ROWS, SEED), Giant(ROWS, SEED, whole_keys=False)
PREPARED = Giant(ROWS, SEED, texts=FEW_TEXTS)


def told(words: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {words}", flush=True)


def asked(source: str, name: str, *, mebibytes: int = STATED, prepared: Path | None = None) -> dict[str, object]:
    """What another process answers, and what it took."""
    command = [sys.executable, "-m", "tests.large.asking", source, name, str(mebibytes)]
    done = subprocess.run(
        [*command, *([] if prepared is None else [str(prepared)])], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


@dataclass(frozen=True)
class Opened:
    """A source, the patient in it, and what it must answer."""

    name: str
    address: str
    giant: Giant
    reference: Callable[[str], object]
    prepared: Path | None = None


@functools.lru_cache(maxsize=32)
def everywhere(giant: Giant, name: str) -> object:
    """What does not depend on the choice of a source."""
    return step_totals(giant) if name == STEP else mean_totals(giant, name)


def referred(giant: Giant, choose: Choose, rule: Rule) -> Callable[[str], object]:
    def reference(name: str) -> object:
        match name:
            case "count" | "sum":
                return chosen_totals(giant, name, choose)
            case "keys":
                return key_totals(giant, rule)
            case _:
                return everywhere(giant, name)

    return reference


FILES = {
    "csv": ("csv", TEXT, lambda: duckdb_rule(whole_keys=False)),
    "parquet": ("parquet", WHOLE, lambda: duckdb_rule(whole_keys=True)),
    "parquet-text-keys": ("parquet", TEXT, lambda: duckdb_rule(whole_keys=False)),
    "csv-mended": ("mended csv", TEXT, lambda: duckdb_rule(whole_keys=False)),
    "parquet-mended": ("mended parquet", TEXT, lambda: duckdb_rule(whole_keys=False)),
    "duckdb": ("duckdb", WHOLE, lambda: duckdb_rule(whole_keys=True)),
    "sqlite": ("sqlite", TEXT, sqlite_rule),
}
DATABASES = {"postgresql": WHOLE, "postgresql-text-keys": TEXT}


@pytest.fixture(scope="module", params=[*FILES, *DATABASES, "prepared"])
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    name: str = request.param
    folder = tmp_path_factory.mktemp("large")
    told(f"{name}: {ROWS} rows of one patient, seed {SEED}")
    if name in DATABASES:
        if reason := absent():
            pytest.skip(reason)
        cluster = begun(shared_buffers="128MB", max_wal_size="4GB", wal_level="minimal", max_wal_senders="0")
        yield served(name, cluster)
        cluster.remove()
    elif name == "prepared":
        yield snapshot(folder)
    else:
        kind, giant, rule = FILES[name]
        path = write(giant, kind, folder)
        made = rule()
        yield Opened(name, str(path), giant, referred(giant, evenly(giant, made), made))
    shutil.rmtree(folder)


def served(name: str, cluster: Cluster) -> Opened:
    giant = DATABASES[name]
    cluster.run(f"CREATE TABLE visits AS {giant.postgresql()}", "ANALYZE visits")
    rule = postgresql_rule(cluster, whole_keys=giant.whole_keys)
    choose = by_sorted_numbers(giant, cluster) if giant.whole_keys else evenly(giant, rule)
    return Opened(name, cluster.address(), giant, referred(giant, choose, rule))


def snapshot(folder: Path) -> Opened:
    path = write(PREPARED, "parquet", folder)
    made = asked(str(path), PREPARE, prepared=folder / "prepared")
    told(f"prepared: made in {made['seconds']:.0f} s with {made['peak']:.0f} MiB")
    assert made["found"] is None
    assert made["peak"] < STATED

    def reference(name: str) -> object:
        return first_rows(PREPARED, name) if name in (COUNT, SUM, KEYS) else everywhere(PREPARED, name)

    return Opened("prepared", str(path), PREPARED, reference, folder / "prepared")


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_right_answer_in_the_stated_memory(opened: Opened, name: str) -> None:
    prepared = None if name == STEP else opened.prepared
    found = asked(opened.address, name, prepared=prepared)
    told(f"{opened.name}: {name} in {found['seconds']:.0f} s with {found['peak']:.0f} MiB")
    assert found["peak"] < STATED
    assert found["found"] == opened.reference(name)


@pytest.mark.skipif(ROWS < 20_000_000, reason="fewer different texts than twenty million fit")
def test_a_patient_with_too_many_different_texts_leaves_the_table_unprepared(tmp_path: Path) -> None:
    path = write(WHOLE, "parquet", tmp_path)
    found = asked(str(path), PREPARE, prepared=tmp_path / "prepared")
    told(f"prepared: refused in {found['seconds']:.0f} s with {found['peak']:.0f} MiB")
    assert found["peak"] < STATED
    assert "has too many different texts in the column 'note' to be prepared" in str(found["found"])
    assert [path.name for path in (tmp_path / "prepared" / "visits").iterdir()] == ["lock"]
