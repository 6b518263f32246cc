"""How long the codec takes for a question, a plan of a thousand sites and the budget of two hundred, each way.

Run:  .venv/bin/python bench/codec.py

Prints the processor time of one call in microseconds: the least of seven runs, because whatever else the machine does
only adds to it. Writing ends with bytes, and reading begins with them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from fractions import Fraction

from protos import words
from wardround.federation.plan.plan import Plan
from wardround.federation.question.answer import Loss, Remaining
from wardround.federation.question.cohort import And, Comparison, Operator, Within
from wardround.federation.question.query import Aggregate, Grouping, Query, Statistic
from wardround.federation.question.study_budget import BudgetReport, ByOverlap, SiteBudget, Spending, Statement
from wardround.privacy.noise.distribution import Mechanism

RUNS = 7
SECONDS = 0.2
QUERY = Query(
    "encounters",
    (Aggregate(Statistic.MEAN, "sbp"),),
    And((Comparison("age", Operator.GREATER, 40), Within("diagnosis", ("E11", "I10")))),
    (Grouping("diagnosis"),),
)
SITES = tuple(f"hospital-{number}" for number in range(1000))
PLAN = Plan("ab" * 32, QUERY, Mechanism.DISCRETE_GAUSSIAN, (Fraction(4096),), SITES)
REPORT = BudgetReport(
    "cardio",
    "patient",
    2,
    Loss(3.0, 1e-6),
    Loss(0.5, 1e-6),
    Remaining(1.5, 0.25),
    (("basic", 2.0), ("pld", 0.5)),
    tuple(SiteBudget(site, Loss(0.5, 1e-6), frozen=False) for site in SITES[:200]),
    256,
    ByOverlap(0.25, 0.5, 1.0),
    (Statement("filter", 0.5, guarantee=True), Statement("rdp", 0.75, guarantee=False)),
    tuple(Spending(1.75e9 + number, number, number / 256) for number in range(256)),
)


def timed(call: Callable[[], object]) -> float:
    """Microseconds of processor time for one call."""
    began = time.process_time()
    call()
    times = max(int(SECONDS / max(time.process_time() - began, 1e-6)), 1)
    found = []
    for _ in range(RUNS):
        began = time.process_time()
        for _ in range(times):
            call()
        found.append((time.process_time() - began) / times)
    return 1e6 * min(found)


def conversations() -> Iterator[tuple[str, Callable[[], bytes], Callable[[bytes], object]]]:
    """What is timed: its name, who writes it, who reads it."""
    yield "query", lambda: words.QUERY.encode(QUERY), words.QUERY.decode
    yield "plan of 1,000 sites", lambda: words.PLAN.encode(PLAN), words.PLAN.decode
    yield "budget of 200 sites, 256 points", lambda: words.BUDGET.encode(REPORT), words.BUDGET.decode


def main() -> None:
    print(f"{'µs':<34}{'write':>9}{'read':>9}")
    for name, write, read in conversations():
        content = write()
        print(f"{name:<34}{timed(write):>9.1f}{timed(lambda c=content, r=read: r(c)):>9.1f}")


if __name__ == "__main__":
    main()
