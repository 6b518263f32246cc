"""Everything that ever left a site, as the hospital's own auditor reads it.

That a table is closed leaves the site too: its questions are not answered any more. The analyst's own words come last
in a line, so that nothing of ours can be pushed away by them or forged.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from site_agent.serving.folder import open_folder
from site_agent.serving.serve import open_ledger
from site_agent.serving.steward import named
from site_agent.store.closed_tables import Reason, Turn
from site_agent.store.departed import HistoryLine
from wardround.federation.canonical import decode
from wardround.federation.errors import FederationError, LedgerCorrupt
from wardround.federation.forms.release import Release, decode_release
from wardround.federation.models.step_layout import step_form
from wardround.federation.models.training import Step
from wardround.federation.plain_text import escaped
from wardround.federation.plan.layout import shape
from wardround.federation.plan.plain_words import ReleasedNumbers, numbers_of, sql_of, words_of
from wardround.federation.plan.plan import Plan
from wardround.federation.plan.task import Released
from wardround.federation.refusal import refusal_words
from wardround.federation.study.study import Study
from wardround.privacy.accounting.cost import Cost
from wardround.privacy.budget.filter import epsilon_charged

_SHOWN_NUMBERS = 8
# What a spreadsheet takes for a formula where a cell begins with it.
_FORMULAS = ("=", "+", "-", "@")


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """What was asked, in SQL and in words, and which numbers answer it; empty where that is not known."""

    sql: str = ""
    words: str = ""
    numbers: tuple[ReleasedNumbers, ...] = ()


@dataclass(frozen=True, slots=True)
class Departure:
    """One line: when, who asked what, what kind of thing left, at what loss, by whose decision, received or not."""

    line: HistoryLine
    epsilon: float
    delta: float
    question: AskedQuestion = AskedQuestion()

    def document(self) -> dict[str, object]:
        """The line for machines."""
        line, asked_by = self.line, self.line.asked_by
        return {
            "date": line.date,
            "hour": line.hour or None,
            "plan_id": line.plan_id,
            "kind": line.kind,
            "values": line.values,
            "delivered": line.delivered,
            "charged": {"epsilon": self.epsilon, "delta": self.delta},
            "analyst": None if asked_by is None else asked_by.analyst,
            "fingerprint": None if asked_by is None else asked_by.key.fingerprint,
            "sql": self.question.sql or None,
            "question": self.question.words or None,
            "numbers": [{"of": each.of, "count": each.count, "step": float(each.step)} for each in self._sent()],
            "decided_by": line.decided_by,
            "refused": line.code or None,
            "purpose": "" if asked_by is None else asked_by.purpose,
        }

    def text(self) -> str:
        """The line for people."""
        line, asked_by = self.line, self.line.asked_by
        what = _counted(line.values, "noised number") if line.kind == "released" else "a refusal"
        first = f"{self.when}  {line.plan_id[:16]}  {what:<22} ε = {self.epsilon:<8.4g} {self._state()}"
        who = "" if not line.plan else "  unsigned" if asked_by is None else f"  {asked_by.analyst}"
        purpose = f"  purpose: {asked_by.purpose}" if asked_by is not None and asked_by.purpose else ""
        decided = f"  {self._decision()}" if line.decided_by is not None else ""
        return f"{first}{decided}{who}" + (f"  {self.question.sql}" if self.question.sql else "") + purpose

    def full(self, release: Release | None) -> list[str]:
        """The same, a line for each thing; of a release its first numbers, as they left."""
        line, asked_by, asked = self.line, self.line.asked_by, self.question
        found = [
            ("plan", line.plan_id),
            ("when", self.when),
            ("asked by", _asker(self.line)),
            ("decided", self._decision()),
            ("cost", f"ε = {self.epsilon:.4g} (δ = {self.delta:.3g}), {self._state()}"),
            ("what left", "nothing but a refusal: " + refusal_words(line.code) if release is None else _sent(release)),
            *(
                ("", f"{_counted(each.count, 'number')}, in steps of {float(each.step):.3g}: {each.of}")
                for each in self._sent()
            ),
            ("in words", asked.words),
            ("in SQL", asked.sql),
            ("purpose", "" if asked_by is None else asked_by.purpose),
        ]
        return [f"{name:<10} {text}" for name, text in found if text]

    @property
    def when(self) -> str:
        """The local day and hour; of what an earlier version sent, the date alone."""
        return f"{self.line.hour}h" if self.line.hour else f"{self.line.date:<14}"

    def _sent(self) -> tuple[ReleasedNumbers, ...]:
        return self.question.numbers if self.line.kind == "released" else ()

    def _state(self) -> str:
        state = "received" if self.line.delivered else "not yet received"
        # ReleasedNumbers that cost nothing would look like a leak.
        prepaid = self.line.kind == "released" and self.line.cost == Cost.zero()
        return f"{state}, paid with its training's first round" if prepaid else state

    def _decision(self) -> str:
        what = "approved" if self.line.kind == "released" else "denied"
        match self.line.decided_by:
            case None:
                return "automatically, by site.toml"
            case "":
                return f"{what} under an earlier version"
            case person:
                return f"{what} by {person}"


@dataclass(frozen=True, slots=True)
class TableTurn:
    """One line: a date, and a table that was closed, or opened again for a reason."""

    turn: Turn

    def document(self) -> dict[str, object]:
        """The line for machines."""
        reason = {"reason": self.turn.reason} if self.turn.reason else {}
        return {"date": self.turn.date, "kind": self.turn.kind, "table": self.turn.table, **reason}

    def text(self) -> str:
        """The line for people."""
        what = {
            "": "was closed: a question could not read it to the end",
            Reason.CHANGED: "was opened again: its source had changed",
            Reason.STEWARD: "was opened again by a steward",
        }
        return f"{self.turn.date}      the table {self.turn.table} {what[self.turn.reason]}"


def departures(path: Path) -> list[Departure | TableTurn]:
    """Everything that left the site in this folder, oldest first."""
    folder = open_folder(path)
    study, delta = folder.study(), folder.configuration().policy.cap.delta
    with open_ledger(path) as ledger:
        lines, turns = ledger.history(), ledger.tables.turns()
    found: dict[int, Departure | TableTurn] = {line.sequence: _departure(line, study, delta=delta) for line in lines}
    found |= {turn.sequence: TableTurn(turn) for turn in turns}
    return [found[sequence] for sequence in sorted(found)]


def departure(path: Path, beginning: str) -> tuple[Departure, Release | None]:
    """The one thing that left whose plan id begins so, and the release itself; None for a refusal."""
    folder = open_folder(path)
    with open_ledger(path) as ledger:
        lines = {line.plan_id: line for line in ledger.history()}
        plan_id = named(list(lines), beginning, what="line", see=f"see: wardround site history {path}")
        kept = ledger.find(plan_id)
    release = decode_release(kept.payload) if isinstance(kept, Released) else None
    return _departure(lines[plan_id], folder.study(), delta=folder.configuration().policy.cap.delta), release


def as_csv(lines: Sequence[Departure | TableTurn]) -> str:
    """The lines as a table for a spreadsheet, which none of the analyst's words are a formula in."""
    text = io.StringIO()
    columns = [
        "date", "hour", "kind", "plan_id", "values", "delivered", "epsilon", "delta", "analyst", "fingerprint",
        "decided_by", "refused", "table", "reason", "question", "sql", "purpose",
    ]  # fmt: skip
    table = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    for line in lines:
        document = line.document()
        charged = document.get("charged")
        if isinstance(charged, dict):
            document |= charged
        table.writerow({name: _cell(document.get(name)) for name in columns})
    return text.getvalue()


