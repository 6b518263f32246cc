"""Two worlds for the mechanisms that need no noise vector: choices, unknown keys, randomised response.

Of the values of an open category the canary has every one there is, and the plan pays for one: all but one of them must
be left out. Randomised response shows every entry of a bitmap or a one-of-k answer, telling the truth only more often
than any one lie. The length is public and one unit changes at most `changes` entries, so nobody's presence shows in the
length (PROOFS.md#randomised-response). No study can ask it: the audit tries itself on a mechanism whose law is this
plain.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TypeAlias

import numpy as np

from site_agent.answering.pipeline import key_counts
from wardround.analyst.asking.builder import query
from wardround.federation.plan.plan import selection, shape_of
from wardround.federation.study.study import Study
from wardround.privacy.accounting.cost import MU_UNIT, PURE_UNIT, SLACK_UNIT, Cost
from wardround.privacy.inference.audit_bounds import Statistic, delta_bound, epsilon_bound, mu_bound
from wardround.privacy.mechanisms.partition_selection import (
    KeyCounts,
    SelectionFact,
    gaussian_threshold,
    laplace_threshold,
    select,
)
from wardround.privacy.mechanisms.private_selection import (
    ChoiceFact,
    Choosing,
    Scores,
    independent_choices,
    require_epsilon,
)
from wardround.privacy.noise.bernoulli import Coins, uniform_below
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution
from wardround.privacy.noise.keystream import BitSource, KeyStream
from wardround.privacy.noise.vectors import IntVector
from wardround.simulation.audit.findings import AuditFinding, Measure, Method, judged
from wardround.simulation.audit.question_claims import NOISE, Setting, plan_of
from wardround.simulation.audit.worlds import TABLE, Worlds, audit_study, one_canary

_FEWEST_CATEGORIES = 2

Bound: TypeAlias = tuple[Measure, float, float]
"""What is measured, claimed and proved."""

EPSILON = Fraction(2)
GAUSSIAN_STEPS = 64
LONE_DELTA = 0.2
LEAST_DELTA = 1e-9

# Every key is an independent experiment, but naming a hundred thousand of them takes time that proves little.
MOST_KEYS = 120_000

QUESTION = query(TABLE).keys("code").query


# So many that every value passes its threshold: what is told apart is then its count.
PATIENTS = 600


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """One of `categories` values in every place, of which one unit changes at most `changes`. Secret."""

    # Never in a repr: a traceback or a log line must show no truth.
    values: IntVector = field(repr=False)
    categories: int
    changes: int

    def __post_init__(self) -> None:
        _require_form(self.categories, self.changes)
        if self.values.ndim != 1 or self.values.dtype != np.int64:
            raise ValueError("entries must be a vector of int64")
        # A value outside the categories could never be told as the truth: its lies would give it away.
        if self.values.size and not 0 <= self.values.min() <= self.values.max() < self.categories:
            raise ValueError("an entry is not one of the categories")


@dataclass(frozen=True, slots=True)
class ResponseFact:
    """One randomised vector: the ε of each entry, and how many entries one unit changes."""

    epsilon: Fraction
    categories: int
    changes: int

    def __post_init__(self) -> None:
        require_epsilon(self.epsilon)
        _require_form(self.categories, self.changes)

    def cost(self) -> Cost:
        """Pure ε for every entry that can change, in whole units (PROOFS.md#randomised-response)."""
        return Cost(mu_squared=0, pure=int(self.changes * self.epsilon * PURE_UNIT), slack=0)


def respond(entries: Entries, fact: ResponseFact, source: BitSource) -> IntVector:
    """Every entry true with probability e^ε/(e^ε + k - 1), otherwise any of the lies; exactly."""
    if (entries.categories, entries.changes) != (fact.categories, fact.changes):
        raise ValueError("the entries are not those that are paid for")
    # A uniform proposal is kept if it is the truth, and by a coin of exp(-ε) if it is a lie.
    coins = Coins((fact.epsilon.numerator, 0), fact.epsilon.denominator)
    answers = np.empty_like(entries.values)
    waiting = np.arange(entries.values.size)
    while waiting.size:
        proposed = uniform_below(fact.categories, waiting.size, source)
        kept = coins.flip((proposed == entries.values[waiting]).astype(np.int64), source)
        answers[waiting[kept]] = proposed[kept]
        waiting = waiting[~kept]
    return answers


def _require_form(categories: int, changes: int) -> None:
    if categories < _FEWEST_CATEGORIES or changes < 1:
        raise ValueError("a response needs at least 2 categories and at least 1 change")


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


def key_claims(folder: Path, setting: Setting, tell: Callable[[str], None]) -> list[AuditFinding]:
    """The question under both kinds of noise."""
    study, worlds = audit_study(max_groups=1), one_canary(folder, patients=PATIENTS)
    found: list[AuditFinding] = []
    for mechanism in (Mechanism.DISCRETE_LAPLACE, Mechanism.DISCRETE_GAUSSIAN):
        name = f"values of an open category, {NOISE[mechanism]}"
        tell(name)
        found.append(_claim(name, study, worlds, mechanism, setting))
    return found


def _claim(name: str, study: Study, worlds: Worlds, mechanism: Mechanism, setting: Setting) -> AuditFinding:
    plan = plan_of(QUESTION, study, mechanism)
    form = shape_of(plan, study)
    fact = selection(plan.laws()[0], form.parts[0], plan.threshold)
    with_unit, without = (key_counts(world.keys(form), fact).counts for world in (worlds.with_unit, worlds.without))
    moved = [key for key in with_unit if with_unit[key] != without.get(key, 0)]
    if len(moved) != 1:
        # More values than are paid for are a violation; none is an audit that was asleep.
        return judged(name, Method.TWO_WORLDS, Measure.EPSILON, claimed=1.0, certified=float(len(moved)))
    draws = min(setting.draws, MOST_KEYS)
    measure, claimed, certified = told_apart(
        with_unit[moved[0]], without.get(moved[0], 0), fact, draws, alpha=setting.alpha
    )
    return judged(name, Method.TWO_WORLDS, measure, claimed=claimed, certified=certified)
