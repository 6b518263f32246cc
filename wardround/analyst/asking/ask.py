"""Asking the rounds of a question, one after another, each until it is answered.

Before the first round that is not yet paid, the whole of what is still to pay must fit into what remains: a course
that would end in the middle is never begun.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from wardround.analyst.asking.multi_round import MultiRoundQuestion, composed, round_epsilon
from wardround.analyst.link.link import AnalystLink, Waiting
from wardround.analyst.showing.result import PreviewResult, Result
from wardround.federation.errors import BudgetExceeded, FederationError, QueryMistaken
from wardround.federation.plan.layout import layout, shares
from wardround.federation.plan.plan import PrivacyTarget, privacy_target
from wardround.federation.plan.sql_text import label_text
from wardround.federation.plan.task import AskRequest
from wardround.federation.plan.typed import Typed
from wardround.federation.question.answer import Answer, Loss, Preview, Shortfall
from wardround.federation.study.study import Study
from wardround.privacy.noise.distribution import Mechanism

# A remaining ε is rounded down and an asked one is not.
_ROUNDING = 1 + 1e-9


@dataclass(frozen=True, slots=True)
class Terms:
    """What was said about a question beside it: ε and δ for all of its rounds together, or nothing, and its nonce.

    `require` is how many hospitals each answer must have.
    With `errors`, one for each aggregate, ε is found for them and is at most `epsilon`; there is one round then.
    """

    epsilon: float | None
    delta: float | None
    nonce: str
    errors: tuple[float, ...] = ()
    require: int = 0

    def target(self, study: Study) -> PrivacyTarget:
        """What all rounds together ask for, in numbers."""
        return privacy_target(self.epsilon, self.delta, study)

    def of_a_round(self, course: MultiRoundQuestion, study: Study) -> float | None:
        if course.rounds == 1:
            return self.epsilon
        target = self.target(study)
        if not 0.0 <= target.delta <= study.cap.delta:
            # A coordinator refuses it with the reason; there is nothing to split.
            return target.epsilon
        return round_epsilon(target.epsilon, target.delta, course.rounds, study)


@dataclass(frozen=True, slots=True)
class Answered:
    """The answers of all rounds, and the last of these as it was asked."""

    answers: tuple[Answer, ...]
    last: Typed
    # Whether the aggregates shared the charge by need, and not by the errors that they may have.
    by_need: bool = True


def run(course: MultiRoundQuestion, terms: Terms, waiting: Waiting, study: Study) -> Answered:
    """Ask every round."""
    answers: list[Answer] = []
    each = terms.of_a_round(course, study)
    fits = course.rounds == 1
    last = _first(course)
    asked: Typed | None = last
    while asked is not None:
        last, request = (
            asked,
            AskRequest(asked.query, each, terms.delta, terms.nonce, terms.errors, require=terms.require),
        )
        waiting.tell(course.titles, len(answers))
        if not fits:
            whole = _loss(terms.target(study))
            left = course.rounds - len(answers)
            still = whole if not answers else composed([Loss(each or 0.0, whole.delta)] * left)
            fits = _begins(waiting.link, request, still)
        answers.append(waiting.answer(request))
        asked = course.question(answers)
    return Answered(tuple(answers), last, by_need=not terms.errors)


def _first(course: MultiRoundQuestion) -> Typed:
    first = course.question(())
    if first is None:
        raise QueryMistaken("there is nothing to ask.")
    return first


def _loss(target: PrivacyTarget) -> Loss:
    return Loss(target.epsilon, target.delta)


def _begins(link: AnalystLink, request: AskRequest, still: Loss) -> bool:
    """Whether this round is the first one to be paid, and then everything that is still to pay fits."""
    preview = link.preview(request)
    if preview.replayed or _paid(link, preview.plan_id):
        return False
    remaining = preview.privacy.remaining.epsilon
    if still.epsilon > remaining * _ROUNDING:
        raise BudgetExceeded(asked=still.epsilon, remaining=remaining)
    return True


def _paid(link: AnalystLink, plan_id: str) -> bool:
    """Whether the round was asked before and is on its way, or ended without an answer: both are paid for."""
    try:
        link.watch(plan_id, seen=0, wait_seconds=0.0)
    except QueryMistaken:
        return False
    except FederationError:
        # How it ended is told when it is asked again.
        return True
    return True


def result_of(course: MultiRoundQuestion, answered: Answered, study: Study) -> Result:
    """The answer of the whole course: the last round's, with the estimates and the charge of all."""
    answers = answered.answers
    last, asked = answers[-1], course.asked(answers)
    if course.rounds == 1:
        table = study.table(asked.query.table)
        shares = _shares(answered.last, last, study) if answered.by_need else ()
        return Result(last, asked, shares=shares, cap=study.cap.epsilon, table=table)
    charged = composed([answer.privacy.charged for answer in answers])
    whole = dataclasses.replace(
        last,
        replayed=all(answer.replayed for answer in answers),
        estimates=course.estimates(answers),
        privacy=dataclasses.replace(last.privacy, charged=charged),
    )
    shares = _shares(answered.last, last, study) if last.estimates == whole.estimates else ()
    plan_ids = tuple(answer.plan_id for answer in answers)
    return Result(
        whole,
        asked,
        plan_ids=plan_ids,
        shares=shares,
        note=course.note(answers),
        cap=study.cap.epsilon,
        table=study.table(asked.query.table),
    )


def previewed(course: MultiRoundQuestion, terms: Terms, link: AnalystLink, study: Study) -> PreviewResult:
    """The first round as it would be asked, and how the charge is split over all of them."""
    query = _first(course).query
    each = terms.of_a_round(course, study)
    preview: Preview = link.preview(AskRequest(query, each, terms.delta, terms.nonce, terms.errors))
    if course.rounds == 1:
        return PreviewResult(preview, query, cap=study.cap.epsilon)
    whole = _loss(terms.target(study))
    # A round that is paid already begins nothing: what is still to pay is told when it is asked.
    begins = not preview.replayed and not _paid(link, preview.plan_id)
    shown = dataclasses.replace(
        preview,
        replayed=False,
        privacy=dataclasses.replace(preview.privacy, charged=whole),
        excess=_excess(whole, preview) if begins else preview.excess,
    )
    split = tuple((title, Loss(each or 0.0, preview.privacy.charged.delta)) for title in course.titles)
    return PreviewResult(shown, query, split, study.cap.epsilon)


def _excess(whole: Loss, preview: Preview) -> Shortfall | None:
    """What all rounds together would be refused with, as things stand before the first."""
    remaining = preview.privacy.remaining.epsilon
    return Shortfall(whole.epsilon, remaining) if whole.epsilon > remaining * _ROUNDING else preview.excess


def _shares(typed: Typed, answer: Answer, study: Study) -> tuple[tuple[str, float], ...]:
    """How aggregates that are answered from different integers shared the charge: by need, as both sides reckon."""
    if len(typed.query.aggregates) == 1 or answer.noiseless:
        return ()
    mechanism = Mechanism(answer.privacy.mechanism)
    form = layout(typed, study, mechanism)
    if len(form.parts) == 1:
        return ()
    split = zip(form.parts, shares(form, mechanism), strict=True)
    return tuple((", ".join(label_text(each) for each in part.aggregates), float(share)) for part, share in split)
