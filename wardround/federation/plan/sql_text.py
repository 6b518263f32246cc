"""Queries, trainings and studies as text that a person can read: what a steward approves and what a hospital signs."""

from __future__ import annotations

import datetime

from wardround.federation.models.step_layout import LENGTH
from wardround.federation.models.training import Stage, StageKind, Step, Training
from wardround.federation.plain_text import escaped
from wardround.federation.question.cohort import And, Between, Comparison, Expression, IsNull, Not, Or, Within
from wardround.federation.question.query import Aggregate, Clip, GroupBy, Grouping, Query, interval_names
from wardround.federation.statistics import find
from wardround.federation.study.study import Column, ColumnType, Study, Value

_SHOWN_VALUES = 8


def query_text(query: Query) -> str:
    """The query in the SQL the analyst could have written."""
    groups = [grouping_text(grouping) for grouping in query.group_by]
    columns = [*groups, *(aggregate_text(aggregate) for aggregate in query.aggregates)]
    text = f"SELECT {', '.join(columns)} FROM {query.table}"  # noqa: S608 -- read by people, never by a database
    if query.cohort is not None:
        text += f" WHERE {condition_text(query.cohort)}"
    if query.group_by:
        text += f" GROUP BY {', '.join(groups)}"
    return text


def training_text(training: Training) -> str:
    """What a training predicts, from what and for whom."""
    model = training.model
    hidden = f" with {model.hidden} hidden units" if model.hidden else ""
    text = f"TRAIN {model.kind.value}{hidden} {model.target} <- {', '.join(model.features)} FROM {model.table}"
    return text if model.cohort is None else f"{text} WHERE {condition_text(model.cohort)}"


SUMS = {
    StageKind.MOMENTS: "counts, means and squares of the columns",
    StageKind.PRODUCTS: "products of the columns",
    StageKind.GRADIENT: "gradients",
    StageKind.SCORES: "how well predictions match outcomes",
}


def step_text(step: Step, *, epsilon: float) -> str:
    """A round of a training, and the whole training that it belongs to; `epsilon` is what all of it costs."""
    training = step.training
    rounds = "its only round" if training.rounds == 1 else f"round {step.place + 1} of {training.rounds}"
    text = f"{training_text(training)}  [{rounds}, {_sums_text(training.stages[step.stage])}"
    text += f"; the whole training costs ε = {epsilon:.3g}"
    if training.held_out:
        text += f"; {float(training.held_out):.3g} of the patients are held out"
    text += "; each site's noised sums are shown" if training.by_site else "; only the total of all sites is shown"
    return text + ("]" if training.rounds == 1 else "; approving it approves all of its rounds]")


def _sums_text(stage: Stage) -> str:
    noise = f"discrete Gaussian noise, σ = {float(stage.scale) / LENGTH:.3g} times the most that one patient can add"
    text = f"{SUMS[stage.kind]} under {noise}"
    if stage.steps > 1:
        text += f", {stage.steps} steps"
    return text if stage.rate == 1 else f"{text}, each patient taken with probability {float(stage.rate):.3g}"


def study_text(study: Study) -> str:
    """The study as a hospital should read it before signing: the bounds are what protects a patient."""
    overlap = "at every site" if study.overlap is None else f"at no more than {study.overlap} {_sites(study.overlap)}"
    lines = [
        f"Study {study.name!r} (hash {study.study_hash})",
        f"  protects one {study.unit.value}, known {overlap}",
        f"  budget: ε = {study.cap.epsilon:g} at δ = {study.cap.delta:g}"
        + (f", of it ε = {study.cap.pure_epsilon:g} for Laplace noise" if study.cap.pure_epsilon else "")
        + f"; answers need {study.min_sites} {_sites(study.min_sites)}",
    ]
    lines.extend(
        f"  except at {', '.join(group.sites)}: there at no more than {group.overlap} {_sites(group.overlap)}"
        for group in study.groups
    )
    for table in study.tables:
        lines.append(
            f"  table {table.name}: unit key {table.unit_key}, at most {table.max_rows_per_unit} rows "
            f"and {table.max_groups_per_unit} groups for each"
            + (f", {table.max_windows_per_unit} time windows" if table.max_windows_per_unit else "")
        )
        lines.extend(f"    {column.name}: {escaped(column_text(column))}" for column in table.columns)
    return "\n".join(lines)


