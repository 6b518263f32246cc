"""Driving a training: round after round, each an ordinary plan that is answered once and stored.

Where a model goes next is computed from released numbers alone, so this loop has no state worth keeping. After a crash
of anybody the same rounds are asked again: those that are done come from the ledger for nothing, and it goes on.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from wardround.analyst.estimation.fitted import Combine, Fitted
from wardround.analyst.learning.fitting import begin
from wardround.analyst.learning.planner import Outline, learns
from wardround.analyst.learning.round_sums import SiteScreening, sums_of
from wardround.analyst.link.link import AnalystLink, Waiting
from wardround.federation.errors import EARLIER_VERSION, ProtocolViolation, QueryMistaken, TooFewSites, Unavailable
from wardround.federation.models.step_layout import step_form
from wardround.federation.models.training import StageKind, Step
from wardround.federation.plan.task import AskRequest
from wardround.federation.question.answer import Answer, Preview, Remaining
from wardround.federation.study.study import Study

_NONCE = re.compile(r"[0-9a-f]{0,64}")
_TITLES = {
    StageKind.MOMENTS: "how many patients, and the scale of each column",
    StageKind.PRODUCTS: "products of inputs",
    StageKind.GRADIENT: "gradients",
    StageKind.SCORES: "predictions against outcomes of held-out patients",
}


@dataclass(frozen=True, slots=True)
class TrainingRound:
    """One round, for whoever waits: which of how many, what it adds up, and what is left of the study's budget."""

    number: int
    rounds: int
    title: str
    remaining: Remaining


@dataclass(frozen=True, slots=True)
class Beginning:
    """A training that could begin, or goes on: its first round, as the coordinator would ask it.

    The sites are those it began with, also when others have joined the study since.
    """

    outline: Outline
    nonce: str
    combine: Combine | None
    preview: Preview

    @property
    def block(self) -> str:
        """What all rounds of the training have in common; the name of its model."""
        return self.preview.block


@dataclass(frozen=True, slots=True)
class Trained:
    """A training that has ended: the model, every round's answer without its sums, and who was left out, and why."""

    beginning: Beginning
    fitted: Fitted
    answers: tuple[Answer, ...]
    left_out: Mapping[str, str]
    learning_rounds: int


def prepared(outline: Outline, study: Study, link: AnalystLink, *, nonce: str, combine: Combine | None) -> Beginning:
    """The training as it stands; nothing is asked of a site and nothing is spent."""
    if not _NONCE.fullmatch(nonce):
        raise QueryMistaken("the nonce of a fresh training is at most 64 hexadecimal digits.")
    step = begin(outline.training, study, combine=combine).next_step()
    if step is None:
        raise QueryMistaken("there is nothing to train.")
    preview = link.preview(AskRequest(step, nonce=nonce))
    if not preview.block:
        raise ProtocolViolation(EARLIER_VERSION)
    return Beginning(outline, nonce, combine, preview)


def drive(
    beginning: Beginning, study: Study, waiting: Waiting, *, on_round: Callable[[TrainingRound], None] | None
) -> Trained:
    """The whole training, from wherever it stands.

    Raises:
        BudgetExceeded: the whole training does not fit into what remains; nothing was charged.
        TooFewSites: a round has too few answers; what was done before it is kept.
        Unavailable: as for a question; the same request goes on later.
    """
    outline = beginning.outline
    fitting = begin(outline.training, study, combine=beginning.combine)
    screening = SiteScreening(outline.request.patients)
    answers: list[Answer] = []
    learning = 0
    remaining = beginning.preview.privacy.remaining
    while (step := fitting.next_step()) is not None:
        title = round_title(step)
        if on_round is not None:
            on_round(TrainingRound(step.place + 1, outline.training.rounds, title, remaining))
        answer = answer_of(waiting, AskRequest(step, nonce=beginning.nonce), title=title, begun=bool(answers))
        sums, screening = sums_of(answer, step_form(step, study), screening, title=title)
        answers.append(dataclasses.replace(answer, updates=()))
        remaining = answer.privacy.remaining
        fitting = fitting.advance(sums)
        learning += learns(step.training.stages[step.stage])
    return Trained(beginning, fitting.fitted(), tuple(answers), screening.left_out, learning)


def round_title(step: Step) -> str:
    """What a round adds up, in a few words."""
    stage = step.training.stages[step.stage]
    which = f" {step.turn + 1} of {stage.rounds}" if stage.rounds > 1 else ""
    steps = f" ({stage.steps} steps at each site)" if stage.steps > 1 else ""
    return f"{_TITLES[stage.kind]}{which}{steps}"


def answer_of(waiting: Waiting, request: AskRequest, *, title: str, begun: bool) -> Answer:
    """The answer of one round; an error says which round it was, and that nothing is lost."""
    try:
        return waiting.answer(request)
    except (TooFewSites, Unavailable) as error:
        kept = "What was done before is kept and paid for" if begun else "The training is kept"
        going_on = f"{kept}: run the same request again to continue from here."
        raise type(error)(f"{title}: {error.message} {going_on}", private=error.private) from None
