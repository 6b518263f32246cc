"""`wardround demo`: what an analyst, a data steward and a consortium see, told once with a real federation.

It ends by itself and leaves nothing running, and nothing on the disk but its pictures.
"""

from __future__ import annotations

import contextlib
import shlex
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from wardround.analyst.asking.client import Client, connect
from wardround.analyst.learning.request import TrainingRequest
from wardround.analyst.learning.trained_model import TrainingResult
from wardround.analyst.pictures.picture_files import need_matplotlib, write_picture
from wardround.analyst.showing.budget import BudgetResult
from wardround.analyst.showing.documents import error_document
from wardround.analyst.showing.result import Result
from wardround.analyst.tables.text_tables import with_error
from wardround.cli.demo_scene import DemoScene, Tell, stopped_by_signals
from wardround.cli.terminal.console import Document
from wardround.federation.errors import BudgetExceeded, ConfigurationMistaken, Refused
from wardround.federation.models.training import ModelKind
from wardround.federation.question.answer import Estimate
from wardround.simulation.synthetic import PATIENTS

PICTURES = "demo-pictures"
LINES_OF_HISTORY = 6


def _largest(estimates: Sequence[Estimate], statistic: str) -> str:
    known = [(each.value, each.group[0][1]) for each in estimates if each.statistic == statistic and each.value]
    return str(max(known)[1]) if known else "none"


def _diagnoses(result: Result) -> str:
    often, dear = _largest(result.estimates, "count"), _largest(result.estimates, "mean")
    return f"{often} is the most frequent diagnosis, {dear} the dearest one."


def _trend(result: Result) -> str:
    first, last = result.estimates[0], result.estimates[-1]
    if not first.value or not last.value:
        return "The first or the last month is not known."
    return f"There are {last.value / first.value:.1f} times as many in the last month as in the first."


def _pressures(result: Result) -> str:
    fullest = max(result.estimates, key=lambda each: each.value or 0.0)
    return f"Most patients are in {fullest.term} mmHg."


def _survival(result: Result) -> str:
    """By how much the two curves differ at their last common time."""
    ends = {str(each.group[0][1]): each for each in result.estimates if each.term.isdigit() and each.value is not None}
    usual, new = (ends.get(name) for name in ("usual care", "new drug"))
    if usual is None or new is None or usual.value is None or new.value is None or usual.term != new.term:
        return "The curves have no common last time."
    error = ((usual.standard_error or 0.0) ** 2 + (new.standard_error or 0.0) ** 2) ** 0.5
    difference = with_error(100 * (new.value - usual.value), 100 * error)
    return f"After {new.term} months survival is {difference} percentage points higher under the new drug."


@dataclass(frozen=True, slots=True)
class Chapter:
    """One question of the story: why it is asked, and what its answer says."""

    title: str
    sql: str
    epsilon: float
    picture: str
    reading: Callable[[Result], str]


CHAPTERS = (
    Chapter(
        "Which diagnoses are frequent, and which are expensive?",
        "SELECT diagnosis, COUNT(*), AVG(cost) FROM encounters GROUP BY diagnosis",
        0.5,
        "diagnoses",
        _diagnoses,
    ),
    Chapter(
        "Are positive tests becoming more frequent?",
        "SELECT DATE_TRUNC('month', day) AS month, COUNT(*) FROM encounters WHERE positive "
        "GROUP BY DATE_TRUNC('month', day)",
        0.4,
        "positive-tests",
        _trend,
    ),
    Chapter("How high is blood pressure?", "SELECT HISTOGRAM(sbp, 12) FROM patients", 0.3, "pressure", _pressures),
    Chapter(
        "Do patients live longer under the new drug?",
        "SELECT treatment, KAPLAN_MEIER(months, died, 12) FROM patients GROUP BY treatment",
        0.5,
        "survival",
        _survival,
    ),
)
MODEL = TrainingRequest(
    kind=ModelKind.LOGISTIC,
    table="patients",
    target="readmitted",
    features=("age", "sbp", "sex", "smoker"),
    epsilon=1.0,
)
TOO_MUCH = ("SELECT sex, COUNT(*) FROM encounters GROUP BY sex", 2.9)


def run_demo(*, sites: int, keep: Path | None, pictures: Path | None, tell: Tell, patients: int = PATIENTS) -> Document:
    """Run the demo and return what happened as a document."""
    if keep is not None and keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise ConfigurationMistaken(f"{keep} exists and is not empty; name a new folder for --keep.")
    need_matplotlib()
    need_matplotlib()
    drawn = pictures or (Path(PICTURES) if keep is None else keep / "pictures")
    with contextlib.ExitStack() as stack:
        stack.enter_context(stopped_by_signals())
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wardround-demo-")))
        for needed in (folder, drawn):
            try:
                needed.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ConfigurationMistaken(f"{needed} cannot be made: {error.strerror}.") from None
        scene = DemoScene(folder, tell, patients=patients)
        stack.callback(scene.stop)
        return _Story(scene, drawn).told(sites=sites, keep=keep)


