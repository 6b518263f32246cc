"""What must be true of a federation's folders after every schedule, whatever happened in it.

Beside `check_ledgers` of the stage, which verifies every folder and compares what both sides hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tests.integration.stage import Federation, sites_in, value
from tests.integration.terms import COUNTS
from wardround.analyst.showing.documents import Json
from wardround.federation.forms.release import decode_release

# σ is about 0.13 for three sites. A wrong number would be off by 1 at least.
TOLERANCE = 0.99
_INCREMENTS = 64
_COST = ("mu_squared", "pure", "slack", "facts")


@dataclass
class Oracle:
    """The folders of one federation, and what was once seen of them that may never change."""

    federation: Federation
    patients: Mapping[str, int] = field(default_factory=lambda: COUNTS)
    releases: dict[tuple[str, str], bytes] = field(default_factory=dict)
    answers: dict[str, Json] = field(default_factory=dict)

    def note(self, answer: dict[str, Json], *, truth: int | None = None) -> None:
        """An answer that an analyst was given: everybody is in it, and it is the same each time."""
        plan_id = str(answer["plan_id"])
        assert self.answers.setdefault(plan_id, answer["estimates"]) == answer["estimates"], plan_id
        told = sites_in(answer)
        assert told["answered"] == sorted(self.federation.sites), told
        if truth is not None:
            assert abs(value(answer) - truth) < TOLERANCE, (value(answer), truth)

    def check(self) -> None:
        """Every invariant of every folder; nobody writes meanwhile."""
        self.federation.check_ledgers()
        reserved = self._by_plan("consortium", "reserved")
        for name in self.federation.sites:
            charged = self._by_plan(name, "charged")
            assert set(charged) <= set(reserved), f"{name} was charged for a plan that nobody reserved"
            for plan_id in self._releases(name):
                both = (charged[plan_id], reserved[plan_id])
                assert len({tuple(map(str, map(body.get, _COST))) for body in both}) == 1, (name, plan_id)
        for plan_id in self.answers:
            self.federation.check_charged_once(plan_id)

    def _by_plan(self, name: str, kind: str) -> dict[str, dict[str, Json]]:
        """The entries of a kind, none of which may stand twice for a plan."""
        bodies = self.federation.entries(name, kind)
        counted = Counter(str(body["plan_id"]) for body in bodies)
        assert set(counted.values()) <= {1}, (name, kind, counted.most_common(1))
        return {str(body["plan_id"]): body for body in bodies}

    def _releases(self, name: str) -> list[str]:
        """The plans that a site released something for: always the same bytes, and never the counts themselves."""
        kept = self.federation.rows(name, "SELECT plan_id, payload FROM releases")
        for plan_id, payload in kept:
            assert isinstance(payload, bytes)
            assert self.releases.setdefault((name, str(plan_id)), payload) == payload, (name, plan_id)
            values = decode_release(payload).values
            if values.size > 1:
                assert not np.array_equal(values, ages(self.patients[name])), f"{name} released {plan_id} without noise"
        assert {plan_id for site, plan_id in self.releases if site == name} <= {str(plan_id) for plan_id, _ in kept}
        return [str(plan_id) for plan_id, _ in kept]


def ages(patients: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """What `AGES` counts in a hospital of so many patients, in increments of its grid."""
    found = np.histogram([30 + patient % 50 for patient in range(patients)], bins=20, range=(0, 110))[0]
    return found.astype(np.int64) * _INCREMENTS
