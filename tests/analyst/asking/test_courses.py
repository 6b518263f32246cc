"""Several rounds as one question: what is asked next, what it costs, and what happens when it is cut off."""

from __future__ import annotations

import json

import pytest

from tests.analyst.lone_hospital import STUDY, TEXT, Hospital
from tests.analyst.stored import PRIVACY
from wardround.analyst.asking.builder import query
from wardround.analyst.asking.client import Client
from wardround.analyst.asking.multi_round import composed, round_epsilon
from wardround.analyst.link.link import RoundNotice
from wardround.federation.errors import BudgetExceeded, PeerUnreachable, QueryMistaken, TooFewSites
from wardround.federation.plan.sql_text import query_text
from wardround.federation.question.answer import Loss, Shortfall
from wardround.federation.question.cohort import And, Or, Within
from wardround.federation.question.query import Aggregate, Statistic
from wardround.federation.study.study_file import parse_study

BY_CODE = "SELECT code, COUNT(DISTINCT patient_id) FROM encounters GROUP BY code"
MEDIAN = "SELECT MEDIAN(sbp) FROM encounters"


def asked_of(hospital: Hospital) -> list[str]:
    return [query_text(request.query) for request in hospital.asked]


# --- Keys that nobody listed -------------------------------------------------------------------------------


def test_an_open_category_is_selected_first_and_then_grouped_by() -> None:
    hospital = Hospital()
    rounds: list[RoundNotice] = []
    text = "SELECT code, COUNT(DISTINCT patient_id) AS n FROM encounters WHERE age >= 40 GROUP BY code ORDER BY n"
    result = Client(hospital).ask(text, epsilon=0.5, on_round=rounds.append)
    where = "WHERE (age >= 40) AND (code IN ('aa', 'bb'))"
    assert asked_of(hospital) == [
        "SELECT KEYS(code) FROM encounters WHERE age >= 40",
        f"SELECT code, COUNT(DISTINCT patient_id) FROM encounters {where} GROUP BY code",
    ]
    assert [(each.group, each.value) for each in result] == [((("code", "bb"),), 40.0), ((("code", "aa"),), 60.0)]
    assert [(each.number, each.rounds, each.title) for each in rounds] == [
        (1, 2, "KEYS(code)"),
        (2, 2, "the question, with the keys of code that were released"),
    ]
    document = json.loads(json.dumps(result.document()))
    assert document["plan_ids"] == list(hospital.charges)
    assert document["plan_id"] == document["plan_ids"][-1]
    assert document["privacy"]["charged"]["epsilon"] == pytest.approx(0.5, rel=1e-6)
    assert "over 2 rounds" in str(result)
    assert "2 values of code could be shown" in str(result)


def test_the_second_round_is_what_an_analyst_would_have_written() -> None:
    hospital = Hospital()
    Client(hospital).ask(BY_CODE, epsilon=0.5)
    own = Hospital()
    listed = "SELECT code, COUNT(DISTINCT patient_id) FROM encounters WHERE code IN ('bb', 'aa') GROUP BY code"
    Client(own).ask(listed, epsilon=hospital.asked[1].epsilon)
    assert own.asked == hospital.asked[1:]


@pytest.mark.parametrize(
    ("where", "keys"),
    [
        ("code IN ('bb', 'aa', 'bb')", ("aa", "bb")),
        ("code = 'bb'", ("bb",)),
        ("code = 'bb' AND age > 40", ("bb",)),
        ("code = 'bb' OR code IN ('cc')", ("bb", "cc")),
        ("code IN ('aa', 'bb') AND code IN ('bb', 'cc')", ("bb",)),
        ("age > 3 AND (code = 'x' OR (code = 'y' AND age < 9))", ("x", "y")),
    ],
)
def test_keys_that_a_question_lists_need_no_round(where: str, keys: tuple[str, ...]) -> None:
    hospital = Hospital()
    Client(hospital).ask(f"SELECT code, COUNT(*) FROM encounters WHERE {where} GROUP BY code", epsilon=0.5)
    (request,) = hospital.asked
    assert (request.epsilon, request.query.group_by[0].keys) == (0.5, keys)