@dataclass(frozen=True, slots=True)
class _Story:
    """The chapters in their order, and where their pictures go."""

    scene: DemoScene
    pictures: Path

    def told(self, *, sites: int, keep: Path | None) -> Document:
        tell = self.scene.tell
        names = self.scene.begin(sites)
        with connect(self.scene.folder / "analyst.profile") as federation:
            answers = [self._asked(federation, each) for each in CHAPTERS]
            model = self._trained(federation, under=None if keep is None else keep / "models")
            again = self._asked_again(federation, answers[0])
            refused = self._asked_too_much(federation)
            history = self._history(names[1])
            tell("\n── What has this cost the patients? ──")
            report = federation.budget()
            tell(str(report))
            self._draw(report, "budget")
        self.scene.stop()
        tell("\n── The ledgers, verified offline ──")
        ledgers = {name: self.scene.verify(name) for name in ("consortium", *names)}
        kept = f"Everything is kept in {keep}." if keep else "The rest was deleted; keep it next time with --keep DIR."
        tell(f"\nPictures: {self.pictures}. {kept}")
        if keep:
            tell("To ask more, serve it again:")
            tell(f"  cd {shlex.quote(str(keep))}")
            tell("  wardround coordinator serve consortium &")
            tell(f"  for site in {' '.join(names)}; do wardround site serve $site & done")
            tell('  wardround ask --profile analyst.profile "SELECT sex, AVG(sbp) FROM encounters GROUP BY sex"')
        tell("Next: README.md for a first question of your own, docs/site.md to run a hospital's agent,")
        tell("docs/coordinator.md to run a study, docs/learning.md to train a model,")
        tell("`wardround simulate --help` to try your own tables.")
        return {
            "sites": names,
            "answers": [each.document() for each in answers],
            "model": model.document(),
            "refused": refused,
            "replayed": again.document(),
            "history": history,
            "budget": report.document(),
            "ledgers": ledgers,
            "pictures": str(self.pictures),
            "kept": None if keep is None else str(keep),
        }

    def _asked(self, federation: Client, chapter: Chapter) -> Result:
        self.scene.tell(f"\n── {chapter.title} ──\n{chapter.sql}   [ε = {chapter.epsilon:g}]")
        result = federation.ask(chapter.sql, epsilon=chapter.epsilon)
        self.scene.tell(str(result))
        self.scene.tell(f"→ {chapter.reading(result)}")
        self._draw(result, chapter.picture)
        return result

    def _trained(self, federation: Client, *, under: Path | None) -> TrainingResult:
        features = ", ".join(MODEL.features)
        self.scene.tell(
            f"\n── Who comes back to the hospital? ──\n{MODEL.kind} regression of {MODEL.target} on {features}"
            f"   [ε = {MODEL.epsilon:g}]"
        )
        result = federation.train(MODEL, under=under)
        self.scene.tell(str(result))
        self._draw(result, "model")
        return result

    def _asked_again(self, federation: Client, before: Result) -> Result:
        chapter = CHAPTERS[0]
        self.scene.tell(f"\n── The first question once more ──\n{chapter.sql}   [ε = {chapter.epsilon:g}]")
        again = federation.ask(chapter.sql, epsilon=chapter.epsilon)
        same = again.document()["estimates"] == before.document()["estimates"]
        self.scene.tell(f"→ The stored answer came back ({'identical' if same else 'DIFFERENT'}) and cost nothing.")
        return again

    def _asked_too_much(self, federation: Client) -> Document:
        sql, epsilon = TOO_MUCH
        self.scene.tell(f"\n── A question that asks for too much ──\n{sql}   [ε = {epsilon:g}]")
        try:
            federation.ask(sql, epsilon=epsilon)
        except BudgetExceeded as refusal:
            self.scene.tell(f"→ Refused: {refusal.message}")
            return error_document(refusal)
        raise Refused("The over-budget question was answered; the demo stops here.")

    def _history(self, site: str) -> list[str]:
        """What a data steward sees of everything that ever left the hospital."""
        lines = self.scene.run("site", "history", site).decode().splitlines()
        self.scene.tell(f"\n── What has left {site}? ──\nIts data steward asks: wardround site history {site}")
        self.scene.tell("\n".join(lines[:LINES_OF_HISTORY]))
        if len(lines) > LINES_OF_HISTORY:
            self.scene.tell(f"… and {len(lines) - LINES_OF_HISTORY} lines more.")
        return lines

    def _draw(self, drawn: Result | TrainingResult | BudgetResult, name: str) -> None:
        path = self.pictures / f"{name}.png"
        write_picture(drawn.plot(), path)
        self.scene.tell(f"→ Drawn in {path}")
