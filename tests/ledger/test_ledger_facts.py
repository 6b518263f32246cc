"""Facts in a ledger: every kind comes back, costs are derived again, and what is altered is noticed."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ledger.ledger_bench import DATE, SELECTION, Bench, charge, fact, plan_id
from wardround.federation.errors import InvariantBroken, LedgerCorrupt
from wardround.federation.ledger import chain
from wardround.federation.ledger.body import encode_body, facts_body, facts_in
from wardround.federation.ledger.entry import EMPTY
from wardround.federation.ledger.verify import verify
from wardround.federation.plan import Charge
from wardround.federation.release import Release, release_hash
from wardround.privacy.facts import AnyFact
from wardround.privacy.filter import Cap
from wardround.privacy.law import Mechanism, NoiseLaw
from wardround.privacy.loss import Cost, Fact
from wardround.privacy.selection import ChoiceFact, Choosing
from wardround.privacy.thresholding import SelectionFact

VOTE = ChoiceFact(Choosing.PERMUTE_AND_FLIP, Fraction(1, 2), 3)
laws = st.builds(NoiseLaw, st.sampled_from(Mechanism), st.integers(4096, 2**60).map(lambda k: Fraction(k, 1024)))
sizes = st.integers(1, 10**6)
selections = st.builds(
    lambda law, threshold, most, steps: SelectionFact(
        law, threshold + 1000, most, steps if law.mechanism is Mechanism.DISCRETE_GAUSSIAN else 1
    ),
    laws,
    st.integers(0, 2**59),
    st.integers(1, 10**4),
    st.integers(1, 1000),
)
choices = st.builds(ChoiceFact, st.sampled_from(Choosing), sizes.map(lambda k: Fraction(k, 2**40)), sizes)
facts = st.lists(st.builds(Fact, laws, sizes, sizes, sizes) | selections | choices, max_size=4).map(tuple)


@given(facts)
def test_every_fact_comes_back_from_an_entry(written: tuple[AnyFact, ...]) -> None:
    text = encode_body({"facts": facts_body(written)})
    assert facts_in(json.loads(text)) == written


def test_the_facts_of_older_ledgers_have_the_bytes_they_always_had() -> None:
    assert encode_body({"facts": facts_body([fact()])}) == (
        '{"facts":[{"dimension":"3","l1":"64","l2_squared":"4096","mechanism":"discrete_gaussian",'
        '"scale_1024ths":"409600"}]}'
    )


def test_a_selection_and_a_choice_are_written_as_digits() -> None:
    assert facts_body([SELECTION, VOTE]) == [
        {
            "mechanism": "discrete_gaussian",
            "scale_1024ths": "655360",
            "threshold": "4500",
            "max_keys": "2",
            "steps": "64",
        },
        {"mechanism": "permute_and_flip", "pure": str(2**39), "dimension": "3"},
    ]


SELECTED, CHOSEN = facts_body([SELECTION, VOTE])
BROKEN: dict[str, object] = {
    "no threshold worth the name": {**SELECTED, "threshold": "0"},  # type: ignore[dict-item]
    "a threshold that is no number": {**SELECTED, "threshold": "-1"},  # type: ignore[dict-item]
    "no keys a unit": {**SELECTED, "max_keys": "0"},  # type: ignore[dict-item]
    "no steps": {**SELECTED, "steps": "0"},  # type: ignore[dict-item]
    "no choice": {**CHOSEN, "dimension": "0"},  # type: ignore[dict-item]
    "a free choice": {**CHOSEN, "pure": "0"},  # type: ignore[dict-item]
    "an unknown mechanism": {**CHOSEN, "mechanism": "by hand"},  # type: ignore[dict-item]
    "noise under the name of a choice": {**SELECTED, "mechanism": "permute_and_flip"},  # type: ignore[dict-item]
    "no map": "permute_and_flip",
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_fact_that_nobody_could_have_paid_for_is_corrupt(fault: str) -> None:
    with pytest.raises(LedgerCorrupt):
        facts_in({"facts": [BROKEN[fault]]})


def test_a_ledger_with_every_kind_of_fact_is_valid_and_costs_what_they_cost(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.ledger.set_cap(cap := Cap(epsilon=3.0, delta=1e-6, pure_epsilon=1.0))
    bench.answer("a")
    bench.answer("keys")
    bench.ledger.spend(Charge(plan_id("vote"), (VOTE,)), head=EMPTY)
    bench.ledger.keep(Release(plan_id("vote"), "st-mary", DATE.isoformat(), np.array([0, 1, 0])))
    spent = charge("a").cost + SELECTION.cost() + Cost(mu_squared=0, pure=2**39, slack=0)
    assert bench.ledger.spent() == spent
    assert spent.fits(cap.allowance())
    verdict = verify(tmp_path)
    assert verdict.problems == ()
    assert [line.values for line in bench.ledger.history()] == [3, 3, 3]
    bench.ledger.close()


@pytest.mark.parametrize(
    ("values", "keys"),
    [((5000,), ()), ((4500,), ("a",)), ((5000, 5000), ("a",)), ((5000,), ("a", "b"))],
)
def test_keys_that_were_not_paid_for_cannot_be_kept(
    tmp_path: Path, values: tuple[int, ...], keys: tuple[str, ...]
) -> None:
    bench = Bench(tmp_path)
    bench.ledger.spend(charge("keys"), head=EMPTY)
    with pytest.raises(InvariantBroken):
        bench.ledger.keep(Release(plan_id("keys"), "st-mary", DATE.isoformat(), np.array(values), keys))
    assert bench.ledger.undelivered() == []
    bench.ledger.close()


@pytest.mark.parametrize("words", [("keys", "keys without"), ("a", "keys")])
def test_bytes_of_another_extent_than_paid_for_are_found(tmp_path: Path, words: tuple[str, str]) -> None:
    """Whoever holds the site's key can sign anything; the facts still say how much was paid for."""
    bench = Bench(tmp_path)
    paid, given = words
    bench.ledger.spend(charge(paid), head=EMPTY)
    release = bench.release(given)
    keys = release.keys if given == "keys" else ()
    payload = Release(plan_id(paid), "st-mary", DATE.isoformat(), release.values, keys).encode()
    with bench.ledger._database.transaction() as connection:
        body = {"plan_id": plan_id(paid), "release_hash": release_hash(payload)}
        entry = chain.append(connection, bench.identity, kind="released", body=body)
        connection.execute("INSERT INTO releases VALUES (?, ?, ?)", (plan_id(paid), entry.sequence, payload))
    assert [problem.code.value for problem in verify(tmp_path).problems] == ["AlteredBytes"]
    bench.ledger.close()
