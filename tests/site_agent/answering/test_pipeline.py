"""The one path from rows to wire: its order, its repeats, and what it does when something breaks after the charge."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from site_agent.answering.admission import Approval
from site_agent.answering.pipeline import Pipeline
from site_agent.reading.dataset import TableSource
from site_agent.serving.open_dataset import open_dataset
from site_agent.store.askers import Asking
from site_agent.store.ledger import SiteLedger
from tests.site_agent.lone_site import NAME, LoneSite, Rows
from wardround.federation.errors import InvariantBroken, SourceFailed
from wardround.federation.forms.release import Release, decode_release
from wardround.federation.ledger.verify.verify import verify
from wardround.federation.plan.plan import price, shape_of
from wardround.federation.plan.task import Declined, Failed, Pending, Released
from wardround.federation.refusal import RefusalReason
from wardround.privacy.accounting.cost import Cost
from wardround.privacy.noise.distribution import NoiseDistribution
from wardround.privacy.noise.sampler import SecureNoise
from wardround.privacy.noise.vectors import IntVector

GROUPED = "SELECT code, COUNT(*), AVG(sbp) FROM visits WHERE age >= 40 GROUP BY code"


def test_the_charge_is_durable_before_a_row_is_read(tmp_path: Path) -> None:
    seen: list[Cost] = []
    rows = Rows()
    site = LoneSite(tmp_path, rows=rows)

    def look_at_the_disk() -> None:
        other = SiteLedger(tmp_path, identity=site.identity)
        seen.append(other.spent())
        other.close()

    rows.before_reading = look_at_the_disk
    plan = site.plan()
    assert isinstance(site.pipeline.run(site.task(plan)), Released)
    assert seen == [price(plan, site.study).cost]
    assert rows.events == ["check", "read"]
    site.ledger.close()


def test_an_exhausted_budget_reads_nothing(tmp_path: Path) -> None:
    site = LoneSite(tmp_path)
    told = [site.pipeline.run(site.task(site.plan(epsilon=1.0, nonce=f"{n:02x}"))) for n in range(12)]
    released = sum(isinstance(word, Released) for word in told)
    assert 0 < released < 12
    assert all(isinstance(word, Released) for word in told[:released])
    assert site.rows.events.count("read") == released
    assert verify(tmp_path).valid
    site.ledger.close()


def test_a_thousand_resends_are_one_byte_string_and_one_charge(tmp_path: Path) -> None:
    site = LoneSite(tmp_path, noise=SecureNoise())
    signed = site.task(site.plan(GROUPED))
    told = {word.payload for word in (site.pipeline.run(signed) for _ in range(1000)) if isinstance(word, Released)}
    assert len(told) == 1
    assert site.rows.events.count("read") == 1
    assert site.spent == price(signed.task.plan, site.study).cost
    assert [line.kind for line in site.ledger.history()] == ["released"]
    site.ledger.close()


def test_a_release_has_the_plan_s_length_and_says_a_date_and_nothing_else(tmp_path: Path) -> None:
    site = LoneSite(tmp_path)
    plan = site.plan(GROUPED)
    kept = site.pipeline.run(site.task(plan))
    assert isinstance(kept, Released)
    release = decode_release(kept.payload)
    assert release.values.size == shape_of(plan, site.study).dimension == 3 + 6
    assert kept.payload.split(b"\n", 1)[0] == (
        f'{{"date":"2026-01-01","plan_id":"{plan.plan_id}","site":"{NAME}","values":9}}'.encode()
    )
    site.ledger.close()


# --- after the charge -----------------------------------------------------------------------------------------


def test_a_source_that_is_away_stays_charged_and_is_tried_again_under_the_same_plan(tmp_path: Path) -> None:
    site = LoneSite(tmp_path, rows=Rows(total=5, absences=3))
    signed = site.task()
    failures = [site.pipeline.run(signed) for _ in range(3)]
    assert failures == [Failed(signed.task.plan.plan_id)] * 3, "the same words, whatever went wrong"
    spent = site.spent
    assert spent == price(signed.task.plan, site.study).cost
    kept = site.pipeline.run(signed)
    assert isinstance(kept, Released)
    assert decode_release(kept.payload).values.tolist() == [5 * 64]
    assert site.spent == spent
    assert verify(tmp_path).valid
    site.ledger.close()


def test_a_failure_tells_nobody_why(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    site = LoneSite(tmp_path, rows=Rows(failures=1))
    told = site.pipeline.run(site.task())
    assert "ward 7" not in repr(told) + caplog.text
    assert "ward 7" not in str(SourceFailed(private="ward 7"))
    site.ledger.close()


def test_a_paid_plan_can_no_longer_be_refused(tmp_path: Path) -> None:
    """A policy made stricter after the charge does not undo it: rows may have been read."""
    site = LoneSite(tmp_path, rows=Rows(failures=1))
    signed = site.task()
    assert isinstance(site.pipeline.run(signed), Failed)
    with pytest.raises(InvariantBroken):
        site.ledger.refuse(Asking(signed.task.plan, signed.asked_by), RefusalReason.PLAN)
    assert site.spent != Cost.zero()
    site.ledger.close()


class Dying:
    """Noise that dies once, as a process does: after the rows were read, before anything was kept."""

    def __init__(self) -> None:
        self.alive = False

    def draw(self, law: NoiseDistribution, size: int) -> IntVector:
        if not self.alive:
            self.alive = True
            raise KeyboardInterrupt
        return np.arange(size, dtype=np.int64)


def test_dying_between_reading_and_keeping_loses_a_release_and_leaks_none(tmp_path: Path) -> None:
    site = LoneSite(tmp_path, noise=Dying())
    signed = site.task()
    with pytest.raises(KeyboardInterrupt):
        site.pipeline.run(signed)
    assert site.ledger.undelivered() == []
    assert site.ledger.charged(signed.task.plan.plan_id)
    assert isinstance(site.pipeline.run(signed), Released)
    assert site.spent == price(signed.task.plan, site.study).cost
    site.ledger.close()


def test_an_unpaid_release_cannot_be_kept(tmp_path: Path) -> None:
    site = LoneSite(tmp_path)
    with pytest.raises(InvariantBroken):
        site.ledger.keep(Release("0" * 64, NAME, "2026-01-01", np.zeros(1, dtype=np.int64)))
    assert site.ledger.undelivered() == []
    site.ledger.close()


# --- hostile rows ---------------------------------------------------------------------------------------------

HOSTILE = {
    "empty": [],
    "nan": [["p", "nan", "NaN", "a"]],
    "infinite": [["p", "inf", "-inf", "b"], ["q", "1e999", "-1e999", "c"]],
    "huge": [["p", "9" * 300, "9" * 300, "a"]],
    "absent": [["", "", "", ""]],
    "text": [["p", "Robert'); DROP TABLE visits;--", "\x01", "\U0001f4a3"]],
    "long": [["p" * 100_000, "1", "1", "a" * 100_000]],
    "many": [["p", "50", "120.5", "a"]] * 5000,
}


@pytest.mark.parametrize("rows", HOSTILE)
def test_whatever_the_rows_hold_the_answer_is_ordinary(tmp_path: Path, rows: str) -> None:
    with (tmp_path / "visits.csv").open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([["patient_id", "age", "sbp", "code"], *HOSTILE[rows]])
    site = LoneSite(tmp_path, noise=SecureNoise())
    dataset = open_dataset({"visits": TableSource("visits.csv")}, folder=tmp_path, key=bytes(32))
    pipeline = Pipeline(
        NAME, site.study, site.policy, site.coordinator.public, site.ledger, dataset, SecureNoise(), site.pipeline.today
    )
    for sql in (GROUPED, "SELECT COUNT(DISTINCT patient_id), SUM(age), SUM(sbp), AVG(age) FROM visits"):
        plan = site.plan(sql)
        kept = pipeline.run(site.task(plan))
        assert isinstance(kept, Released)
        assert decode_release(kept.payload).values.size == shape_of(plan, site.study).dimension
    site.ledger.close()


# --- the steward ----------------------------------------------------------------------------------------------


def test_a_plan_waits_for_the_steward_before_anything_is_spent(tmp_path: Path) -> None:
    site = LoneSite(tmp_path, approval=Approval.MANUAL)
    signed = site.task()
    plan_id = signed.task.plan.plan_id
    assert [site.pipeline.run(signed) for _ in range(3)] == [Pending(plan_id)] * 3
    assert not site.read
    assert site.spent == Cost.zero()
    (request,) = site.ledger.requests()
    assert "COUNT(*)" in request.summary
    assert "ε = 0.5" in request.summary
    site.ledger.decide(plan_id, approve=True, by="ann")
    assert isinstance(site.pipeline.run(signed), Released)
    site.ledger.close()


def test_a_denied_plan_is_refused_for_good(tmp_path: Path) -> None:
    site = LoneSite(tmp_path, approval=Approval.MANUAL)
    signed = site.task()
    site.pipeline.run(signed)
    site.ledger.decide(signed.task.plan.plan_id, approve=False, by="ann")
    told = [site.pipeline.run(signed) for _ in range(2)]
    assert all(isinstance(word, Declined) and word.code == "ApprovalDenied" for word in told)
    assert not site.read
    assert site.spent == Cost.zero()
    site.ledger.close()


def test_why_a_plan_was_refused_stays_in_the_log_of_the_site(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    site = LoneSite(tmp_path, max_epsilon_per_plan=0.1)
    with caplog.at_level("INFO", "wardround.site"):
        declined = site.pipeline.run(site.task())
    assert isinstance(declined, Declined)
    assert "this site allows" in caplog.text
    assert "this site allows" not in declined.entry.body
    site.ledger.close()


def test_a_plan_that_the_policy_refuses_never_reaches_the_steward(tmp_path: Path) -> None:
    site = LoneSite(tmp_path, approval=Approval.MANUAL, max_epsilon_per_plan=0.1)
    assert isinstance(site.pipeline.run(site.task()), Declined)
    assert site.ledger.requests() == []
    site.ledger.close()
