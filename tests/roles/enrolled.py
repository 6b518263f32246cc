"""A consortium and hospitals that enrol with it in this process: every file that `init` makes, without a wire.

Their rows are a double that remembers being read; ledgers, accounts and tasks are the real ones.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from pathlib import Path

from coordinator.members.enrolment import enrol_site, make_invitation, opened
from coordinator.members.folder import CoordinatorFolder, open_folder
from coordinator.planning.plans import plans_for
from coordinator.serving.serve import initialise
from site_agent.answering.pipeline import Pipeline
from site_agent.serving.enrolment import begin, finish, prepare_enrolment
from site_agent.serving.folder import SiteFolder
from site_agent.serving.folder_account import open_account
from site_agent.store.ledger import SiteLedger
from tests.fixtures.asking import asked_by
from tests.site_agent.lone_site import COUNT, STUDY, Rows
from wardround.analyst.sql.read import parse
from wardround.federation.errors import FederationError
from wardround.federation.plan.plan import Plan
from wardround.federation.plan.task import AskRequest, Submission, Task, sign_task
from wardround.federation.trust.enrolment import read_invitation, write_invitation
from wardround.federation.trust.entry import EMPTY
from wardround.privacy.noise.distribution import Mechanism
from wardround.simulation.noise import ZeroNoise

NOW = datetime.datetime.now(datetime.UTC)
LIFE = datetime.timedelta(days=14)

SITE = """\
[site]
name = "{name}"
patients = 1000
dataset = "ehr"
{more}
[tables.visits]
source = "visits.csv"
[policy]
epsilon = 4.0
delta = 1e-6
"""


def found(folder: Path, *, study: str = STUDY) -> CoordinatorFolder:
    """A coordinator as `init` leaves it."""
    initialise(folder, study_text=study, configuration_text=None, now=NOW)
    return open_folder(folder)


def invite(consortium: CoordinatorFolder, name: str, *, more: str = "") -> tuple[Path, Path]:
    """A hospital's invitation and its configuration, beside the consortium's folder."""
    invitation, config = (consortium.path.parent / f"{name}{end}" for end in (".invitation", ".toml"))
    write_invitation(make_invitation(consortium, name, now=NOW), invitation)
    config.write_text(SITE.format(name=name, more=more), encoding="utf-8")
    return invitation, config


def enrol(consortium: CoordinatorFolder, path: Path, invitation: Path, config: Path | None) -> SiteFolder:
    """`site init`, with the coordinator in the same process; the tables are there and hold nobody."""
    path.mkdir(mode=0o700, exist_ok=True)
    for table in read_invitation(invitation).study().tables:
        if not (file := path / f"{table.name}.csv").exists():
            names = (table.unit_key, *(column.name for column in table.columns))
            file.write_text(",".join(names) + "\n", encoding="utf-8")
    ready = prepare_enrolment(path, invitation, config)
    asked = begin(ready)
    with opened(consortium) as ledger:
        certificate = enrol_site(ledger, consortium.authority(), asked, life=LIFE, now=NOW)
    finish(ready, certificate)
    return SiteFolder(path)


def hospital(consortium: CoordinatorFolder, name: str = "north", *, more: str = "") -> SiteFolder:
    """An enrolled hospital beside the consortium's folder."""
    return enrol(consortium, consortium.path.parent / name, *invite(consortium, name, more=more))


@dataclass
class Serving:
    """An agent of an enrolled hospital, opened as `serve` opens it; nobody is dialled."""

    consortium: CoordinatorFolder
    site: SiteFolder
    rows: Rows = field(default_factory=Rows)
    ledger: SiteLedger = field(init=False)
    pipeline: Pipeline = field(init=False)

    def __post_init__(self) -> None:
        configuration, study = self.site.configuration(), self.site.study()
        self.ledger = SiteLedger(self.site.ledger, identity=self.site.identity())
        self.ledger.set_cap(configuration.policy.cap)
        try:
            account = open_account(self.site, configuration, study, self.ledger)
        except FederationError:
            self.ledger.close()
            raise
        coordinator = self.consortium.identity().public
        self.pipeline = Pipeline(
            configuration.name,
            study,
            configuration.policy,
            coordinator,
            self.ledger,
            self.rows,
            ZeroNoise(),
            NOW.date,
            account,
        )

    def ask(
        self, nonce: str = "", *, epsilon: float = 0.5, mechanism: Mechanism = Mechanism.DISCRETE_GAUSSIAN
    ) -> Submission:
        """Ask how many rows there are; another nonce is another question."""
        request = AskRequest(parse(COUNT), epsilon=epsilon, nonce=nonce)
        plans = plans_for(request, self.pipeline.study, {self.pipeline.site: 1000})
        return self.run(next(plan for plan in plans if plan.mechanism is mechanism))

    def run(self, plan: Plan) -> Submission:
        task = Task(plan, self.pipeline.site, EMPTY)
        return self.pipeline.run(sign_task(task, self.consortium.identity(), asked_by(plan)))

    def close(self) -> None:
        self.ledger.close()
        if self.pipeline.shared is not None:
            self.pipeline.shared.close()
