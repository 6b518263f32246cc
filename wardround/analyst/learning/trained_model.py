"""What `train` and its dry run return: the model ready to use, and what it cost, ready to read and to keep."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from wardround.analyst.learning.driver import Beginning, Trained
from wardround.analyst.learning.model_card import (
    card_document,
    notes_of,
    privacy_of,
    sites_document,
    stages_document,
    statement,
    trained_document,
)
from wardround.analyst.learning.model_store import keep
from wardround.analyst.learning.planner import noise_of
from wardround.analyst.learning.predictor import Columns, Predictor, categories_of
from wardround.analyst.pictures.picture_files import need_matplotlib
from wardround.analyst.pictures.picture_words import ColumnWords, price_text, without_text
from wardround.analyst.showing.documents import Json, foreseen_document, privacy_document, refusal_document
from wardround.analyst.showing.foreseen import foreseen_lines
from wardround.analyst.showing.interpretation import answer_meaning, next_text, plural, too_much
from wardround.analyst.showing.privacy_line import NO_NOISE, model_line
from wardround.analyst.showing.result import protection_text
from wardround.analyst.tables.text_tables import (
    Readable,
    TextTable,
    as_html,
    as_text,
    interval_text,
    listed,
    metric_text,
    percent,
    with_error,
)
from wardround.federation.models.step_layout import inputs_of
from wardround.federation.models.training import Vector
from wardround.federation.plain_text import escaped
from wardround.federation.question.answer import PrivacyStatement
from wardround.federation.refusal import refusal_texts
from wardround.federation.study.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True, repr=False)
class TrainingResult:
    """A trained model: its coefficients and metrics with their errors, its predictions, and its price."""

    trained: Trained
    study: Study
    artifact: Path | None = None

    @property
    def model_id(self) -> str:
        """The name of the model: that of everything it was made from."""
        return self.trained.beginning.block

    @property
    def privacy(self) -> PrivacyStatement:
        """What the whole training cost one unit, and what is left."""
        return privacy_of(self.trained.answers)

    @property
    def predictor(self) -> Predictor:
        model = self.trained.beginning.outline.training.model
        inputs, target = inputs_of(model, self.study)
        fitted = self.trained.fitted
        categories = categories_of(inputs, self.study.table(model.table))
        scaling = fitted.standardisation
        return Predictor(model.kind, inputs, target, fitted.weights, scaling, model.hidden, categories)

    def predict(self, columns: Columns) -> Vector:
        """A probability for a yes-or-no outcome, otherwise the expected value; one number for each row."""
        return self.predictor.predict(columns)

    def save(self, folder: str | os.PathLike[str]) -> TrainingResult:
        """Keep the model in a folder, its numbers and its card; `wardround.load_model` reads it again."""
        place = keep(Path(folder), self.predictor, card_document(self.trained, self.study))
        return replace(self, artifact=place)

    def plot(self, ax: Axes | None = None, *, of: str = "") -> Axes:
        """Draw coefficients, calibration and the ROC curve: into `ax` the one that `of` names, or into a new figure.

        Returns the first Axes of what was drawn.
        """
        need_matplotlib()
        from wardround.analyst.pictures.models import ModelWords, model_picture  # noqa: PLC0415 - an extra

        model, answers = self.trained.beginning.outline.training.model, self.trained.answers
        first = without_text(
            missing=sorted({site for answer in answers for site in answer.missing}),
            refused=sorted({site for answer in answers for site, _ in answer.refused}),
            left_out=sorted(self.trained.left_out),
        )
        units = {column.name: column.unit for column in self.study.table(model.table).columns if column.unit}
        words = ModelWords(self.predictor.target.name, ColumnWords(units), first, self._small_print())
        return model_picture(self.trained.fitted, words).draw(ax, of=of)

    def _small_print(self) -> str:
        if self.trained.answers[-1].noiseless:
            return "No noise was added: a simulation, and nothing is private."
        return f"Bars: 95% intervals of the noise and sample. {price_text(self.privacy)}"

    def document(self) -> dict[str, Json]:
        """The JSON document of `wardround train --json`."""
        document = trained_document(self.trained)
        document["artifact"] = None if self.artifact is None else str(self.artifact)
        return document

    def explain(self) -> str:
        """Whom the model protects and how, what it cost, what is left and what that means for one patient."""
        answer = self.trained.answers[-1]
        words = [statement(answer.unit, self.privacy, noiseless=answer.noiseless)]
        return "\n".join(map(escaped, words if answer.noiseless else [*words, _balance(self.privacy)]))

    def __str__(self) -> str:
        tables = [as_text(table) for table in self._tables()]
        return "\n\n".join([*tables, "\n".join(map(escaped, self._paragraphs()))])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        *first, last = self._tables()
        return "".join([*(as_html(table, ()) for table in first), as_html(last, self._paragraphs())])

    def _tables(self) -> list[TextTable]:
        fitted = self.trained.fitted
        coefficients = tuple(
            (each.name, with_error(each.value, each.standard_error), interval_text(each.interval, each.standard_error))
            for each in fitted.coefficients
        )
        metrics = tuple((each.name, metric_text(each.value, each.standard_error)) for each in fitted.metrics)
        found = []
        if coefficients:
            found.append(TextTable(("coefficient", "estimate", "95 % interval"), coefficients, 2))
        if metrics:
            found.append(TextTable(("on held-out patients", "estimate"), metrics, 1))
        kind = self.trained.beginning.outline.training.model.kind.value
        return found or [TextTable(("model", "parameters"), ((kind, str(len(fitted.weights))),), 1)]

    def _paragraphs(self) -> list[str]:
        trained, answers = self.trained, self.trained.answers
        sites = sites_document(answers, trained)
        told = [f"Answered every round: {listed(_names(sites['answered'])) or 'no site'}."]
        if refused := {site: code for answer in answers for site, code in answer.refused}:
            told.append(f"Refused: {listed(refusal_texts(sorted(refused.items())))}.")
        rounds = f"{len(answers)} {plural(len(answers), 'round')}, {trained.learning_rounds} of them to learn."
        kept = [f"Kept in {self.artifact}."] if self.artifact is not None else []
        replayed = all(answer.replayed for answer in answers)
        cost = (
            NO_NOISE
            if answers[-1].noiseless
            else model_line(self.privacy, unit=answers[-1].unit, cap=self.study.cap.epsilon, replayed=replayed)
        )
        named = f"Model {self.model_id[:16]}… of {self.predictor.target.name}"
        return [f"{named}: {rounds} {' '.join(told)}", *notes_of(trained), cost, *kept]


@dataclass(frozen=True, slots=True, repr=False)
class TrainingPreview(Readable):
    """A dry run of a training: its stages, their noise, and the charge. Nothing was asked of a site or spent."""

    beginning: Beginning
    study: Study

    def document(self) -> dict[str, Json]:
        """The JSON document of `wardround train --dry-run --json`."""
        outline, preview = self.beginning.outline, self.beginning.preview
        document: dict[str, Json] = {
            "model_id": self.beginning.block,
            "kind": outline.training.model.kind.value,
            "unit": preview.unit,
            "dry_run": True,
            "replayed": preview.replayed,
            "rounds": {"done": 0, "planned": outline.learning_rounds},
            "sites": {"asked": list(preview.sites)},
            "schedule": outline.schedule.value,
            "stages": stages_document(outline),
            "expected": [
                {"stage": kind, "noise_in_patients": noise, "noise_over_signal": share}
                for kind, noise, share in self._expected()
            ],
            "refusal": refusal_document(preview.excess),
            "privacy": privacy_document(preview.privacy, unit=preview.unit),
        }
        if preview.foreseen:
            document["foreseen"] = foreseen_document(preview)
        if (advice := outline.advice) is not None:
            document["advice"] = {
                "fits": advice.fits.value,
                "why": advice.why,
                "noise_in_patients": {pull.schedule.value: pull.patients for pull in advice.pulls},
            }
        return document

    def _expected(self) -> list[tuple[str, float, float | None]]:
        """The length of the noise in each stage's total, in patients, and as a share of those there may be."""
        outline = self.beginning.outline
        inputs = len(inputs_of(outline.training.model, self.study)[0])
        sites = 1 if self.beginning.preview.privacy.composition == "trusted_total" else len(outline.sites)
        patients = outline.request.patients
        found = []
        for stage in outline.training.stages:
            noise = noise_of(stage, outline.training, inputs=inputs, sites=sites) / float(stage.rate)
            found.append((stage.kind.value, noise, None if patients is None else noise / patients))
        return found

    def _table(self) -> TextTable:
        outline = self.beginning.outline
        rows = tuple(
            (
                stage.kind.value,
                str(stage.rounds),
                str(stage.steps),
                "all" if stage.rate == 1 else percent(float(stage.rate)),
                percent(float(plan.share)),
                f"± {noise:,.0f}",
            )
            for stage, plan, (_, noise, _) in zip(outline.training.stages, outline.plans, self._expected(), strict=True)
        )
        headings = ("stage", "rounds", "steps", "patients", "share of the charge", "noise, in patients")
        return TextTable(headings, rows, 5)

    def _paragraphs(self) -> list[str]:
        outline, preview = self.beginning.outline, self.beginning.preview
        charged = f"ε = {preview.privacy.charged.epsilon:.4g} at δ = {preview.privacy.charged.delta:.3g}"
        held = percent(float(outline.training.held_out))
        folds = (
            f"{held} of the patients are held out: the model is scored on them and learns from the others, so "
            "no patient is charged for both."
        )
        advice = [] if outline.advice is None else [f"Schedule: {outline.schedule.value}; {outline.advice.why}"]
        begun = (
            " It has already begun and continues without a further charge."
            if preview.replayed
            else too_much(preview.excess)
        )
        cost = f"The whole training would cost {charged}.{begun}"
        return [
            *([folds] if outline.training.held_out > 0 else []),
            *advice,
            f"Sites to be asked: {listed(preview.sites) or 'none'}.",
            *foreseen_lines(preview),
            f"{protection_text(preview.unit, preview.privacy)} {cost}",
            _balance(preview.privacy),
            answer_meaning(preview.unit, preview.privacy),
            "A dry run: nothing was asked of a site and nothing was spent.",
        ]


def _balance(privacy: PrivacyStatement) -> str:
    spent = f"ε = {privacy.spent.epsilon:.4g} at δ = {privacy.spent.delta:.3g}"
    return f"The study has spent {spent}; {next_text(privacy.remaining, delta=privacy.spent.delta)}"


def _names(value: Json) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else []
