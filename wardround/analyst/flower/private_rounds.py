"""A training whose model is moved by somebody else: each round's private models of the sites, and who gave none.

The rounds are the ones the request has, no more: whoever combines may do with the sites' models what it likes, but
cannot ask for one that was not agreed on and paid for before the first.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from wardround.analyst.estimation.fitted import Metric, RoundSums, Standardisation
from wardround.analyst.learning import evaluating
from wardround.analyst.learning.driver import Beginning, TrainingRound, answer_of, round_title
from wardround.analyst.learning.fitting import begin
from wardround.analyst.learning.predictor import Predictor, categories_of
from wardround.analyst.learning.round_sums import SiteScreening, sums_of
from wardround.analyst.link.link import AnalystLink, Waiting
from wardround.federation.errors import QueryMistaken
from wardround.federation.models import definition_of
from wardround.federation.models.model_definition import TargetScale
from wardround.federation.models.step_layout import inputs_of, step_form, unpack, weights_of
from wardround.federation.models.training import StageKind, Step, Vector
from wardround.federation.plan.task import AskRequest
from wardround.federation.question.answer import Answer
from wardround.federation.refusal import refusal_words
from wardround.federation.study.study import Study


@dataclass(frozen=True, slots=True)
class SiteModel:
    """Where one site would have the model after a round, and the noised number of patients behind it."""

    weights: Vector
    examples: float


@dataclass(frozen=True, slots=True)
class SiteScores:
    """How the model does on one site's held-out patients, of whom there is a noised number."""

    metrics: tuple[Metric, ...]
    examples: float


@dataclass(slots=True)
class _Seen:
    """A `Combine` that moves nothing: it sees where each site would have the model."""

    models: Mapping[str, SiteModel] = field(default_factory=dict)

    def __call__(self, weights: Vector, updates: Mapping[str, Vector], examples: Mapping[str, float]) -> Vector:
        self.models = {site: SiteModel(found, examples[site]) for site, found in updates.items()}
        return weights


