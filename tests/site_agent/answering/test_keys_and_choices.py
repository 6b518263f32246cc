"""Keys and choices on the one path: what a lone patient risks, what leaves, and which plans a site refuses."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from coordinator.planning.plans import plans_for
from site_agent.answering.admission import Approval
from site_agent.serving.configuration import parse_site
from tests.site_agent.lone_site import NAME, STUDY, LoneSite, Rows
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.forms.release import Release, decode_release
from wardround.federation.ledger.verify.verify import verify
from wardround.federation.plan.plan import Plan, price, selection, shape_of
from wardround.federation.plan.task import AskRequest, Declined, Failed, Pending, Released
from wardround.federation.question.query import MAX_KEYS, Aggregate, Grouping, Query, Statistic
from wardround.privacy.accounting.cost import SLACK_UNIT, Cost
from wardround.privacy.budget.facts import AnyMechanism
from wardround.privacy.inference.exact_loss import choice_law, pmf
from wardround.privacy.mechanisms.partition_selection import KeyCounts, SelectionFact, passing
from wardround.privacy.mechanisms.private_selection import Choosing
from wardround.privacy.mechanisms.randomness import SecureChance
from wardround.privacy.noise.distribution import Mechanism
from wardround.privacy.noise.vectors import Bounded
from wardround.simulation.noise import ZeroNoise

WORDS = STUDY + 'word = { type = "category" }\n'
KEYS = Query("visits", (Aggregate(Statistic.KEYS, "word"),))
CHOICE = Query("visits", (Aggregate(Statistic.CHOICE, "code"),))
LAPLACE, GAUSSIAN, VOTES = Mechanism.DISCRETE_LAPLACE, Mechanism.DISCRETE_GAUSSIAN, Choosing.PERMUTE_AND_FLIP
NOISES = pytest.mark.parametrize("mechanism", Mechanism)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[LoneSite]:
    made = lone(tmp_path)
    yield made
    made.ledger.close()


def lone(folder: Path, **changes: object) -> LoneSite:
    return LoneSite(folder, study=WORDS, noise=ZeroNoise(), **changes)  # type: ignore[arg-type]


def plan_of(site: LoneSite, query: Query, mechanism: AnyMechanism, *, epsilon: float = 0.5, nonce: str = "") -> Plan:
    """The plan an honest coordinator makes of a question."""
    plans = plans_for(AskRequest(query, epsilon=epsilon, nonce=nonce), site.study, {NAME: 1000, "south": 1000})
    return next(plan for plan in plans if plan.mechanism is mechanism)


def released(site: LoneSite, plan: Plan) -> Release:
    told = site.pipeline.run(site.task(plan))
    assert isinstance(told, Released)
    return decode_release(told.payload)


# --- what a lone patient risks --------------------------------------------------------------------------------


class Fixed(ZeroNoise):
    """Chance of which the test knows the draws."""

    def __init__(self) -> None:
        self.drawn = np.zeros(0, np.int64)

    def select(self, keys: KeyCounts, fact: SelectionFact) -> dict[str, int]:
        return passing(keys, fact, self.drawn)


def law(fact: SelectionFact) -> Iterator[tuple[int, float]]:
    """Every draw of a selection with its probability."""
    if fact.law.mechanism is LAPLACE:
        weights = {x: math.exp(-abs(x) / fact.law.scale) for x in range(-fact.threshold, fact.threshold + 1)}
        whole = math.fsum(weights.values())
        yield from ((x, weight / whole) for x, weight in weights.items())
    else:
        noise = pmf(fact.law)
        yield from enumerate(noise.probabilities.tolist(), start=noise.first)


@NOISES
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
def test_a_key_of_one_patient_leaves_with_no_more_than_the_chance_that_is_charged(
    tmp_path: Path, mechanism: Mechanism, epsilon: float
) -> None:
    """Every value the noise can take, through the pipeline's own release: a key of one patient for each."""
    site = lone(tmp_path)
    plan = plan_of(site, KEYS, mechanism, epsilon=epsilon)
    form, chance = shape_of(plan, site.study), Fixed()
    fact = selection(plan.laws()[0], form.parts[0], plan.threshold)
    pipeline = dataclasses.replace(site.pipeline, noise=chance)
    draws, shown = list(law(fact)), []
    for start in range(0, len(draws), MAX_KEYS):
        part = {f"{place:08d}": draw for place, draw in enumerate(draws[start : start + MAX_KEYS])}
        site.rows.held = dict.fromkeys(part, 1)
        chance.drawn = np.array([drawn for drawn, _ in part.values()], np.int64)
        shown += [part[key][1] for key in pipeline._release(plan, form).keys]
    alone = math.fsum(shown)
    # A patient may hold as many keys as the study says, each with noise of its own.
    most = site.study.table("visits").max_groups_per_unit
    any_of_them = -math.expm1(most * math.log1p(-alone))
    slack = price(plan, site.study).cost.slack
    assert 0.0 < any_of_them * SLACK_UNIT <= slack
    assert slack <= Fraction(site.study.cap.delta) / 1000 * SLACK_UNIT
    # The control: a threshold lower by a twentieth takes more than was charged.
    lower = fact.threshold * 19 // 20 - fact.steps
    more = math.fsum(probability for drawn, probability in draws if drawn > lower)
    assert most * more * SLACK_UNIT > slack
    site.ledger.close()


