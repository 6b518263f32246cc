"""A site's whole pipeline that trains again and again: signed tasks, admission, ledger, coins, noise, outbox."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from site_agent.reading.examples import Examples
from tests.site_agent.lone_site import LoneSite, Rows
from wardround.federation.forms.release import decode_release
from wardround.federation.models.step_layout import StepLayout
from wardround.federation.models.training import StageKind, Training
from wardround.federation.plan.task import Released
from wardround.privacy.accounting.cost import Cost
from wardround.privacy.mechanisms.randomness import Chance, SecureChance
from wardround.privacy.noise.vectors import IntVector
from wardround.simulation.audit.training_runs import Releasing, plan_of, trained, training_text

ROOM = 9000.0


@dataclass
class Memory(Rows):
    """Examples that were read before; which of them may depend on what a round adds up."""

    of: Callable[[StageKind], Examples] | None = None

    def examples(self, form: StepLayout) -> Examples:
        assert self.of is not None
        return self.of(form.step.kind)


class TrainingSite:
    """One site, which is asked to train as often as anybody wants."""

    def __init__(
        self, folder: Path, of: Callable[[StageKind], Examples] | Examples, *, chance: Chance | None = None
    ) -> None:
        folder.mkdir(parents=True)
        kept = (lambda _: of) if isinstance(of, Examples) else of
        self.lone = LoneSite(
            folder,
            study=training_text(epsilon=ROOM),
            noise=SecureChance() if chance is None else chance,
            rows=Memory(of=kept),
            max_epsilon_per_plan=ROOM,
        )

    def trained(self, training: Training, *, count: int) -> IntVector:
        """Every noised sum of so many trainings, one training a row."""
        return np.array([trained(training, self.lone.study, self._releasing(str(number))) for number in range(count)])

    @property
    def spent(self) -> Cost:
        return self.lone.spent

    def _releasing(self, nonce: str) -> Releasing:
        def release(form: StepLayout) -> IntVector:
            submission = self.lone.pipeline.run(self.lone.task(plan_of(form.step, self.lone.study, nonce=nonce)))
            assert isinstance(submission, Released)
            return decode_release(submission.payload).values

        return release
