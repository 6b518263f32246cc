"""Facts in a ledger: every kind comes back, costs are derived again, and what is altered is noticed."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.federation.ledger.ledger_bench import DATE, SELECTION, Bench, charge, fact, plan_id, spend
from wardround.federation.errors import InvariantBroken, LedgerCorrupt
from wardround.federation.forms.release import Release, release_hash
from wardround.federation.ledger import chain
from wardround.federation.ledger.entry_body import encode_body, facts_body, facts_in
from wardround.federation.ledger.verify.verify import verify
from wardround.federation.plan.plan import Charge
from wardround.privacy.accounting.cost import Cost, Fact
from wardround.privacy.budget.facts import AnyFact, BlockFact, StageFact, StepFact
from wardround.privacy.budget.filter import Cap
from wardround.privacy.mechanisms.partition_selection import SelectionFact
from wardround.privacy.mechanisms.private_selection import ChoiceFact, Choosing
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution

A_STAGE = StageFact(NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, Fraction(640)), 4096, 3, 2, Fraction(3, 8))
VOTE = ChoiceFact(Choosing.PERMUTE_AND_FLIP, Fraction(1, 2), 3)
laws = st.builds(
    NoiseDistribution, st.sampled_from(Mechanism), st.integers(4096, 2**60).map(lambda k: Fraction(k, 1024))
)
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
stages = st.lists(
    st.builds(
        lambda scale, norm, dimension, count, rate: StageFact(
            NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, scale), norm, dimension, count, Fraction(rate, 2**32)
        ),
        st.integers(4096, 2**60).map(lambda k: Fraction(k, 1024)),
        sizes,
        sizes,
        st.integers(1, 10**5),
        st.integers(1, 2**32),
    ),
    max_size=3,
).map(tuple)
digests = st.integers(0, 2**256 - 1).map(lambda number: f"{number:064x}")
steps = st.builds(StepFact, digests, st.integers(0, 10**5), sizes)
blocks = st.builds(
    lambda block, place, more, dimension, trained, held_out, slack: BlockFact(
        block, place, place + more, dimension, trained or (A_STAGE,), held_out, slack
    ),
    digests,
    st.integers(0, 10**4),
    st.integers(1, 10**4),
    sizes,
    stages,
    stages,
    st.integers(0, 2**60),
)
facts = st.lists(st.builds(Fact, laws, sizes, sizes, sizes) | selections | choices | steps | blocks, max_size=4).map(
    tuple
)


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
    spend(bench.ledger, "vote", Charge(plan_id("vote"), (VOTE,)))
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
    spend(bench.ledger, "keys")
    with pytest.raises(InvariantBroken):
        bench.ledger.keep(Release(plan_id("keys"), "st-mary", DATE.isoformat(), np.array(values), keys))
    assert bench.ledger.undelivered() == []
    bench.ledger.close()


@pytest.mark.parametrize("words", [("keys", "keys without"), ("a", "keys")])
def test_bytes_of_another_extent_than_paid_for_are_found(tmp_path: Path, words: tuple[str, str]) -> None:
    """Whoever holds the site's key can sign anything; the facts still say how much was paid for."""
    bench = Bench(tmp_path)
    paid, given = words
    spend(bench.ledger, paid)
    release = bench.release(given)
    keys = release.keys if given == "keys" else ()
    payload = Release(plan_id(paid), "st-mary", DATE.isoformat(), release.values, keys).encode()
    with bench.ledger._database.transaction() as connection:
        body = {"plan_id": plan_id(paid), "release_hash": release_hash(payload)}
        entry = chain.append(connection, bench.identity, kind="released", body=body)
        connection.execute("INSERT INTO releases VALUES (?, ?, ?)", (plan_id(paid), entry.sequence, payload))
    assert [problem.code.value for problem in verify(tmp_path).problems] == ["AlteredBytes"]
    bench.ledger.close()


BLOCK = BlockFact("0f" * 32, 1, 3, 3, (A_STAGE,), (), 7)


def test_a_block_is_written_as_digits_and_fractions() -> None:
    assert encode_body({"facts": facts_body([BLOCK, StepFact("0f" * 32, 2, 3)])}) == (
        '{"facts":[{"block":"' + "0f" * 32 + '","dimension":"3","held_out":[],"place":"1","rounds":"3","slack":"7",'
        '"trained":[{"count":"2","dimension":"3","l2_squared":"4096","mechanism":"discrete_gaussian","rate":"3/8",'
        '"scale_1024ths":"655360"}]},{"block":"' + "0f" * 32 + '","dimension":"3","place":"2"}]}'
    )


def altered(**changes: object) -> dict[str, object]:
    (body,) = json.loads(encode_body({"facts": facts_body([BLOCK])}))["facts"]
    stage = {key.removeprefix("stage_"): value for key, value in changes.items() if key.startswith("stage_")}
    body["trained"][0].update(stage)
    body.update({key: value for key, value in changes.items() if not key.startswith("stage_")})
    return {"facts": [body]}


@pytest.mark.parametrize(
    "change",
    [
        {"block": "0f"},
        {"block": "0F" * 32},
        {"block": 7},
        {"place": "3"},
        {"place": "-1"},
        {"place": 1},
        {"rounds": "100001", "place": "0"},
        {"dimension": "0"},
        {"slack": "+7"},
        {"trained": []},
        {"trained": "none"},
        {"trained": [7]},
        {"held_out": None},
        {"stage_rate": "6/16"},
        {"stage_rate": "3/0"},
        {"stage_rate": "1/3"},
        {"stage_rate": "3"},
        {"stage_rate": "9/8"},
        {"stage_rate": "0/1"},
        {"stage_rate": "0.375"},
        {"stage_count": "100001"},
        {"stage_count": "0"},
        {"stage_mechanism": "discrete_laplace"},
        {"stage_l2_squared": "0"},
        {"stage_scale_1024ths": "1/2"},
    ],
    ids=str,
)
def test_a_block_that_no_plan_could_have_is_corrupt(change: dict[str, object]) -> None:
    assert facts_in(altered()) == (BLOCK,)
    with pytest.raises(LedgerCorrupt):
        facts_in(altered(**change))


def test_more_stages_than_any_training_has_are_corrupt() -> None:
    (stage,) = altered()["facts"][0]["trained"]  # type: ignore[index]
    with pytest.raises(LedgerCorrupt):
        facts_in(altered(trained=[stage] * 17))
