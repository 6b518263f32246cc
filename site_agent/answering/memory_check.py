"""Whether a question fits into the memory that the hospital stated: decided from public numbers, before the charge.

What a question takes beside rows follows from the question and the study: its groups, the numbers of its answer, the
words and edges of its statement. What it takes for rows is bounded (`site_agent.reading.bounding`), but for two kinds
of question: keys of an open category are held until noise was added to them, and a training holds its rows. How many
they may be follows from what the hospital declared, never from a table. So a refusal says nothing about rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from site_agent.reading.bounding.tally import tally_width
from site_agent.reading.examples import MOST_ROWS, row_bytes
from site_agent.reading.memory_limits import Limits
from wardround.federation.errors import PlanRefused
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.models.step_layout import StepLayout
from wardround.federation.question.query import Grouping
from wardround.federation.refusal import RefusalReason
from wardround.federation.statistics import own_definition
from wardround.federation.study.study import Table, Unit

_GROUP_BYTES = 260
_NUMBER_BYTES, _SUM_BYTES = 32, 24
_WORD_BYTES = 5000
"""What an embedded database takes to read one word of a statement."""

_KEY_BYTES = 640
_MEBI = 2**20


@dataclass(frozen=True, slots=True)
class Room:
    """What one question may take, and what the hospital declared: its patients, and the rows of some tables."""

    limits: Limits = field(default_factory=Limits)
    patients: int | None = None
    rows: Mapping[str, int] = field(default_factory=dict)

    def require(self, form: AnswerLayout | StepLayout) -> None:
        """Refuse what could take more than there is.

        Raises:
            PlanRefused: one sentence with what was asked and what is allowed.
        """
        if isinstance(form, StepLayout):
            asked = row_bytes(len(form.inputs)) * self._training_rows(form) + _NUMBER_BYTES * form.dimension
            self._compare("the training", asked, self.limits.training_bytes, "rows")
            return
        self._compare("the question", question_bytes(form), self.limits.question_bytes, "groups")
        if own_definition(form.parts[0]).selects_keys:
            self._compare("the keys", _KEY_BYTES * self._keys(form), self.limits.keys_bytes, "keys")

    def _compare(self, what: str, asked: int, allowed: int, of: str) -> None:
        if asked > allowed:
            # Against us: rounded up what is asked, and down what is allowed.
            asked, allowed = -(-asked // _MEBI), allowed // _MEBI
            advice = _ADVICE[of]
            raise PlanRefused(
                f"{what} may need {asked} MiB for its {of}, {asked - allowed} more than the {allowed} MiB that "
                f"this site allows; {advice}; nothing was charged.",
                reason=RefusalReason.MEMORY,
            )

    def _training_rows(self, form: StepLayout) -> int:
        """How many rows a training may hold, by what was declared; without a word none."""
        declared = self.rows.get(form.table.name)
        if declared is not None or self.patients is None:
            return declared or 0
        return self.patients * min(form.table.max_rows_per_unit, MOST_ROWS)

    def _keys(self, form: AnswerLayout) -> int:
        """How many different keys there may be."""
        found = [self.rows[form.table.name]] if form.table.name in self.rows else []
        if self.patients is not None and form.unit is Unit.PATIENT:
            found.append(self.patients * form.parts[0].max_groups)
        return min(found, default=0)


_ADVICE: Mapping[str, str] = {
    "groups": "ask for fewer groups, or raise memory_mebibytes in site.toml",
    "keys": "raise memory_mebibytes in site.toml, or declare there how many rows the table has",
    "rows": (
        "take fewer features, or raise memory_mebibytes in site.toml, or declare there how many rows the table has"
    ),
}


def question_bytes(form: AnswerLayout) -> int:
    """What a question takes at most beside rows."""
    sums = max(part.groups * tally_width(part) for part in form.parts)
    words = max(sum(_words(grouping, form.table) for grouping in part.groupings) for part in form.parts)
    return (
        _GROUP_BYTES * len(form.group_keys) + _NUMBER_BYTES * form.dimension + _SUM_BYTES * sums + _WORD_BYTES * words
    )


def _words(grouping: Grouping, table: Table) -> int:
    """How many words or edges a statement holds for a grouping."""
    return len(grouping.keys) + len(grouping.edges) + len(table.column(grouping.column).values)
