"""Steps over secret samples: one a round, or several at each site before it answers.

Each site's sums are replayed as the site moved by them (`moved`), so what is combined is exactly what the sites came
to. The batch a sum is divided by is public: the chance of being taken times the noised number of patients. The mean
of the second half of the rounds is the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from wardround.analyst.estimation.fitted import Combine, RoundSums, settled
from wardround.federation.models.step_layout import LENGTH, StepLayout, moved
from wardround.federation.models.training import Vector

FASTEST = 2.0
WAY = 60.0
"""About how far all steps together go, in steps that would be right at once."""


@dataclass(frozen=True, slots=True)
class AveragedSgd:
    """Where a model stands between rounds of sampled steps; `noise` adds up the variance of a number of the sums."""

    rounds: int
    steps: int
    learning_rate: float
    batch: float
    weights: Vector
    turn: int
    tail: Vector
    noise: float

    @property
    def averaged(self) -> int:
        return max(0, self.turn - self.rounds // 2)

    @property
    def estimate(self) -> Vector:
        return self.tail / self.averaged if self.averaged else self.weights

    def advanced(
        self, sums: RoundSums, form: StepLayout, combine: Combine | None, counts: Mapping[str, float]
    ) -> AveragedSgd:
        if combine is None:
            # A model moves by its sums in proportion, so the mean of the sites' ends is one walk by the mean sums.
            walkers = sums.answered if self.steps > 1 else 1
            weights = self.weights - self._factor(form) * sums.totals.sum(axis=0) / max(walkers, 1)
        else:
            updates = {}
            for site, own in sums.sites.items():
                # A site that moved once moved by its part of everybody's batch.
                share = 1.0 if self.steps > 1 else counts[site] / sum(counts[each] for each in sums.sites)
                updates[site] = self._replayed(own, form, share)
            weights = combine(self.weights, updates, {site: counts[site] for site in updates})
        weights = settled(weights)
        gone = replace(self, weights=weights, turn=self.turn + 1)
        if gone.averaged == 0:
            return gone
        return replace(gone, tail=self.tail + weights, noise=self.noise + sums.noise_sd**2 * self.steps)

    def placed(self, weights: Vector) -> AveragedSgd:
        """From here on, as if nothing had been averaged."""
        return replace(self, weights=weights, turn=0, tail=np.zeros_like(weights), noise=0.0)

    def _factor(self, form: StepLayout) -> float:
        return self.learning_rate * form.step.training.clip / self.batch

    def _replayed(self, totals: Vector, form: StepLayout, share: float) -> Vector:
        weights = self.weights
        for total in totals:
            # Exact: sums are whole numbers of 1/LENGTH.
            whole = np.rint(total * LENGTH).astype(np.int64)
            weights = weights + (moved(weights, whole, form) - weights) / share
        return weights


def averaged_sgd_from(
    start: Vector, *, rounds: int, steps: int, rate: float, patients: float, sites: int, speed: float
) -> AveragedSgd:
    """Before the first round; `speed` is the learning rate at which one step of everybody would be right at once."""
    alone = max(sites, 1) if steps > 1 else 1
    learning_rate = speed * min(FASTEST, WAY / (rounds * steps))
    batch = max(rate * patients / alone, 1.0)
    return AveragedSgd(rounds, steps, learning_rate, batch, settled(start), 0, np.zeros_like(start), 0.0)
