"""What `budget` returns: the privacy report, for a person, a script and a picture.

It says whom the study protects and against what, what was spent by every accountant, which of the numbers are
guarantees, what remains, and what all of it means for one patient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wardround.analyst.pictures.picture_files import need_matplotlib
from wardround.analyst.showing.documents import Json, budget_document
from wardround.analyst.showing.interpretation import (
    adjacency,
    belief_table,
    next_text,
    patient_level,
    patient_text,
    plural,
    unit_text,
    weight_text,
)
from wardround.analyst.tables.text_tables import TextTable, as_html, as_text, listed
from wardround.federation.plain_text import escaped
from wardround.federation.question.study_budget import BudgetReport
from wardround.federation.study.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PROMISED = (
    "The cap holds even if each question was chosen after reading earlier answers. "
    "So does the ε that is spent, for any questions that together charge no more."
)
_DESCRIBED = (
    "If all questions had been fixed before the first answer, the accountants would say: ε = {}. "
    "They never decide whether a question may run."
)


@dataclass(frozen=True, slots=True, repr=False)
class BudgetResult:
    """The study's budget as the coordinator's ledger has it."""

    report: BudgetReport
    study: Study

    def document(self) -> dict[str, Json]:
        """The JSON document of `wardround budget --json`."""
        return budget_document(self.report, self.study)

    def plot(self, ax: Axes | None = None, *, of: str = "") -> Axes:
        """Draw the budget over time, by hospital and by accountant: into `ax` the one that `of` names, or a new figure.

        Returns the first Axes of what was drawn.
        """
        need_matplotlib()
        from wardround.analyst.pictures.budgets import budget_picture  # noqa: PLC0415 - an extra

        return budget_picture(self.report).draw(ax, of=of)

    def __str__(self) -> str:
        beliefs = [as_text(belief_table(self.report)), *self._meaning()]
        return "\n".join([*map(escaped, self._paragraphs()), "", *beliefs, "", as_text(self._sites())])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        beliefs = as_html(belief_table(self.report), self._meaning())
        return as_html(self._sites(), self._paragraphs()) + beliefs

    def _sites(self) -> TextTable:
        rows = tuple(
            (site.name, site.state, f"{site.spent.epsilon:.4g}", f"{site.spent.delta:.3g}")
            for site in self.report.sites
        )
        return TextTable(("site", "state", "spent ε", "at δ"), rows, 2)

    def _meaning(self) -> list[str]:
        patient = patient_level(self.report, self.study)
        return [weight_text(self.report.cap.delta), *([] if patient is None else [patient_text(patient)])]

    def _paragraphs(self) -> list[str]:
        report = self.report
        spent = (
            f"Study {report.study}. Spent so far: ε = {report.spent.epsilon:.4g} of {report.cap.epsilon:.4g} "
            f"(at δ = {report.cap.delta:.3g}), in {report.events} {plural(report.events, 'charge')}; "
            f"{next_text(report.remaining, delta=report.cap.delta)}"
        )
        sites = f"{report.overlap} {plural(report.overlap, 'site')}{self._groups()}"
        return [
            spent,
            f"Protected: {unit_text(report.unit)}, at up to {sites}.",
            f"Adjacency (the change that answers must hide): {adjacency(report.unit)}.",
            self._overlaps(),
            *self._statements(),
        ]

    def _groups(self) -> str:
        shared = [f"{listed(group.sites)} (at up to {group.overlap})" for group in self.study.groups]
        return f"; declared to share patients: {'; '.join(shared)}" if shared else ""

    def _overlaps(self) -> str:
        by, whom = self.report.by_overlap, "patient" if self.report.unit == "patient" else "unit"
        return (
            f"If no {whom} were at two sites, ε = {by.one:.4g} would be spent; as declared, {by.declared:.4g}; "
            f"if any {whom} could be at every site, {by.every:.4g}."
        )

    def _statements(self) -> list[str]:
        """Which numbers are promises, and which only describe."""
        promised = any(each.guarantee for each in self.report.statements)
        described = [
            f"{_epsilon_text(each.epsilon)} ({each.name})" for each in self.report.statements if not each.guarantee
        ]
        return [
            *([_PROMISED] if promised else []),
            *([_DESCRIBED.format(", ".join(described))] if described else []),
        ]


def _epsilon_text(epsilon: float) -> str:
    return f"{epsilon:.4g}" if math.isfinite(epsilon) else "none"
