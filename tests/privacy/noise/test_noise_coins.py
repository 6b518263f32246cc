"""Coins of probability exp(-x): bounds that hold, and outcomes enumerated bit by bit."""

from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import partial
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wardround.privacy.noise.bernoulli import Uniform, exp_enclosure, geometric
from wardround.privacy.noise.discrete import Proposal, proposal_for
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution
from wardround.privacy.noise.keystream import BitSource, WordVector

GAUSSIAN, LAPLACE = Mechanism.DISCRETE_GAUSSIAN, Mechanism.DISCRETE_LAPLACE
Outcome = TypeVar("Outcome")


class OutOfBitsError(Exception):
    pass


class Script:
    """Serves a fixed string of bits, then refuses."""

    def __init__(self, bits: tuple[int, ...]) -> None:
        self.remaining = list(bits)

    def words(self, count: int) -> WordVector:
        raise OutOfBitsError

    def bits(self, count: int) -> int:
        value = 0
        for _ in range(count):
            if not self.remaining:
                raise OutOfBitsError
            value = value << 1 | self.remaining.pop(0)
        return value


def enumerate_law(experiment: Callable[[BitSource], Outcome], depth: int) -> tuple[dict[Outcome, Fraction], Fraction]:
    """The exact probability of each outcome over all bit strings, and what `depth` bits leave open."""
    law: dict[Outcome, Fraction] = {}
    undecided = Fraction(0)
    open_strings: list[tuple[int, ...]] = [()]
    while open_strings:
        bits = open_strings.pop()
        try:
            outcome = experiment(Script(bits))
        except OutOfBitsError:
            if len(bits) < depth:
                open_strings += [(*bits, 0), (*bits, 1)]
            else:
                undecided += Fraction(1, 1 << depth)
        else:
            law[outcome] = law.get(outcome, Fraction(0)) + Fraction(1, 1 << len(bits))
    return law, undecided


def exp_minus(x: Fraction) -> Fraction:
    """exp(-x) to far more digits than any enumeration resolves."""
    with localcontext(prec=120):
        return Fraction((Decimal(-x.numerator) / Decimal(x.denominator)).exp())


@given(
    numerator=st.integers(0, 10**9),
    denominator=st.integers(1, 10**9),
    bits=st.integers(0, 200),
)
@settings(max_examples=300, deadline=None)
def test_the_enclosure_holds_the_exponential_and_is_one_unit_wide(numerator: int, denominator: int, bits: int) -> None:
    x = Fraction(numerator, denominator)
    if x > 1000:
        x /= 10**6
    low, high = exp_enclosure(x.numerator, x.denominator, bits)
    assert low <= exp_minus(x) * 2**bits * (1 + Fraction(1, 10**110))
    assert high >= exp_minus(x) * 2**bits * (1 - Fraction(1, 10**110))
    assert 0 <= high - low <= 2


@pytest.mark.parametrize("x", [Fraction(0), Fraction(1, 1024), Fraction(1, 3), Fraction(1), Fraction(7, 2)])
def test_a_coin_lands_heads_with_probability_exp_minus_x(x: Fraction) -> None:
    law, undecided = enumerate_law(lambda source: Uniform(source).is_below_exp(x.numerator, x.denominator), depth=60)
    assert law[True] <= exp_minus(x) <= law[True] + undecided
    assert undecided <= Fraction(2, 2**60)


def test_the_block_is_geometric() -> None:
    law, undecided = enumerate_law(lambda source: geometric(Uniform(source)), depth=30)
    for v, chance in law.items():
        exact = exp_minus(Fraction(v)) - exp_minus(Fraction(v + 1))
        assert chance <= exact <= chance + undecided
    assert undecided < Fraction(1, 2**24)
    assert len(law) > 18


def test_a_known_prefix_changes_no_outcome() -> None:
    for bits in np.ndindex((2,) * 10):
        head = int("".join(map(str, bits)), 2)
        tail = (1, 0) * 40
        assert geometric(Uniform(Script(tail), head, 10)) == geometric(Uniform(Script((*bits, *tail))))


def settle(proposal: Proposal, place: int, source: BitSource) -> tuple[bool, int]:
    return proposal.settle(place, Uniform(source), Uniform(source))


@pytest.mark.parametrize(
    "law",
    [
        NoiseDistribution(LAPLACE, Fraction(1, 4)),
        NoiseDistribution(LAPLACE, Fraction(1)),
        NoiseDistribution(LAPLACE, Fraction(3, 2)),
        NoiseDistribution(LAPLACE, Fraction(3073, 1024)),
        NoiseDistribution(GAUSSIAN, Fraction(1, 2)),
        NoiseDistribution(GAUSSIAN, Fraction(1)),
        NoiseDistribution(GAUSSIAN, Fraction(2561, 1024)),
        NoiseDistribution(GAUSSIAN, Fraction(4)),
    ],
    ids=str,
)
def test_every_kept_value_has_exactly_its_share_of_the_proposals(law: NoiseDistribution) -> None:
    proposal = proposal_for(law)
    places = [sign << 63 | u for sign in (0, 1) for u in range(1 << proposal.place_bits)]
    kept: dict[int, Fraction] = {}
    undecided = Fraction(0)
    for place in places:
        outcomes, still_open = enumerate_law(partial(settle, proposal, place), 16)
        undecided += still_open / len(places)
        for (is_kept, value), chance in outcomes.items():
            if is_kept:
                kept[value] = kept.get(value, Fraction(0)) + chance / len(places)

    b = law.scale
    constant = Fraction(proposal.constant, proposal.unit)
    for value, chance in kept.items():
        distance = abs(value) / b if law.mechanism is LAPLACE else value * value / (2 * b * b)
        # One factor for every value: the kept values follow the law itself.
        exact = (1 - exp_minus(Fraction(1))) / len(places) * exp_minus(distance + constant)
        assert chance <= exact <= chance + undecided
    assert undecided < Fraction(1, 300)
    assert {-1, 0, 1} <= set(kept)


@pytest.mark.parametrize("mechanism", list(Mechanism))
@given(k=st.integers(1, 1 << 60), v=st.integers(0, 200), u=st.integers(0, (1 << 51) - 1))
@settings(max_examples=300, deadline=None)
def test_no_proposal_would_need_a_probability_above_one(mechanism: Mechanism, k: int, v: int, u: int) -> None:
    proposal = proposal_for(NoiseDistribution(mechanism, Fraction(k, 1024)))
    y = (v << proposal.place_bits) + u % (1 << proposal.place_bits)
    assert proposal.exponent(y, v) >= 0
    assert proposal.place_bits <= 50
