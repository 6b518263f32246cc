"""A question in several rounds between processes: one document, each round charged once at every site."""

from __future__ import annotations

import pytest

from tests.integration.stage import Federation

MEDIAN = "SELECT MEDIAN(sbp) FROM encounters"


@pytest.mark.slow
def test_a_search_is_ten_rounds_and_is_found_again(federation: Federation) -> None:
    first = federation.ask_command(MEDIAN, "--search", epsilon=50)
    assert first.code == 0, first.err
    plans = first.document["plan_ids"]
    assert isinstance(plans, list)
    assert len(set(map(str, plans))) == 10
    assert "round 10 of 10: SHARE_BELOW(sbp, …)" in first.err
    (estimate,) = first.document["estimates"]  # type: ignore[misc,union-attr]
    low, high = estimate["interval"]  # type: ignore[index,misc,call-overload]
    assert 120 <= low <= high <= 150
    again = federation.ask_command(MEDIAN, "--search", epsilon=50, analyst="bob")
    assert again.document["replayed"] is True
    assert again.document["estimates"] == first.document["estimates"]
    for plan in plans:
        federation.check_charged_once(str(plan))


@pytest.mark.slow
def test_a_dry_run_of_a_search_shows_the_split(federation: Federation) -> None:
    done = federation.ask_command(MEDIAN, "--search", "--dry-run", epsilon=20)
    assert done.code == 0, done.err
    rounds = done.document["rounds"]
    assert isinstance(rounds, list)
    assert len(rounds) == 10
    assert done.document["privacy"]["charged"]["epsilon"] == 20  # type: ignore[index,call-overload]
