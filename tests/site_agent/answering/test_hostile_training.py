"""A coordinator that lies about a training: no row is read, nothing is spent, and the lie is refused."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from site_agent.answering.admission import Approval
from site_agent.serving.configuration import parse_site
from site_agent.store.shared_account import Folder, SharedAccount
from tests.site_agent.answering.test_hostile_coordinator import answered, unhurt
from tests.site_agent.lone_site import NAME, STUDY, LoneSite
from wardround.federation import canonical
from wardround.federation.errors import ConfigurationMistaken, PlanRefused
from wardround.federation.ledger.sqlite_file import Durability
from wardround.federation.ledger.verify.verify import verify
from wardround.federation.models.step_layout import LENGTH, pack
from wardround.federation.models.training import Model, ModelKind, Stage, StageKind, Step, Training
from wardround.federation.plan.plan import Plan, price
from wardround.federation.plan.task import Declined, Failed, Pending, Released
from wardround.federation.question.cohort import Comparison, Operator
from wardround.federation.question.query import Statistic
from wardround.federation.study.study_file import parse_study
from wardround.privacy.noise.distribution import Mechanism

TRAINED = STUDY + 'ill = { type = "boolean" }\n'
MODEL = Model(ModelKind.LOGISTIC, "visits", "ill", ("age", "sbp"))
GRADIENTS = Stage(StageKind.GRADIENT, Fraction(20 * LENGTH), rounds=3)
SCORES = Stage(StageKind.SCORES, Fraction(50 * LENGTH))
TRAINING = Training(MODEL, (GRADIENTS, SCORES), held_out=Fraction(1, 4))


def step(turn: int = 0, *, weight: float = 0.0, of: Training = TRAINING, **changes: object) -> Step:
    made = Step(of, 0, turn, pack(np.zeros(2)), pack(np.full(2, 0.5)), pack(np.full(3, weight)))
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def scores(**changes: object) -> Step:
    return step(0, **{"stage": 1, "edges": tuple(np.linspace(-3, 3, 31).tolist())} | changes)  # type: ignore[arg-type]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[LoneSite]:
    made = LoneSite(tmp_path, study=TRAINED)
    made.rows.total = 5
    yield made
    made.ledger.close()


def plan(site: LoneSite, query: Step, /, **changes: object) -> Plan:
    """The step as an honest coordinator would plan it, but for `changes`."""
    scale = query.training.stages[min(max(query.stage, 0), len(query.training.stages) - 1)].scale
    made = Plan(site.study.study_hash, query, Mechanism.DISCRETE_GAUSSIAN, (scale,), (NAME, "south"))
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def run(site: LoneSite, query: Step, **changes: object) -> object:
    return site.pipeline.run(site.task(plan(site, query, **changes)))


def with_stage(**changes: object) -> Training:
    return dataclasses.replace(TRAINING, stages=(dataclasses.replace(GRADIENTS, **changes), SCORES))  # type: ignore[arg-type]


def with_model(**changes: object) -> Training:
    return dataclasses.replace(TRAINING, model=dataclasses.replace(MODEL, **changes))  # type: ignore[arg-type]


LIES: dict[str, Callable[[LoneSite], Plan]] = {
    "weights that are no numbers": lambda s: plan(s, step(weight=math.nan)),
    "infinite weights": lambda s: plan(s, step(weight=math.inf)),
    "too few weights": lambda s: plan(s, step(weights=pack(np.zeros(2)))),
    "too many weights": lambda s: plan(s, step(weights=pack(np.zeros(4)))),
    "half a weight": lambda s: plan(s, step(weights=b"\0" * 20)),
    "no spread": lambda s: plan(s, step(spread=pack(np.zeros(2)))),
    "no centre": lambda s: plan(s, step(centre=b"")),
    "a batch of nobody": lambda s: plan(s, step(batch=0.0)),
    "edges of gradients": lambda s: plan(s, step(edges=(0.0,))),
    "too few edges": lambda s: plan(s, scores(edges=(0.0,))),
    "edges that fall": lambda s: plan(s, scores(edges=tuple(float(edge) for edge in range(31, 0, -1)))),
    "less noise than the training says": lambda s: plan(s, step(), scales=(GRADIENTS.scale / 2,)),
    "more noise than the training says": lambda s: plan(s, step(), scales=(GRADIENTS.scale * 2,)),
    "no noise": lambda s: plan(s, step(of=with_stage(scale=Fraction(0)))),
    "noise below four grid steps": lambda s: plan(s, step(of=with_stage(scale=Fraction(3)))),
    "noise off the wire's grid": lambda s: plan(s, step(of=with_stage(scale=Fraction(20 * LENGTH, 3)))),
    "Laplace noise": lambda s: plan(s, step(), mechanism=Mechanism.DISCRETE_LAPLACE),
    "a threshold": lambda s: plan(s, step(), threshold=5),
    "two scales": lambda s: plan(s, step(), scales=(GRADIENTS.scale,) * 2),
    "a round beyond the last": lambda s: plan(s, step(3)),
    "a round before the first": lambda s: plan(s, step(-1)),
    "a stage beyond the last": lambda s: plan(s, step(stage=2)),
    "a stage before the first": lambda s: plan(s, step(stage=-1)),
    "no stages": lambda s: plan(s, step(), query=step(of=dataclasses.replace(TRAINING, stages=()))),
    "scores of those it learns from": lambda s: plan(s, scores(of=dataclasses.replace(TRAINING, held_out=Fraction(0)))),
    "everybody held out": lambda s: plan(s, step(of=dataclasses.replace(TRAINING, held_out=Fraction(1)))),
    "a third held out": lambda s: plan(s, step(of=dataclasses.replace(TRAINING, held_out=Fraction(1, 3)))),
    "a clip of nothing": lambda s: plan(s, step(of=dataclasses.replace(TRAINING, clip=0.0))),
    "a sample without slack": lambda s: plan(s, step(of=with_stage(rate=Fraction(1, 2)))),
    "a sample of a third": lambda s: plan(
        s, step(of=dataclasses.replace(with_stage(rate=Fraction(1, 3)), slack=10**9))
    ),
    "all of δ for hardly any ε": lambda s: plan(
        s, step(of=dataclasses.replace(with_stage(rate=Fraction(1, 2), scale=Fraction(2**30)), slack=10**9))
    ),
    "more rounds than anybody takes": lambda s: plan(s, step(of=with_stage(rounds=10**6))),
    "no steps in a round": lambda s: plan(s, step(of=with_stage(steps=0))),
    "a price above the policy's": lambda s: plan(s, step(of=with_stage(scale=Fraction(4 * LENGTH)))),
    "the target among the features": lambda s: plan(s, step(of=with_model(features=("age", "ill")))),
    "a feature twice": lambda s: plan(s, step(of=with_model(features=("age", "age")))),
    "the patients' names": lambda s: plan(s, step(of=with_model(features=("age", "patient_id")))),
    "an unknown column": lambda s: plan(s, step(of=with_model(features=("age", "salary")))),
    "an unknown table": lambda s: plan(s, step(of=with_model(table="staff"))),
    "a hidden layer where none is": lambda s: plan(s, step(of=with_model(hidden=4))),
    "a cohort not in canonical form": lambda s: plan(
        s, step(of=with_model(cohort=Comparison("age", Operator.GREATER_OR_EQUAL, 40.0)))
    ),
    "another study": lambda s: plan(s, step(), study_hash="0" * 64),
    "other participants": lambda s: plan(s, step(), participants=("south", "west")),
    "participants out of order": lambda s: plan(s, step(), participants=("south", NAME)),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_about_a_training_reads_and_spends_nothing(site: LoneSite, lie: str) -> None:
    entries = site.ledger.head().sequence
    reply = answered(site, site.task(LIES[lie](site)))
    assert isinstance(reply, Declined)
    assert reply.code == ("EpsilonTooLarge" if "price" in lie else "PlanRefused")
    unhurt(site, entries)


def test_the_honest_steps_are_answered(site: LoneSite) -> None:
    """Without this the lies above might be refused for another reason."""
    assert isinstance(run(site, step()), Released)
    assert isinstance(run(site, scores()), Released)


def test_a_training_is_charged_once_over_all_of_its_rounds(site: LoneSite) -> None:
    whole = price(plan(site, step()), site.study).cost
    for query in (step(1), scores(), step(0), step(2)):
        assert isinstance(run(site, query), Released)
        assert site.spent == whole
    site.ledger.close()
    assert verify(site.folder).problems == ()


def test_the_same_round_with_other_weights_is_refused_before_a_row_is_read(site: LoneSite) -> None:
    run(site, step())
    reads, spent = site.rows.events.count("read"), site.spent
    reply = run(site, step(weight=0.5))
    assert isinstance(reply, Declined)
    assert reply.code == "PlanRefused"
    assert site.rows.events.count("read") == reads
    assert site.spent == spent


def test_a_repeated_round_is_the_stored_one(site: LoneSite) -> None:
    first = run(site, step())
    assert run(site, step()) == first
    assert site.rows.events.count("read") == 1


@pytest.mark.parametrize(
    "other",
    [
        {"of": dataclasses.replace(TRAINING, clip=2.0)},
        {"of": dataclasses.replace(TRAINING, by_site=True)},
        {"of": with_stage(rounds=4)},
    ],
    ids=["clip", "by_site", "rounds"],
)
def test_a_round_of_another_training_pays_for_its_own(site: LoneSite, other: dict[str, Training]) -> None:
    run(site, step())
    before = site.spent
    assert isinstance(run(site, step(**other)), Released)
    assert site.spent == before + price(plan(site, step(**other)), site.study).cost


def test_other_participants_or_another_nonce_are_another_training(site: LoneSite) -> None:
    run(site, step())
    before = site.spent
    run(site, step(), participants=(NAME, "west"))
    run(site, step(), nonce="01")
    assert site.spent == before + before + before


def test_a_source_that_is_away_in_a_round_keeps_its_charge_and_answers_later(site: LoneSite) -> None:
    site.rows.absences = 1
    assert isinstance(run(site, step()), Failed)
    spent = site.spent
    assert isinstance(run(site, step()), Released)
    assert site.spent == spent


def test_a_source_that_fails_in_a_round_closes_its_table_for_trainings_and_questions(site: LoneSite) -> None:
    site.rows.failures = 1
    assert isinstance(run(site, step()), Failed)
    spent, events = site.spent, list(site.rows.events)
    assert isinstance(run(site, step()), Failed)
    assert isinstance(run(site, step(), nonce="01"), Failed)
    assert isinstance(site.pipeline.run(site.task()), Failed)
    assert (site.spent, site.rows.events) == (spent, events)
    site.ledger.tables.reopen("visits")
    assert isinstance(run(site, step()), Released)
    assert site.spent == spent


# --- policy, steward and shared account -------------------------------------------------------------------------


def test_a_site_whose_policy_names_no_training_refuses_it(tmp_path: Path) -> None:
    site = LoneSite(tmp_path, study=TRAINED, training=False)
    assert isinstance(run(site, step()), Declined)
    assert not site.read
    assert isinstance(site.pipeline.run(site.task()), Released), "questions are allowed still"


def test_a_steward_says_yes_to_a_training_as_a_whole(tmp_path: Path) -> None:
    site = LoneSite(tmp_path, study=TRAINED, approval=Approval.MANUAL)
    shown = dataclasses.replace(
        TRAINING,
        model=dataclasses.replace(MODEL, cohort=Comparison("age", Operator.GREATER_OR_EQUAL, 40)),
        by_site=True,
    )
    assert isinstance(run(site, step(1, of=shown)), Pending)
    (request,) = site.ledger.requests()
    assert request.summary == (
        "TRAIN logistic ill <- age, sbp FROM visits WHERE age >= 40  [round 2 of 4, gradients under "
        "discrete Gaussian noise, σ = 20 times the most that one patient can add; the whole training costs ε = 0.34; "
        "0.25 of the patients are held out; each site's noised sums are shown; approving it approves all of its rounds]"
    )
    assert not site.read
    site.ledger.decide(request.plan_id, approve=True, by="ann")
    for turn in (1, 0, 2):
        assert isinstance(run(site, step(turn, of=shown)), Released)
    assert len(site.ledger.requests()) == 1
    assert isinstance(run(site, step(0)), Pending), "another training is another decision"


def test_a_training_that_a_steward_denies_is_refused(tmp_path: Path) -> None:
    site = LoneSite(tmp_path, study=TRAINED, approval=Approval.MANUAL)
    run(site, step())
    (request,) = site.ledger.requests()
    site.ledger.decide(request.plan_id, approve=False, by="ann")
    reply = run(site, step())
    assert isinstance(reply, Declined)
    assert reply.code == "ApprovalDenied"
    assert not site.read


def shared_account(site: LoneSite, path: Path) -> SharedAccount:
    folder = Folder(NAME, site.study.study_hash, site.study.unit)
    account = SharedAccount(path, dataset="ehr", folder=folder, cap=site.policy.cap, keeping=Durability.FILE)
    site.pipeline = dataclasses.replace(site.pipeline, shared=account)
    return account


def test_a_shared_account_is_charged_for_a_training_once(site: LoneSite, tmp_path: Path) -> None:
    account = shared_account(site, tmp_path / "ehr.sqlite")
    for turn in (2, 0, 1):
        run(site, step(turn))
        assert account.spent() == site.spent
    assert site.spent == price(plan(site, step()), site.study).cost


def test_a_shared_account_knows_which_rounds_are_taken(site: LoneSite, tmp_path: Path) -> None:
    account = shared_account(site, tmp_path / "ehr.sqlite")
    account.spend(price(plan(site, step()), site.study))
    with pytest.raises(PlanRefused):
        account.spend(price(plan(site, step(weight=0.5)), site.study))
    account.spend(price(plan(site, step()), site.study))


def test_a_crash_between_the_two_charges_of_a_round_is_mended(site: LoneSite, tmp_path: Path) -> None:
    account = shared_account(site, tmp_path / "ehr.sqlite")
    account.spend(price(plan(site, step()), site.study))
    assert isinstance(run(site, step(1)), Released)
    assert isinstance(run(site, step()), Released)
    assert account.spent() == site.spent


def test_a_training_is_given_back_with_the_last_of_its_rounds(site: LoneSite, tmp_path: Path) -> None:
    account = shared_account(site, tmp_path / "ehr.sqlite")
    first, second = (price(plan(site, step(turn)), site.study) for turn in (0, 1))
    account.spend(first)
    account.spend(second)
    account.void(first)
    assert account.spent() == first.cost
    account.void(second)
    assert account.spent().mu_squared == 0
    account.spend(second)
    assert account.spent() == second.cost


SITE = """\
[site]
name = "north"
patients = 100
[tables.visits]
source = "visits.csv"
[policy]
epsilon = 1.0
delta = 1e-6
"""


@pytest.mark.parametrize(
    ("statistics", "allowed"),
    [("", True), ('statistics = ["count"]', False), ('statistics = ["count", "training"]', True)],
)
def test_a_list_of_statistics_allows_trainings_only_where_it_names_them(statistics: str, allowed: bool) -> None:
    policy = parse_site(f"{SITE}{statistics}\n", parse_study(TRAINED)).policy
    assert policy.training is allowed
    assert Statistic.COUNT in policy.statistics


def test_a_word_near_training_is_shown_the_right_one() -> None:
    with pytest.raises(ConfigurationMistaken, match="did you mean 'training'"):
        parse_site(f'{SITE}statistics = ["trainings"]\n', parse_study(TRAINED))


def test_a_task_is_signed_over_its_canonical_bytes(site: LoneSite) -> None:
    for task in (site.task().task, site.task(plan(site, step())).task):
        assert task.encode() == canonical.encode(task)
        assert task.plan.plan_id == canonical.digest(task.plan)
