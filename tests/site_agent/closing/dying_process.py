"""A site that answers the task in its folder and dies while its table closes: FOLDER POINT."""

from __future__ import annotations

import datetime
import sys
from pathlib import Path

from protos.words import TASK
from site_agent.answering.admission import Approval, Policy
from site_agent.answering.pipeline import Pipeline
from site_agent.reading.dataset import TableSource
from site_agent.serving.open_dataset import open_dataset
from site_agent.store.ledger import SiteLedger
from tests.integration.faulty_site import Fate, FaultyTables
from tests.site_agent.lone_site import NAME
from wardround.federation.question.query import Statistic
from wardround.federation.study.study_file import read_study
from wardround.federation.trust.identity import Identity
from wardround.simulation.noise import ZeroNoise

KEY = bytes(range(32))


def main(folder: Path, point: str) -> None:
    ledger = SiteLedger(folder, identity=Identity.load(folder / "identity.pem"))
    ledger.tables = FaultyTables.wrapped(ledger, Fate(point))
    study = read_study(folder / "study.toml")
    policy = Policy(cap=study.cap, max_epsilon_per_plan=100.0, statistics=tuple(Statistic), approval=Approval.AUTOMATIC)
    tables = open_dataset({"visits": TableSource("visits.db")}, folder=folder, key=KEY)
    today = datetime.date(2026, 1, 1)
    pipeline = Pipeline(NAME, study, policy, ledger._coordinator, ledger, tables, ZeroNoise(), lambda: today, key=KEY)
    pipeline.run(TASK.decode((folder / "task").read_bytes()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
