"""A round that was paid with its training is no charge: it is neither counted nor drawn nor given back."""

from __future__ import annotations

from coordinator.accounts.budget_report import Reserved, Tally, Voided
from tests.coordinator.accounts.ledgers import gaussian
from tests.coordinator.hospitals import study
from wardround.privacy.accounting.cost import Cost, total

PAID = gaussian(20)
SITES = frozenset({"one", "two"})


def test_only_what_costs_something_is_a_charge() -> None:
    tally, cost = Tally(study()), total([PAID])
    tally.read([Reserved("a", 1.0, SITES, cost, (PAID,)), Reserved("b", 2.0, SITES, Cost.zero(), ())])
    tally.read([Voided("b", "one"), Reserved("c", 3.0, SITES, Cost.zero(), ()), Voided("a", "two")])
    assert (tally.plans, tally.charges) == (3, 1)
    assert tally.costs == {"one": cost, "two": Cost.zero()}
    assert [(level.date, level.spent) for level in tally.history] == [(1.0, cost)]
