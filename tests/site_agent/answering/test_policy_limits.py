"""The edges of a hospital's policy: what a plan may cost, to the unit, and with how many others it is answered."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest

from site_agent.answering.admission import admit
from site_agent.serving.check import check_site
from site_agent.serving.configuration import parse_site
from tests.cli.calling import call
from tests.roles.enrolled import SITE, found, hospital
from tests.site_agent.answering.test_hostile_training import TRAINED, step
from tests.site_agent.answering.test_hostile_training import plan as training_plan
from tests.site_agent.lone_site import NAME, STUDY, LoneSite
from wardround.federation.errors import ConfigurationMistaken, PlanRefused
from wardround.federation.plan.plan import Plan, price
from wardround.federation.plan.task import Declined, Released
from wardround.federation.study.study_file import parse_study
from wardround.privacy.accounting.cost import PURE_UNIT
from wardround.privacy.budget.filter import epsilon_charged
from wardround.privacy.noise.distribution import Mechanism
from wardround.simulation.sites import default_policy

GAUSSIAN, LAPLACE = Mechanism.DISCRETE_GAUSSIAN, Mechanism.DISCRETE_LAPLACE
QUESTIONS = (
    "SELECT COUNT(*) FROM visits",
    "SELECT AVG(sbp), COUNT(DISTINCT patient_id) FROM visits",
    "SELECT HISTOGRAM(age, 20) FROM visits",
    "SELECT code, SUM(sbp) FROM visits GROUP BY code",
)
LIMITS = (0.01, 0.1, 0.3, 0.5, 1.0, 1 / 3, 2.0, 0.7000000000000001)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoneSite]:
    made = LoneSite(tmp_path_factory.mktemp("site"), study=TRAINED)
    yield made
    made.ledger.close()


def limits(mechanism: Mechanism) -> list[float]:
    """The study's pure lane is ε = 1: no more is planned with Laplace noise."""
    return [limit for limit in LIMITS if mechanism is GAUSSIAN or limit <= 1.0]


def admitted(site: LoneSite, plan: Plan, **policy: object) -> bool:
    changed = dataclasses.replace(site.policy, **policy)  # type: ignore[arg-type]
    try:
        admit(plan, site=NAME, study=site.study, policy=changed)
    except PlanRefused:
        return False
    return True


# --- what a plan may cost -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", [GAUSSIAN, LAPLACE])
@pytest.mark.parametrize("sql", QUESTIONS)
def test_a_plan_of_exactly_the_limit_is_admitted_and_of_one_step_less_noise_is_not(
    site: LoneSite, sql: str, mechanism: Mechanism
) -> None:
    for limit in limits(mechanism):
        plan = site.plan(sql, epsilon=limit, mechanism=mechanism)
        assert admitted(site, plan, max_epsilon_per_plan=limit), limit
        less = tuple(scale * Fraction(99, 100) for scale in plan.scales)
        less = tuple(Fraction(math.floor(scale * 1024), 1024) for scale in less)
        assert not admitted(site, dataclasses.replace(plan, scales=less), max_epsilon_per_plan=limit), limit


@pytest.mark.parametrize("mechanism", [GAUSSIAN, LAPLACE])
@pytest.mark.parametrize("sql", QUESTIONS)
def test_the_limit_has_no_tolerance(site: LoneSite, sql: str, mechanism: Mechanism) -> None:
    """Both sides of the very cost of a plan, closer than one part in ten thousand millions."""
    for epsilon in limits(mechanism):
        plan = site.plan(sql, epsilon=epsilon, mechanism=mechanism)
        cost = epsilon_charged(price(plan, site.study).cost, delta=site.policy.cap.delta)
        # A unit of squared mu is 2⁻⁴⁰: where ε itself is small, that much is a larger part of it.
        apart = max(1e-10, 1e-11 / epsilon**2)
        assert admitted(site, plan, max_epsilon_per_plan=cost * (1 + apart)), epsilon
        assert not admitted(site, plan, max_epsilon_per_plan=cost * (1 - apart)), epsilon


def test_a_pure_plan_is_compared_to_the_unit(site: LoneSite) -> None:
    plan = site.plan(epsilon=0.5, mechanism=LAPLACE)
    cost = price(plan, site.study).cost.pure
    assert admitted(site, plan, max_epsilon_per_plan=cost / PURE_UNIT)
    assert not admitted(site, plan, max_epsilon_per_plan=math.nextafter(cost / PURE_UNIT, 0.0))


