"""What one call costs at an idle coordinator, and how many a second it serves: `python bench/call.py [--calls N]`.

The call reads the roster and the study and decides nothing, so most of it is the way in: TLS, gRPC, whose turn it is.
Processor time is the coordinator's own, for each call.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from protos.calls import AnalystCalls
from protos.channels import channel
from protos.tls import TlsKeys
from wardround.cli.demo_scene import DemoScene
from wardround.federation.trust.enrolment import read_profile

CALLERS = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=3000)
    calls = parser.parse_args().calls
    with tempfile.TemporaryDirectory(prefix="wardround-bench-") as name:
        scene = DemoScene(Path(name), lambda text: print(text, file=sys.stderr), patients=100)
        try:
            scene.begin(1)
            process = scene.running[0].pid
            measure(Path(name) / "analyst.profile", calls // 10, callers=1)
            began = processor_seconds(process)
            alone = measure(Path(name) / "analyst.profile", calls, callers=1)
            spent = processor_seconds(process) - began
            start = time.perf_counter()
            together = measure(Path(name) / "analyst.profile", calls, callers=CALLERS)
            rate = len(together) / (time.perf_counter() - start)
        finally:
            scene.stop()
    p50, p99 = (1e6 * float(np.quantile(alone, q)) for q in (0.5, 0.99))
    print(f"one call, {len(alone)} of them in turn:  p50 {p50:.0f} µs   p99 {p99:.0f} µs")
    print(f"the coordinator's processor time for each: {1e6 * spent / len(alone):.0f} µs")
    print(f"{CALLERS} callers at once: {rate:.0f} calls a second")


def measure(path: Path, calls: int, *, callers: int) -> list[float]:
    """Seconds of each call; every caller has a connection of its own."""
    profile = read_profile(path)
    keys = TlsKeys(profile.key.encode(), profile.certificate.encode(), profile.authority.encode())
    seconds: list[float] = []

    def work() -> None:
        with channel(profile.address, keys) as opened:
            link = AnalystCalls(opened)
            for _ in range(calls // callers):
                began = time.perf_counter()
                link.study_text()
                seconds.append(time.perf_counter() - began)

    threads = [threading.Thread(target=work) for _ in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seconds


def processor_seconds(process: int) -> float:
    """What a process has used so far, all its threads together."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
