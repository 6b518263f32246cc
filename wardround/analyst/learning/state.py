"""What a training has released before its model moves: counts, scaling and products, and what begins from them.

A number of patients is a noised count, never a true one: nothing here divides by anything that was not released.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from wardround.analyst.estimation.averaged_sgd import AveragedSgd, averaged_sgd_from
from wardround.analyst.estimation.fitted import RoundSums, Standardisation
from wardround.analyst.estimation.gaussian_inputs import (
    GaussianInputs,
    believed,
    counts_by_product,
    gaussian_of,
    symmetric,
    unrelated,
)
from wardround.analyst.estimation.least_squares import LeastSquares, least_squares
from wardround.analyst.estimation.preconditioned_gradient import PreconditionedGradient, preconditioned_gradient_from
from wardround.analyst.estimation.standardising import (
    TYPICAL_INFORMATION,
    StandardisedMoments,
    coefficient_noise,
    from_bounds,
    moments_of,
    restandardised,
    room,
    standardised,
    two_valued,
)
from wardround.analyst.learning.evaluating import edges_of, reach_of
from wardround.federation.models import definition_of
from wardround.federation.models.model_definition import Family, ModelDefinition
from wardround.federation.models.step_layout import inputs_of, is_binary, measured
from wardround.federation.models.training import Input, Stage, StageKind, Training, Vector
from wardround.federation.study.study import Study, Table

_RIGHT_AT_ONCE = 4.0


@dataclass(frozen=True, slots=True)
class TrainingState:
    """Everything that was released so far, as far as the next step needs it."""

    training: Training
    inputs: tuple[Input, ...]
    target: Input
    scaling: Standardisation
    moments: StandardisedMoments | None = None
    sites: int = 1
    spare: float = 1.0
    counts: Mapping[str, float] = field(default_factory=dict)
    gaussian: GaussianInputs | None = None
    products_error: tuple[float, float] = (0.0, 0.0)

    # --- Rounds -------------------------------------------------------------------------------------------

    def measured(self, sums: RoundSums, table: Table) -> TrainingState:
        """With the sums of MOMENTS."""
        inputs = len(self.inputs)
        columns = measured(self.training.model.kind, inputs)
        moments = moments_of(sums, two_valued(self.inputs, table, columns=columns))
        noise = coefficient_noise(self.training, sums, inputs=inputs, patients=moments.patients)
        return replace(
            self,
            moments=moments,
            sites=sums.answered,
            counts=moments.by_site,
            spare=room(inputs, noise),
            scaling=standardised(moments, inputs=inputs, noise=noise),
        )

    def multiplied(self, sums: RoundSums) -> TrainingState:
        """With the sums of PRODUCTS, which know inputs' spreads better; one round of least squares keeps its scale."""
        width = len(self.inputs) + 1
        halved = self.model.least_squares
        counts = self.counts or counts_by_product(sums, width, halved=halved)
        counted = replace(self, counts=counts, sites=sums.answered)
        if self.is_solved_at_once:
            return counted
        noisy, noise = symmetric(sums.totals[0]), sums.noise_sd
        if halved:
            noisy, noise = 2.0 * noisy[:width, :width], 2.0 * noise
        first = max(float(noisy[0, 0]) * width, 2.0 * noise * width, 1.0)
        patients = first if self.moments is None else self.moments.patients
        scaling, noisy = restandardised(
            self.scaling, noisy, noise, patients=patients, inputs=len(self.inputs), spare=self.spare
        )
        products = believed(noisy, noise)
        return replace(
            counted,
            scaling=scaling,
            gaussian=gaussian_of(products.matrix, patients),
            products_error=(products.error, products.noise_sd),
        )

    # --- Where a model begins -----------------------------------------------------------------------------

    @property
    def is_solved_at_once(self) -> bool:
        """Whether products alone are the model."""
        has_gradients = any(stage.kind is StageKind.GRADIENT for stage in self.training.stages)
        return self.model.least_squares and not has_gradients

    def solved(self, sums: RoundSums) -> LeastSquares:
        """The least squares of these sums of PRODUCTS."""
        first = 2.0 * float(sums.totals[0][0]) * (len(self.inputs) + 1)
        patients = max(first, 1.0) if self.moments is None else self.moments.patients
        return least_squares(sums.totals[0], sums.noise_sd, patients)

    def learner(self) -> PreconditionedGradient | AveragedSgd:
        """What learns from gradients, before the first of them."""
        stage, width = self.gradients, len(self.inputs) + 1
        layer = self.model.layer
        if layer is None and stage.rate == 1 and stage.steps == 1:
            family, start = self.family()
            error, noise = self.products_error
            return preconditioned_gradient_from(
                family,
                self.likely_gaussian,
                start=start,
                error=error,
                product_noise=noise,
                clip=self.training.clip,
                rounds=stage.rounds,
            )
        if layer is not None:
            start, speed = layer.start(self.training.model.hidden, len(self.inputs)), layer.speed
        else:
            family, start = self.family()
            # Standardised inputs have curvature information/width in every direction.
            middle = np.array([start[0] / math.sqrt(width)])
            speed = width / max(_RIGHT_AT_ONCE * float(family.information(middle, 1.0)[0]), TYPICAL_INFORMATION)
        return averaged_sgd_from(
            start,
            rounds=stage.rounds,
            steps=stage.steps,
            rate=float(stage.rate),
            patients=self.patients,
            sites=self.sites,
            speed=speed,
        )

    def family(self) -> tuple[Family, Vector]:
        """What kind of residuals there are, and where the model begins."""
        moments = self.moments
        released = None if moments is None else (float(moments.mean[-1]), float(moments.variance[-1]))
        family, score = self.model.family(self.target, released)
        start = np.zeros(len(self.inputs) + 1)
        start[0] = score * math.sqrt(len(start))
        return family, start

    @property
    def model(self) -> ModelDefinition:
        return definition_of(self.training.model.kind)

    # --- Public numbers -----------------------------------------------------------------------------------

    @property
    def patients(self) -> float:
        """How many there are, with noise."""
        if self.moments is not None:
            return self.moments.patients
        return 1.0 if self.gaussian is None else self.gaussian.patients

    @property
    def likely_gaussian(self) -> GaussianInputs:
        """How inputs lie together; unrelated where no products were released."""
        return self.gaussian or unrelated(len(self.inputs) + 1, self.patients)

    @property
    def gradients(self) -> Stage:
        return next(stage for stage in self.training.stages if stage.kind is StageKind.GRADIENT)

    @property
    def reach(self) -> float:
        """How far errors of a numeric target are followed, in its units."""
        return reach_of(self.target, self.scaling)

    def counts_of(self, sums: RoundSums) -> dict[str, float]:
        """Patients of each site that shows its sums; one that was not counted is taken for a usual one."""
        usual = float(np.mean(list(self.counts.values()))) if self.counts else 1.0
        return {site: self.counts.get(site, usual) for site in sums.sites}

    def edges(self, weights: Vector) -> tuple[float, ...]:
        """Where scores of this model are cut; nowhere for a numeric target."""
        if not is_binary(self.model.kind):
            return ()
        if (layer := self.model.layer) is None:
            return edges_of(*self.likely_gaussian.scores(weights))
        # Each input at one spread above and below, the others in the middle: about how far scores go.
        width = len(self.inputs) + 1
        ends = np.vstack((np.eye(width)[1:], -np.eye(width)[1:])) * math.sqrt(width)
        ends[:, 0] = 1.0
        found = layer.scores(ends, weights, self.training.model.hidden)
        return edges_of(float(found.mean()), float(found.std()))


def nothing_released(training: Training, study: Study) -> TrainingState:
    """Before the first round: inputs are scaled by their bounds."""
    inputs, target = inputs_of(training.model, study)
    return TrainingState(training, inputs, target, from_bounds(measured(training.model.kind, len(inputs))))
