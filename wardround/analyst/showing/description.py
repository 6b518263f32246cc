"""What `describe` returns: what can be asked, of whom, and what is left to ask it with.

Everything in it is public: the study that every hospital signed, what the hospitals say about themselves, and the
budget as the coordinator's ledger has it.
"""

from __future__ import annotations

import datetime
import html
from dataclasses import dataclass

from wardround.analyst.showing.documents import Json, finite
from wardround.analyst.showing.interpretation import adjacency, next_text, plural, unit_text
from wardround.analyst.tables.text_tables import TextTable, as_html, as_text, cell_text
from wardround.federation.plain_text import escaped
from wardround.federation.plan.sql_text import column_text
from wardround.federation.question.query import Statistic
from wardround.federation.question.study_budget import BudgetReport
from wardround.federation.statistics import find
from wardround.federation.study.study import Column, ColumnType, Study, Table, Unit
from wardround.federation.trust.public_limits import TRAINING, PublicLimits, PublicSite

_FEW = 4


@dataclass(frozen=True, slots=True, repr=False)
class Description:
    """A study's tables, its hospitals with their limits, and its budget."""

    study: Study
    hospitals: tuple[PublicSite, ...]
    budget: BudgetReport

    def document(self) -> dict[str, Json]:
        """The JSON document of `wardround describe --json`."""
        study, cap, report = self.study, self.study.cap, self.budget
        return {
            "study": study.name,
            "unit": study.unit.value,
            "adjacency": adjacency(study.unit.value),
            "overlap": study.overlap,
            "groups": [{"sites": list(group.sites), "overlap": group.overlap} for group in study.groups],
            "min_sites": study.min_sites,
            "cap": {"epsilon": cap.epsilon, "delta": cap.delta, "pure_epsilon": cap.pure_epsilon},
            "spent": {"epsilon": finite(report.spent.epsilon), "delta": report.spent.delta},
            "remaining": {"epsilon": finite(report.remaining.epsilon), "fraction": report.remaining.fraction},
            "tables": [_table_document(table) for table in study.tables],
            "hospitals": [
                {
                    "name": each.name,
                    "patients": each.patients,
                    "active": each.active,
                    "limits": None if each.limits is None else _limits_document(each.limits),
                }
                for each in self.hospitals
            ],
        }

    def __str__(self) -> str:
        tables = [f"{escaped(self._about(table))}\n{as_text(_columns(table))}" for table in self.study.tables]
        return "\n\n".join(["\n".join(map(escaped, self._paragraphs())), *tables, as_text(self._hospitals())])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        parts = [_paragraph(text) for text in self._paragraphs()]
        for table in self.study.tables:
            parts += [_paragraph(self._about(table)), as_html(_columns(table), ())]
        return "".join([*parts, as_html(self._hospitals(), ())])

    def _paragraphs(self) -> list[str]:
        study, report = self.study, self.budget
        cap, spent = f"ε = {report.cap.epsilon:.4g} at δ = {report.cap.delta:.3g}", f"ε = {report.spent.epsilon:.4g}"
        lane = f", of it ε = {study.cap.pure_epsilon:.4g} for Laplace noise" if study.cap.pure_epsilon else ""
        where = f"at up to {report.overlap} {plural(report.overlap, 'hospital')}"
        left = next_text(report.remaining, delta=report.cap.delta)
        needed = f"An answer needs {study.min_sites} {plural(study.min_sites, 'hospital')}."
        return [
            f"Study {study.name}. Protected: {unit_text(study.unit.value)}, {where}.",
            f"Budget: {cap} in all{lane}. Spent: {spent}; {left}",
            f"{needed} Limits are what each hospital said last.",
        ]

    def _about(self, table: Table) -> str:
        rows, groups, windows = table.max_rows_per_unit, table.max_groups_per_unit, table.max_windows_per_unit
        about = f"Table {table.name}: {table.unit_key} says which rows are one patient's."
        if self.study.unit is Unit.EVENT:
            return about
        most = f"{rows} {plural(rows, 'row')} and {groups} {plural(groups, 'group')}"
        return f"{about} Of one patient at most {most}{f', {windows} months' if windows else ''} count."

    def _hospitals(self) -> TextTable:
        headings = ("hospital", "statistics", "decides", "largest ε a question", "at δ", "declared patients")
        return TextTable(headings, tuple(map(_hospital, self.hospitals)), 3)


def _hospital(site: PublicSite) -> tuple[str, ...]:
    name = site.name if site.active else f"{site.name} (frozen, not asked)"
    patients = f"{site.patients:,}"
    if (limits := site.limits) is None:
        return name, "not published", "", "", "", patients
    decides = "a person, each question" if limits.by_person else "its policy"
    return name, cell_text(allowed_text(limits)), decides, f"{limits.max_epsilon:.4g}", f"{limits.delta:.3g}", patients


def allowed_text(limits: PublicLimits) -> str:
    """What a hospital allows, by the names that SQL has; what it does not allow where that is shorter."""
    names = {statistic.value: find(statistic).functions[0].name for statistic in Statistic} | {TRAINING: TRAINING}
    refused = [name for word, name in names.items() if word not in limits.statistics]
    if not refused:
        return "all"
    if len(refused) <= _FEW:
        return f"all but {', '.join(refused)}"
    return ", ".join(names.get(word, word) for word in limits.statistics) or "none"


def _columns(table: Table) -> TextTable:
    rows = tuple((column.name, cell_text(column_text(column))) for column in table.columns)
    return TextTable(("column", "holds"), rows, 0)


def _table_document(table: Table) -> dict[str, Json]:
    return {
        "name": table.name,
        "unit_key": table.unit_key,
        "max_rows_per_unit": table.max_rows_per_unit,
        "max_groups_per_unit": table.max_groups_per_unit,
        "max_windows_per_unit": table.max_windows_per_unit,
        "columns": [_column_document(column) for column in table.columns],
    }


def _column_document(column: Column) -> dict[str, Json]:
    default = column.default
    return {
        "name": column.name,
        "type": column.type.value,
        "unit": column.unit or None,
        "lower": _bound(column, lower=True),
        "upper": _bound(column, lower=False),
        "step": None if column.step is None else float(column.step),
        "values": list(column.values),
        "open": column.open,
        "default": default.isoformat() if isinstance(default, datetime.date) else default,
    }


def _bound(column: Column, *, lower: bool) -> Json:
    bound = column.lower if lower else column.upper
    if bound is None:
        return None
    if column.type is ColumnType.DATE:
        return datetime.date.fromordinal(int(bound)).isoformat()
    return int(bound) if column.type is ColumnType.INTEGER else float(bound)


def _limits_document(limits: PublicLimits) -> dict[str, Json]:
    return {
        "statistics": list(limits.statistics),
        "max_epsilon_per_plan": limits.max_epsilon,
        "delta": limits.delta,
        "approval": "manual" if limits.by_person else "automatic",
    }


def _paragraph(text: str) -> str:
    return f"<p><bdi>{html.escape(escaped(text))}</bdi></p>"
