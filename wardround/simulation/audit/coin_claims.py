"""Two worlds for the mechanisms that need no noise vector: choices, unknown keys, randomised response."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from wardround.privacy.accounting.cost import MU_UNIT, PURE_UNIT, SLACK_UNIT
from wardround.privacy.inference.audit_bounds import Statistic, delta_bound, epsilon_bound, mu_bound
from wardround.privacy.mechanisms.partition_selection import (
    KeyCounts,
    SelectionFact,
    gaussian_threshold,
    laplace_threshold,
    select,
)
from wardround.privacy.mechanisms.private_selection import ChoiceFact, Choosing, Scores, independent_choices
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution
from wardround.privacy.noise.keystream import KeyStream
from wardround.simulation.audit.findings import AuditFinding, Measure, Method, judged
from wardround.simulation.audit.question_claims import Setting
from wardround.simulation.audit.randomised_response import Entries, ResponseFact, respond

Bound: TypeAlias = tuple[Measure, float, float]
"""What is measured, claimed and proved."""

EPSILON = Fraction(2)
GAUSSIAN_STEPS = 64
LONE_DELTA = 0.2
LEAST_DELTA = 1e-9

# Every key is an independent experiment, but naming a hundred thousand of them takes time that proves little.
MOST_KEYS = 120_000


def coin_claims(setting: Setting, tell: Callable[[str], None]) -> list[AuditFinding]:
    """Every mechanism of coins."""
    audits: dict[str, Callable[[], Bound]] = {
        "exponential mechanism": lambda: choice(Choosing.EXPONENTIAL, setting, monotone=False),
        "exponential mechanism, monotone": lambda: choice(Choosing.EXPONENTIAL, setting, monotone=True),
        "permute and flip": lambda: choice(Choosing.PERMUTE_AND_FLIP, setting, monotone=False),
        "permute and flip, monotone": lambda: choice(Choosing.PERMUTE_AND_FLIP, setting, monotone=True),
        "unknown keys, cut-off Laplace": lambda: frequent_key(Mechanism.DISCRETE_LAPLACE, setting),
        "unknown keys, Gaussian": lambda: frequent_key(Mechanism.DISCRETE_GAUSSIAN, setting),
        "unknown keys, a lone patient": lambda: lone_key(setting, keys=1, paid_keys=1),
        "unknown keys, a lone patient with three": lambda: lone_key(setting, keys=3, paid_keys=3),
        "randomised response": lambda: response(setting),
    }
    found: list[AuditFinding] = []
    for name, audit in audits.items():
        tell(name)
        measure, claimed, certified = audit()
        found.append(judged(name, Method.TWO_WORLDS, measure, claimed=claimed, certified=certified))
    return found


def choice(choosing: Choosing, setting: Setting, *, monotone: bool) -> Bound:
    """One candidate is favoured by a patient; the other, if scores may fall, disfavoured."""
    fact = ChoiceFact(choosing, EPSILON)
    worlds = ([1, 2], [0, 2]) if monotone else ([1, 3], [0, 4])
    samples = [
        _one(independent_choices(Scores(np.array(world), 1, monotone), fact, setting.draws, KeyStream()) == 0)
        for world in worlds
    ]
    return Measure.EPSILON, fact.cost().pure / PURE_UNIT, epsilon_bound(*samples, alpha=setting.alpha)


def response(setting: Setting) -> Bound:
    """One entry of five categories, which the patient changes."""
    fact = ResponseFact(EPSILON, 5, 1)
    answers = [respond(Entries(np.full(setting.draws, truth), 5, 1), fact, KeyStream()) for truth in (1, 0)]
    samples = [_one(answer == 1) - _one(answer == 0) for answer in answers]
    return Measure.EPSILON, fact.cost().pure / PURE_UNIT, epsilon_bound(*samples, alpha=setting.alpha)


def frequent_key(mechanism: Mechanism, setting: Setting) -> Bound:
    """A key that many hold, and one patient more."""
    draws = min(setting.draws, MOST_KEYS)
    fact = _selection(mechanism)
    held = 2 * fact.threshold // fact.steps + 1
    return told_apart(held + 1, held, fact, draws, alpha=setting.alpha)


def told_apart(with_unit: int, without: int, fact: SelectionFact, draws: int, *, alpha: float) -> Bound:
    """How well the noised count of one key tells its two true counts apart."""
    samples = [_shown(count, fact, draws) for count in (with_unit, without)]
    cost = fact.cost()
    if fact.law.mechanism is Mechanism.DISCRETE_GAUSSIAN:
        return Measure.MU, math.sqrt(cost.mu_squared / MU_UNIT), mu_bound(*samples, alpha=alpha)
    bound = epsilon_bound(*samples, alpha=alpha, delta=cost.slack / SLACK_UNIT)
    return Measure.EPSILON, cost.pure / PURE_UNIT, bound


def _selection(mechanism: Mechanism) -> SelectionFact:
    match mechanism:
        case Mechanism.DISCRETE_LAPLACE:
            threshold = laplace_threshold(scale=1 / EPSILON, delta=LEAST_DELTA, max_keys=1)
            return SelectionFact(NoiseDistribution(mechanism, 1 / EPSILON), threshold, 1)
        case Mechanism.DISCRETE_GAUSSIAN:  # pragma: no branch
            scale = Fraction(GAUSSIAN_STEPS)
            threshold = gaussian_threshold(scale=scale, delta=LEAST_DELTA, max_keys=1, steps=GAUSSIAN_STEPS)
            return SelectionFact(NoiseDistribution(mechanism, scale), threshold, 1, GAUSSIAN_STEPS)


def lone_key(setting: Setting, *, keys: int, paid_keys: int) -> Bound:
    """A patient alone with its keys: how often any of them is shown, when none may be without it."""
    experiments = min(setting.draws, MOST_KEYS) // keys
    threshold = laplace_threshold(scale=Fraction(paid_keys) / EPSILON, delta=LONE_DELTA, max_keys=paid_keys)
    fact = SelectionFact(
        NoiseDistribution(Mechanism.DISCRETE_LAPLACE, Fraction(paid_keys) / EPSILON), threshold, paid_keys
    )
    counts = {f"{i}.{key}": 1 for i in range(experiments) for key in range(keys)}
    shown = select(KeyCounts(counts, paid_keys), fact, KeyStream())
    seen = len({name.partition(".")[0] for name in shown})
    # Without the patient there is no such key to draw for.
    unseen = len(select(KeyCounts({}, paid_keys), fact, KeyStream()))
    bound = delta_bound(seen, unseen, trials=experiments, epsilon=float(EPSILON), alpha=setting.alpha)
    return Measure.DELTA, fact.cost().slack / SLACK_UNIT, bound


def _shown(count: int, fact: SelectionFact, draws: int) -> Statistic:
    """The noised counts of `draws` keys that `count` units hold each; one that is hidden counts as least."""
    shown = select(KeyCounts(dict.fromkeys(map(str, range(draws)), count), fact.max_keys), fact, KeyStream())
    values = np.full(draws, float(fact.threshold / fact.steps))
    values[: len(shown)] = [value / fact.steps for value in shown.values()]
    return values


def _one(happened: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Statistic:
    return happened.astype(np.float64)