@pytest.mark.parametrize("where", ["code <> 'bb'", "code = 'bb' OR age > 4", "NOT code = 'bb'", "code IS NOT NULL"])
def test_a_condition_that_lists_no_keys_needs_the_round(where: str) -> None:
    hospital = Hospital()
    Client(hospital).ask(f"SELECT code, COUNT(*) FROM encounters WHERE {where} GROUP BY code", epsilon=0.5)
    assert hospital.asked[0].query.aggregates == (Aggregate(Statistic.KEYS, "code"),)


def test_no_keys_give_an_answer_with_no_rows_and_say_so() -> None:
    hospital = Hospital(codes=())
    result = Client(hospital).ask(BY_CODE, epsilon=0.5)
    assert len(hospital.asked) == 1
    assert len(result) == 0
    assert "No value of code is held by enough patients to be shown" in str(result)
    assert result.privacy.charged.epsilon < 0.5
    assert result.document()["plan_ids"] == list(hospital.charges)


def test_two_open_columns_are_one_too_many() -> None:
    with pytest.raises(QueryMistaken) as fault:
        Client(Hospital()).ask("SELECT code, drug, COUNT(*) FROM encounters GROUP BY code, drug")
    assert fault.value.message == (
        "the values of 'code' and 'drug' are not public; list those of one of them, as in WHERE drug IN ('…')."
    )


@pytest.mark.parametrize(
    "text",
    [
        "SELECT code, AVG(spb) FROM encounters GROUP BY code",
        "SELECT code, COUNT(*) FROM encounters WHERE agee > 4 GROUP BY code",
        "SELECT code, HISTOGRAM(sbp, 0) FROM encounters GROUP BY code",
    ],
)
def test_a_mistake_in_a_later_round_is_found_before_the_first(text: str) -> None:
    hospital = Hospital()
    with pytest.raises(QueryMistaken):
        Client(hospital).ask(text)
    assert hospital.asked == []


# --- A quantile by search --------------------------------------------------------------------------------------


def test_a_search_asks_ten_shares_and_comes_to_the_median() -> None:
    hospital = Hospital()
    result = Client(hospital).ask(MEDIAN, epsilon=1.0, search=True)
    assert len(hospital.asked) == len(hospital.charges) == 10
    assert asked_of(hospital)[0] == "SELECT SHARE_BELOW(sbp, 140.0) FROM encounters"
    (found,) = result
    truth = sorted(hospital.pressures)[1000]
    assert (found.statistic, found.column, found.term) == ("quantile", "sbp", "0.5")
    assert abs(found.value - truth) < 120 / 1024
    assert found.interval[0] <= truth <= found.interval[1]
    assert found.interval[1] - found.interval[0] <= 120 / 1024 + 1e-9
    assert result.privacy.charged.epsilon == pytest.approx(1.0, rel=1e-6)
    assert len(result.plan_ids) == 10


def test_the_interval_of_a_search_holds_the_quantile_under_noise() -> None:
    few = Hospital().pressures[:400]
    truth = sorted(few)[100]
    misses = 0
    for seed in range(200):
        hospital = Hospital(pressures=few, noise=0.02, seed=seed)
        (found,) = Client(hospital).ask("SELECT QUANTILE(sbp, 0.25) FROM encounters", epsilon=1.0, search=True)
        misses += not found.interval[0] <= truth <= found.interval[1]
        assert 80.0 <= found.interval[0] <= found.value <= found.interval[1] <= 200.0
    # At most one in twenty by the union bound; 25 of 200 would be a one in a million chance.
    assert misses < 25


