"""The processor time and memory of a command as a whole: `python bench/startup.py [--runs N]`.

Processor time, user and system, so that neighbours on a busy machine count little; the least and the median of N runs
in turns, after one that compiles. `python -c pass` is what Python itself takes. The question is answered over loopback
by a coordinator and two sites in processes of their own, whose time is not in it. It is asked again and again, so all
but the first answer is the stored one.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from ask import EPSILON, SQL, rich_stage

PYTHON = "python -c pass"
# Seconds; Python itself has none.
LIMITS = {
    PYTHON: None,
    "wardround --help": 0.25,
    "wardround ask --help": 0.30,
    f'wardround ask --profile analyst.profile --epsilon {EPSILON} "{SQL}"': 0.45,
}


# A process begins with the memory of the one that starts it, so a small one does.
STARTER = """
import os, sys
mine = os.dup(1)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
process = os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, *sys.argv[1:]])
_, status, used = os.wait4(process, 0)
os.write(mine, f"{used.ru_utime + used.ru_stime} {used.ru_maxrss / 1024}".encode())
sys.exit(os.waitstatus_to_exitcode(status))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=11)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory(prefix="wardround-bench-") as name:
        stage = rich_stage(Path(name), patients=1000)
        try:
            stage.begin(2)
            report(measured(Path(name), runs))
        finally:
            stage.stop()


def measured(folder: Path, runs: int) -> dict[str, list[tuple[float, float]]]:
    """Processor seconds and MiB of every run of each command."""
    found: dict[str, list[tuple[float, float]]] = {command: [] for command in LIMITS}
    for turn in range(runs + 1):
        for command, taken in found.items():
            used = run(command, folder)
            if turn:
                taken.append(used)
    return found


def run(command: str, folder: Path) -> tuple[float, float]:
    """One command to its end, in this interpreter."""
    start, *rest = (SQL if word == "SQL" else word for word in command.replace(f'"{SQL}"', "SQL").split())
    words = rest if start == "python" else ["-m", start, *rest]
    # Installed, a program finds its bytecode compiled.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-S", "-c", STARTER, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{command} failed: {done.stderr}")
    seconds, memory = map(float, done.stdout.split())
    return seconds, memory


def report(found: dict[str, list[tuple[float, float]]]) -> None:
    print("processor seconds        least  median  limit   memory")
    for command, taken in found.items():
        seconds, memory = ([each[place] for each in taken] for place in (0, 1))
        limit = LIMITS[command]
        kept = "" if limit is None else f"{limit:5.2f}  {'kept' if min(seconds) <= limit else 'MISSED'}"
        title = command if len(command) < 24 else "wardround ask …"
        print(f"{title:<22} {min(seconds):7.3f} {statistics.median(seconds):7.3f}  {kept:<13} {max(memory):4.0f} MiB")


if __name__ == "__main__":
    main()
