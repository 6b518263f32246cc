"""`site backup`: a consistent copy of a site's folder, with the account that it shares, while the agent serves."""

from __future__ import annotations

import datetime
from pathlib import Path

from site_agent.serving.folder import KEPT, open_folder
from site_agent.serving.folder_account import account_path
from wardround.federation.ledger.folder_copy import Report, copy_folder
from wardround.federation.trust.entry import Head


def back_up(path: Path, out: Path, *, now: datetime.datetime, report: Report) -> Head:
    """Copy the site in this folder to a new one; how far its ledger was.

    Snapshots of tables are left out: they hold patients' rows and can be made again.
    """
    folder = open_folder(path)
    name = folder.configuration().account
    shared = [] if name is None else [place for place in (account_path(folder, name),) if place.is_file()]
    made = now.isoformat(timespec="seconds")
    return copy_folder(folder.path, out, files=KEPT, made=made, besides=shared, report=report)