def test_empty_public_groups_are_released_and_so_are_listed_keys_that_nobody_has(site: LoneSite) -> None:
    counted = Aggregate(Statistic.COUNT, "patient_id")
    public = Query("visits", (counted,), group_by=(Grouping("code"),))
    listed = Query("visits", (counted,), group_by=(Grouping("word", keys=("no", "one")),))
    assert released(site, plan_of(site, public, GAUSSIAN)).values.tolist() == [0, 0, 0]
    assert released(site, plan_of(site, listed, GAUSSIAN)).values.tolist() == [0, 0]


# --- what leaves ----------------------------------------------------------------------------------------------


@NOISES
def test_keys_that_pass_leave_in_order_with_their_counts_and_nothing_else_does(
    tmp_path: Path, mechanism: Mechanism
) -> None:
    held = {"z": 900, "ä": 500, "a": 400, "rare": 3, "lone": 1}
    site = lone(tmp_path, rows=Rows(held=held))
    plan = plan_of(site, KEYS, mechanism)
    release = released(site, plan)
    steps = shape_of(plan, site.study).parts[0].increment
    assert release.keys == ("a", "z", "ä")
    assert release.values.tolist() == [400 * steps, 900 * steps, 500 * steps]
    assert [line.values for line in site.ledger.history()] == [3]
    assert verify(tmp_path).valid
    site.ledger.close()


def test_a_thousand_resends_of_keys_are_one_byte_string_and_one_charge(tmp_path: Path) -> None:
    site = LoneSite(tmp_path, study=WORDS, noise=SecureChance(), rows=Rows(held={"a": 300, "b": 200}))
    signed = site.task(plan_of(site, KEYS, GAUSSIAN))
    told = {word.payload for word in (site.pipeline.run(signed) for _ in range(1000)) if isinstance(word, Released)}
    assert len(told) == 1
    assert site.rows.events == ["check", "read"]
    assert site.spent == price(signed.task.plan, site.study).cost
    assert decode_release(told.pop()).keys == ("a", "b")
    site.ledger.close()


def test_the_charge_for_keys_is_durable_before_a_row_is_read_and_stays_when_the_source_is_away(tmp_path: Path) -> None:
    site = lone(tmp_path, rows=Rows(absences=1))
    spent: list[Cost] = []
    site.rows.before_reading = lambda: spent.append(site.spent)
    plan = plan_of(site, KEYS, LAPLACE)
    assert site.pipeline.run(site.task(plan)) == Failed(plan.plan_id)
    assert released(site, plan).keys == ()
    assert spent == [price(plan, site.study).cost] * 2
    assert site.spent == spent[0]
    assert verify(tmp_path).valid
    site.ledger.close()


class Dying(ZeroNoise):
    """Chance that dies once, as a process does: after the rows were read, before anything was kept."""

    def __init__(self) -> None:
        self.deaths = 0

    def select(self, keys: KeyCounts, fact: SelectionFact) -> dict[str, int]:
        self.deaths += 1
        if self.deaths == 1:
            raise KeyboardInterrupt
        return super().select(keys, fact)


def test_dying_while_keys_are_selected_loses_a_release_and_leaks_none(tmp_path: Path) -> None:
    site = LoneSite(tmp_path, study=WORDS, noise=Dying(), rows=Rows(held={"a": 500, "lone": 1}))
    plan = plan_of(site, KEYS, GAUSSIAN)
    with pytest.raises(KeyboardInterrupt):
        site.pipeline.run(site.task(plan))
    assert site.ledger.undelivered() == []
    assert site.spent == price(plan, site.study).cost
    assert released(site, plan).keys == ("a",)
    assert site.spent == price(plan, site.study).cost
    site.ledger.close()


