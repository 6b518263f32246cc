"""Questions in several rounds at the terminal: one document, and a title for each round on standard error."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from tests.cli.calling import call
from wardround.analyst.link.link import RoundNotice
from wardround.cli.terminal.round_lines import RoundLines
from wardround.federation.question.answer import Answer, Loss, PrivacyStatement, Progress, Remaining, SiteState

pytestmark = pytest.mark.usefixtures("same_noise")

STUDY = """
name = "ward"
overlap = 1
[budget]
epsilon = 20.0
delta = 1e-6
[tables.stays]
unit_key = "patient_id"
max_rows_per_unit = 2
[tables.stays.columns]
days = { type = "integer", lower = 0, upper = 60 }
code = { type = "category" }
"""


@pytest.fixture
def ward(tmp_path: Path) -> Path:
    """Two sites; every patient has a number of days, every third one another code, one a code of their own."""
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    for site in ("north", "south"):
        rows = [f"{site}{n},{n % 60},{'own' if n == 0 else 'bb' if n % 3 == 0 else 'aa'}" for n in range(240)]
        (tmp_path / "sites" / site).mkdir(parents=True)
        (tmp_path / "sites" / site / "stays.csv").write_text("\n".join(["patient_id,days,code", *rows]), "utf-8")
    return tmp_path


def test_a_search_is_one_document(ward: Path) -> None:
    where = ("--study", ward / "study.toml", "--tables", ward / "sites")
    done = call("simulate", *where, "SELECT MEDIAN(days) FROM stays", "--search", "--epsilon", 9, "--json")
    document = done.document()
    assert len(set(document["plan_ids"])) == 10
    assert document["plan_id"] == document["plan_ids"][-1]
    (estimate,) = document["estimates"]
    assert (estimate["statistic"], estimate["term"]) == ("quantile", "0.5")
    # A share errs by half a hundredth and a day is three times that, so ten days are far beyond all noise. How often
    # an interval holds the median is asked with seeded noise, in test_courses.py.
    assert 20 < estimate["interval"][0] <= estimate["value"] <= min(estimate["interval"][1], 40)
    assert document["privacy"]["charged"]["epsilon"] == pytest.approx(9.0, rel=1e-3)
    assert document["privacy"]["spent"]["epsilon"] == pytest.approx(9.0, rel=1e-3)


def test_keys_and_groups_are_one_document_without_the_lone_key(ward: Path) -> None:
    where = ("--study", ward / "study.toml", "--tables", ward / "sites")
    text = "SELECT code AS c, COUNT(DISTINCT patient_id) AS n FROM stays GROUP BY c ORDER BY n DESC"
    # A key of one patient may be shown with the weight δ, so a test that must never see one asks with a small δ.
    done = call("simulate", *where, text, "--epsilon", 9, "--delta", 1e-12, "--json")
    document = done.document()
    assert len(document["plan_ids"]) == 2
    assert [(each["name"], each["group"]) for each in document["estimates"]] == [("n", {"c": "aa"}), ("n", {"c": "bb"})]
    assert "own" not in done.out + done.err


def test_a_search_for_something_else_is_a_mistaken_call(ward: Path) -> None:
    where = ("--study", ward / "study.toml", "--tables", ward / "sites")
    done = call("simulate", *where, "SELECT AVG(days) FROM stays", "--search")
    assert done.code == 2
    assert done.sentence().startswith("a search finds one quantile;")


def test_every_round_has_its_title_and_its_sites(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    lines = RoundLines()
    for number, title in ((1, "KEYS(code)"), (2, "the question")):
        lines.begin(RoundNotice(number, 2, title))
        lines.show(Progress(1, (("north", SiteState.RELEASED),)))
    assert stream.getvalue().splitlines() == [
        "round 1 of 2: KEYS(code)",
        "  north  answered",
        "round 2 of 2: the question",
        "  north  answered",
    ]


def test_whoever_the_answer_has_is_not_left_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    sites = {"a": SiteState.RELEASED, "b": SiteState.OPEN, "c": SiteState.OPEN, "d": SiteState.OPEN}
    stored, lines = RoundLines(), RoundLines()
    privacy = PrivacyStatement(
        "discrete_gaussian", Loss(0.3, 1e-6), Loss(0.9, 1e-6), Remaining(2.0, 0.7), 1, "parallel"
    )
    answer = Answer("ab" * 32, "patient", False, False, ("a", "b"), (("c", "PlanRefused"),), ("d",), (), privacy)
    stored.end(answer)
    assert stream.getvalue() == "", "a stored answer waited for nobody"
    lines.show(Progress(1, tuple(sites.items())))
    lines.end(answer)
    assert stream.getvalue().splitlines()[4:] == ["  b  answered", "  c  refused", "  d  missing"]