def test_a_training_is_compared_whole_whichever_round_it_is(site: LoneSite) -> None:
    for turn in (0, 2):
        plan = training_plan(site, step(turn))
        cost = epsilon_charged(price(plan, site.study).cost, delta=site.policy.cap.delta)
        assert admitted(site, plan, max_epsilon_per_plan=cost * (1 + 1e-10))
        assert not admitted(site, plan, max_epsilon_per_plan=cost * (1 - 1e-10))


def test_without_delta_no_gaussian_plan_is_within_any_limit(site: LoneSite) -> None:
    cap = dataclasses.replace(site.policy.cap, delta=0.0)
    assert not admitted(site, site.plan(epsilon=0.01), cap=cap, max_epsilon_per_plan=1.0)
    assert admitted(site, site.plan(epsilon=0.01, mechanism=LAPLACE), cap=cap, max_epsilon_per_plan=0.01)


# --- with how many others -------------------------------------------------------------------------------------------

FEW = STUDY.replace("overlap = 1\n", "overlap = 1\nmin_sites = 2\n")


def test_a_plan_with_too_few_participants_is_refused_before_anything_is_charged_or_read(tmp_path: Path) -> None:
    site = LoneSite(tmp_path, study=TRAINED, min_sites=3)
    pair, three = (NAME, "south"), ("east", NAME, "south")
    asked = training_plan(site, step())
    for few, enough in (
        (site.plan(participants=pair), site.plan(participants=three)),
        (asked, dataclasses.replace(asked, participants=three)),
    ):
        reply = site.pipeline.run(site.task(few))
        assert isinstance(reply, Declined)
        assert (reply.code, site.read, site.ledger.charged(few.plan_id)) == ("TooFewParticipants", False, False)
        site.rows.total = 5
        assert isinstance(site.pipeline.run(site.task(enough)), Released)
        site.rows.events.clear()


def test_the_refusal_says_how_many_were_named_and_how_many_are_needed(site: LoneSite) -> None:
    policy = dataclasses.replace(site.policy, min_sites=3)
    with pytest.raises(PlanRefused, match="names 2 participants and this site takes part with 3 or more"):
        admit(site.plan(), site=NAME, study=site.study, policy=policy)


def test_a_site_that_says_nothing_follows_the_study_and_may_be_stricter_but_not_laxer() -> None:
    study, text = parse_study(FEW), SITE.format(name="north", more="")
    assert parse_site(text, study).policy.min_sites == 2
    for wanted in (2, 5):
        assert parse_site(f"{text}min_sites = {wanted}\n", study).policy.min_sites == wanted
    with pytest.raises(ConfigurationMistaken) as mistake:
        parse_site(f"{text}min_sites = 1\n", study)
    assert mistake.value.message == (
        "site.toml: policy.min_sites must be 2 or more, because the study itself needs so many sites."
    )
    for wrong in ("0", "1.5", '"two"', "true", "100000"):
        with pytest.raises(ConfigurationMistaken, match=r"policy\.min_sites must be a whole number from 1 to 10000"):
            parse_site(f"{text}min_sites = {wrong}\n", study)


def test_a_simulated_site_follows_its_study_too() -> None:
    assert default_policy(parse_study(FEW)).min_sites == 2


def test_check_shows_the_policy_and_a_laxer_one_ends_every_command(tmp_path: Path) -> None:
    site = hospital(found(tmp_path / "consortium", study=FEW))
    config = site.path / "site.toml"
    text = config.read_text(encoding="utf-8")
    config.write_text(f"{text}min_sites = 4\n", encoding="utf-8")
    (shown,) = [finding for finding in check_site(site.path) if finding.subject == "policy"]
    assert (shown.ok, shown.text) == (True, "at most ε = 4 a question, only with 4 or more sites, approval automatic")
    config.write_text(f"{text}min_sites = 1\n", encoding="utf-8")
    done = call("site", "check", site.path)
    assert (done.code, "policy.min_sites must be 2 or more" in done.out) == (1, True)
    done = call("site", "serve", site.path)
    assert (done.code, "policy.min_sites must be 2 or more" in done.sentence()) == (2, True)
