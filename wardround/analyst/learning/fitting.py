"""A model on its way: which step is taken next, and what the sums of a round make of it.

A fitting is a value. It asks for a step, is advanced by that step's sums and is another fitting then; the same sums
always lead to the same steps, so a training that was interrupted finds the rounds it has already paid for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

from wardround.analyst.estimation import inference
from wardround.analyst.estimation.averaged_sgd import AveragedSgd
from wardround.analyst.estimation.fitted import Coefficient, Combine, Fitted, Metric, RoundSums, ScoreTable, settled
from wardround.analyst.estimation.least_squares import LeastSquares
from wardround.analyst.estimation.preconditioned_gradient import PreconditionedGradient
from wardround.analyst.learning import evaluating
from wardround.analyst.learning.state import TrainingState, nothing_released
from wardround.federation.errors import QueryMistaken
from wardround.federation.models import definition_of
from wardround.federation.models.step_layout import is_binary, pack, step_form
from wardround.federation.models.training import Matrix, StageKind, Step, Training, Vector
from wardround.federation.study.study import Study

_ORDER = (StageKind.MOMENTS, StageKind.PRODUCTS, StageKind.GRADIENT, StageKind.SCORES)


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
    state = nothing_released(training, study)
    kinds = [stage.kind for stage in training.stages]
    places = [_ORDER.index(kind) for kind in kinds]
    if any(right <= left for left, right in pairwise(places)) or any(
        stage.rounds != 1 and stage.kind is not StageKind.GRADIENT for stage in training.stages
    ):
        raise QueryMistaken("a training measures, multiplies, descends and is tried, in this order and each once.")
    solved = definition_of(training.model.kind).least_squares and StageKind.PRODUCTS in kinds
    if not (solved or StageKind.GRADIENT in kinds):
        raise QueryMistaken("a training needs gradients, or products for a linear model.")
    if StageKind.MOMENTS not in kinds and StageKind.PRODUCTS not in kinds:
        raise QueryMistaken("a training needs moments or products, which count the patients.")
    return _Fit(training, study, combine, state)


@dataclass(frozen=True, slots=True)
class _Fit:
    """Which round comes next, what the earlier ones have told, and what learns."""

    training: Training
    study: Study
    combine: Combine | None
    state: TrainingState
    stage: int = 0
    turn: int = 0
    learner: PreconditionedGradient | AveragedSgd | LeastSquares | None = None
    metrics: tuple[Metric, ...] = ()
    scores: ScoreTable | None = None

    # --- Fitting ------------------------------------------------------------------------------------------

    def next_step(self) -> Step | None:
        if self.stage == len(self.training.stages):
            return None
        step = Step(self.training, self.stage, self.turn)
        if step.kind is StageKind.MOMENTS:
            return step
        scaling = self.state.scaling
        step = replace(step, centre=pack(scaling.centre), spread=pack(scaling.spread))
        if step.kind is StageKind.PRODUCTS:
            return step
        learner = self._learner()
        if step.kind is StageKind.SCORES:
            weights = settled(_estimate(learner))
            return replace(step, weights=pack(weights), edges=self.state.edges(weights))
        step = replace(step, weights=pack(learner.weights))
        if isinstance(learner, AveragedSgd):
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
        if isinstance(learner, LeastSquares):
            kind = self.training.model.kind.value
            raise QueryMistaken(f"a {kind} model is found from one round of sums; it has no steps to place.")
        return replace(self, learner=learner.placed(settled(weights)))

    def fitted(self) -> Fitted:
        learner, state = self._learner(), self.state
        weights = settled(_estimate(learner))
        kind = self.training.model.kind
        found: tuple[Coefficient, ...] = ()
        notes: list[str] = []
        if definition_of(kind).layer is None:
            undamped, covariance = self._inferred(learner, weights, notes)
            found = inference.coefficients(kind, state.inputs, state.target, state.scaling, undamped, covariance)
        if self.metrics and not is_binary(kind):
            notes.append(evaluating.cut_note(state.target, state.reach))
        notes.extend(evaluating.doubts(self.metrics))
        if self.combine is not None:
            notes.append("standard errors are those of the plain sum, whichever strategy combined the sites' models")
        return Fitted(kind, weights, found, self.metrics, state.scaling, tuple(notes), self.scores)

    # --- Rounds -------------------------------------------------------------------------------------------

    def _after(self, step: Step, sums: RoundSums) -> _Fit:
        state = self.state
        match step.kind:
            case StageKind.MOMENTS:
                table = self.study.table(self.training.model.table)
                return replace(self, state=state.measured(sums, table))
            case StageKind.PRODUCTS:
                learner = state.solved(sums) if state.is_solved_at_once else self.learner
                return replace(self, state=state.multiplied(sums), learner=learner)
            case StageKind.GRADIENT:
                return self._descended(step, sums)
            case StageKind.SCORES if is_binary(self.training.model.kind):
                expected = state.model.expected
                scores = evaluating.score_table(sums, step.edges, expected)
                return replace(self, metrics=evaluating.binary_metrics(sums, step.edges, expected), scores=scores)
            case StageKind.SCORES:
                return replace(self, metrics=evaluating.numeric_metrics(sums, state.reach))

    def _descended(self, step: Step, sums: RoundSums) -> _Fit:
        learner, counts = self._learner(), self.state.counts_of(sums)
        match learner:
            case PreconditionedGradient():
                return replace(self, learner=learner.advanced(sums, self.combine, counts))
            case AveragedSgd():
                form = step_form(step, self.study)
                return replace(self, learner=learner.advanced(sums, form, self.combine, counts))
            case LeastSquares():
                return self

    # --- What learns --------------------------------------------------------------------------------------

    def _learner(self) -> PreconditionedGradient | AveragedSgd | LeastSquares:
        """What learns; before its first round it is made from what was released."""
        return self.state.learner() if self.learner is None else self.learner

    def _inferred(
        self, learner: PreconditionedGradient | AveragedSgd | LeastSquares, weights: Vector, notes: list[str]
    ) -> tuple[Vector, Matrix]:
        match learner:
            case LeastSquares():
                return weights, inference.of_squares(learner)
            case PreconditionedGradient():
                undamped, covariance = inference.of_gradients(learner)
                return weights if self.combine is not None else undamped, covariance
            case AveragedSgd():
                stage = self.state.gradients
                notes.append("standard errors assume uncorrelated inputs, because no products of inputs were released")
                sums = max(learner.averaged, 1) * stage.steps
                noise = learner.noise * (self.training.clip / (float(stage.rate) * sums)) ** 2
                family, _ = self.state.family()
                return weights, inference.of_samples(family, self.state.likely_gaussian, weights, noise)


def _estimate(learner: PreconditionedGradient | AveragedSgd | LeastSquares) -> Vector:
    return learner.weights if isinstance(learner, LeastSquares) else learner.estimate
