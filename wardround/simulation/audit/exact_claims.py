"""Losses computed from probabilities instead of samples, over every way one patient can move a total."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from fractions import Fraction

from wardround.federation.study.study import Study
from wardround.privacy.accounting.gaussian_dp import delta_of
from wardround.privacy.inference.exact_loss import (
    choice_law,
    cut_off_law,
    divergence,
    hockey_stick,
    largest_loss,
    response_law,
)
from wardround.privacy.mechanisms.private_selection import Choosing
from wardround.privacy.noise.distribution import Mechanism
from wardround.simulation.audit.findings import AuditFinding, Measure, Method, judged
from wardround.simulation.audit.question_claims import QUESTIONS, experiment
from wardround.simulation.audit.worlds import Worlds

# Stands for exp(-ε/2): the laws are rational functions of it, so nothing is rounded.
_HALF = Fraction(3, 8)
_EPSILON = -2.0 * math.log(_HALF)
_GAUSSIAN_EPSILON = 1.0
_THRESHOLD = 4


def exact_claims(study: Study, worlds: Worlds, tell: Callable[[str], None]) -> list[AuditFinding]:
    """Every discrete mechanism, exactly."""
    tell("exact losses")
    return [
        _laplace(study, worlds),
        _gaussian(study, worlds),
        *(_choice(choosing) for choosing in Choosing),
        _keys(),
        _response(),
    ]


def _laplace(study: Study, worlds: Worlds) -> AuditFinding:
    tried = experiment(QUESTIONS["count of events"], study, Mechanism.DISCRETE_LAPLACE, worlds)
    moves = range(-tried.without.l1_sensitivity, tried.without.l1_sensitivity + 1)
    worst = max(largest_loss(tried.law, move) for move in moves)
    return judged("discrete Laplace", Method.EXACT, Measure.EPSILON, claimed=tried.claimed, certified=float(worst))


def _gaussian(study: Study, worlds: Worlds) -> AuditFinding:
    tried = experiment(QUESTIONS["count of events"], study, Mechanism.DISCRETE_GAUSSIAN, worlds)
    # Symmetric, so the moves up are all there are.
    moves = range(1, math.isqrt(tried.without.l2_sensitivity_squared) + 1)
    worst = max(hockey_stick(tried.law, move, _GAUSSIAN_EPSILON) for move in moves)
    claimed = delta_of(_GAUSSIAN_EPSILON, tried.claimed)
    return judged("discrete Gaussian at ε = 1", Method.EXACT, Measure.DELTA, claimed=claimed, certified=worst)


def _choice(choosing: Choosing) -> AuditFinding:
    """Three candidates, of which every one may move by one in either direction."""
    laws: dict[tuple[int, ...], dict[int, Fraction]] = {}

    def law(scores: tuple[int, ...]) -> dict[int, Fraction]:
        gaps = [max(scores) - score for score in scores]
        return laws.setdefault(tuple(gaps), choice_law(gaps, choosing=choosing, base=_HALF))

    ratios = (
        law(scores)[i] / law(tuple(a + b for a, b in zip(scores, move, strict=True)))[i]
        for scores in ((6, 0, 0), (3, 1, 0), (1, 1, 1))
        for move in itertools.product((-1, 0, 1), repeat=3)
        for i in range(3)
    )
    return _pure(choosing.value.replace("_", " "), ratios)


def _response() -> AuditFinding:
    laws = [response_law(truth, categories=5, base=_HALF**2) for truth in range(5)]
    return _pure("randomised response", (a[i] / b[i] for a in laws for b in laws for i in range(5)))


def _pure(name: str, ratios: Iterable[Fraction]) -> AuditFinding:
    worst, most = max(ratios), _HALF**-2
    # Compared as fractions: a logarithm could round a violation away.
    certified = min(math.log(worst), _EPSILON) if worst <= most else math.nextafter(math.log(worst), math.inf)
    return judged(name, Method.EXACT, Measure.EPSILON, claimed=_EPSILON, certified=certified)


def _keys() -> AuditFinding:
    """A key that from none to many hold, and one patient more or less."""
    base = _HALF**2
    laws = [cut_off_law(count, threshold=_THRESHOLD, base=base) for count in range(3 * _THRESHOLD)]
    worst = max(
        max(divergence(a, b, factor=1 / base), divergence(b, a, factor=1 / base)) for a, b in itertools.pairwise(laws)
    )
    claimed = base**_THRESHOLD * (1 - base) / (1 + base - 2 * base ** (_THRESHOLD + 1))
    certified = min(float(worst), float(claimed)) if worst <= claimed else math.nextafter(float(worst), math.inf)
    return judged("unknown keys", Method.EXACT, Measure.DELTA, claimed=float(claimed), certified=certified)
