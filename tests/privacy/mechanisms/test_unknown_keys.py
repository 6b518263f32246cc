"""Unknown keys: δ against exact enumeration, optimality, and draws that follow the law."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from wardround.privacy.accounting.cost import MU_UNIT, PURE_UNIT, SLACK_UNIT
from wardround.privacy.inference.exact_loss import cut_off_law, divergence, pmf
from wardround.privacy.mechanisms.partition_selection import (
    LARGEST_COUNT,
    KeyCounts,
    SelectionFact,
    gaussian_threshold,
    laplace_threshold,
    select,
)
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution
from wardround.privacy.noise.keystream import KeyStream, WordVector

RARE = 1e-10
LAPLACE, GAUSSIAN = Mechanism.DISCRETE_LAPLACE, Mechanism.DISCRETE_GAUSSIAN
BASES = pytest.mark.parametrize("base", [Fraction(1, 3), Fraction(4, 5)])


def laplace(scale: Fraction, threshold: int, max_keys: int = 1) -> SelectionFact:
    return SelectionFact(NoiseDistribution(LAPLACE, scale), threshold, max_keys)


def edge(base: Fraction, threshold: int) -> Fraction:
    """The claimed δ of one key, with the rational base for exp(-1/b)."""
    return base**threshold * (1 - base) / (1 + base - 2 * base ** (threshold + 1))


@BASES
@pytest.mark.parametrize("threshold", [1, 2, 5])
def test_delta_is_exactly_what_one_unit_more_or_less_of_a_key_can_reveal(base: Fraction, threshold: int) -> None:
    worst = Fraction(0)
    for count in range(3 * threshold + 2):
        without = cut_off_law(count, threshold=threshold, base=base)
        with_one = cut_off_law(count + 1, threshold=threshold, base=base)
        worst = max(worst, divergence(with_one, without, factor=1 / base))
        worst = max(worst, divergence(without, with_one, factor=1 / base))
    assert worst == edge(base, threshold)


@BASES
@pytest.mark.parametrize("counts", [(0, 0), (0, 3), (2, 2), (5, 9)])
def test_a_unit_with_two_keys_costs_twice_the_exponent_and_the_chance_of_either(
    base: Fraction, counts: tuple[int, int]
) -> None:
    def joint(first: int, second: int) -> dict[tuple[int | None, int | None], Fraction]:
        laws = (cut_off_law(count, threshold=3, base=base) for count in (first, second))
        pairs = itertools.product(*(law.items() for law in laws))
        return {(a, b): p * q for (a, p), (b, q) in pairs}

    without, with_one = joint(*counts), joint(counts[0] + 1, counts[1] + 1)
    claimed = 1 - (1 - edge(base, 3)) ** 2
    assert divergence(with_one, without, factor=base**-2) <= claimed
    assert divergence(without, with_one, factor=base**-2) <= claimed
    if counts == (0, 0):
        assert divergence(with_one, without, factor=base**-2) == claimed


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(5, 4), Fraction(10)])
@pytest.mark.parametrize("max_keys", [1, 2, 64, 65])
def test_the_charged_delta_is_the_true_one_rounded_up(scale: Fraction, max_keys: int) -> None:
    for threshold in (1, 7, 60):
        # The enumerated probability that a lone unit's key is shown.
        weights = [Fraction(math.exp(-abs(x) / scale)) for x in range(-threshold, threshold + 1)]
        alone = float(weights[-1] / sum(weights))
        exact = -math.expm1(max_keys * math.log1p(-alone))
        charged = laplace(scale, threshold, max_keys).delta()
        assert float(charged) >= exact * (1 - 1e-12)
        union = max_keys > 64
        assert float(charged) <= min(1.0, max_keys * alone if union else exact) * (1 + 1e-9)
        slack = laplace(scale, threshold, max_keys).cost().slack
        assert charged * SLACK_UNIT <= slack < charged * SLACK_UNIT + 1


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.1, 1e-5), (2.0, 1e-9), (0.5, 0.01)])
def test_the_threshold_is_that_of_the_optimal_selection(epsilon: float, delta: float) -> None:
    scale = Fraction(1024, 1024) / Fraction(epsilon).limit_denominator(1000)
    scale = Fraction(round(scale * 1024), 1024)
    epsilon = float(1 / scale)
    formula = math.ceil(math.log((math.expm1(epsilon) + 2 * delta) / ((math.exp(epsilon) + 1) * delta)) / epsilon)
    assert laplace_threshold(scale=scale, delta=delta, max_keys=1) == formula


@BASES
def test_keys_are_kept_as_often_as_any_private_rule_could(base: Fraction) -> None:
    threshold, factor = 4, 1 / base
    delta = edge(base, threshold)
    best = Fraction(0)
    for count in range(1, 4 * threshold):
        # The most that (ε, δ) allows, given the chance one unit earlier (Desfontaines et al., theorem 1).
        best = min(factor * best + delta, 1 - base * (1 - best - delta), Fraction(1))
        assert 1 - cut_off_law(count, threshold=threshold, base=base)[None] == best


@pytest.mark.parametrize("steps", [1, 64])
@pytest.mark.parametrize("max_keys", [1, 3])
def test_the_gaussian_delta_is_above_enumeration_and_hardly_more(steps: int, max_keys: int) -> None:
    scale = Fraction(5 * steps)
    threshold = gaussian_threshold(scale=scale, delta=1e-6, max_keys=max_keys, steps=steps)
    fact = SelectionFact(NoiseDistribution(GAUSSIAN, scale), threshold, max_keys, steps)
    noise = pmf(fact.law)
    alone = math.fsum(noise.probabilities[threshold - steps + 1 - noise.first :])
    exact = -math.expm1(max_keys * math.log1p(-alone))
    assert exact <= fact.delta() <= Fraction(1e-6)
    assert float(fact.delta()) < exact * (1.1 if steps == 64 else 4)
    below = SelectionFact(fact.law, threshold - 1, max_keys, steps)
    assert below.delta() > Fraction(1e-6)


def test_each_noise_is_charged_in_its_own_lane() -> None:
    cost = laplace(Fraction(4), 80, max_keys=3).cost()
    assert (cost.mu_squared, cost.pure) == (0, 3 * PURE_UNIT // 4)
    assert 0 < cost.slack < 1e-6 * SLACK_UNIT
    cost = SelectionFact(NoiseDistribution(GAUSSIAN, Fraction(640)), 6000, 3, 64).cost()
    assert cost.pure == 0
    assert 0.03 <= cost.mu_squared / MU_UNIT < 0.03001
    assert cost.slack > 0


def test_shown_counts_follow_the_law_and_two_per_cent_more_or_less_would_show() -> None:
    # So many units hold each key that even the least noise shows it.
    names, threshold = 500_000, 40
    fact = laplace(Fraction(5), threshold)
    shown = select(KeyCounts(dict.fromkeys(map(str, range(names)), 2 * threshold + 1), 1), fact, KeyStream())
    size = np.abs(np.array([int(value) for value in shown.values()]) - 2 * threshold - 1)
    assert len(shown) == names

    def p_value(scale: float) -> float:
        law = cut_off_law(2 * threshold + 1, threshold=threshold, base=Fraction(math.exp(-1 / scale)))
        chances = [(abs(k - 2 * threshold - 1), float(p)) for k, p in law.items() if k is not None]
        mean = math.fsum(k * p for k, p in chances)
        deviation = math.sqrt(math.fsum((k - mean) ** 2 * p for k, p in chances) / names)
        return float(2 * stats.norm.sf(abs(size.mean() - mean) / deviation))

    assert p_value(5.0) > RARE
    assert p_value(4.9) < RARE
    assert p_value(5.1) < RARE


def test_a_key_near_the_threshold_is_shown_as_often_as_enumeration_says() -> None:
    names, threshold = 100_000, 6
    for count in (1, 4, 7, 11):
        keys = KeyCounts(dict.fromkeys(map(str, range(names)), count), 1)
        shown = select(keys, laplace(Fraction(2), threshold), KeyStream())
        law = cut_off_law(count, threshold=threshold, base=Fraction(math.exp(-0.5)))
        assert min(shown.values()) > threshold
        assert stats.binomtest(len(shown), names, float(1 - law[None])).pvalue > RARE


class Seeded:
    """Repeatable bits."""

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def words(self, count: int) -> WordVector:
        return self.generator.integers(0, 2**64, count, np.uint64)

    def bits(self, count: int) -> int:
        return int.from_bytes(self.generator.bytes((count + 7) // 8), "little") >> (-count % 8)


def test_the_order_of_the_rows_shows_nowhere() -> None:
    fact = laplace(Fraction(1), 4)
    counts = dict.fromkeys("hgfedcba", 30)
    one = select(KeyCounts(counts, 1), fact, Seeded(3))
    other = select(KeyCounts(dict(sorted(counts.items())), 1), fact, Seeded(3))
    assert list(one.items()) == list(other.items())
    assert list(one) == sorted(one) == list("abcdefgh")


def test_a_common_key_is_shown_and_nobodys_key_never() -> None:
    law = NoiseDistribution(GAUSSIAN, Fraction(320))
    fact = SelectionFact(law, gaussian_threshold(scale=law.scale, delta=1e-9, max_keys=2, steps=64), 2, 64)
    shown = select(KeyCounts({"E11": 5_000, "rare": 1, "huge": LARGEST_COUNT}, 2), fact, KeyStream())
    assert set(shown) == {"E11", "huge"}
    assert abs(shown["E11"] / 64 - 5_000) < 60
    assert shown["huge"] < 2 * LARGEST_COUNT
    assert select(KeyCounts({}, 2), fact, KeyStream()) == {}


def test_keys_never_show_themselves() -> None:
    assert "E11" not in repr(KeyCounts({"E11": 1}, 1))


def test_what_cannot_be_selected_or_charged_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 key"):
        KeyCounts({}, 0)
    for count in (0, LARGEST_COUNT + 1):
        with pytest.raises(ValueError, match="somebody holds it"):
            KeyCounts({"a": count}, 1)
    law = NoiseDistribution(LAPLACE, Fraction(1))
    for threshold, max_keys, steps in ((1, 0, 1), (1, 1, 0), (0, 1, 1), (2**61, 1, 1), (64, 1, 64)):
        with pytest.raises(ValueError, match=r"selection|threshold|whole units"):
            SelectionFact(law, threshold, max_keys, steps)
    with pytest.raises(ValueError, match="paid for"):
        select(KeyCounts({"a": 1}, 2), laplace(Fraction(1), 3), KeyStream())
    with pytest.raises(ValueError, match="delta must be"):
        laplace_threshold(scale=Fraction(1), delta=0.0, max_keys=1)
