"""`wardround audit`: every claim is tested hard and holds, every broken control is flagged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypedDict

import pytest

from wardround.cli.main import main
from wardround.simulation.audit.findings import (
    LEAST_SHARE,
    AuditFinding,
    AuditReport,
    Measure,
    Method,
    Verdict,
    as_control,
    judged,
    judged_noise,
)
from wardround.simulation.audit.run import _MOST_BOUNDS

# An audit is right with the confidence that it states, and seldom proves too little; these are the same every time.
pytestmark = pytest.mark.usefixtures("same_noise")


class Line(TypedDict):
    name: str
    method: str
    measure: str
    claimed: float
    certified: float
    verdict: str


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main(["audit", *words])
    printed = capsys.readouterr()
    code = left.value.code
    assert isinstance(code, int)
    return code, printed.out, printed.err


def require_all_held(document: Mapping[str, list[Line]], *, of_trainings: float, of_samples: float) -> None:
    for line in document["claims"]:
        assert line["verdict"] == "holds", line
        if line["method"] == "variance":
            assert 0.98 < line["certified"] < 1.02, line
            continue
        least = {"epsilon": 0.85, "delta": 0.85, "mu": 0.8}[line["measure"]]
        if line["method"] == "trainings":
            least = of_samples if line["name"].endswith("samples") else of_trainings
        assert least * line["claimed"] <= line["certified"] <= line["claimed"], line
    for line in document["controls"]:
        assert line["verdict"] == "flagged", line


def test_every_claim_holds_and_every_broken_control_is_flagged(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "--json")
    document = json.loads(out)
    require_all_held(document, of_trainings=0.35, of_samples=0.2)
    assert code == 0
    assert document["passed"] is True
    assert "auditing: broken controls" in err
    names = {line["name"] for line in document["controls"]}
    assert names >= {
        "half the noise, Laplace",
        "half the noise, Gaussian",
        "no clipping",
        "sensitivity 1 for several groups",
        "float Laplace, by its low bits",
        "group keys taken from the rows",
        "sensitivity 1 for all levels of a tree",
        "one moment's sensitivity for three",
        "clipping by row, in training",
        "half the noise, in training",
        "a patient in both folds",
        "coins of a sample kept for all steps",
    }
    trainings = {line["name"] for line in document["claims"] if line["method"] == "trainings"}
    assert trainings == {
        "trainings, sums over everybody",
        "trainings, a patient held out",
        "trainings, local steps",
        "trainings, secret samples",
    }
    tried = {line["name"].partition(",")[0] for line in document["claims"] if line["method"] == "two worlds"}
    assert tried >= {"variance", "histogram", "median", "correlation", "values of an open category"}
    sampled = [line for line in document["claims"] + document["controls"] if line["method"] != "exact"]
    assert len(sampled) <= _MOST_BOUNDS


@pytest.mark.slow
def test_ten_times_the_draws_prove_more_and_still_not_too_much(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--draws", "3000000", "--json")
    require_all_held(json.loads(out), of_trainings=0.75, of_samples=0.45)
    assert code == 0


@pytest.mark.slow
def test_an_audit_with_too_few_draws_does_not_pass(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--draws", "1000")
    assert code == 4
    assert "inconclusive" in out
    assert "violated" not in out


def test_an_impossible_number_of_draws_is_refused_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "--draws", "10", "--json")
    assert code == 2
    assert "--draws is 10; it must be from 1000 to 10000000." in err
    assert json.loads(out)["error"]


def finding(*, claimed: float, certified: float, measure: Measure = Measure.EPSILON) -> AuditFinding:
    return judged("a count", Method.TWO_WORLDS, measure, claimed=claimed, certified=certified)


@pytest.mark.parametrize("measure", list(LEAST_SHARE))
def test_a_bound_above_the_claim_violates_it_and_one_far_below_proves_nothing(measure: Measure) -> None:
    share = LEAST_SHARE[measure]
    assert finding(claimed=1.0, certified=1.0, measure=measure).verdict is Verdict.HOLDS
    assert finding(claimed=1.0, certified=share, measure=measure).verdict is Verdict.HOLDS
    assert finding(claimed=1.0, certified=1.0001, measure=measure).verdict is Verdict.VIOLATED
    assert finding(claimed=1.0, certified=share - 0.01, measure=measure).verdict is Verdict.INCONCLUSIVE


def test_a_control_is_flagged_only_by_a_violation() -> None:
    assert as_control(finding(claimed=1.0, certified=1.5)).verdict is Verdict.FLAGGED
    assert as_control(finding(claimed=1.0, certified=1.0)).verdict is Verdict.MISSED
    assert as_control(finding(claimed=1.0, certified=0.1)).verdict is Verdict.MISSED
    for score in (-5.0, 5.0):
        assert judged_noise("noise", ratio=0.9, score=score, limit=4.0).verdict is Verdict.VIOLATED
    assert judged_noise("noise", ratio=1.0, score=-3.0, limit=4.0).verdict is Verdict.HOLDS


def test_one_missed_control_or_one_weak_claim_fails_the_audit() -> None:
    good, flagged = finding(claimed=1.0, certified=0.9), as_control(finding(claimed=1.0, certified=2.0))
    missed, weak = as_control(good), finding(claimed=1.0, certified=0.2)
    assert AuditReport(0.999, 1000, (good,), (flagged,)).passed
    assert not AuditReport(0.999, 1000, (good,), (flagged, missed)).passed
    assert not AuditReport(0.999, 1000, (good, weak), (flagged,)).passed


def test_the_table_says_what_was_claimed_and_what_was_proved() -> None:
    claims = (finding(claimed=2.0, certified=1.9), judged_noise("noise", ratio=1.001, score=0.3, limit=4.0))
    text = AuditReport(0.999, 1000, claims, (as_control(finding(claimed=2.0, certified=3.9)),)).text()
    assert "ε = 2" in text
    assert "ε ≥ 1.9" in text
    assert "1.001 σ" in text
    assert "flagged" in text
    assert "2 of 2 claims hold; 1 of 1 broken ones are flagged." in text
