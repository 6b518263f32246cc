"""A site and a plan with a hidden character: refused before anything is spent; what was paid for before is answered."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from coordinator.planning.plans import plans_for
from coordinator.rounds.stored_answers import read_answer
from coordinator.store.rounds import decode_plan, encode_plan
from site_agent.answering.admission import Approval, admit
from site_agent.store.askers import Asking
from tests.fixtures.asking import asked_by
from tests.protos.test_codec_training import STEP
from tests.site_agent.lone_site import NAME, STUDY, LoneSite
from wardround.analyst.learning.request import TrainingRequest, model_of, parse_request
from wardround.federation.errors import ConfigurationMistaken, PlanRefused, QueryMistaken
from wardround.federation.models.training import ModelKind
from wardround.federation.plain_text import fault_in
from wardround.federation.plan.plan import Plan, price
from wardround.federation.plan.task import AskRequest, Declined, Released
from wardround.federation.question.cohort import Comparison, Operator
from wardround.federation.question.query import Aggregate, Query, Statistic
from wardround.federation.study.study_file import parse_study
from wardround.federation.trust.entry import EMPTY

OPEN = STUDY + 'note = { type = "category" }\n'


def hostile(site: LoneSite, text: str = "a\u202eb") -> Plan:
    """What a coordinator that does not look at texts makes of a question."""
    query = Query("visits", (Aggregate(Statistic.COUNT),), Comparison("note", Operator.EQUAL, text))
    return plans_for(AskRequest(query, epsilon=0.5), site.study, {NAME: 1000})[0]


@pytest.mark.parametrize("approval", Approval)
@pytest.mark.parametrize("text", ["a\u202eb", "a\nb", "\x1b[2J", "\x9b", "\u2028"])
def test_a_plan_with_a_hidden_character_is_refused_before_it_is_held_or_charged(
    tmp_path: Path, approval: Approval, text: str
) -> None:
    site = LoneSite(tmp_path, study=OPEN, approval=approval)
    reply = site.pipeline.run(site.task(hostile(site, text)))
    assert isinstance(reply, Declined)
    assert reply.code == PlanRefused.__name__
    assert site.ledger.requests() == []
    assert (site.spent.mu_squared, site.read) == (0, False)


def test_the_refusal_names_the_character_in_the_sites_own_log(tmp_path: Path) -> None:
    site = LoneSite(tmp_path, study=OPEN)
    with pytest.raises(PlanRefused, match=r"^a text in the plan has U\+202E at place 2, "):
        admit(hostile(site), site=NAME, study=site.study, policy=site.policy)


def test_a_plan_that_was_paid_for_before_is_answered(tmp_path: Path) -> None:
    site = LoneSite(tmp_path, study=OPEN)
    plan = hostile(site)
    site.ledger.spend(price(plan, site.study), Asking(plan, asked_by(plan)), head=EMPTY)
    assert isinstance(site.pipeline.run(site.task(plan)), Released)


def test_a_request_of_before_that_a_steward_approves_ends_in_a_refusal(tmp_path: Path) -> None:
    site = LoneSite(tmp_path, study=OPEN, approval=Approval.MANUAL)
    signed = site.task(hostile(site))
    site.ledger.hold(signed, summary="as an older version wrote it")
    site.ledger.decide(signed.task.plan.plan_id, approve=True, by="ann")
    (again,) = site.ledger.decided()
    assert isinstance(site.pipeline.run(again), Declined)


def test_what_a_coordinator_stored_before_is_read(tmp_path: Path) -> None:
    plan = hostile(LoneSite(tmp_path, study=OPEN))
    assert decode_plan(encode_plan(plan), plan_id=plan.plan_id) == plan
    numbers = '"charged":[0.5,1e-6],"overlap":1,"composition":"parallel","noiseless":false,"mechanism":"x"'
    estimate = '["count",null,[["note","a\\u202eb"]],1.0,1.0,[0.0,2.0],0.95,"\\u001b",false]'
    text = f'{{"answered":["north"],"refused":[],"missing":[],{numbers},"estimates":[{estimate}]}}'
    assert read_answer(text).answer.estimates[0].group == (("note", "a\u202eb"),)


def test_a_step_is_looked_at_too() -> None:
    model = dataclasses.replace(STEP.training.model, cohort=Comparison("note", Operator.EQUAL, "a\x1bb"))
    step = dataclasses.replace(STEP, training=dataclasses.replace(STEP.training, model=model))
    assert fault_in(STEP) is None
    assert "U+001B at place 2" in str(fault_in(step))


def test_a_request_to_train_has_plain_texts() -> None:
    request = TrainingRequest(ModelKind.LINEAR, "visits", "sbp", ("age",), 1.0, cohort="note =\n'a'")
    study = parse_study(OPEN)
    assert model_of(request, study).cohort == Comparison("note", Operator.EQUAL, "a")
    with pytest.raises(QueryMistaken, match=r"^a text of the request has U\+000A at place 2, "):
        model_of(dataclasses.replace(request, cohort="note = 'a\nb'"), study)
    with pytest.raises(QueryMistaken, match=r"^the question has U\+202E at place 10, "):
        model_of(dataclasses.replace(request, cohort="note = 'a\u202e'"), study)
    with pytest.raises(ConfigurationMistaken, match=r"request.toml: target has U\+001B at place 4, "):
        parse_request('kind = "linear"\ntable = "t"\ntarget = "sbp\\u001b"\nfeatures = ["age"]\nepsilon = 1.0\n')
