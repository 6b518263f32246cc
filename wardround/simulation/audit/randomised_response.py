"""Randomised response: every entry of a vector tells the truth only more often than any one lie.

For bitmaps and one-of-k answers of which every entry is shown. The length is public and one unit changes
at most `changes` entries, so nobody's presence shows in the length (PROOFS.md#randomised-response). No study can
ask it: the audit tries itself on a mechanism whose law is this plain.
"""

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from wardround.privacy.accounting.cost import PURE_UNIT, Cost
from wardround.privacy.mechanisms.private_selection import require_epsilon
from wardround.privacy.noise.coins import Coins, uniform_below
from wardround.privacy.noise.keystream import BitSource
from wardround.privacy.noise.vectors import IntVector

_FEWEST_CATEGORIES = 2


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