class PrivateRounds:
    """The rounds of one training over a link, one at a time."""

    def __init__(
        self,
        beginning: Beginning,
        study: Study,
        link: AnalystLink,
        *,
        clock: Callable[[], float] = time.monotonic,
        on_round: Callable[[TrainingRound], None] | None = None,
    ) -> None:
        self.beginning = beginning
        self.answers: list[Answer] = []
        self.metrics: tuple[Metric, ...] = ()
        self._study = study
        self._link = link
        self._clock = clock
        self._on_round = on_round
        self._seen = _Seen()
        training = beginning.outline.training
        if not training.by_site or self.rounds == 0:
            raise QueryMistaken("a training by somebody else's steps needs gradients, and each site's sums.")
        self._fitting = begin(training, study, combine=self._seen)
        self._screening = SiteScreening(beginning.outline.request.patients)
        self._scaling: Standardisation | None = None

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(sorted(self.beginning.preview.sites))

    @property
    def rounds(self) -> int:
        """How often sites train."""
        stages = self.beginning.outline.training.stages
        return sum(stage.rounds for stage in stages if stage.kind is StageKind.GRADIENT)

    @property
    def size(self) -> int:
        model = self.beginning.outline.training.model
        return weights_of(model, len(inputs_of(model, self._study)[0]))

    @property
    def left_out(self) -> Mapping[str, str]:
        """Sites whose sums no honest site can have sent, and why."""
        return self._screening.left_out

    def first_weights(self, *, limit_seconds: float | None = None) -> Vector:
        """Where the project's own training would begin; asks for what scales the inputs, if that is still to be."""
        return unpack(self._ready(limit_seconds).weights)

    def train(self, weights: Vector, *, limit_seconds: float | None = None) -> Mapping[str, SiteModel]:
        """Each site's model after one more round from here."""
        step = self._ready(limit_seconds)
        if step.kind is not StageKind.GRADIENT:
            raise QueryMistaken(
                f"all {self.rounds} training rounds of the request are done; more would need a request with more."
            )
        self._require_size(weights)
        placed = self._fitting.placed(weights)
        sums = self._asked(_step(placed.next_step()), limit_seconds)
        self._fitting = placed.advance(sums)
        return self._seen.models

    def evaluate(self, weights: Vector, *, limit_seconds: float | None = None) -> Mapping[str, SiteScores]:
        """How this model does on the held-out patients of each site: once, after the last round of training."""
        step = self._fitting.next_step()
        if step is None or not self._has_scores():
            told = "was done already" if self._has_scores() else "needs validation_fraction above 0 in the request"
            raise QueryMistaken(f"evaluating {told}; the request has one round of it, after the last of training.")
        if step.kind is not StageKind.SCORES:
            done = step.turn if step.kind is StageKind.GRADIENT else 0
            raise QueryMistaken(
                f"held-out patients are asked once, after the last of {self.rounds} training rounds; {done} are done."
            )
        self._require_size(weights)
        placed = self._fitting.placed(weights)
        step = _step(placed.next_step())
        sums = self._asked(step, limit_seconds)
        self._fitting = placed.advance(sums)
        self.metrics = self._scored(sums, step).metrics
        alone = sums.noise_sd / math.sqrt(max(sums.answered, 1))
        return {site: self._scored(RoundSums(own, {}, 1, alone), step) for site, own in sums.sites.items()}

    def silent(self) -> dict[str, str]:
        """The sites that gave nothing in the last round, each with one sentence."""
        last = self.answers[-1] if self.answers else None
        found = {site: f"{site} was left out ({why})." for site, why in self.left_out.items()}
        if last is not None:
            found |= {site: f"{site} did not answer in time." for site in last.missing}
            found |= {site: f"{site} refused ({refusal_words(code)})." for site, code in last.refused}
        return found

    def predictor(self, weights: Vector) -> Predictor:
        """What a model with these weights expects of rows; `QueryMistaken` before inputs have their scale."""
        self._require_size(weights)
        if self._scaling is None:
            raise QueryMistaken("inputs have no scale before the first round of training.")
        model = self.beginning.outline.training.model
        inputs, target = inputs_of(model, self._study)
        categories = categories_of(inputs, self._study.table(model.table))
        return Predictor(model.kind, inputs, target, weights, self._scaling, model.hidden, categories)

    # --- Rounds -------------------------------------------------------------------------------------------

    def _ready(self, limit_seconds: float | None) -> Step:
        """The next step once those that only measure are done."""
        while True:
            step = self._fitting.next_step()
            if step is None or step.kind in (StageKind.GRADIENT, StageKind.SCORES):
                break
            self._fitting = self._fitting.advance(self._asked(step, limit_seconds))
        if step is None:
            raise QueryMistaken(
                f"all {self.rounds} training rounds of the request are done; more would need a request with more."
            )
        self._scaling = Standardisation(unpack(step.centre), unpack(step.spread))
        return step

    def _asked(self, step: Step, limit_seconds: float | None) -> RoundSums:
        waiting = Waiting(self._link, self._clock, limit_seconds=limit_seconds, on_progress=None, on_round=None)
        title = round_title(step)
        if self._on_round is not None:
            last = self.answers[-1] if self.answers else self.beginning.preview
            self._on_round(TrainingRound(step.place + 1, step.training.rounds, title, last.privacy.remaining))
        request = AskRequest(step, nonce=self.beginning.nonce)
        answer = answer_of(waiting, request, title=title, begun=bool(self.answers))
        sums, self._screening = sums_of(answer, step_form(step, self._study), self._screening, title=title)
        self.answers.append(dataclasses.replace(answer, updates=()))
        return sums

    def _scored(self, sums: RoundSums, step: Step) -> SiteScores:
        model = definition_of(step.training.model.kind)
        if model.scale is TargetScale.YES_OR_NO:
            metrics = evaluating.binary_metrics(sums, step.edges, model.expected)
            return SiteScores(metrics, max(float(sums.totals.sum()), 1.0))
        _, target = inputs_of(step.training.model, self._study)
        reach = evaluating.reach_of(target, Standardisation(unpack(step.centre), unpack(step.spread)))
        return SiteScores(evaluating.numeric_metrics(sums, reach), max(2.0 * float(sums.totals[0][0]), 1.0))

    def _has_scores(self) -> bool:
        return any(stage.kind is StageKind.SCORES for stage in self.beginning.outline.training.stages)

    def _require_size(self, weights: Vector) -> None:
        if weights.shape != (self.size,):
            raise QueryMistaken(
                f"the model has {self.size} numbers, the intercept first, and {weights.size} were given."
            )


def _step(step: Step | None) -> Step:
    if step is None:
        raise QueryMistaken("there is nothing left to train.")
    return step
