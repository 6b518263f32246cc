"""One hospital's pipeline over a dataset that remembers being read, and whoever plays its coordinator."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from coordinator.planning.plans import plans_for
from site_agent.answering.admission import Approval, Policy
from site_agent.answering.pipeline import Pipeline
from site_agent.reading.batches import Fingerprint
from site_agent.reading.examples import Examples
from site_agent.store.ledger import SiteLedger
from tests.fixtures.asking import asked_by
from wardround.analyst.sql.read import parse
from wardround.federation.errors import SourceAway, SourceFailed
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.ledger.sqlite_file import Durability
from wardround.federation.models.step_layout import StepLayout
from wardround.federation.plan.plan import Plan
from wardround.federation.plan.task import AskRequest, SignedTask, Task, sign_task
from wardround.federation.question.query import Statistic
from wardround.federation.study.study import Study, Table
from wardround.federation.study.study_file import parse_study
from wardround.federation.trust.entry import EMPTY, Head
from wardround.federation.trust.identity import Identity
from wardround.privacy.accounting.cost import Cost
from wardround.privacy.noise.distribution import Mechanism
from wardround.privacy.noise.sampler import Noise
from wardround.privacy.noise.vectors import Bounded
from wardround.simulation.noise import ZeroNoise

NAME = "north"
STUDY = """\
name = "trial"
unit = "patient"
overlap = 1
[budget]
epsilon = 4.0
delta = 1e-6
pure_epsilon = 1.0
[tables.visits]
unit_key = "patient_id"
max_rows_per_unit = 2
[tables.visits.columns]
age  = { type = "integer", lower = 0, upper = 110 }
sbp  = { type = "number", lower = 80, upper = 200, step = 0.1 }
code = { type = "category", values = ["a", "b", "c"] }
"""
COUNT = "SELECT COUNT(*) FROM visits"
UNSEEING = Fingerprint("", sees_changes=False)


def nothing() -> None:
    """What a dataset does before it is read, unless told otherwise."""


@dataclass
class Rows:
    """A dataset double: the same total everywhere, and a list of what was asked of it."""

    total: int = 0
    failures: int = 0
    absences: int = 0
    seen: Fingerprint = UNSEEING
    before_reading: Callable[[], None] = nothing
    events: list[str] = field(default_factory=list)
    held: dict[str, int] = field(default_factory=dict)

    def check(self, form: AnswerLayout) -> None:
        self.events.append("check")

    def _read(self) -> None:
        self.before_reading()
        self.events.append("read")
        if self.absences:
            self.absences -= 1
            raise SourceAway(private="the way to ward 7")
        if self.failures:
            self.failures -= 1
            raise SourceFailed(private="the disk of ward 7")

    def fingerprint(self, table: Table) -> Fingerprint:
        return self.seen

    def keys(self, form: AnswerLayout) -> dict[str, int]:
        self._read()
        return self.held

    def examples(self, form: StepLayout) -> Examples:
        """`total` patients with one row each, all in the middle of their bounds."""
        self._read()
        middle = np.array([(each.low + each.high) / 2 for each in form.inputs])
        units = np.arange(self.total + 1, dtype=np.intp)
        inputs = np.tile(middle, (self.total, 1))
        return Examples(inputs, np.full(self.total, form.target.low), units, np.zeros(self.total, dtype=np.bool_))

    def bounded(self, form: AnswerLayout) -> tuple[Bounded, ...]:
        self._read()
        return tuple(
            Bounded(
                np.full(part.dimension, self.total * part.increment, dtype=np.int64),
                part.l1_sensitivity,
                part.l2_sensitivity_squared,
                part.grid,
            )
            for part in form.parts
        )


class LoneSite:
    """A site that enrolled with the coordinator whose key the test holds."""

    def __init__(
        self,
        folder: Path,
        *,
        study: str = STUDY,
        noise: Noise | None = None,
        rows: Rows | None = None,
        keeping: Durability = Durability.FILE,
        **policy: object,
    ) -> None:
        self.folder = folder
        self.study: Study = parse_study(study)
        self.identity, self.coordinator = Identity.generate(), Identity.generate()
        self.rows = Rows() if rows is None else rows
        self.policy = Policy(
            **{
                "cap": self.study.cap,
                "max_epsilon_per_plan": 1.0,
                "statistics": tuple(Statistic),
                "approval": Approval.AUTOMATIC,
            }
            | policy  # type: ignore[arg-type]
        )
        self.identity.save(folder / "identity.pem")
        self.ledger = SiteLedger.create(
            folder,
            identity=self.identity,
            name=NAME,
            study_hash=self.study.study_hash,
            dataset="ehr",
            coordinator_key=self.coordinator.public.key,
            keeping=keeping,
        )
        self.ledger.set_cap(self.policy.cap)
        self.pipeline = Pipeline(
            NAME,
            self.study,
            self.policy,
            self.coordinator.public,
            self.ledger,
            self.rows,
            ZeroNoise() if noise is None else noise,
            lambda: datetime.date(2026, 1, 1),
        )

    def plan(
        self,
        sql: str = COUNT,
        *,
        epsilon: float = 0.5,
        mechanism: Mechanism = Mechanism.DISCRETE_GAUSSIAN,
        nonce: str = "",
        study: Study | None = None,
        participants: tuple[str, ...] = (NAME, "south"),
    ) -> Plan:
        """The plan an honest coordinator makes of a question."""
        request = AskRequest(parse(sql), epsilon=epsilon, nonce=nonce)
        plans = plans_for(request, study or self.study, dict.fromkeys(participants, 1000))
        return next(plan for plan in plans if plan.mechanism is mechanism)

    def task(
        self, plan: Plan | None = None, *, site: str = NAME, head: Head = EMPTY, signer: Identity | None = None
    ) -> SignedTask:
        """The plan as the coordinator, or `signer`, hands it out."""
        asked = self.plan() if plan is None else plan
        return sign_task(Task(asked, site, head), signer or self.coordinator, asked_by(asked))

    @property
    def read(self) -> bool:
        """Whether a row was touched."""
        return "read" in self.rows.events

    @property
    def spent(self) -> Cost:
        """What the ledger says was spent."""
        return self.ledger.spent()
