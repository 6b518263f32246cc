"""What each side must find out by itself it finds out once, and carries on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tools.trace import QUESTION, SITES, traced
from wardround.simulation.federation import SimulatedFederation

SIDES = ("coordinator", *(f"site_agent {site}" for site in SITES))
ONCE = {
    **{("typing", side): 1 for side in ("analyst", *SIDES)},
    **{(what, side): 1 for what in ("layout", "price") for side in SIDES},
}
TWO = QUESTION.replace("AVG(sbp)", "AVG(sbp), COUNT(*)")


def asked(question: str) -> Callable[[SimulatedFederation], str]:
    return lambda federation: str(federation.client.ask(question, epsilon=0.5))


def test_a_question_is_typed_laid_out_and_priced_once_on_each_side(tmp_path: Path) -> None:
    assert traced(asked(QUESTION), tmp_path).computed == ONCE


def test_only_an_analyst_who_is_shown_how_a_charge_is_split_lays_out_too(tmp_path: Path) -> None:
    assert traced(asked(TWO), tmp_path).computed == ONCE | {("layout", "analyst"): 1}


def test_an_answer_that_is_stored_is_typed_and_priced_by_nobody_else(tmp_path: Path) -> None:
    def again(federation: SimulatedFederation) -> None:
        federation.client.ask("SELECT COUNT(*) FROM visits", epsilon=0.5)

    sides = {("typing", "analyst"): 1, **{(what, "coordinator"): 1 for what in ("typing", "layout", "price")}}
    assert traced(again, tmp_path).computed == sides


@pytest.mark.parametrize("stretch", ["ask → reservation", "claim → kept release"])
def test_a_stretch_ends_before_the_answer(tmp_path: Path, stretch: str) -> None:
    trace = traced(asked(QUESTION), tmp_path)
    names = {name for _, name in trace.stretches[stretch]}
    assert {"Coordinator.ask", "Pipeline.run"} & names == {
        "Coordinator.ask" if stretch == "ask → reservation" else "Pipeline.run"
    }
    assert "Result.__str__" not in names
    assert len(trace.stretches[stretch]) < len(trace.calls)