def test_whatever_texts_a_table_holds_the_answer_is_ordinary(tmp_path: Path) -> None:
    hostile = {"": 900, "\n": 900, "a\x00b": 900, "x" * 257: 900, "\ud800": 900, "\u202egnp.exe": 900, "\u2028": 900}
    held = hostile | {"never": 0, "debt": -5, "huge": 2**80, "'); DROP TABLE visits;--": 900, "x" * 256: 900}
    site = lone(tmp_path, rows=Rows(held=held))
    assert released(site, plan_of(site, KEYS, GAUSSIAN)).keys == ("'); DROP TABLE visits;--", "huge", "x" * 256)
    site.ledger.close()


def test_of_too_many_keys_the_most_frequent_leave(tmp_path: Path) -> None:
    held = {f"k{number:06d}": 1000 + number for number in range(MAX_KEYS + 500)}
    site = lone(tmp_path, rows=Rows(held=held))
    release = released(site, plan_of(site, KEYS, GAUSSIAN))
    assert release.keys == tuple(sorted(held))[500:]
    assert verify(tmp_path).valid
    site.ledger.close()


class Counts(Rows):
    """Three candidates with these counts."""

    counts = (0, 0, 0)

    def bounded(self, form: AnswerLayout) -> tuple[Bounded, ...]:
        (whole,) = super().bounded(form)
        (part,) = form.parts
        return (dataclasses.replace(whole, total=np.array(self.counts, np.int64) * part.increment),)


def test_a_choice_leaves_one_vote_and_no_count(tmp_path: Path) -> None:
    rows = Counts()
    rows.counts = (20, 70, 10)
    site = lone(tmp_path, rows=rows)
    plan = plan_of(site, CHOICE, VOTES)
    assert shape_of(plan, site.study).parts[0].max_groups == 3, "a patient may count for every value it has"
    assert released(site, plan).values.tolist() == [0, 1, 0]
    assert site.spent == Cost(mu_squared=0, pure=2**39, slack=0)
    assert verify(tmp_path).valid
    site.ledger.close()


@pytest.mark.usefixtures("same_noise")
def test_votes_follow_the_law_that_is_charged_for(tmp_path: Path) -> None:
    rows = Counts()
    rows.counts = (4, 3, 0)
    site = lone(tmp_path, rows=rows)
    plan = plan_of(site, CHOICE, VOTES)
    form, pipeline = shape_of(plan, site.study), dataclasses.replace(site.pipeline, noise=SecureChance())
    draws = 2000
    seen = sum(pipeline._release(plan, form).values for _ in range(draws))
    expected = choice_law([0, 1, 4], choosing=VOTES, base=Fraction(math.exp(-0.5)))
    chances = np.array([float(expected[place]) for place in range(3)])
    assert stats.chisquare(seen, draws * chances).pvalue > 1e-9
    assert stats.chisquare(seen, draws * np.array([1, 1, 1]) / 3).pvalue < 1e-9
    site.ledger.close()


# --- which plans a site refuses -------------------------------------------------------------------------------


def changed(plan: Plan, **fields: object) -> Plan:
    return dataclasses.replace(plan, **fields)  # type: ignore[arg-type]


def keys(mechanism: Mechanism, **fields: object) -> Callable[[LoneSite], Plan]:
    return lambda site: changed(plan_of(site, KEYS, mechanism), **fields)


def lower(mechanism: Mechanism, share: Fraction) -> Callable[[LoneSite], Plan]:
    def make(site: LoneSite) -> Plan:
        plan = plan_of(site, KEYS, mechanism)
        return changed(plan, threshold=math.floor(plan.threshold * share))

    return make


