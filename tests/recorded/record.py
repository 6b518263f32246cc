"""Record topics anew, on purpose: `python -m tests.recorded.record TOPIC …`, or `all`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.recorded.recording import new_folder, write
from tests.recorded.topics import TOPICS

if __name__ == "__main__":
    for topic in TOPICS if sys.argv[1:] == ["all"] else sys.argv[1:]:
        with new_folder() as folder:
            write(topic, TOPICS[topic](Path(folder)))
        print(f"recorded {topic}")
