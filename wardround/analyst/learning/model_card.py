"""The model card: what a model is, where it came from and what it cost, as one JSON document beside its numbers.

Whoever is handed a model sees which study, sites and plans it belongs to, how sharp its numbers are, and what it can
tell about one patient.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from importlib.metadata import version

from wardround.analyst.learning.driver import Trained
from wardround.analyst.learning.planner import Outline
from wardround.analyst.learning.predictor import categories_of
from wardround.analyst.showing.documents import Json, finite, privacy_document, reason_document
from wardround.analyst.showing.interpretation import answer_meaning, plural
from wardround.analyst.showing.privacy_line import NO_NOISE
from wardround.analyst.showing.result import protection_text
from wardround.federation.models import definition_of
from wardround.federation.models.step_layout import LENGTH, inputs_of
from wardround.federation.models.training import Input, StageKind
from wardround.federation.question.answer import Answer, PrivacyStatement
from wardround.federation.refusal import refusal_words
from wardround.federation.study.study import Study, Unit

FORMAT = 1


def trained_document(trained: Trained) -> dict[str, Json]:
    """The document of `wardround train --json`, but for where the model is kept."""
    outline, answers = trained.beginning.outline, trained.answers
    return {
        "model_id": trained.beginning.block,
        "kind": outline.training.model.kind.value,
        "unit": answers[-1].unit,
        "replayed": all(answer.replayed for answer in answers),
        "noiseless": answers[-1].noiseless,
        "rounds": {"done": trained.learning_rounds, "planned": outline.learning_rounds},
        "sites": sites_document(answers, trained),
        "coefficients": [
            {
                "name": each.name,
                "value": finite(each.value),
                "standard_error": finite(each.standard_error),
                "interval": [finite(end) for end in each.interval],
            }
            for each in trained.fitted.coefficients
        ],
        "metrics": [
            {
                "name": each.name,
                "value": None if each.value is None else finite(each.value),
                "standard_error": None if each.standard_error is None else finite(each.standard_error),
                "reason": reason_document(each.reason),
            }
            for each in trained.fitted.metrics
        ],
        "plan_ids": [answer.plan_id for answer in answers],
        "notes": list(notes_of(trained)),
        "privacy": privacy_document(privacy_of(answers), unit=answers[-1].unit),
    }


def card_document(trained: Trained, study: Study) -> dict[str, Json]:
    """Everything that is kept about a model beside its numbers."""
    outline, request = trained.beginning.outline, trained.beginning.outline.request
    inputs, target = inputs_of(outline.training.model, study)
    privacy = privacy_of(trained.answers)
    layer = definition_of(outline.training.model.kind).layer
    return {
        "format": FORMAT,
        "wardround": version("wardround"),
        **trained_document(trained),
        "study": {"name": study.name, "hash": study.study_hash},
        "table": outline.training.model.table,
        "target": input_document(target),
        "features": list(outline.training.model.features),
        "inputs": [input_document(each) for each in inputs],
        "categories": {
            column: [*values] for column, values in categories_of(inputs, study.table(request.table)).items()
        },
        "cohort": request.cohort or None,
        "hidden": outline.training.model.hidden,
        "schedule": outline.schedule.value,
        "strategy": request.strategy,
        "standardise": request.standardise.value,
        "validation_fraction": float(outline.training.held_out),
        "clip": outline.training.clip,
        "by_site": outline.training.by_site,
        "asked": {"epsilon": outline.loss.epsilon, "delta": outline.loss.delta},
        "nonce": trained.beginning.nonce,
        "participants": list(trained.beginning.preview.sites),
        "stages": stages_document(outline),
        "initialisation": "zeros" if layer is None else layer.initialisation,
        "statement": statement(trained.answers[-1].unit, privacy, noiseless=trained.answers[-1].noiseless),
        "assumptions": [*assumptions(trained.answers[-1].unit, privacy, noiseless=trained.answers[-1].noiseless)],
    }


def privacy_of(answers: Sequence[Answer]) -> PrivacyStatement:
    """What all rounds cost together: whichever of them was first at a site paid for the whole training."""
    dearest = max(answers, key=lambda answer: answer.privacy.charged.epsilon)
    return dataclasses.replace(answers[-1].privacy, charged=dearest.privacy.charged)


def sites_document(answers: Sequence[Answer], trained: Trained) -> dict[str, Json]:
    """Who answered every round, who refused, who missed some, and whose sums could not be believed."""
    refused: dict[str, Json] = {site: code for answer in answers for site, code in answer.refused}
    missing = sorted({site for answer in answers for site in answer.missing} - set(refused))
    whole = set.intersection(*(set(answer.answered) for answer in answers)) - set(trained.left_out)
    document: dict[str, Json] = {"answered": [*sorted(whole)], "refused": refused, "missing": [*missing]}
    if refused:
        document["reasons"] = {site: refusal_words(str(code)) for site, code in refused.items()}
    if trained.left_out:
        document["left_out"] = dict(trained.left_out)
    return document


def notes_of(trained: Trained) -> tuple[str, ...]:
    """What a reader must know: what the mathematics says, and who took part only in some rounds."""
    rounds: dict[str, int] = {}
    for answer in trained.answers:
        for site in answer.missing:
            rounds[site] = rounds.get(site, 0) + 1
    missed = [f"{site} missed {number} of {len(trained.answers)} rounds." for site, number in sorted(rounds.items())]
    left_out = [f"{site} was left out ({why})." for site, why in sorted(trained.left_out.items())]
    told = [f"{note[:1].upper()}{note[1:]}{'' if note.endswith('.') else '.'}" for note in trained.fitted.notes]
    return (*told, *missed, *left_out)


def stages_document(outline: Outline) -> list[Json]:
    """The stages of a training: how many sums, over whom, with how much noise, for which share of the charge."""
    return [
        {
            "stage": stage.kind.value,
            "rounds": stage.rounds,
            "steps": stage.steps,
            "rate": float(stage.rate),
            "patients": "held out" if stage.kind is StageKind.SCORES else "learnt from",
            "share": float(plan.share),
            # The standard deviation of each number of one site's sum, where one patient's contribution has length 1.
            "noise": float(stage.scale) / LENGTH,
        }
        for stage, plan in zip(outline.training.stages, outline.plans, strict=True)
    ]


def input_document(each: Input) -> dict[str, Json]:
    """One number that a row becomes."""
    return {"name": each.name, "column": each.column, "low": each.low, "high": each.high, "value": each.value}


def statement(unit: str, privacy: PrivacyStatement, *, noiseless: bool) -> str:
    """What a model can tell about one patient, in words."""
    if noiseless:
        return NO_NOISE
    charged = f"ε = {privacy.charged.epsilon:.4g} at δ = {privacy.charged.delta:.3g}"
    return (
        f"{protection_text(unit, privacy)} Everything that was released for this model, its evaluation included, "
        f"cost {charged}; whatever is computed from the model costs nothing more. {answer_meaning(unit, privacy)}"
    )


def assumptions(unit: str, privacy: PrivacyStatement, *, noiseless: bool) -> tuple[str, ...]:
    """What has to be true for the statement to be: a model is read where nobody knows the study."""
    if noiseless:
        return ()
    whom = "patient" if unit == Unit.PATIENT else "event"
    sites = f"{privacy.overlap} {plural(privacy.overlap, 'site')}"
    trusted = (
        "Whoever adds up the sites' numbers is trusted with exact totals (a simulation)."
        if privacy.composition == "trusted_total"
        else "Every site ran this software as it is on a machine of its own; nobody else is trusted, the analyst and "
        "the coordinator included."
    )
    return (
        f"No {whom} is at more than {sites}, as the study declares; where that is false, so is the statement.",
        *(("All rows of one patient at a site carry one key.",) if unit == Unit.PATIENT else ()),
        trusted,
        "ε and δ are those of this training alone; whatever else was released about the same patients adds to them.",
    )