LIES: dict[str, Callable[[LoneSite], Plan]] = {
    "keys without a threshold": keys(GAUSSIAN, threshold=0),
    "keys without a threshold, Laplace": keys(LAPLACE, threshold=0),
    "a negative threshold": keys(GAUSSIAN, threshold=-5),
    "a threshold of one": keys(GAUSSIAN, threshold=1),
    "a threshold of one patient": keys(GAUSSIAN, threshold=64),
    "a threshold of one patient, Laplace": keys(LAPLACE, threshold=1),
    "a threshold a twentieth too low": lower(GAUSSIAN, Fraction(19, 20)),
    "a threshold a twentieth too low, Laplace": lower(LAPLACE, Fraction(19, 20)),
    "a threshold beyond all counts": keys(GAUSSIAN, threshold=2**61),
    "half the noise": lambda s: changed(
        plan_of(s, KEYS, GAUSSIAN, epsilon=0.9), scales=(plan_of(s, KEYS, GAUSSIAN, epsilon=0.9).scales[0] / 2,)
    ),
    "wide noise under a low threshold": keys(LAPLACE, scales=(Fraction(2**50),), threshold=1),
    "keys by votes": lambda s: changed(plan_of(s, KEYS, GAUSSIAN), mechanism=VOTES),
    "keys of a public category": keys(GAUSSIAN, query=Query("visits", (Aggregate(Statistic.KEYS, "code"),))),
    "keys of a number": keys(GAUSSIAN, query=Query("visits", (Aggregate(Statistic.KEYS, "age"),))),
    "a threshold on a count": lambda s: changed(s.plan(), threshold=6000),
    "votes on a count": lambda s: changed(s.plan(), mechanism=VOTES, scales=(Fraction(2),)),
    "another way of choosing": lambda s: changed(plan_of(s, CHOICE, VOTES), mechanism=Choosing.EXPONENTIAL),
    "a threshold on a choice": lambda s: changed(plan_of(s, CHOICE, VOTES), threshold=10),
    "a choice almost without chance": lambda s: changed(plan_of(s, CHOICE, VOTES), scales=(Fraction(1, 1024),)),
    "a choice without a scale": lambda s: changed(plan_of(s, CHOICE, VOTES), scales=()),
    "a choice of scale zero": lambda s: changed(plan_of(s, CHOICE, VOTES), scales=(Fraction(0),)),
    "a choice of negative scale": lambda s: changed(plan_of(s, CHOICE, VOTES), scales=(Fraction(-2),)),
    "a choice off the wire's grid": lambda s: changed(plan_of(s, CHOICE, VOTES), scales=(Fraction(7, 3),)),
    "a choice finer than a ledger": lambda s: changed(plan_of(s, CHOICE, VOTES), scales=(Fraction(2**50),)),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_about_keys_or_choices_is_refused_and_nothing_is_read_or_spent(site: LoneSite, lie: str) -> None:
    plan = LIES[lie](site)
    told = site.pipeline.run(site.task(plan))
    assert isinstance(told, Declined)
    assert told.code in {"PlanRefused", "EpsilonTooLarge", "BudgetExceeded"}
    assert not site.read
    assert site.spent == Cost.zero()


def test_honest_plans_beside_the_lies_are_answered(site: LoneSite) -> None:
    for make in LIES.values():
        site.pipeline.run(site.task(make(site)))
    for query, mechanism in ((KEYS, GAUSSIAN), (KEYS, LAPLACE), (CHOICE, VOTES)):
        released(site, plan_of(site, query, mechanism, epsilon=0.3))


def test_as_many_questions_for_keys_fit_a_study_as_its_loss_admits(tmp_path: Path) -> None:
    """δ does not run out before ε: slack is taken in proportion."""
    site = lone(tmp_path)
    for mechanism in Mechanism:
        number = 0
        while isinstance(
            site.pipeline.run(site.task(plan_of(site, KEYS, mechanism, epsilon=0.5, nonce=f"{number:02x}"))), Released
        ):
            number += 1
        assert number >= 2
        told = site.pipeline.run(site.task(site.plan(epsilon=0.5, mechanism=mechanism)))
        assert isinstance(told, Declined), "nor is anything left for a count"
    allowance = site.policy.cap.allowance()
    assert 0.9 * allowance.mu_squared < site.spent.mu_squared <= allowance.mu_squared
    assert site.spent.pure == allowance.pure
    assert site.spent.slack <= allowance.slack
    site.ledger.close()


def test_a_policy_that_does_not_name_keys_refuses_them(tmp_path: Path) -> None:
    site = lone(tmp_path, statistics=(Statistic.COUNT, Statistic.CHOICE))
    assert isinstance(site.pipeline.run(site.task(plan_of(site, KEYS, GAUSSIAN))), Declined)
    assert not site.read
    released(site, plan_of(site, CHOICE, VOTES))
    site.ledger.close()


def test_a_policy_without_a_list_allows_everything_but_keys(site: LoneSite) -> None:
    text = """
    [site]
    name = "north"
    patients = 1000
    [tables.visits]
    source = "visits.csv"
    [policy]
    epsilon = 1.0
    delta = 1e-6
    """
    assert set(parse_site(text, site.study).policy.statistics) == set(Statistic) - {Statistic.KEYS}
    named = parse_site(text + 'statistics = ["count", "keys"]', site.study)
    assert named.policy.statistics == (Statistic.COUNT, Statistic.KEYS)


def test_a_steward_is_told_that_texts_would_leave(tmp_path: Path) -> None:
    site = lone(tmp_path, approval=Approval.MANUAL, rows=Rows(held={"a": 500}))
    plan = plan_of(site, KEYS, LAPLACE)
    assert site.pipeline.run(site.task(plan)) == Pending(plan.plan_id)
    (request,) = site.ledger.requests()
    assert f"texts whose noisy count is above {plan.threshold} leave the hospital" in request.summary
    assert not site.read
    site.ledger.decide(plan.plan_id, approve=True, by="ann")
    assert released(site, plan).keys == ("a",)
    site.ledger.close()
