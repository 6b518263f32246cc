"""Over random questions and studies: the half-width is at most what was asked, close to it, and ε is the least.

`make test-errors` asks two hundred, and prints seeds and progress.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import pytest

from coordinator.planning.by_error import ByError
from coordinator.planning.expected import of_part
from coordinator.planning.plans import planned_with
from tests.coordinator.errors.random_errors import Asked, random_asked
from wardround.federation.errors import QueryMistaken
from wardround.federation.forms.parts import AnswerLayout, Part
from wardround.federation.forms.totals import noise_of
from wardround.federation.plan.plan import Planned, PrivacyTarget
from wardround.federation.question.query import Statistic
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution

CLOSE = 0.99
MANY = 200
SHORT = 16


def ratios(asked: Asked, part: Part, found: Planned[AnswerLayout], scale: Fraction) -> list[float]:
    """How much of the error that was asked for each aggregate of a part has with this noise."""
    noise = noise_of(NoiseDistribution(Mechanism(found.plan.mechanism), scale), noises=len(asked.participants))
    wanted = dict(zip(found.layout.query.aggregates, asked.errors, strict=True))
    expected = of_part(found.layout, part, noise, patients=sum(asked.participants.values()))
    return [each.half_width / wanted[each.aggregate] for each in expected]


def comes_in_steps(asked: Asked, part: Part, found: Planned[AnswerLayout]) -> bool:
    """Whether half-widths are whole steps, which need not be close: leaves of a tree, patients under Laplace noise."""
    wanted = dict(zip(found.layout.query.aggregates, asked.errors, strict=True))
    coarse = min(wanted[each] for each in part.aggregates) < float(part.grid) / (1 - CLOSE)
    return part.tree is not None or (found.plan.mechanism is Mechanism.DISCRETE_LAPLACE and coarse)


def wider(scale: Fraction, points: int) -> Iterator[Fraction]:
    """Scales above one, from the next that is looked at to a tenth more, and far beyond."""
    multiple = int(scale * 1024)
    for place in range(points):
        factor = Fraction(2**20 + 2 + place * 2**20 // (10 * points), 2**20)
        yield Fraction(max(multiple + 1, -(-multiple * factor.numerator // factor.denominator)), 1024)
    yield 2 * scale
    yield 50 * scale


def check(asked: Asked, points: int) -> tuple[int, int]:
    """Both kinds of noise of one question; how many parts were held to the .99, of how many."""
    by_error = asked.by_error()
    plans, close = by_error.planned(), 0
    assert [*plans] == sorted(plans, key=by_error.share_of_cap)
    for found in plans:
        for part, scale in zip(found.layout.parts, found.plan.scales, strict=True):
            now = max(ratios(asked, part, found, scale))
            assert now <= 1.0, (asked, found.plan)
            above = [max(ratios(asked, part, found, more)) for more in wider(scale, points)]
            assert min(above) > 1.0, (asked, found.plan, above)
            # With any more noise there would be no estimate at all.
            ends = math.isinf(above[0])
            if not (ends or comes_in_steps(asked, part, found)):
                assert now >= CLOSE, (asked, found.plan)
                close += 1
        if len(found.layout.parts) == 1:
            no_smaller_epsilon(asked, by_error, found, points)
    return close, sum(len(found.layout.parts) for found in plans)


def no_smaller_epsilon(asked: Asked, by_error: ByError, found: Planned[AnswerLayout], points: int) -> None:
    """A scan of ε below the one that was found: the plan of each has an error that is too large."""
    epsilon, mechanism = by_error.loss(found).epsilon, Mechanism(found.plan.mechanism)
    for place in range(1, points + 1):
        target = PrivacyTarget(epsilon * (1 - 0.2 * place / points) * (1 - 1e-4), by_error.delta)
        names = tuple(sorted(asked.participants))
        try:
            less = planned_with(by_error.typed, target, asked.study, mechanism, participants=names, nonce="")
        except QueryMistaken:
            return
        assert max(ratios(asked, less.layout.parts[0], less, less.plan.scales[0])) > 1.0, (asked, target)


def run(seeds: range, points: int) -> None:
    statistics: set[Statistic] = set()
    close = parts = 0
    for seed in seeds:
        asked = random_asked(seed)
        held, of = check(asked, points)
        close, parts = close + held, parts + of
        statistics |= {aggregate.statistic for aggregate in asked.query.aggregates}
        if (seed - seeds.start) % 20 == 19:
            print(
                f"seeds {seeds.start} to {seed}: {close} of {parts} parts have .99 to 1 of what was asked", flush=True
            )
    assert close > parts // 2
    assert parts > 2 * len(seeds), "most questions can be answered with either noise"
    assert len(statistics) >= (11 if len(seeds) >= MANY else 6)


def test_sixteen_random_questions_cost_the_least_that_they_can() -> None:
    run(range(1000, 1000 + SHORT), points=8)


@pytest.mark.slow
def test_two_hundred_random_questions_cost_the_least_that_they_can() -> None:
    run(range(2000, 2000 + MANY), points=60)