def column_text(column: Column) -> str:
    """What a column may hold, as the study says it."""
    text = column.type.value
    if column.type is ColumnType.DATE and column.lower is not None and column.upper is not None:
        first, last = (datetime.date.fromordinal(int(bound)) for bound in (column.lower, column.upper))
        text += f" from {first} to {last}"
    elif column.lower is not None and column.upper is not None:
        text += f" from {float(column.lower):.12g} to {float(column.upper):.12g}"
    text += f" {column.unit}" if column.unit else ""
    if column.step is not None and column.step != 1:
        text += f" in steps of {float(column.step):.12g}"
    if column.open:
        text += ", any text: its values are shown only when enough patients have them"
    if column.values:
        more = len(column.values) - _SHOWN_VALUES
        text += f", one of {', '.join(literal_text(value) for value in column.values[:_SHOWN_VALUES])}" + (
            f" and {more} more" if more > 0 else ""
        )
    if column.default is not None:
        text += f"; absent counts as {literal_text(column.default)}"
    return text


def _sites(number: int) -> str:
    return "site" if number == 1 else "sites"


def aggregate_text(aggregate: Aggregate) -> str:
    """One aggregate in SQL's words."""
    definition = find(aggregate.statistic)
    return definition.text(aggregate, definition.functions[0].name, _operands(aggregate))


def label_text(aggregate: Aggregate) -> str:
    """One aggregate as a reader sees it over a number: in SQL's words, or in a shorter form."""
    definition = find(aggregate.statistic)
    written = definition.label or definition.text
    return written(aggregate, definition.functions[0].name, _operands(aggregate))


def _operands(aggregate: Aggregate) -> str:
    return ", ".join(_operand(name, aggregate.clips) for name in aggregate.columns)


def grouping_text(grouping: Grouping) -> str:
    """One group column in SQL's words."""
    match grouping.by:
        case GroupBy.VALUE:
            return grouping.column
        case GroupBy.MONTH:
            return f"DATE_TRUNC('month', {grouping.column})"
        case GroupBy.BINS:
            cases = [
                f"WHEN {grouping.column} < {literal_text(edge)} THEN {literal_text(name)}"
                for edge, name in zip(grouping.edges, interval_names(grouping.edges), strict=False)
            ]
            return f"CASE {' '.join(cases)} ELSE {literal_text(interval_names(grouping.edges)[-1])} END"


def _operand(name: str, clips: tuple[Clip, ...]) -> str:
    for clip in clips:
        if clip.column == name:
            return f"CLAMP({name}, {clip.lower!r}, {clip.upper!r})"
    return name


def condition_text(term: Expression) -> str:
    """A condition in SQL's words."""
    match term:
        case Comparison(column, operator, value):
            return f"{column} {operator.value} {literal_text(value)}"
        case Within(column, values):
            return f"{column} IN ({', '.join(literal_text(value) for value in values)})"
        case Between(column, lower, upper):
            return f"{column} BETWEEN {literal_text(lower)} AND {literal_text(upper)}"
        case IsNull(column):
            return f"{column} IS NULL"
        case Not(inner):
            return f"NOT ({condition_text(inner)})"
        case And(terms):
            return " AND ".join(f"({condition_text(inner)})" for inner in terms)
        case Or(terms):
            return " OR ".join(f"({condition_text(inner)})" for inner in terms)


def literal_text(value: Value) -> str:
    """A value in SQL's words."""
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case int() | float():
            return repr(value)
        case datetime.date():
            return f"DATE '{value.isoformat()}'"
        case str():
            return "'" + value.replace("'", "''") + "'"
