"""What answers of many numbers take: `python bench/answers.py [--numbers 10 10000 100000 1000000]`.

Coordinator, four sites and the analyst are separate processes over mutual TLS. Each size is asked once and read once
more as it is stored; time and memory a number should not grow with the size.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from wardround.analyst.asking.client import connect
from wardround.cli.demo_scene import DemoScene

SITES = 4
PATIENTS = 5_000
SEED = 7
COLUMNS = (10, 100, 1000, 1000)
GROUPS = {10: "c0", 10_000: "c0, c2", 100_000: "c1, c2", 1_000_000: "c2, c3"}

STUDY = """\
name = "codes"
unit = "patient"
overlap = 1
min_sites = 2
deadline_seconds = 3600

[budget]
epsilon = 1000.0
delta = 1e-6

[tables.stays]
unit_key = "patient_id"
max_rows_per_unit = 4

[tables.stays.columns]
"""

SITE = """\
[site]
name = "{{name}}"
patients = {{patients}}
dataset = "codes-2026"

[tables.stays]
source = "{stays}"

[policy]
epsilon = 1000.0
delta = 1e-6
statistics = ["count"]
approval = "automatic"
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--numbers", type=int, nargs="+", choices=list(GROUPS), default=list(GROUPS))
    numbers = parser.parse_args().numbers
    with tempfile.TemporaryDirectory(prefix="wardround-bench-") as name:
        folder = Path(name)
        columns = "".join(
            f'c{place} = {{ type = "integer", lower = 0, upper = {values - 1} }}\n'
            for place, values in enumerate(COLUMNS)
        )
        site = SITE.format(stays=write_stays(folder / "stays.csv"))
        stage = DemoScene(folder, lambda text: print(text, file=sys.stderr), STUDY + columns, site, SITES * PATIENTS)
        try:
            stage.begin(SITES)
            for size in numbers:
                measure(stage, size)
        finally:
            stage.stop()


def write_stays(path: Path) -> Path:
    """A table with a row for each patient, the same at every site."""
    drawn = np.random.default_rng(SEED)
    columns = [drawn.integers(values, size=PATIENTS) for values in COLUMNS]
    header = ",".join(["patient_id", *(f"c{place}" for place in range(len(COLUMNS)))])
    rows = np.column_stack([np.arange(PATIENTS), *columns])
    np.savetxt(path, rows, fmt="%d", delimiter=",", header=header, comments="")
    return path


def measure(stage: DemoScene, size: int) -> None:
    """One answer of `size` numbers, from the question to the last page."""
    sql = f"SELECT {GROUPS[size]}, COUNT(*) FROM stays GROUP BY {GROUPS[size]}"
    with connect(stage.folder / "analyst.profile") as federation:
        asked = _seconds(lambda: federation.ask(sql, epsilon=1.0), size)
        read = _seconds(lambda: federation.ask(sql, epsilon=1.0), size)
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    roles = [peak_mebibytes(process.pid) for process in stage.running]
    each = 1e6 * asked / size
    print(
        f"{size:>9} numbers: asked {asked:7.2f} s ({each:8.1f} µs each)   read again {read:7.2f} s   "
        f"peak MiB: analyst {own:.0f}, coordinator {roles[0]:.0f}, largest site {max(roles[1:]):.0f}",
        flush=True,
    )


def _seconds(ask: object, size: int) -> float:
    began = time.perf_counter()
    found = ask()  # type: ignore[operator]
    seconds = time.perf_counter() - began
    if len(found.estimates) != size:
        raise SystemExit(f"{len(found.estimates)} of {size} numbers arrived")
    return seconds


def peak_mebibytes(process: int) -> float:
    """The most memory a running process has held."""
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main()
