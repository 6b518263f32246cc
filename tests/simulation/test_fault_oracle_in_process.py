"""Every invariant under every fault of the network, seen through three sites with counts 1, 10 and 100."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.exploring import examples
from tests.simulation.faulty_links import TRUTH, Fault, Oracle
from wardround.analyst.showing.result import Result
from wardround.federation.errors import TooFewSites

COUNT = "SELECT COUNT(*) FROM visits"
# Nobody is ever counted twice: no digit but 0 and 1.
POSSIBLE = {1, 10, 11, 100, 101, 110, 111}


def ask(oracle: Oracle, *, fresh: bool = False) -> Result | None:
    """The answer, or None when too few sites answered in time."""
    try:
        return oracle.client.ask(COUNT, epsilon=2.0, fresh=fresh)
    except TooFewSites:
        return None


def check_one_round(oracle: Oracle) -> None:
    """Ask through the faults, then without; the numbers and the ledgers must be right throughout."""
    first = ask(oracle)
    if first is not None:
        value = first.answer.estimates[0].value
        assert value == sum(TRUTH[site] for site in first.answer.answered)
        assert value in POSSIBLE
        assert set(first.answer.answered) | set(first.answer.missing) == set(TRUTH)
    for link in oracle.links.values():
        link.schedule = {}
    oracle.settle()
    again = ask(oracle)
    assert again is not None
    if first is None:
        assert again.answer.estimates[0].value == 111, "progress once faults stop"
    else:
        assert again.answer.estimates == first.answer.estimates, "answers are immutable"
        assert again.answer.replayed
    oracle.verify()
    for site in TRUTH:
        assert oracle.kinds(site).count("charged") <= 1
        assert (
            oracle.kinds(site).count("released")
            == oracle.kinds(site).count("charged")
            == len(oracle.rows(site).events) / 2
        )
    fresh = ask(oracle, fresh=True)
    assert fresh is not None
    assert fresh.answer.estimates[0].value == 111, "nobody stays away when faults have stopped"
    oracle.verify()
    spent = {site.name: site.spent for site in oracle.client.budget().report.sites}
    assert len(set(spent.values())) == 1


def test_without_faults_everybody_counts_once(tmp_path: Path) -> None:
    oracle = Oracle(tmp_path, {})
    check_one_round(oracle)
    assert oracle.links["one"].names[:2] == ["claim", "submit"]
    oracle.close()


@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name.lower())
def test_one_fault_at_every_call_of_every_site(fault: Fault) -> None:
    """The first three calls of a round: claim, submit, and the claim (or second delivery) after them."""
    for number in range(3):
        for site in TRUTH:
            with TemporaryDirectory() as folder:
                oracle = Oracle(Path(folder), {site: {number: fault}})
                check_one_round(oracle)
                oracle.close()


@pytest.mark.parametrize(("absent", "value"), [("one", 110), ("two", 101), ("three", 11)])
def test_a_site_that_cannot_be_reached_is_missing(tmp_path: Path, absent: str, value: int) -> None:
    oracle = Oracle(tmp_path, {absent: dict.fromkeys(range(1000), Fault.LOST_REQUEST)})
    answer = ask(oracle)
    assert answer is not None
    assert (answer.answer.estimates[0].value, answer.answer.missing) == (value, (absent,))
    oracle.verify()
    oracle.close()


SCHEDULES = st.dictionaries(
    st.sampled_from(sorted(TRUTH)), st.dictionaries(st.integers(0, 9), st.sampled_from(Fault), max_size=6), max_size=3
)


@given(SCHEDULES)
@settings(max_examples=examples(25, 60))
def test_any_schedule_of_faults_keeps_every_invariant(schedules: dict[str, dict[int, Fault]]) -> None:
    with TemporaryDirectory() as folder:
        oracle = Oracle(Path(folder), schedules)
        check_one_round(oracle)
        oracle.close()
