"""Keys and votes over several sites: planned, collected, checked and combined; real sites, ledgers and pipelines."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from coordinator.planning.expected import expected_errors
from coordinator.planning.plans import merit, plans_for
from coordinator.rounds.combining import combine_releases
from site_agent.answering.pipeline import one_vote, scores
from tests.coordinator.losses import charged
from tests.site_agent.lone_site import Rows
from wardround.federation.errors import MalformedMessage, QueryMistaken
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.forms.release import Release, decode_release, release_hash
from wardround.federation.forms.totals import NoiseSetting
from wardround.federation.ledger.entry_body import encode_body
from wardround.federation.ledger.verify.verify import verify
from wardround.federation.plan.plan import Plan, choice, price, selection, selection_slack, shape_of
from wardround.federation.plan.task import AskRequest, Released
from wardround.federation.question.answer import Answer
from wardround.federation.question.query import Aggregate, Query, Statistic
from wardround.federation.study.study import Study
from wardround.federation.study.study_file import parse_study
from wardround.federation.trust.entry import make_entry
from wardround.privacy.accounting.cost import MU_UNIT, SLACK_UNIT
from wardround.privacy.mechanisms.private_selection import Choosing
from wardround.privacy.mechanisms.randomness import Chance, SecureChance
from wardround.privacy.noise.distribution import Mechanism
from wardround.privacy.noise.vectors import Bounded
from wardround.simulation.federation import ANALYST, SimulatedFederation, SimulatedSite
from wardround.simulation.noise import SeededNoise, ZeroNoise

KEYS = Query("visits", (Aggregate(Statistic.KEYS, "word"),))
CHOICE = Query("visits", (Aggregate(Statistic.CHOICE, "code"),))
VOTES = Choosing.PERMUTE_AND_FLIP


def study_text(*, epsilon: float = 3.0, delta: float = 1e-6, pure: float = 1.0, rows: int = 1, **top: object) -> str:
    head = "\n".join(f"{key} = {value}" for key, value in {"overlap": 1, "min_sites": 1, **top}.items())
    return f"""name = "trial"
{head}
[budget]
epsilon = {epsilon}
delta = {delta}
pure_epsilon = {pure}
[tables.visits]
unit_key = "patient_id"
max_rows_per_unit = {rows}
[tables.visits.columns]
word = {{ type = "category" }}
code = {{ type = "category", values = ["a", "b", "c"] }}
"""


def study(**changes: object) -> Study:
    return parse_study(study_text(**changes))  # type: ignore[arg-type]


@dataclasses.dataclass
class Ward(Rows):
    """A dataset double with a count for each code and each word."""

    codes: tuple[int, ...] = (0, 0, 0)

    def bounded(self, form: AnswerLayout) -> tuple[Bounded, ...]:
        (whole,), (part,) = super().bounded(form), form.parts
        return (dataclasses.replace(whole, total=np.array(self.codes, np.int64) * part.increment),)


def federation(folder: Path, wards: dict[str, Ward], terms: Study, chance: Chance | None = None) -> SimulatedFederation:
    noiseless = isinstance(chance, ZeroNoise)
    sites = {name: SimulatedSite(ward, 1000, chance) for name, ward in wards.items()}
    return SimulatedFederation(terms, sites, folder=folder, noiseless=noiseless)


def asked(made: SimulatedFederation, query: Query, *, epsilon: float = 0.5, nonce: str = "") -> Answer:
    plan_id = made.client.link.ask(AskRequest(query, epsilon=epsilon, nonce=nonce))
    told = made.coordinator.watch(ANALYST, plan_id, seen=0, wait_seconds=0.0)
    assert isinstance(told, Answer)
    return told


WARDS = {
    "one": Ward(held={"E11": 1000, "I10": 70, "rare": 2}, codes=(10, 90, 0)),
    "two": Ward(held={"E11": 200, "C50": 500, "lone": 1}, codes=(10, 50, 20)),
    "three": Ward(held={"I10": 20}, codes=(300, 5, 20)),
}


# --- answers ----------------------------------------------------------------------------------------------------


def test_keys_are_the_union_and_their_counts_add_up(tmp_path: Path) -> None:
    made = federation(tmp_path, WARDS, study(), ZeroNoise())
    answer = asked(made, KEYS)
    found = {estimate.group[0][1]: estimate.value for estimate in answer.estimates}
    assert found == {"C50": 500.0, "E11": 1200.0, "I10": 70.0}, "what a site hid is not in the sum"
    assert all(estimate.statistic == "keys" and estimate.column == "word" for estimate in answer.estimates)
    assert [estimate.group for estimate in answer.estimates] == [(("word", key),) for key in ("C50", "E11", "I10")]
    assert all(estimate.interval == (estimate.value,) * 2 for estimate in answer.estimates)
    assert asked(made, KEYS).replayed
    made.close()
    (tmp_path / "study.toml").write_text(study_text(), encoding="utf-8")
    made.coordinator.identity.save(tmp_path / "identity.pem")
    assert verify(tmp_path).problems == ()
    for name, agent in made.agents.items():
        agent.ledger._identity.save(tmp_path / name / "identity.pem")
        assert verify(tmp_path / name).problems == ()


@pytest.mark.usefixtures("same_noise")
def test_the_error_of_a_key_is_that_of_the_sites_that_showed_it(tmp_path: Path) -> None:
    made = federation(tmp_path, WARDS, study(pure=0.0), SecureChance())
    answer = asked(made, KEYS, epsilon=1.0)
    errors = {estimate.group[0][1]: estimate.standard_error for estimate in answer.estimates}
    assert errors["E11"] == pytest.approx(math.sqrt(2) * errors["C50"])
    assert abs(answer.estimates[0].value - 500) < 8 * errors["C50"]
    assert answer.privacy.mechanism == "discrete_gaussian"
    assert made.coordinator.budget(ANALYST).events == 1
    assert all(epsilon < math.inf for name, epsilon in made.coordinator.budget(ANALYST).accountants if name != "zcdp")
    made.close()


@pytest.mark.parametrize("mechanism", Mechanism)
def test_an_interval_of_a_frequent_key_covers_as_often_as_it_says(mechanism: Mechanism) -> None:
    terms, truth, repetitions = study(), 400, 4000
    plan = planned(KEYS, terms, mechanism)
    form, (law,) = shape_of(plan, terms), plan.laws()
    steps, noise = form.parts[0].increment, SeededNoise(11).draw(law, 2 * repetitions).reshape(2, -1)
    names = tuple(f"{number:06d}" for number in range(repetitions))
    releases = [
        Release(plan.plan_id, site, "2026-01-01", truth * steps + noise[place], names)
        for place, site in enumerate("ab")
    ]

    def covered(share: float) -> float:
        found = combine_releases(plan, form, releases, setting=NoiseSetting(), patients={})
        return float(np.mean([abs(e.value - 2 * truth) <= share * (e.interval[1] - e.value) for e in found]))

    reach = 5.0 * math.sqrt(0.05 * 0.95 / repetitions)
    assert covered(1.0) >= 0.95 - reach
    assert covered(0.8) < 0.95 - reach, "the control"


def test_no_keys_at_all_are_an_answer_too(tmp_path: Path) -> None:
    made = federation(tmp_path, {"one": Ward()}, study(), SecureChance())
    assert asked(made, KEYS).estimates == ()
    made.close()


def test_each_site_has_one_vote_and_ties_follow_the_study_s_order(tmp_path: Path) -> None:
    made = federation(tmp_path, WARDS, study(), ZeroNoise())
    answer = asked(made, CHOICE)
    assert answer.privacy.mechanism == "permute_and_flip"
    assert (answer.privacy.charged.epsilon, answer.privacy.charged.delta) == (0.5, 0.0)
    assert [(e.term, e.value) for e in answer.estimates] == [("b", 2.0), ("gap", 1.0), ("regret", 1000.0)]
    made.close()
    tied = {"one": Ward(codes=(0, 0, 9)), "two": Ward(codes=(0, 9, 0))}
    (tmp_path / "tied").mkdir()
    made = federation(tmp_path / "tied", tied, study(), ZeroNoise())
    assert [(e.term, e.value) for e in asked(made, CHOICE).estimates][:2] == [("b", 1.0), ("gap", 0.0)]
    made.close()


def test_where_events_are_protected_only_agreeing_sites_have_a_regret() -> None:
    terms = study(unit='"event"')
    plan = planned(CHOICE, terms, VOTES, sites=2)
    form = shape_of(plan, terms)

    def terms_of(*places: int) -> list[str]:
        releases = [
            Release(plan.plan_id, site, "2026-01-01", one_vote(place, among=3))
            for site, place in zip("ab", places, strict=True)
        ]
        return [e.term for e in combine_releases(plan, form, releases, setting=NoiseSetting(), patients={})]

    assert terms_of(1, 1) == ["b", "gap", "regret"]
    assert terms_of(1, 2) == ["b", "gap"]


@pytest.mark.usefixtures("same_noise")
def test_the_regret_of_agreeing_sites_is_as_often_within_its_bound_as_it_says() -> None:
    terms, chance = study(), SecureChance()
    plan = planned(CHOICE, terms, VOTES, sites=2)
    form = shape_of(plan, terms)
    counts, short, repetitions = np.array([12, 8, 0]), [], 600
    for _ in range(repetitions):
        releases = [vote(plan, form, site, counts, chance) for site in "ab"]
        found = {
            e.term: e.value
            for e in combine_releases(plan, form, releases, setting=NoiseSetting(), patients={"a": 20, "b": 20})
        }
        winner = next(term for term in found if term in "abc")
        short.append(2 * (counts.max() - counts["abc".index(winner)]) > found["regret"])
    assert np.mean(short) <= 0.05


def vote(plan: Plan, form: AnswerLayout, site: str, counts: np.ndarray, chance: Chance) -> Release:
    part = form.parts[0]
    bounded = Bounded(counts.astype(np.int64), part.l1_sensitivity, part.l2_sensitivity_squared, part.grid)
    chosen = chance.choose(scores(bounded), choice(plan, part))
    return Release(plan.plan_id, site, "2026-01-01", one_vote(chosen, among=form.dimension))


# --- plans ------------------------------------------------------------------------------------------------------


def planned(query: Query, terms: Study, mechanism: object, *, epsilon: float = 0.5, sites: int = 3) -> Plan:
    participants = {f"s{number:03d}": 1000 for number in range(sites)}
    plans = plans_for(AskRequest(query, epsilon=epsilon), terms, participants)
    return next(plan for plan in plans if plan.mechanism is mechanism)


@pytest.mark.parametrize("mechanism", Mechanism)
@pytest.mark.parametrize("overlap", [1, 3])
@pytest.mark.parametrize("rows", [1, 4])
def test_the_threshold_is_the_least_that_its_share_of_the_slack_pays_for(
    mechanism: Mechanism, overlap: int, rows: int
) -> None:
    terms = study(rows=rows, overlap=overlap)
    plan = planned(KEYS, terms, mechanism)
    cost, part = price(plan, terms).cost, shape_of(plan, terms).parts[0]
    share = selection_slack(cost, terms)
    assert cost.slack <= share
    lower = selection(plan.laws()[0], part, plan.threshold - max(part.increment // 2, 1))
    assert lower.cost().slack > share * 0.999
    # All that fits the loss fits the slack, at every site of a patient together.
    allowance = terms.cap.allowance()
    many = allowance.mu_squared // cost.mu_squared if cost.mu_squared else allowance.pure // cost.pure
    assert many * cost.slack <= allowance.slack


def test_thresholds_that_the_documents_name() -> None:
    """docs/adr/0014: of a study with ε = 3 and δ = 1e-6, in patients."""
    gaussian = study(pure=0.0)
    found = {}
    for epsilon in (0.5, 1.0):
        for rows in (1, 4):
            terms = study(pure=0.0, rows=rows)
            plan = planned(KEYS, terms, Mechanism.DISCRETE_GAUSSIAN, epsilon=epsilon)
            found[epsilon, rows] = math.ceil(plan.threshold * shape_of(plan, terms).parts[0].grid)
    assert found == {(0.5, 1): 54, (0.5, 4): 110, (1.0, 1): 28, (1.0, 4): 57}
    lanes = study()
    laplace = {e: planned(KEYS, lanes, Mechanism.DISCRETE_LAPLACE, epsilon=e).threshold for e in (0.5, 1.0)}
    assert laplace == {0.5: 43, 1.0: 22}
    assert price(planned(KEYS, gaussian, Mechanism.DISCRETE_GAUSSIAN), gaussian).cost.slack < 1e-9 * SLACK_UNIT


def test_the_lower_threshold_comes_first() -> None:
    participants = {"one": 1000}
    first, second = plans_for(AskRequest(KEYS, epsilon=0.5), study(), participants)
    assert (first.mechanism, second.mechanism) == (Mechanism.DISCRETE_LAPLACE, Mechanism.DISCRETE_GAUSSIAN)
    first, second = plans_for(AskRequest(KEYS, epsilon=0.5), study(rows=8), participants)
    assert (first.mechanism, second.mechanism) == (Mechanism.DISCRETE_GAUSSIAN, Mechanism.DISCRETE_LAPLACE)


def test_keys_cost_delta_whatever_their_noise() -> None:
    terms = study()
    for mechanism in Mechanism:
        assert charged(planned(KEYS, terms, mechanism), terms, delta=1e-6).delta == 1e-6
    assert charged(planned(CHOICE, terms, VOTES), terms, delta=1e-6).delta == 0.0


@pytest.mark.parametrize("terms", [study(delta=0.0, pure=0.0), study()])
def test_keys_without_delta_are_refused_with_a_way_out(terms: Study) -> None:
    with pytest.raises(QueryMistaken, match="list the values"):
        plans_for(AskRequest(KEYS, epsilon=0.5, delta=0.0), terms, {"one": 1000})


def test_a_choice_is_made_the_way_that_is_expected_to_fall_least_short() -> None:
    """Few sites vote; of many the noised tables are added up, because noise adds by its square root."""
    terms = study(rows=1)
    few = plans_for(AskRequest(CHOICE, epsilon=0.5), terms, {"one": 1000, "two": 1000})
    many = plans_for(AskRequest(CHOICE, epsilon=0.5), terms, {f"s{number:03d}": 1000 for number in range(64)})
    assert few[0].mechanism is VOTES
    assert many[0].mechanism is not VOTES
    assert {plan.mechanism for plan in few} == {plan.mechanism for plan in many} == {*Mechanism, VOTES}
    without = plans_for(AskRequest(CHOICE, epsilon=0.5), study(pure=0.0), {"one": 1000})
    assert [plan.mechanism for plan in without] == [Mechanism.DISCRETE_GAUSSIAN]


def test_regrets_that_the_documents_name() -> None:
    """docs/adr/0014: ten values, two of them a patient, ε = 0.5."""
    terms = parse_study(study_text(rows=2).replace('"c"]', '"c", "d", "e", "f", "g", "h", "i", "j"]'))

    def regrets(sites: int) -> dict[str, int]:
        plans = plans_for(AskRequest(CHOICE, epsilon=0.5), terms, {f"s{number:03d}": 1000 for number in range(sites)})
        return {plan.mechanism.value: round(merit(plan, shape_of(plan, terms)) or 0.0) for plan in plans}

    assert regrets(1) == {"permute_and_flip": 4, "discrete_laplace": 17, "discrete_gaussian": 24}
    assert regrets(10) == {"permute_and_flip": 39, "discrete_laplace": 40, "discrete_gaussian": 77}
    assert next(iter(regrets(10))) == "permute_and_flip"
    assert next(iter(regrets(11))) == "discrete_laplace"


def test_a_choice_by_votes_pays_once_for_all_values_of_a_patient() -> None:
    terms = study(rows=4, overlap=2)
    votes = planned(CHOICE, terms, VOTES)
    assert price(votes, terms).cost.pure == MU_UNIT // 4, "half at each of two sites"
    assert votes.scales == (Fraction(4),)
    assert planned(CHOICE, terms, Mechanism.DISCRETE_LAPLACE).scales == (Fraction(12),)


def test_a_dry_run_says_what_to_expect_of_keys_and_votes() -> None:
    terms, participants = study(), {"s000": 1000, "s001": 1000, "s002": 1000}
    plan = planned(KEYS, terms, Mechanism.DISCRETE_LAPLACE)
    (keys,) = expected_errors(plan, shape_of(plan, terms), participants, NoiseSetting())
    assert "passes 43" in keys.note
    plan = planned(CHOICE, terms, VOTES)
    (votes,) = expected_errors(plan, shape_of(plan, terms), participants, NoiseSetting())
    assert (votes.standard_error, votes.groups) == (0.0, 3)
    assert "at most 5 fewer" in votes.note


# --- what sites hand in -----------------------------------------------------------------------------------------


def handed(made: SimulatedFederation, query: Query) -> tuple[Plan, Released]:
    """A plan that is open, and what one site is about to hand in."""
    made.client.link.ask(AskRequest(query, epsilon=0.5))
    signed = made.coordinator.claim("one", wait_seconds=0.0)
    assert signed is not None
    told = made.agents["one"].pipeline.run(signed)
    assert isinstance(told, Released)
    return signed.task.plan, told


FALSE_KEYS = {
    "unsorted": (("b", "a"), (10**5, 10**5)),
    "twice": (("a", "a"), (10**5, 10**5)),
    "a value short": (("a", "b"), (10**5,)),
    "no keys for its values": ((), (10**5,)),
    "a control character": (("a\x07",), (10**5,)),
    "too long": (("x" * 257,), (10**5,)),
    "below the threshold": (("a",), (1,)),
}


@pytest.mark.parametrize("fault", FALSE_KEYS)
def test_keys_that_the_plan_does_not_allow_are_refused(tmp_path: Path, fault: str) -> None:
    made = federation(tmp_path, WARDS, study(), ZeroNoise())
    plan, _ = handed(made, KEYS)
    keys, values = FALSE_KEYS[fault]
    with pytest.raises(MalformedMessage):
        made.coordinator.submit("one", forged(made, Release(plan.plan_id, "one", "2026-01-01", np.array(values), keys)))
    assert not made.coordinator.budget(ANALYST).sites[0].frozen
    made.close()


@pytest.mark.parametrize("values", [(0, 0, 0), (1, 1, 0), (0, 2, 0), (0, 1), (2, -1, 0), (7, 8, 9)])
def test_what_is_not_one_vote_is_refused(tmp_path: Path, values: tuple[int, ...]) -> None:
    made = federation(tmp_path, WARDS, study(), ZeroNoise())
    plan, honest = handed(made, CHOICE)
    with pytest.raises(MalformedMessage):
        made.coordinator.submit("one", forged(made, Release(plan.plan_id, "one", "2026-01-01", np.array(values))))
    assert decode_release(honest.payload).values.tolist() == [0, 1, 0]
    assert made.coordinator.submit("one", honest) is not None
    made.close()


def test_keys_on_a_question_that_has_none_are_refused(tmp_path: Path) -> None:
    made = federation(tmp_path, WARDS, study(), ZeroNoise())
    plan, _ = handed(made, CHOICE)
    release = Release(plan.plan_id, "one", "2026-01-01", np.array([0, 1, 0]), ("a", "b", "c"))
    with pytest.raises(MalformedMessage):
        made.coordinator.submit("one", forged(made, release))
    made.close()


def forged(made: SimulatedFederation, release: Release) -> Released:
    """The release, signed by the site's own key as an entry that names its bytes."""
    ledger, payload = made.agents["one"].ledger, release.encode()
    body = encode_body({"plan_id": release.plan_id, "release_hash": release_hash(payload)})
    return Released(
        release.plan_id, payload, make_entry(ledger._identity, after=ledger.head(), kind="released", body=body)
    )
