"""Every public reason for a refusal, by what causes it; a closed table is none of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from site_agent.answering.admission import Approval
from site_agent.answering.memory_check import Room
from site_agent.reading.memory_limits import LEAST_MEBIBYTES, Limits
from site_agent.store.ledger import utc_today
from tests.fixtures.asking import asked_by
from tests.site_agent.answering.test_hostile_training import TRAINED, step
from tests.site_agent.answering.test_hostile_training import plan as training_plan
from tests.site_agent.lone_site import LoneSite, Rows
from wardround.federation import canonical
from wardround.federation.errors import SchemaRefused
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.ledger.entry_body import decode_body
from wardround.federation.plan.plan import Plan
from wardround.federation.plan.task import Declined, Failed
from wardround.federation.question.query import Statistic
from wardround.federation.refusal import RefusalReason, refusal_texts, refusal_words


class OtherColumns(Rows):
    """A table without a column that the study describes."""

    def check(self, form: AnswerLayout) -> None:
        raise SchemaRefused("The table 'visits' has no column 'sbp' at this site.")


def asked(sql: str = "SELECT COUNT(*) FROM visits", **changes: float) -> Callable[[LoneSite], Plan]:
    return lambda site: site.plan(sql, **changes)  # type: ignore[arg-type]


Case = tuple[dict[str, object], Callable[[LoneSite], Plan]]

CASES: dict[RefusalReason, Case] = {
    RefusalReason.PLAN: ({}, lambda site: dataclasses.replace(site.plan(), study_hash="0" * 64)),
    RefusalReason.STATISTIC: ({"statistics": (Statistic.COUNT,)}, asked("SELECT COUNT(*), AVG(sbp) FROM visits")),
    RefusalReason.TRAINING: ({"training": False}, lambda site: training_plan(site, step())),
    RefusalReason.EPSILON: ({"max_epsilon_per_plan": 0.1}, asked(epsilon=0.2)),
    RefusalReason.COMPANY: ({"min_sites": 3}, asked()),
    RefusalReason.MEMORY: (
        {"room": Room(Limits(memory_mebibytes=LEAST_MEBIBYTES), 10**9)},
        lambda site: training_plan(site, step()),
    ),
    RefusalReason.SCHEMA: ({"rows": OtherColumns()}, asked()),
    RefusalReason.OWN_BUDGET: ({"max_epsilon_per_plan": 8.0}, asked(epsilon=4.5)),
    RefusalReason.DENIED: ({"approval": Approval.MANUAL}, asked()),
    RefusalReason.ANALYST: ({"analysts": ("amira", "ben")}, asked()),
    RefusalReason.SIGNATURE: ({"max_epsilon_per_plan": 3.0}, asked(epsilon=2.5)),
}


@pytest.mark.parametrize("reason", RefusalReason)
def test_each_reason_has_its_cause_and_costs_and_reads_nothing(tmp_path: Path, reason: RefusalReason) -> None:
    policy, plan_of = CASES[reason]
    site = LoneSite(tmp_path, study=TRAINED, **policy)  # type: ignore[arg-type]
    plan = plan_of(site)
    task = site.task(plan)
    if reason is RefusalReason.SIGNATURE:
        task = dataclasses.replace(task, asked_by=asked_by(plan, epsilon=0.5))
    reply = site.pipeline.run(task)
    if reason is RefusalReason.DENIED:
        site.ledger.decide(plan.plan_id, approve=False, by="ann")
        reply = site.pipeline.run(task)
    assert isinstance(reply, Declined)
    assert reply.code == reason
    # Nothing of the sentence that stays in the site's log is in what leaves.
    shown = {"plan_id": plan.plan_id, "code": reason.value, "asked": canonical.digest(task.asked_by)}
    assert decode_body(reply.entry.body) == shown | {"date": utc_today().isoformat()}
    assert not site.read
    assert not site.ledger.charged(plan.plan_id)


def test_a_closed_table_is_no_reason_but_a_site_that_is_away(tmp_path: Path) -> None:
    site = LoneSite(tmp_path, rows=Rows(failures=1))
    assert isinstance(site.pipeline.run(site.task(site.plan())), Failed)
    later = site.pipeline.run(site.task(site.plan(epsilon=0.3)))
    assert later == Failed(site.plan(epsilon=0.3).plan_id)
    assert not any("close" in f"{reason.name}{reason}{reason.words}".lower() for reason in RefusalReason)


def test_every_code_has_words_and_one_of_a_later_version_stands_for_itself() -> None:
    assert len({reason.words for reason in RefusalReason}) == len(RefusalReason)
    assert refusal_words("WeatherTooBad") == "WeatherTooBad"
    assert refusal_texts([("st-mary", "StatisticNotAllowed")]) == ["st-mary (it does not allow this statistic)"]
