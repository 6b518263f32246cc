"""Noised gradients over everybody, each followed by a step that the released products scale.

The step is (H + λI)⁻¹ g, with the curvature H of Gaussian inputs with the released products and λ as large as the
noise in H and in g makes them unsure; so there is no learning rate. Steps of the second half are averaged. A
direction that noise drowns is hardly moved in, which is all the regularisation there is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from wardround.analyst.estimation.fitted import Combine, RoundSums, settled
from wardround.analyst.estimation.gaussian_inputs import GaussianInputs
from wardround.federation.models.model_definition import Family
from wardround.federation.models.training import Matrix, Vector

LONGEST_STEP = 3.0
"""How much a step may change scores, in the standard deviation over patients."""
NOISE_IN_STEP = 0.5
_NEVER_SINGULAR = 1e-7


@dataclass(frozen=True, slots=True)
class PreconditionedGradient:
    """Where a model stands, and what the rounds of the second half added up to.

    `error` is the largest error of the released products. `begun`, `ended` and `pulls` add up where each of the
    last rounds began and ended, and its gradient; `noise` adds up the variance of one of its numbers.
    """

    family: Family
    gaussian: GaussianInputs
    error: float
    product_noise: float
    clip: float
    rounds: int
    weights: Vector
    turn: int
    begun: Vector
    ended: Vector
    pulls: Vector
    noise: float

    @property
    def limit(self) -> float:
        """Where clipping cuts the residual of a patient of ordinary length."""
        return min(1.0, self.clip / self.gaussian.length)

    @property
    def averaged(self) -> int:
        return max(0, self.turn - self.rounds // 2)

    @property
    def estimate(self) -> Vector:
        return self.ended / self.averaged if self.averaged else self.weights

    def advanced(self, sums: RoundSums, combine: Combine | None, counts: Mapping[str, float]) -> PreconditionedGradient:
        noise_sd = sums.noise_sd * self.clip
        curvature, doubt = self.curvature(self.weights), self.doubt(self.weights, noise_sd)
        cut = self.cut(self.weights)
        pull = self.clip * sums.totals[0] - cut
        if combine is None:
            weights = self.weights - self._step(curvature, doubt, pull)
        else:
            whole = sum(counts[site] for site in sums.sites)
            updates = {}
            for site, own in sums.sites.items():
                share = counts[site] / whole
                # As far as the site's patients would have everybody go.
                alone = (self.clip * own[0] - share * cut) / share
                updates[site] = self.weights - self._step(curvature, doubt, alone)
            weights = combine(self.weights, updates, {site: counts[site] for site in updates})
        weights = settled(weights)
        moved = replace(self, weights=weights, turn=self.turn + 1)
        if moved.averaged == 0:
            return moved
        return replace(
            moved,
            begun=self.begun + self.weights,
            ended=self.ended + weights,
            pulls=self.pulls + pull,
            noise=self.noise + noise_sd**2,
        )

    def placed(self, weights: Vector) -> PreconditionedGradient:
        """From here on, as if nothing had been averaged."""
        nothing = np.zeros_like(weights)
        return replace(self, weights=weights, turn=0, begun=nothing, ended=nothing, pulls=nothing, noise=0.0)

    def curvature(self, weights: Vector) -> Matrix:
        """How fast the gradient changes with the weights."""
        return self.gaussian.matrix(weights, lambda score: self.family.information(score, self.limit))

    def doubt(self, weights: Vector, noise_sd: float) -> float:
        """λ: what the curvature may be wrong by, and what noise there is in a gradient."""
        middle, wide = self.gaussian.scores(weights)
        typical = float(self.family.information(np.array([middle - wide, middle, middle + wide]), self.limit).mean())
        least = _NEVER_SINGULAR * self.gaussian.patients
        return max(typical * self.error, NOISE_IN_STEP * noise_sd, least)

    def cut(self, weights: Vector) -> Vector:
        """What clipping adds to the gradient of everybody, on average, where the model is right."""
        return self.gaussian.vector(weights, lambda score: self.family.mean_residual(score, self.limit))

    def _step(self, curvature: Matrix, doubt: float, pull: Vector) -> Vector:
        step: Vector = np.linalg.solve(curvature + doubt * np.eye(len(pull)), pull).astype(np.float64)
        centre, wide = self.gaussian.scores(step)
        length = math.hypot(centre, wide)
        return step if length <= LONGEST_STEP else step * (LONGEST_STEP / length)


def preconditioned_gradient_from(
    family: Family,
    gaussian: GaussianInputs,
    *,
    start: Vector,
    error: float,
    product_noise: float,
    clip: float,
    rounds: int,
) -> PreconditionedGradient:
    """Before the first round."""
    nothing = np.zeros_like(start)
    return PreconditionedGradient(
        family, gaussian, error, product_noise, clip, rounds, settled(start), 0, nothing, nothing, nothing, 0.0
    )
