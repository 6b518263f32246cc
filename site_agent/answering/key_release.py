"""What the two questions that add no noise to a public vector make of a hospital's counts. Pure.

After rows were read nothing may fail by what they hold: a key that may not be shown is left out, and a count
beyond all counts saturates.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from wardround.federation.forms.release import showable
from wardround.federation.question.query import MAX_KEYS
from wardround.privacy.mechanisms.partition_selection import LARGEST_COUNT, KeyCounts, SelectionFact
from wardround.privacy.mechanisms.private_selection import Scores
from wardround.privacy.noise.vectors import Bounded, IntVector


def key_counts(held: Mapping[str, int], fact: SelectionFact) -> KeyCounts:
    """The keys that may be shown at all, as a selection takes them; a unit still holds no more of them."""
    counts = {key: min(count, LARGEST_COUNT) for key, count in held.items() if count >= 1 and showable(key)}
    return KeyCounts(counts, fact.max_keys)


def most_frequent(shown: Mapping[str, int]) -> dict[str, int]:
    """At most `MAX_KEYS` of the keys that passed, those with the largest noised counts, in the order of the keys."""
    kept = sorted(sorted(shown), key=lambda key: shown[key], reverse=True)[:MAX_KEYS]
    return {key: shown[key] for key in sorted(kept)}


def scores(bounded: Bounded) -> Scores:
    """Counts of units by candidate: a unit moves each of them by at most 1, and none down."""
    return Scores(bounded.total, sensitivity=1, monotone=True)


def one_vote(place: int, *, among: int) -> IntVector:
    """Zeros, and a one at the place that was chosen."""
    vote = np.zeros(among, dtype=np.int64)
    vote[place] = 1
    return vote