def test_a_search_stays_within_narrower_bounds() -> None:
    hospital = Hospital()
    (found,) = Client(hospital).ask(query("encounters").median("sbp", within={"sbp": (100, 120)}), search=True)
    assert asked_of(hospital)[0] == "SELECT SHARE_BELOW(CLAMP(sbp, 100.0, 120.0), 110.0) FROM encounters"
    assert 100.0 <= found.value <= 120.0


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) FROM encounters",
        "SELECT MEDIAN(sbp), COUNT(*) FROM encounters",
        "SELECT age, MEDIAN(sbp) FROM encounters GROUP BY age",
        "SELECT code, MEDIAN(sbp) FROM encounters GROUP BY code",
    ],
)
def test_only_one_quantile_alone_is_searched(text: str) -> None:
    hospital = Hospital()
    with pytest.raises(QueryMistaken, match="a search finds one quantile"):
        Client(hospital).ask(text, search=True)
    assert hospital.asked == []


# --- What it costs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rounds", [2, 10])
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 3.0])
def test_the_rounds_together_cost_what_was_asked(rounds: int, epsilon: float) -> None:
    each = round_epsilon(epsilon, 1e-6, rounds, STUDY)
    whole = composed([Loss(each, 1e-6)] * rounds).epsilon
    assert whole <= epsilon * (1 + 1e-12)
    assert whole == pytest.approx(epsilon, rel=1e-6)
    # Squares of μ are worth it: an even split of ε would leave most of it unused.
    assert each > 1.2 * epsilon / rounds
    assert round_epsilon(epsilon, 1e-6, 1, STUDY) == epsilon


def test_where_pure_noise_may_be_used_the_rounds_share_epsilon() -> None:
    both = parse_study(TEXT.replace("delta = 1e-6", "delta = 1e-6\npure_epsilon = 1.0"))
    assert round_epsilon(0.5, 0.0, 2, both) == pytest.approx(0.25)
    assert round_epsilon(0.5, 1e-6, 2, both) == pytest.approx(0.25)
    # A round that is larger than the pure budget cannot be pure.
    assert round_epsilon(2.5, 1e-6, 2, both) > 1.25
    assert composed([Loss(0.25, 0.0), Loss(0.25, 0.0)]) == Loss(0.5, 0.0)
    assert composed([Loss(0.25, 0.0), Loss(0.25, 1e-6)]).epsilon == pytest.approx(0.5, rel=1e-6)
    assert composed([Loss(0.25, 1e-6)]) == Loss(0.25, 1e-6)


@pytest.mark.parametrize(("text", "search"), [(BY_CODE, False), (MEDIAN, True)])
def test_a_course_that_would_not_fit_is_never_begun(text: str, search: bool) -> None:
    hospital = Hospital()
    federation = Client(hospital)
    federation.ask("SELECT COUNT(*) FROM encounters", epsilon=2.5)
    left = hospital.remaining()
    with pytest.raises(BudgetExceeded) as fault:
        federation.ask(text, epsilon=left * 1.01, search=search)
    assert (fault.value.asked, fault.value.remaining) == (left * 1.01, left)
    assert fault.value.difference == pytest.approx(left * 0.01)
    assert len(hospital.charges) == 1
    federation.ask(text, epsilon=left, search=search)


@pytest.mark.parametrize(("text", "search", "rounds"), [(BY_CODE, False, 2), (MEDIAN, True, 10)])
@pytest.mark.parametrize("where", ["breaks_before", "breaks_after"])
@pytest.mark.parametrize("number", [0, 1])
def test_a_course_that_was_cut_off_goes_on_and_pays_nothing_twice(
    text: str, search: bool, rounds: int, where: str, number: int
) -> None:
    hospital = Hospital(noise=0.01)
    # All of the budget, so that a round that is paid already must not be asked for again.
    whole = hospital.remaining()
    setattr(hospital, where, number)
    with pytest.raises(PeerUnreachable):
        Client(hospital).ask(text, epsilon=whole, search=search)
    result = Client(hospital).ask(text, epsilon=whole, search=search)
    assert len(hospital.charges) == rounds
    again = Client(hospital).ask(text, epsilon=whole, search=search)
    assert len(hospital.charges) == rounds
    assert again.answer.replayed
    assert again.estimates == result.estimates


