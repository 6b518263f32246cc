"""Choices: their exact laws, their exact loss, and draws that follow them."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from wardround.privacy.accounting.cost import PURE_UNIT, Cost
from wardround.privacy.inference.exact_loss import choice_law, divergence
from wardround.privacy.mechanisms.private_selection import (
    ChoiceFact,
    Choosing,
    Scores,
    _among_the_true,
    choose,
    exact_epsilon,
    independent_choices,
)
from wardround.privacy.noise.bernoulli import Flips
from wardround.privacy.noise.keystream import BitSource, KeyStream, WordVector
from wardround.privacy.noise.vectors import IntVector

RARE = 1e-10
ICD = np.array([10, 8, 5, 0])
BOTH = pytest.mark.parametrize("choosing", list(Choosing))


def gaps(scores: list[int]) -> list[int]:
    return Scores(np.array(scores), 1, monotone=False).gaps()


def law_of(scores: list[int], fact: ChoiceFact, *, monotone: bool, sensitivity: int = 1) -> list[float]:
    rate = fact.rate(Scores(np.array(scores), sensitivity, monotone=monotone))
    law = choice_law(gaps(scores), choosing=fact.choosing, base=Fraction(math.exp(-rate)))
    return [float(law[i]) for i in range(len(scores))]


def test_the_icd_code_that_describes_the_cohort_best_is_chosen_two_times_in_three() -> None:
    fact = ChoiceFact(Choosing.EXPONENTIAL, Fraction(1))
    assert [round(p, 4) for p in law_of([10, 8, 5, 0], fact, monotone=False)] == [0.6865, 0.2525, 0.0563, 0.0046]
    assert [round(p, 4) for p in law_of([10, 8, 5, 0], fact, monotone=True)] == [0.8756, 0.1185, 0.0059, 0.0]
    drawn = np.bincount(independent_choices(Scores(ICD, 1, monotone=False), fact, 100_000, KeyStream()), minlength=4)
    expected = 100_000 * np.array(law_of([10, 8, 5, 0], fact, monotone=False))
    assert stats.chisquare(drawn, expected).pvalue > RARE


@BOTH
@pytest.mark.parametrize("sensitivity", [1, 2])
def test_no_move_of_the_scores_within_their_sensitivity_costs_more_than_is_charged(
    choosing: Choosing, sensitivity: int
) -> None:
    base = Fraction(3, 5)  # stands for exp(-ε/2Δ)
    factor = base ** -(2 * sensitivity)
    losses = []
    for scores in ([0, 0, 0], [3, 1, 0], [5, 5, 1]):
        law = choice_law(gaps(scores), choosing=choosing, base=base)
        for move in itertools.product(range(-sensitivity, sensitivity + 1), repeat=3):
            moved = choice_law(gaps([a + b for a, b in zip(scores, move, strict=True)]), choosing=choosing, base=base)
            assert divergence(law, moved, factor=factor) == 0
            assert divergence(moved, law, factor=factor) == 0
            losses += [float(law[i] / moved[i]) for i in range(3)]
    # Not far from all of it is really lost: the 2 in ε/2Δ is needed.
    assert math.log(max(losses)) > 0.8 * math.log(factor)


@BOTH
@pytest.mark.parametrize("sensitivity", [1, 2])
def test_monotone_scores_need_no_factor_two(choosing: Choosing, sensitivity: int) -> None:
    base = Fraction(2, 5)  # stands for exp(-ε/Δ)
    factor = base**-sensitivity
    for scores in ([0, 0, 0], [3, 1, 0], [5, 5, 1]):
        law = choice_law(gaps(scores), choosing=choosing, base=base)
        for move in itertools.product(range(sensitivity + 1), repeat=3):
            moved = choice_law(gaps([a + b for a, b in zip(scores, move, strict=True)]), choosing=choosing, base=base)
            assert divergence(law, moved, factor=factor) == 0
            assert divergence(moved, law, factor=factor) == 0


def test_scores_that_are_not_monotone_do_need_it() -> None:
    base = Fraction(2, 5)
    law = choice_law(gaps([1, 0, 0, 0]), choosing=Choosing.EXPONENTIAL, base=base)
    moved = choice_law(gaps([0, 1, 1, 1]), choosing=Choosing.EXPONENTIAL, base=base)
    assert divergence(law, moved, factor=1 / base) > 0


@settings(max_examples=60)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=6), st.fractions(Fraction(1, 50), Fraction(49, 50)))
def test_laws_add_up_and_permute_and_flip_never_chooses_worse(scores: list[int], base: Fraction) -> None:
    mean = {}
    for choosing in Choosing:
        law = choice_law(gaps(scores), choosing=choosing, base=base)
        assert sum(law.values()) == 1
        mean[choosing] = sum(scores[i] * p for i, p in law.items())
    assert mean[Choosing.PERMUTE_AND_FLIP] >= mean[Choosing.EXPONENTIAL]


class Outcomes:
    """Coins that have already fallen, in the place of `Coins`."""

    def __init__(self, fallen: tuple[bool, ...]) -> None:
        self.fallen = fallen

    def flip(self, kinds: IntVector, source: BitSource) -> Flips:
        return np.array(self.fallen)[kinds]


class Number:
    """A source whose every word begins with the bits of one number."""

    def __init__(self, number: int, limit: int) -> None:
        self.word = number << (64 - max(1, (limit - 1).bit_length()))

    def words(self, count: int) -> WordVector:
        return np.full(count, self.word, np.uint64)

    def bits(self, count: int) -> int:
        raise AssertionError(count)


def test_one_of_the_true_coins_is_exactly_permute_and_flip() -> None:
    base, scores = Fraction(1, 3), [4, 3, 3, 1]
    weights = [base**gap for gap in gaps(scores)]
    law = dict.fromkeys(range(4), Fraction(0))
    for fallen in itertools.product((False, True), repeat=4):
        chance = math.prod((w if heads else 1 - w for w, heads in zip(weights, fallen, strict=True)), start=Fraction(1))
        if chance:
            for place in range(sum(fallen)):
                (drawn,) = _among_the_true(Outcomes(fallen), 4, 1, Number(place, sum(fallen)))  # type: ignore[arg-type]
                law[drawn] += chance / sum(fallen)
    assert law == choice_law(gaps(scores), choosing=Choosing.PERMUTE_AND_FLIP, base=base)


def test_permute_and_flip_is_report_noisy_max_with_exponential_noise() -> None:
    scores, rate = [2.0, 1.0, 0.0], 0.7
    law = choice_law(gaps([2, 1, 0]), choosing=Choosing.PERMUTE_AND_FLIP, base=Fraction(math.exp(-rate)))
    for i, own in enumerate(scores):
        others = scores[:i] + scores[i + 1 :]

        def wins(x: float, own: float = own, others: list[float] = others) -> float:
            above = [max(0.0, 1.0 - math.exp(-rate * (x - other))) for other in others]
            return rate * math.exp(-rate * (x - own)) * math.prod(above)

        assert integrate.quad(wins, own, 80.0, points=[2.0], limit=200)[0] == pytest.approx(float(law[i]), abs=1e-9)


def hard_to_choose(epsilon: float, choosing: Choosing) -> tuple[Scores, ChoiceFact]:
    """One best candidate against four hundred others: the choice most sensitive to ε."""
    return Scores(np.array([6] + 400 * [0]), 1, monotone=True), ChoiceFact(choosing, exact_epsilon(epsilon))


@BOTH
def test_draws_follow_the_law_and_two_per_cent_more_or_less_would_show(choosing: Choosing) -> None:
    draws = 60_000
    scores, fact = hard_to_choose(1.0, choosing)
    best = int((independent_choices(scores, fact, draws, KeyStream()) == 0).sum())

    def chance(epsilon: float) -> float:
        w = math.exp(-6 * epsilon)
        # ∫₀¹ (1 - tw)^400 dt in closed form.
        return 1 / (1 + 400 * w) if choosing is Choosing.EXPONENTIAL else (1 - (1 - w) ** 401) / (401 * w)

    assert stats.binomtest(best, draws, chance(1.0)).pvalue > RARE
    assert stats.binomtest(best, draws, chance(0.98)).pvalue < RARE
    assert stats.binomtest(best, draws, chance(1.02)).pvalue < RARE


@BOTH
def test_extreme_scores_neither_overflow_nor_stall(choosing: Choosing) -> None:
    values = np.array([2**63 - 1, -(2**63), 2**63 - 1])
    fact = ChoiceFact(choosing, Fraction(1))
    drawn = {choose(Scores(values, 1, monotone=False), fact, KeyStream()) for _ in range(200)}
    assert drawn == {0, 2}


def test_a_choice_costs_its_epsilon_in_the_pure_lane() -> None:
    for choosing in Choosing:
        assert ChoiceFact(choosing, Fraction(1, 4)).cost() == Cost(mu_squared=0, pure=PURE_UNIT // 4, slack=0)
    assert exact_epsilon(0.1) <= Fraction(0.1) < exact_epsilon(0.1) + Fraction(1, PURE_UNIT)


def test_scores_never_show_themselves() -> None:
    assert "10" not in repr(Scores(ICD, 1, monotone=True))


def test_what_cannot_be_scored_or_charged_is_refused() -> None:
    for values in (np.array([], np.int64), np.array([[1]]), np.array([1.0])):
        with pytest.raises(ValueError, match="vector of int64"):
            Scores(values, 1, monotone=True)
    with pytest.raises(ValueError, match="sensitivity"):
        Scores(ICD, 0, monotone=True)
    for epsilon in (Fraction(0), Fraction(-1), Fraction(1, 3)):
        with pytest.raises(ValueError, match="ε must be"):
            ChoiceFact(Choosing.EXPONENTIAL, epsilon)
    for number in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="ε must be"):
            exact_epsilon(number)
