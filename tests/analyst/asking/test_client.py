"""The client over a link that lives in the test: what it sends, when it waits, when it stops."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import wardround
from wardround.analyst.asking.builder import query
from wardround.analyst.asking.client import Client
from wardround.analyst.link.link import POLL_SECONDS
from wardround.federation.errors import AwaitingApproval, BudgetExceeded, DeadlinePassed, FederationError, QueryMistaken
from wardround.federation.plan.task import AskRequest
from wardround.federation.question.answer import Answer, Loss, Preview, PrivacyStatement, Progress, Remaining, SiteState
from wardround.federation.question.cohort import And, Comparison, IsNull, Not, Operator
from wardround.federation.question.query import Aggregate, Grouping, Query, Statistic
from wardround.federation.question.study_budget import BudgetReport, ByOverlap
from wardround.federation.study.study import Study
from wardround.federation.study.study_file import parse_study

STUDY = parse_study(
    """
    name = "cardio"
    overlap = 1
    [budget]
    epsilon = 3.0
    delta = 1e-6
    [tables.encounters]
    unit_key = "patient_id"
    max_rows_per_unit = 4
    [tables.encounters.columns]
    age       = { type = "integer", lower = 0, upper = 110 }
    sbp       = { type = "number", lower = 80, upper = 200, step = 0.1 }
    diagnosis = { type = "category", values = ["E11", "I10"] }
    """
)
PLAN = "ab" * 32
PRIVACY = PrivacyStatement("discrete_gaussian", Loss(0.5, 1e-7), Loss(0.9, 1e-6), Remaining(2.0, 0.7), 1, "parallel")
ANSWER = Answer(PLAN, "patient", False, False, ("north",), (), (), (), PRIVACY)
COUNT = "SELECT COUNT(*) FROM encounters"


class Link:
    """A coordinator of one thread: it remembers what was asked and gives what it was told to give."""

    def __init__(self, *steps: Progress | Answer | FederationError) -> None:
        self.asked: list[AskRequest] = []
        self.previewed: list[AskRequest] = []
        self.watched: list[tuple[int, float]] = []
        self.studied = 0
        self.closed = False
        self._steps: Iterator[Progress | Answer | FederationError] = iter(steps or (ANSWER,))

    def ask(self, request: AskRequest) -> str:
        self.asked.append(request)
        return PLAN

    def watch(self, plan_id: str, *, seen: int, wait_seconds: float) -> Progress | Answer:
        assert plan_id == PLAN
        self.watched.append((seen, wait_seconds))
        step = next(self._steps)
        if isinstance(step, FederationError):
            raise step
        return step

    def preview(self, request: AskRequest) -> Preview:
        self.previewed.append(request)
        return Preview(PLAN, "patient", False, ("north",), (), PRIVACY)

    def sites(self) -> tuple[str, ...]:
        return ("north",)

    def budget(self) -> BudgetReport:
        return BudgetReport(
            *("cardio", "patient", 1, Loss(3, 1e-6), Loss(0, 0), Remaining(3, 1)), (), (), 0, ByOverlap(0, 0, 0), (), ()
        )

    def study(self) -> Study:
        self.studied += 1
        return STUDY

    def close(self) -> None:
        self.closed = True


def progress(seen: int) -> Progress:
    return Progress(seen, (("north", SiteState.OPEN),))


def test_a_question_is_typed_sent_and_answered() -> None:
    link = Link()
    text = "SELECT diagnosis, AVG(sbp) FROM encounters WHERE sbp >= 100 GROUP BY diagnosis"
    result = Client(link).ask(text, epsilon=0.5, delta=1e-7)
    assert result.answer is ANSWER
    (sent,) = link.asked
    assert (sent.epsilon, sent.delta, sent.nonce) == (0.5, 1e-7, "")
    # The study says that sbp is a number, so the literal 100 is one too.
    assert repr(sent.query.cohort) == repr(Comparison("sbp", Operator.GREATER_OR_EQUAL, 100.0))


def test_sql_words_and_a_draft_ask_the_same() -> None:
    text = "SELECT diagnosis, COUNT(*), AVG(sbp), SUM(sbp), COUNT(DISTINCT patient_id) FROM encounters "
    text += "WHERE age >= 40 AND sbp IS NOT NULL AND age < 90 GROUP BY diagnosis"
    draft = (
        query("encounters")
        .where("age >= 40")
        .where(Not(IsNull("sbp")), "age < 90")
        .group_by("diagnosis")
        .count()
        .mean("sbp")
        .sum("sbp")
        .count(distinct="patient_id")
    )
    words = Query(
        "encounters",
        (
            Aggregate(Statistic.COUNT),
            Aggregate(Statistic.MEAN, "sbp"),
            Aggregate(Statistic.SUM, "sbp"),
            Aggregate(Statistic.COUNT, "patient_id"),
        ),
        And(
            (
                Comparison("age", Operator.GREATER_OR_EQUAL, 40),
                Not(IsNull("sbp")),
                Comparison("age", Operator.LESS, 90),
            )
        ),
        (Grouping("diagnosis"),),
    )
    sent = []
    for question in (text, draft, words):
        link = Link()
        Client(link).ask(question)
        sent.append(link.asked[0])
    assert sent[0] == sent[1] == sent[2]


def test_a_draft_never_changes() -> None:
    adults = query("encounters").where("age >= 18")
    adults.count()
    assert adults.query.aggregates == ()
    assert adults.where() == adults


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        ("SELECT COUNT(*) FROM encounter", "unknown table 'encounter'; did you mean 'encounters'?"),
        ("SELECT AVG(spb) FROM encounters", "unknown column 'spb' in table 'encounters'; did you mean 'sbp'?"),
        (
            "SELECT AVG(SBP) FROM encounters",
            "unknown column 'SBP' in table 'encounters'; did you mean 'sbp'?",
        ),
        ("SELECT * FROM encounters", "SELECT * would return rows"),
        (query("encounters"), "a question asks for 1 to 32 aggregates; this one asks for 0."),
        (query("encounters").where("diagnosis = 'E12'").count(), "'diagnosis' has no value 'E12' in the study"),
    ],
)
def test_a_mistake_never_leaves_the_analysts_machine(question: str | wardround.Draft, sentence: str) -> None:
    link = Link()
    for verb in (Client(link).ask, Client(link).preview):
        with pytest.raises(QueryMistaken, match=re.escape(sentence)):
            verb(question)
    assert link.asked == link.previewed == []


@pytest.mark.parametrize("epsilon", [0, -1, float("nan"), float("inf"), "1", True])
def test_an_epsilon_that_is_no_loss_is_refused(epsilon: float) -> None:
    link = Link()
    for verb in (Client(link).ask, Client(link).preview):
        with pytest.raises(QueryMistaken, match=re.escape(f"ε must be a finite number above 0, not {epsilon!r}.")):
            verb(COUNT, epsilon=epsilon)
    assert link.asked == link.previewed == []


@pytest.mark.parametrize("delta", [-1e-9, 1, 2.0, float("nan"), float("inf"), "0"])
def test_a_delta_that_is_no_loss_is_refused(delta: float) -> None:
    link = Link()
    with pytest.raises(QueryMistaken, match=re.escape(f"δ must be a number from 0 to below 1, not {delta!r}.")):
        Client(link).ask(COUNT, delta=delta)
    assert link.asked == []


def test_a_fresh_question_differs_every_time_and_a_plain_one_never() -> None:
    link = Link(ANSWER, ANSWER, ANSWER, ANSWER)
    federation = Client(link)
    for fresh in (True, True, False, False):
        federation.ask(COUNT, fresh=fresh)
    nonces = [request.nonce for request in link.asked]
    assert nonces[2:] == ["", ""]
    assert len({*nonces[:2], ""}) == 3
    assert all(re.fullmatch(r"[0-9a-f]{32}", nonce) for nonce in nonces[:2])


def test_each_change_is_shown_once_and_the_next_poll_waits_for_another() -> None:
    link = Link(progress(1), progress(1), progress(4), ANSWER)
    shown: list[Progress] = []
    Client(link).ask(COUNT, on_progress=shown.append)
    assert [each.seen for each in shown] == [1, 4]
    assert link.watched == [(0, POLL_SECONDS), (1, POLL_SECONDS), (1, POLL_SECONDS), (4, POLL_SECONDS)]


def test_a_limit_ends_the_waiting_and_not_the_question() -> None:
    times = iter([0.0, 0.0, 15.0, 29.0, 31.0])
    link = Link(progress(1), progress(2), progress(3))
    with pytest.raises(DeadlinePassed) as fault:
        Client(link, clock=lambda: next(times)).ask(COUNT, limit_seconds=30)
    assert fault.value.message == (
        "No answer within 30 s; the question runs on, and asking it again costs nothing more."
    )
    assert [wait for _, wait in link.watched] == [20.0, 15.0, 1.0]


@pytest.mark.parametrize("limit_seconds", [0, -1.0, float("nan")])
def test_a_limit_without_time_is_refused_before_anything_is_asked(limit_seconds: float) -> None:
    link = Link()
    with pytest.raises(QueryMistaken, match="limit_seconds must be above 0"):
        Client(link).ask(COUNT, limit_seconds=limit_seconds)
    assert link.asked == []


@pytest.mark.parametrize("error", [AwaitingApproval(), BudgetExceeded(asked=1.0, remaining=0.5)])
def test_the_rounds_error_is_raised_as_it_is(error: FederationError) -> None:
    with pytest.raises(type(error)) as fault:
        Client(Link(progress(1), error)).ask(COUNT)
    assert fault.value is error


def test_a_preview_asks_nothing() -> None:
    link = Link()
    Client(link).preview(COUNT, epsilon=1)
    assert link.asked == []
    assert link.previewed[0].epsilon == 1.0
    assert type(link.previewed[0].epsilon) is float


def test_the_study_is_read_once() -> None:
    link = Link(ANSWER, ANSWER)
    federation = Client(link)
    federation.ask(COUNT)
    federation.ask(COUNT)
    assert federation.study is STUDY
    assert link.studied == 1


def test_the_budget_is_reported() -> None:
    assert Client(Link()).budget().report.study == "cardio"


def test_leaving_the_block_hangs_up() -> None:
    link = Link()
    with Client(link) as federation:
        federation.ask(COUNT)
    assert link.closed
