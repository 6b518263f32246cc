"""A question in words for whoever reads no SQL, and which numbers answer it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.models.step_layout import StepLayout
from wardround.federation.models.training import Step
from wardround.federation.plan.sql_text import SUMS, condition_text, query_text, training_text
from wardround.federation.question.query import Aggregate, GroupBy, Grouping, Query


@dataclass(frozen=True, slots=True)
class ReleasedNumbers:
    """So many numbers of one kind in an answer, whole numbers that count in these steps."""

    of: str
    count: int
    step: Fraction


def sql_of(asked: Query | Step) -> str:
    """What was asked, as an analyst could have written it."""
    return training_text(asked.training) if isinstance(asked, Step) else query_text(asked)


def words_of(form: AnswerLayout | StepLayout) -> str:
    """What was asked, in words."""
    if isinstance(form, StepLayout):
        model, training = form.step.training.model, form.step.training
        return (
            f"round {form.step.place + 1} of {training.rounds} of a training: {SUMS[form.step.kind]}, for a "
            f"{model.kind.value} model of {model.target} by {_listed(model.features)}"
            + (f", where {condition_text(model.cohort)}" if model.cohort is not None else "")
        )
    query = form.query
    text = _listed([_aggregate(each, form) for each in query.aggregates]) + f" in {query.table}"
    if query.group_by:
        text += f", for {_listed([_grouping(each) for each in query.group_by])}"
    return text if query.cohort is None else f"{text}, where {condition_text(query.cohort)}"


def numbers_of(form: AnswerLayout | StepLayout) -> tuple[ReleasedNumbers, ...]:
    """Which numbers a release of this form holds, in their order."""
    if isinstance(form, StepLayout):
        return (ReleasedNumbers(SUMS[form.step.kind], form.dimension, form.grid),)
    return tuple(
        ReleasedNumbers(_listed([_aggregate(each, form) for each in part.aggregates]), part.dimension, part.grid)
        for part in form.parts
    )


def _aggregate(aggregate: Aggregate, form: AnswerLayout) -> str:
    text = aggregate.statistic.value.replace("_", " ")
    if aggregate.level is not None:
        text += f" {aggregate.level:g}"
    columns = ["patients" if name == form.table.unit_key else name for name in aggregate.columns]
    text += f" of {_listed(columns or ['rows'])}"
    return text if aggregate.bins is None else f"{text} in {aggregate.bins} intervals"


def _grouping(grouping: Grouping) -> str:
    match grouping.by:
        case GroupBy.VALUE:
            return f"each {grouping.column}"
        case GroupBy.MONTH:
            return f"each month of {grouping.column}"
        case GroupBy.BINS:
            return f"{len(grouping.edges) + 1} intervals of {grouping.column}"


def _listed(words: list[str] | tuple[str, ...]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))