def _cell(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case str():
            return escaped(f"'{value}" if value.startswith(_FORMULAS) else value)
        case _:
            return str(value)


def _departure(line: HistoryLine, study: Study, *, delta: float) -> Departure:
    loss = epsilon_charged(line.cost, delta=delta), delta if line.cost.mu_squared else 0.0
    return Departure(line, *loss, _question(line.plan, study))


def _question(stored: bytes, study: Study) -> AskedQuestion:
    if not stored:
        return AskedQuestion()
    try:
        plan = decode(Plan, stored)
    except FederationError:
        raise LedgerCorrupt(private="what was asked cannot be read") from None
    try:
        # As it was asked: whether it is in canonical form was decided long ago.
        asked = plan.query
        form = step_form(asked, study) if isinstance(asked, Step) else shape(asked, study, plan.mechanism)
    except FederationError:
        # It was refused because it does not fit the study.
        return AskedQuestion(sql_of(plan.query))
    return AskedQuestion(sql_of(plan.query), words_of(form), numbers_of(form))


def _asker(line: HistoryLine) -> str:
    if not line.plan:
        return "not known: an earlier version did not keep it"
    asked_by = line.asked_by
    return "nobody signed it" if asked_by is None else f"{asked_by.analyst}, key {asked_by.key.fingerprint}"


def _sent(release: Release) -> str:
    shown = ", ".join(_pairs(release)) + (", …" if release.values.size > _SHOWN_NUMBERS else "")
    return f"{_counted(int(release.values.size), 'noised number')}" + (f": {shown}" if shown else "")


def _pairs(release: Release) -> Iterator[str]:
    values = [str(value) for value in release.values[:_SHOWN_NUMBERS].tolist()]
    return (
        (f"{key} {value}" for key, value in zip(release.keys, values, strict=False)) if release.keys else iter(values)
    )


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