def test_a_fresh_course_has_one_nonce_and_pays_anew() -> None:
    hospital = Hospital()
    for fresh in (True, True, False):
        Client(hospital).ask(BY_CODE, epsilon=0.2, fresh=fresh)
    nonces = [request.nonce for request in hospital.asked]
    assert nonces[0] == nonces[1] != nonces[2] == nonces[3]
    assert nonces[4:] == ["", ""]
    assert len(hospital.charges) == 6


def test_a_dry_run_shows_the_split_and_asks_nothing() -> None:
    hospital = Hospital()
    preview = Client(hospital).preview(BY_CODE, epsilon=0.5)
    assert hospital.asked == []
    each = round_epsilon(0.5, 1e-6, 2, STUDY)
    text = str(preview)
    assert f"2 rounds, the first of which is shown: 1 × KEYS(code) at ε = {each:.4g}; " in text
    assert "this question would cost ε = 0.5; so far " in text
    assert "This question would cost ε = 0.5 at δ = 1e-06." in preview.explain()
    document = json.loads(json.dumps(preview.document()))
    assert [found["charged"]["epsilon"] for found in document["rounds"]] == [each, each]
    assert document["privacy"]["charged"]["epsilon"] == 0.5
    search = str(Client(hospital).preview(MEDIAN, search=True))
    assert "10 rounds like this one: 10 × SHARE_BELOW(sbp, …) at ε = " in search
    assert "this question would cost ε = 0.3; so far " in search


def test_a_dry_run_of_several_rounds_says_when_all_of_them_would_not_fit() -> None:
    hospital = Hospital()
    whole = hospital.remaining()
    assert Client(hospital).preview(BY_CODE, epsilon=whole).preview.excess is None
    Client(hospital).ask(BY_CODE, epsilon=0.5)
    left = hospital.remaining()
    asked = len(hospital.asked)
    preview = Client(hospital).preview(BY_CODE, epsilon=whole)
    assert preview.preview.excess == Shortfall(whole, left)
    assert f"It would be refused: ε = {left:.4g} remains, {whole - left:.4g} too little." in str(preview)
    with pytest.raises(BudgetExceeded) as refusal:
        Client(hospital).ask(BY_CODE, epsilon=whole)
    assert (refusal.value.asked, refusal.value.remaining) == (whole, left)
    assert Client(hospital).preview(BY_CODE, epsilon=0.5).preview.excess is None, "it is paid"
    assert len(hospital.asked) == asked


def test_the_stored_privacy_is_the_last_rounds() -> None:
    assert PRIVACY.composition == Client(Hospital()).ask(BY_CODE).privacy.composition


def test_a_round_that_ended_without_an_answer_is_paid_and_is_asked_again() -> None:
    hospital = Hospital(breaks_after=0)
    whole = hospital.remaining()
    with pytest.raises(PeerUnreachable):
        Client(hospital).ask(BY_CODE, epsilon=whole)
    # Whoever looks at it is told how it ended; it is still on the ledger.
    hospital.outcome = TooFewSites()
    assert len(Client(hospital).ask(BY_CODE, epsilon=whole)) == 2
    assert len(hospital.charges) == 2


def test_more_keys_than_one_list_holds_are_several_lists() -> None:
    many = tuple(f"k{number:05d}" for number in range(1500))
    hospital = Hospital(codes=many)
    result = Client(hospital).ask("SELECT code, COUNT(*) FROM encounters WHERE age < 9 OR age > 70 GROUP BY code")
    assert len(result) == 1500
    cohort = hospital.asked[1].query.cohort
    assert isinstance(cohort, And)
    assert isinstance(cohort.terms[1], Or)
    assert [len(term.values) for term in cohort.terms[1].terms if isinstance(term, Within)] == [1024, 476]


def test_a_delta_that_cannot_be_split_is_left_to_the_coordinator() -> None:
    hospital = Hospital()
    Client(hospital).preview(BY_CODE, epsilon=0.5, delta=0.1)
    assert Client(hospital).ask(BY_CODE, epsilon=0.5, delta=0.0).privacy.charged == Loss(pytest.approx(0.5), 0.0)
