"""How far a choice may fall short: the bounds against exact laws and against draws."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from wardround.privacy.inference.error_bars import (
    expected_regret_of_choice,
    expected_regret_of_noise,
    regret_of_choice,
)
from wardround.privacy.inference.exact_loss import choice_law
from wardround.privacy.mechanisms.private_selection import Choosing
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution


def law_of(gaps: tuple[int, ...], epsilon: float) -> dict[int, float]:
    law = choice_law(list(gaps), choosing=Choosing.PERMUTE_AND_FLIP, base=Fraction(math.exp(-epsilon)))
    return {place: float(chance) for place, chance in law.items()}


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("candidates", [1, 2, 4])
def test_no_counts_fall_shorter_in_the_mean_than_the_bound(epsilon: float, candidates: int) -> None:
    bound = expected_regret_of_choice(epsilon=epsilon, candidates=candidates)
    worst = 0.0
    for others in itertools.combinations_with_replacement(range(0, 40, 4), candidates - 1):
        law = law_of((0, *others), epsilon)
        worst = max(worst, math.fsum(gap * law[place] for place, gap in enumerate((0, *others))))
    assert worst <= bound
    if candidates > 1 and epsilon == 0.5:
        # The bound is of the right size.
        assert worst > bound / 4


@pytest.mark.parametrize("chance", [0.2, 0.05, 0.001])
@pytest.mark.parametrize("candidates", [2, 4])
def test_a_choice_falls_short_by_the_bound_hardly_more_often_than_said(chance: float, candidates: int) -> None:
    epsilon = 0.5
    bound = regret_of_choice(epsilon=epsilon, candidates=candidates, chance=chance)
    for gap in range(40):
        law = law_of((0, *[gap] * (candidates - 1)), epsilon)
        short = math.fsum(law[place] for place in range(1, candidates)) if gap > bound else 0.0
        assert short <= chance


def test_a_lone_candidate_is_the_best_one() -> None:
    law = NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, Fraction(10))
    assert regret_of_choice(epsilon=1.0, candidates=1, chance=0.05) == 0.0
    assert expected_regret_of_noise(law, terms=3, candidates=1) == 0.0
    assert expected_regret_of_choice(epsilon=1.0, candidates=1) == 0.0


@pytest.mark.parametrize("mechanism", Mechanism)
@pytest.mark.parametrize("terms", [1, 10])
@pytest.mark.parametrize("candidates", [2, 20])
def test_the_largest_of_noised_counts_falls_short_by_no_more_than_the_bound(
    mechanism: Mechanism, terms: int, candidates: int
) -> None:
    scale, draws, generator = 16.0, 2000, np.random.default_rng(7)
    draw = generator.normal if mechanism is Mechanism.DISCRETE_GAUSSIAN else generator.laplace
    noise = draw(0.0, scale, (draws, terms, candidates)).sum(axis=1)
    bound = expected_regret_of_noise(NoiseDistribution(mechanism, Fraction(16)), terms=terms, candidates=candidates)
    # The worst case is at most the largest noise less that of the best.
    most = noise.max(axis=1) - noise[:, 0]
    assert most.mean() <= bound
    assert most.mean() > bound / 3
    worst = max(
        np.take(gaps := np.array([0.0] + [gap] * (candidates - 1)), (noise - gaps).argmax(axis=1)).mean()
        for gap in np.linspace(0.0, 4.0 * bound, 20)
    )
    assert worst <= bound


def test_numbers_that_make_no_sense_are_refused() -> None:
    law = NoiseDistribution(Mechanism.DISCRETE_LAPLACE, Fraction(2))
    with pytest.raises(ValueError, match="at least 1 draw"):
        expected_regret_of_noise(law, terms=0, candidates=2)
    for chance in (0.0, 1.0, -1.0):
        with pytest.raises(ValueError, match="a chance"):
            regret_of_choice(epsilon=1.0, candidates=2, chance=chance)
