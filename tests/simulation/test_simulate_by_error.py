"""`wardround simulate --error`: the answer has the error that was asked for, whoever says it and however."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.calling import call
from tests.simulation.hospitals_on_disk import random_rows, simulate, study_text, write_site

pytestmark = pytest.mark.usefixtures("same_noise")
COUNT = "SELECT COUNT(*) FROM encounters"
BOTH = "SELECT COUNT(*) AS visits, AVG(sbp) FROM encounters"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for seed, name in enumerate(("north", "south")):
        write_site(tmp_path / "sites" / name, random_rows(seed, patients=50))
    return tmp_path


def half_widths(document: dict[str, object]) -> list[float]:
    estimates = document["estimates"]
    assert isinstance(estimates, list)
    return [(each["interval"][1] - each["interval"][0]) / 2 for each in estimates]


def test_the_answer_has_the_error_that_was_asked_for(place: Path) -> None:
    found = simulate(place, COUNT, "--error", 50)
    assert 49.5 <= half_widths(found)[0] <= 50.0
    again = simulate(place, COUNT, "--error", 50, "--repeat", 3)["runs"]
    assert {run["plan_id"] for run in again} == {found["plan_id"]}


def test_errors_of_several_aggregates_are_in_order_or_by_name(place: Path) -> None:
    first = simulate(place, BOTH, "--error", 50, "--error", 30)
    assert 49.5 <= half_widths(first)[0] <= 50.0
    assert simulate(place, BOTH, "--error", "AVG(sbp)=30", "--error", "visits=50")["plan_id"] == first["plan_id"]
    assert "shares" not in first, "aggregates share a charge by their errors then, not by need"


def test_one_sum_of_noise_needs_less_epsilon_and_no_noise_at_all_is_planned_as_ever(place: Path) -> None:
    each, total, exact = (
        simulate(place, COUNT, "--error", 50, *more) for more in ((), ("--privacy", "sum"), ("--noiseless",))
    )
    assert total["privacy"]["charged"]["epsilon"] < each["privacy"]["charged"]["epsilon"]
    assert 49.5 <= half_widths(total)[0] <= 50.0
    assert exact["plan_id"] == each["plan_id"]


def test_what_cannot_be_had_is_one_sentence(place: Path) -> None:
    (place / "study.toml").write_text(study_text(), encoding="utf-8")
    where = ("simulate", "--study", place / "study.toml", "--tables", place / "sites")
    done = call(*where, COUNT, "--error", 0.5, "--epsilon", 0.1)
    assert done.code == 2
    assert done.sentence().startswith("COUNT(*) ± 0.5 cannot be had with ε = 0.1; the smallest is ± ")
    done = call(*where, BOTH, "--error", 0.5)
    assert done.sentence() == (
        "there is 1 error for 2 aggregates; give one for each of COUNT(*), AVG(sbp), in this order or by name."
    )
    done = call(*where, "--train", place / "request.toml", "--error", 0.5)
    assert done.sentence() == "--error is for a question; leave it out with --train."
