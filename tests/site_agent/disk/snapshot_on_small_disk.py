"""A snapshot that is larger than the disk; says what was seen of it.

Run by test_full_disks.py on a small disk: snapshot_on_small_disk FOLDER
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from tests.site_agent.columnstore.prepared_tables import TABLE, Kept, form, opened, prepare, row, study, totals
from wardround.federation.errors import FederationError
from wardround.federation.question.query import Aggregate, Query, Statistic

ROWS = 40_000


def used(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_blocks - found.f_bfree


def main(folder: Path) -> dict[str, object]:
    prepare(Kept([row(number) for number in range(3)]), study(), folder)
    before, said = used(folder), ["", ""]
    try:
        prepare(Kept([row(number) for number in range(ROWS)], batch_rows=1000), study(), folder)
    except FederationError as error:
        said = [error.code, error.message]
    asked = form(Query(TABLE, (Aggregate(Statistic.COUNT),)), study())
    counted = totals(asked, opened(study(), folder))
    return {"error": said, "used_before": before, "used_after": used(folder), "counted": counted}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
