"""The processor time of every benchmark in two checkouts, at small settings: another version's, and this one's.

Run with: .venv/bin/python -m tools.compare OTHER [NAME …] [--runs N] [--json FILE]

OTHER is a checkout with a .venv of its own (`make setup`). The two take turns, so that both meet the same neighbours
on a busy machine, and processor time is that of the benchmark and of every process it started and waited for: elapsed
time would measure the neighbours. Printed are the medians, their ratio, and how far the other version's own runs lie
apart: a ratio within that spread says nothing. `codec` runs for a fixed time, so the microseconds it prints are
compared instead. PostgreSQL's own server is not waited for by anybody, and not in the time.

With --json the results are added to FILE, so that the whole can be made in parts.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
TOTAL = "processor seconds"
ALLOWED = 1.10
# Seconds, not minutes; the proportions between the parts of a benchmark are not those of its own settings.
SETTINGS: Mapping[str, str] = {
    "accounting": "--past 20000 --events 1000",
    "accuracy": "--repeat 12 --searches 1 --sums 100 --tables 50",
    "ask": "--asks 32",
    "bounded_count": "--rows 200000 --max-rows-per-unit 4",
    "codec": "",
    "coverage": "--only histogram --epsilon 1 --seed 7 --repeats 10000",
    "dpsgd": "--patients 200000 --turns 1",
    "flower": "--sites 100 --rounds 3 --only simulation --processes 1",
    "giant_patient": "--rows 100000",
    "heart_disease": "--repeat 1",
    "learning": "--repeat 1 --small-repeat 1",
    "noise": "--draws 300000",
    "postgresql": "--rows 100000 --repeats 1",
    "prepared": "--rows 200000 --repeats 2",
    "simulated": "--repeat 2",
    "training": "--trainings 1",
}
# Whom a benchmark measures beside us takes the same time in both, and would hide a difference.
_START = "import sys; {alone}\nfrom bench.{name} import main; main()"
_ALONE = {"bounded_count": "sys.modules['opendp'] = None", "prepared": "sys.modules['opendp'] = None"}
_ROW = re.compile(r"^(?P<name>\S.*?)\s{2,}(?P<write>[\d.]+)\s+(?P<read>[\d.]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What one benchmark took in both versions, in the order of the runs."""

    setting: str
    measure: str
    before: list[float]
    after: list[float]

    @property
    def ratio(self) -> float:
        """This version's median over the other's."""
        return statistics.median(self.after) / statistics.median(self.before)

    @property
    def spread(self) -> float:
        """The other version's longest run over its shortest one."""
        return max(self.before) / min(self.before)

    @property
    def allowed(self) -> bool:
        """Whether this version takes no more than a tenth longer, or no longer than the other one sometimes does."""
        return self.ratio <= ALLOWED or statistics.median(self.after) <= max(self.before)

    def __str__(self) -> str:
        before, after = statistics.median(self.before), statistics.median(self.after)
        verdict = "" if self.allowed else "  SLOWER"
        return f"{before:9.2f} → {after:9.2f}  × {self.ratio:.3f}  spread of before × {self.spread:.3f}{verdict}"


def measured(checkout: Path, name: str) -> dict[str, float]:
    """What one run of a benchmark took: its processor time, or what it measured itself."""
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(  # noqa: S603 -- our own words
            [
                checkout / ".venv/bin/python",
                "-c",
                _START.format(name=name, alone=_ALONE.get(name, "")),
                *SETTINGS[name].split(),
            ],
            cwd=checkout,
            env=os.environ | {"PYTHONPATH": f"{checkout}:{checkout / 'bench'}:{HERE}"},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read()
    if process.returncode:
        sys.exit(f"{text}\nbench/{name}.py {SETTINGS[name]} failed in {checkout}, as its output above says.")
    if name != "codec":
        return {TOTAL: used.ru_utime + used.ru_stime}
    rows = list(_ROW.finditer(text))
    return {f"µs to {way} a {row['name']}": float(row[way]) for row in rows for way in ("write", "read")}


def compared(other: Path, name: str, runs: int) -> dict[str, Comparison]:
    """Each measure of a benchmark in both versions, which take turns to go first."""
    found: dict[Path, list[dict[str, float]]] = {other: [], HERE: []}
    for turn in range(runs):
        for checkout in (other, HERE) if turn % 2 == 0 else (HERE, other):
            found[checkout].append(measured(checkout, name))
            first, value = next(iter(found[checkout][-1].items()))
            side = "after" if checkout == HERE else "before"
            print(f"  {name} {turn + 1} of {runs}, {side:<6} {value:9.2f} {first}", file=sys.stderr, flush=True)
    return {
        measure: Comparison(
            SETTINGS[name], measure, *([round(run[measure], 3) for run in found[side]] for side in (other, HERE))
        )
        for measure in found[other][0]
    }


def version(checkout: Path) -> str:
    """The commit that lies in a checkout."""
    command = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()  # noqa: S603 -- as above


def processor() -> str:
    """What this machine calls its processor."""
    found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else platform.machine()


def keep(path: Path, other: Path, name: str, found: Mapping[str, Comparison]) -> None:
    """Add a benchmark's results to a file."""
    document = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"benchmarks": {}}
    document["command"] = "python -m tools.compare OTHER --json tests/recorded/measured/benchmarks.json"
    document["machine"] = f"{os.cpu_count()} × {processor()}, Python {platform.python_version()}"
    document["before"] = version(other)
    document["benchmarks"] |= {
        name: [asdict(one) | {"ratio": round(one.ratio, 3), "spread": round(one.spread, 3)} for one in found.values()]
    }
    text = json.dumps(
        document | {"benchmarks": dict(sorted(document["benchmarks"].items()))}, indent=1, ensure_ascii=False
    )
    path.write_text(text + "\n", encoding="utf-8")


def main() -> None:
    """Compare what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="a checkout of the version before")
    parser.add_argument("names", nargs="*", metavar="NAME", help="which benchmarks; all of them if none is named")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path, help="a file to add the results to")
    options = parser.parse_args()
    if unknown := sorted(set(options.names) - set(SETTINGS)):
        parser.error(f"there is no benchmark {unknown[0]!r} to compare: it is one of {', '.join(SETTINGS)}")
    other = options.other.resolve()
    for name in options.names or SETTINGS:
        found = compared(other, name, options.runs)
        for measure, one in found.items():
            print(f"{name:<14} {one}  {measure}", flush=True)
        if options.json:
            keep(options.json, other, name, found)


if __name__ == "__main__":
    main()
