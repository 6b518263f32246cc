"""Randomised response: its exact law and loss, and answers that follow it."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from wardround.privacy.accounting.cost import PURE_UNIT, Cost
from wardround.privacy.inference.exact_loss import divergence, response_law
from wardround.privacy.mechanisms.private_selection import exact_epsilon
from wardround.privacy.noise.keystream import KeyStream
from wardround.simulation.audit.coin_claims import Entries, ResponseFact, respond

RARE = 1e-10


@pytest.mark.parametrize("categories", [2, 3, 10])
def test_every_change_of_an_entry_costs_exactly_its_epsilon(categories: int) -> None:
    base = Fraction(3, 8)  # stands for exp(-ε)
    laws = [response_law(truth, categories=categories, base=base) for truth in range(categories)]
    for law in laws:
        assert sum(law.values()) == 1
        for other in laws:
            assert divergence(law, other, factor=1 / base) == 0
            if law is not other:
                assert divergence(law, other, factor=1 / base - Fraction(1, 10**9)) > 0


def test_a_unit_pays_for_every_entry_that_it_can_change() -> None:
    assert ResponseFact(Fraction(1, 4), 5, 3).cost() == Cost(mu_squared=0, pure=3 * PURE_UNIT // 4, slack=0)


@pytest.mark.parametrize(("categories", "epsilon"), [(2, 1.0), (4, 2.0)])
def test_answers_follow_the_law_and_two_per_cent_more_or_less_would_show(categories: int, epsilon: float) -> None:
    size = 2_000_000
    truth = np.full(size, 1)
    fact = ResponseFact(exact_epsilon(epsilon), categories, 1)
    answers = np.bincount(respond(Entries(truth, categories, 1), fact, KeyStream()), minlength=categories)

    def p_value(claimed: float) -> float:
        law = response_law(1, categories=categories, base=Fraction(math.exp(-claimed)))
        return float(stats.chisquare(answers, [float(size * law[i]) for i in range(categories)]).pvalue)

    assert p_value(epsilon) > RARE
    assert p_value(0.98 * epsilon) < RARE
    assert p_value(1.02 * epsilon) < RARE


def test_counts_are_estimated_without_bias_and_as_well_as_is_said() -> None:
    truth = np.repeat([0, 1, 2], [60_000, 30_000, 10_000])
    fact = ResponseFact(Fraction(1), 3, 1)
    answers = respond(Entries(truth, 3, 1), fact, KeyStream())
    honest, lie = (float(share) for share in (1 / (1 + 2 * math.exp(-1)), 1 / (math.exp(1) + 2)))
    deviation = math.sqrt(truth.size * max(lie * (1 - lie), honest * (1 - honest))) / (honest - lie)
    for seen, true in zip(np.bincount(answers, minlength=3).tolist(), (60_000, 30_000, 10_000), strict=True):
        assert abs((seen - truth.size * lie) / (honest - lie) - true) < 6.5 * deviation
    assert deviation < 700


def test_an_empty_vector_answers_nothing() -> None:
    fact = ResponseFact(Fraction(1), 2, 1)
    assert respond(Entries(np.array([], np.int64), 2, 1), fact, KeyStream()).size == 0


def test_entries_never_show_themselves() -> None:
    assert "7" not in repr(Entries(np.array([7]), 8, 1))


def test_what_cannot_be_answered_or_charged_is_refused() -> None:
    for values in (np.array([2]), np.array([-1])):
        with pytest.raises(ValueError, match="not one of the categories"):
            Entries(values, 2, 1)
    for values in (np.array([[1]]), np.array([1.0])):
        with pytest.raises(ValueError, match="vector of int64"):
            Entries(values, 2, 1)
    for categories, changes in ((1, 1), (2, 0)):
        with pytest.raises(ValueError, match="at least 2 categories"):
            Entries(np.array([0]), categories, changes)
        with pytest.raises(ValueError, match="at least 2 categories"):
            ResponseFact(Fraction(1), categories, changes)
    with pytest.raises(ValueError, match="ε must be"):
        ResponseFact(Fraction(1, 3), 2, 1)
    with pytest.raises(ValueError, match="paid for"):
        respond(Entries(np.array([0]), 2, 2), ResponseFact(Fraction(1), 2, 1), KeyStream())
