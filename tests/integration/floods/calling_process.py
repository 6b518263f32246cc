"""Calls at full speed by one member: PROFILE CONNECTIONS STREAMS. A test's attacker, at the lowest priority.

Prints a line once its first call was answered, calls until its input ends, and prints how many were answered, how many
were told to ask again, and how many failed in another way.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from pathlib import Path

from protos.calls import AnalystCalls
from protos.channels import channel
from protos.tls import TlsKeys
from wardround.federation.errors import FederationError, PeerUnreachable
from wardround.federation.trust.enrolment import read_profile


def main(path: Path, connections: int, streams: int) -> None:
    os.nice(19)
    profile = read_profile(path)
    keys = TlsKeys(profile.key.encode(), profile.certificate.encode(), profile.authority.encode())
    counts: Counter[str] = Counter()
    ended = threading.Event()

    def call(calls: AnalystCalls) -> None:
        mine: Counter[str] = Counter()
        while not ended.is_set():
            try:
                calls.study_text()
                mine["answered"] += 1
            except PeerUnreachable:
                mine["told to ask again"] += 1
            except FederationError:
                mine["failed"] += 1
        counts.update(mine)

    opened = [AnalystCalls(channel(profile.address, keys)) for _ in range(connections)]
    opened[0].study_text()
    print("begun", flush=True)
    threads = [threading.Thread(target=call, args=(calls,)) for calls in opened for _ in range(streams)]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    ended.set()
    for thread in threads:
        thread.join()
    print(", ".join(f"{number} {what}" for what, number in sorted(counts.items())), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
