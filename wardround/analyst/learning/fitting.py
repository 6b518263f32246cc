"""A model on its way: which step is taken next, and what the sums of a round make of it.

A fitting is a value. It asks for a step, is advanced by that step's sums and is another fitting then; the same sums
always lead to the same steps, so a training that was interrupted finds the rounds it has already paid for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Protocol

import numpy as np

from wardround.analyst.learning import evaluating, inference
from wardround.analyst.learning.cloud import Cloud, cloud_of, unrelated
from wardround.analyst.learning.descending import Descent, descent_from
from wardround.analyst.learning.families import Family
from wardround.analyst.learning.fitted import (
    Coefficient,
    Combine,
    Fitted,
    Matrix,
    Metric,
    RoundSums,
    Standardisation,
    settled,
)
from wardround.analyst.learning.linear import Gaussian, Squares, least_squares
from wardround.analyst.learning.logistic import Logistic
from wardround.analyst.learning.perceptron import SPEED, first_weights, perceptron_scores
from wardround.analyst.learning.poisson import poisson_of
from wardround.analyst.learning.products import believed, counts_by_product, symmetric
from wardround.analyst.learning.standardising import (
    TYPICAL_INFORMATION,
    Moments,
    coefficient_noise,
    from_bounds,
    moments_of,
    restandardised,
    room,
    standardised,
    two_valued,
)
from wardround.analyst.learning.wandering import Wander, wander_from
from wardround.federation.errors import QueryMistaken
from wardround.federation.step_form import (
    Input,
    Vector,
    inputs_of,
    is_binary,
    measured,
    pack,
    step_form,
    weights_of,
)
from wardround.federation.study import Study
from wardround.federation.training import ModelKind, Stage, StageKind, Step, Training

__all__ = [
    "Coefficient",
    "Combine",
    "Fitted",
    "Fitting",
    "Metric",
    "RoundSums",
    "Standardisation",
    "begin",
]

_ORDER = (StageKind.MOMENTS, StageKind.PRODUCTS, StageKind.GRADIENT, StageKind.SCORES)
_RIGHT_AT_ONCE = 4.0


class Fitting(Protocol):
    """A training between two rounds."""

    def next_step(self) -> Step | None:
        """The step to take next; None when there is no more."""

    def advance(self, sums: RoundSums) -> Fitting:
        """The training after the sums of `next_step`."""

    def placed(self, weights: Vector) -> Fitting:
        """The training with its model put elsewhere, by whoever combines without us; what it averaged is forgotten."""

    def fitted(self) -> Fitted:
        """The model as it is now."""


def begin(training: Training, study: Study, *, combine: Combine | None = None) -> Fitting:
    """A training before its first round; `QueryMistaken` where its stages cannot make a model."""
    inputs, target = inputs_of(training.model, study)
    kinds = [stage.kind for stage in training.stages]
    places = [_ORDER.index(kind) for kind in kinds]
    if any(right <= left for left, right in pairwise(places)) or any(
        stage.rounds != 1 and stage.kind is not StageKind.GRADIENT for stage in training.stages
    ):
        raise QueryMistaken("a training measures, multiplies, descends and is tried, in this order and each once.")
    linear = training.model.kind is ModelKind.LINEAR and StageKind.PRODUCTS in kinds
    if not (linear or StageKind.GRADIENT in kinds):
        raise QueryMistaken("a training needs gradients, or products for a linear model.")
    if StageKind.MOMENTS not in kinds and StageKind.PRODUCTS not in kinds:
        raise QueryMistaken("a training needs moments or products, which count the patients.")
    scaling = from_bounds(measured(training.model.kind, len(inputs)))
    return _Fit(training, study, combine, inputs, target, scaling)


@dataclass(frozen=True, slots=True)
class _Fit:
    """Everything that was released so far, as far as the next step needs it."""

    training: Training
    study: Study
    combine: Combine | None
    inputs: tuple[Input, ...]
    target: Input
    scaling: Standardisation
    stage: int = 0
    turn: int = 0
    moments: Moments | None = None
    sites: int = 1
    spare: float = 1.0
    counts: Mapping[str, float] = field(default_factory=dict)
    cloud: Cloud | None = None
    products_error: tuple[float, float] = (0.0, 0.0)
    learner: Descent | Wander | Squares | None = None
    metrics: tuple[Metric, ...] = ()

    # --- Fitting ------------------------------------------------------------------------------------------

    def next_step(self) -> Step | None:
        if self.stage == len(self.training.stages):
            return None
        step = Step(self.training, self.stage, self.turn)
        if step.kind is StageKind.MOMENTS:
            return step
        step = replace(step, centre=pack(self.scaling.centre), spread=pack(self.scaling.spread))
        if step.kind is StageKind.PRODUCTS:
            return step
        learner = self._learner()
        if step.kind is StageKind.SCORES:
            weights = settled(_estimate(learner))
            return replace(step, weights=pack(weights), edges=self._edges(weights))
        step = replace(step, weights=pack(learner.weights))
        if isinstance(learner, Wander):
            return replace(step, learning_rate=learner.learning_rate, batch=learner.batch)
        return step

    def advance(self, sums: RoundSums) -> _Fit:
        step = self.next_step()
        if step is None:
            return self
        after = self._after(step, sums)
        if self.turn + 1 < self.training.stages[self.stage].rounds:
            return replace(after, turn=self.turn + 1)
        return replace(after, stage=self.stage + 1, turn=0)

    def placed(self, weights: Vector) -> _Fit:
        learner = self._learner()
        if isinstance(learner, Squares):
            raise QueryMistaken("a linear model is found from one round of sums; it has no steps to place.")
        return replace(self, learner=learner.placed(settled(weights)))

    def fitted(self) -> Fitted:
        learner = self._learner()
        weights = settled(_estimate(learner))
        model = self.training.model
        found: tuple[Coefficient, ...] = ()
        notes: list[str] = []
        if model.kind is not ModelKind.PERCEPTRON:
            undamped, covariance = self._inferred(learner, weights, notes)
            found = inference.coefficients(model.kind, self.inputs, self.target, self.scaling, undamped, covariance)
        notes.extend(evaluating.doubts(self.metrics))
        if self.combine is not None:
            notes.append("standard errors are those of the sum, whatever the sites' models were combined by")
        return Fitted(model.kind, weights, found, self.metrics, self.scaling, tuple(notes))

    # --- Rounds -------------------------------------------------------------------------------------------

    def _after(self, step: Step, sums: RoundSums) -> _Fit:
        match step.kind:
            case StageKind.MOMENTS:
                return self._measured(sums)
            case StageKind.PRODUCTS:
                return self._multiplied(sums)
            case StageKind.GRADIENT:
                return self._descended(step, sums)
            case StageKind.SCORES:
                return replace(self, metrics=self._tried(step, sums))

    def _measured(self, sums: RoundSums) -> _Fit:
        model = self.training.model
        found = two_valued(self.inputs, self.study.table(model.table), columns=measured(model.kind, len(self.inputs)))
        moments = moments_of(sums, found)
        noise = coefficient_noise(self.training, sums, inputs=len(self.inputs), patients=moments.patients)
        return replace(
            self,
            moments=moments,
            sites=sums.answered,
            counts=moments.by_site,
            spare=room(len(self.inputs), noise),
            scaling=standardised(moments, inputs=len(self.inputs), noise=noise),
        )

    def _multiplied(self, sums: RoundSums) -> _Fit:
        width = len(self.inputs) + 1
        linear = self.training.model.kind is ModelKind.LINEAR
        counts = self.counts or counts_by_product(sums, width, halved=linear)
        counted = replace(self, counts=counts, sites=sums.answered)
        if linear and not self._has(StageKind.GRADIENT):
            first = 2.0 * float(sums.totals[0][0]) * width
            patients = max(first, 1.0) if self.moments is None else self.moments.patients
            return replace(counted, learner=least_squares(sums.totals[0], sums.noise_sd, patients))
        noisy, noise = symmetric(sums.totals[0]), sums.noise_sd
        if linear:
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
            cloud=cloud_of(products.matrix, patients),
            products_error=(products.error, products.noise_sd),
        )

    def _descended(self, step: Step, sums: RoundSums) -> _Fit:
        learner = self._learner()
        usual = float(np.mean(list(self.counts.values()))) if self.counts else 1.0
        counts = {site: self.counts.get(site, usual) for site in sums.sites}
        match learner:
            case Descent():
                return replace(self, learner=learner.advanced(sums, self.combine, counts))
            case Wander():
                form = step_form(step, self.study)
                return replace(self, learner=learner.advanced(sums, form, self.combine, counts))
            case Squares():
                return self

    def _tried(self, step: Step, sums: RoundSums) -> tuple[Metric, ...]:
        if is_binary(self.training.model.kind):
            return evaluating.binary_metrics(sums, step.edges)
        return evaluating.numeric_metrics(sums, self.target)

    # --- Models -------------------------------------------------------------------------------------------

    def _learner(self) -> Descent | Wander | Squares:
        """What learns; before its first round it is made from what was released."""
        if self.learner is not None:
            return self.learner
        stage, width = self._gradients(), len(self.inputs) + 1
        model, clip = self.training.model, self.training.clip
        patients = self._patients()
        if model.kind is not ModelKind.PERCEPTRON and stage.rate == 1 and stage.steps == 1:
            family, start = self._family()
            cloud = self.cloud or unrelated(width, patients)
            error, noise = self.products_error
            return descent_from(
                family, cloud, start=start, error=error, product_noise=noise, clip=clip, rounds=stage.rounds
            )
        if model.kind is ModelKind.PERCEPTRON:
            start, speed = first_weights(model.hidden, len(self.inputs)), SPEED
        else:
            family, start = self._family()
            # Standardised inputs have curvature information/width in every direction.
            middle = np.array([start[0] / math.sqrt(width)])
            speed = width / max(_RIGHT_AT_ONCE * float(family.information(middle, 1.0)[0]), TYPICAL_INFORMATION)
        return wander_from(
            start,
            rounds=stage.rounds,
            steps=stage.steps,
            rate=float(stage.rate),
            patients=patients,
            sites=self.sites,
            speed=speed,
        )

    def _family(self) -> tuple[Family, Vector]:
        """What kind of residuals there are, and where the model begins."""
        start = np.zeros(weights_of(self.training.model, len(self.inputs)))
        match self.training.model.kind:
            case ModelKind.POISSON:
                family, score = poisson_of(self.target, self.moments)
                start[0] = score * math.sqrt(len(start))
                return family, start
            case ModelKind.LINEAR:
                return Gaussian(), start
            case _:
                return Logistic(), start

    def _inferred(
        self, learner: Descent | Wander | Squares, weights: Vector, notes: list[str]
    ) -> tuple[Vector, Matrix]:
        match learner:
            case Squares():
                return weights, inference.of_squares(learner)
            case Descent():
                undamped, covariance = inference.of_descent(learner)
                return weights if self.combine is not None else undamped, covariance
            case Wander():
                stage = self._gradients()
                notes.append("standard errors take inputs as unrelated, because no products of them were released")
                sums = max(learner.averaged, 1) * stage.steps
                noise = learner.noise * (self.training.clip / (float(stage.rate) * sums)) ** 2
                cloud = self.cloud or unrelated(len(self.inputs) + 1, self._patients())
                return weights, inference.of_samples(self._family()[0], cloud, weights, noise)

    def _edges(self, weights: Vector) -> tuple[float, ...]:
        model = self.training.model
        if not is_binary(model.kind):
            return ()
        width = len(self.inputs) + 1
        if model.kind is ModelKind.PERCEPTRON:
            # Each input at one spread above and below, the others in the middle: about how far scores go.
            ends = np.vstack((np.eye(width)[1:], -np.eye(width)[1:])) * math.sqrt(width)
            ends[:, 0] = 1.0
            found = perceptron_scores(weights, ends, model.hidden)
            middle, wide = float(found.mean()), float(found.std())
        else:
            middle, wide = (self.cloud or unrelated(width, self._patients())).scores(weights)
        return evaluating.edges_of(middle, wide)

    # --- Public numbers -----------------------------------------------------------------------------------

    def _patients(self) -> float:
        if self.moments is not None:
            return self.moments.patients
        return 1.0 if self.cloud is None else self.cloud.patients

    def _has(self, kind: StageKind) -> bool:
        return any(stage.kind is kind for stage in self.training.stages)

    def _gradients(self) -> Stage:
        return next(stage for stage in self.training.stages if stage.kind is StageKind.GRADIENT)


def _estimate(learner: Descent | Wander | Squares) -> Vector:
    return learner.weights if isinstance(learner, Squares) else learner.estimate
