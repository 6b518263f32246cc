"""How long admission and reports take: `python bench/accounting.py [--past N] [--events N]`.

Admission is the filter's decision with many past events. The report is the privacy loss
distribution of a mixed schedule, whole and after one event more; dp-accounting composes the same
schedule from scratch in the same run, and the ratio is printed beside it.
"""

from __future__ import annotations

import argparse
import math
import resource
import time
from collections.abc import Callable
from fractions import Fraction

from dp_accounting.pld import privacy_loss_distribution as oracle

from wardround.privacy.accounting.composition import RunningLoss
from wardround.privacy.accounting.cost import Fact, total
from wardround.privacy.accounting.events import DiscreteLaplace, Event, Gaussian, Laplace, Schedule, SubsampledGaussian
from wardround.privacy.budget.filter import Cap, admits
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution

DELTA = 1e-6
# dp-accounting's own default.
ORACLE_STEP = 1e-4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--past", type=int, default=100_000, help="events already in the ledger")
    parser.add_argument("--events", type=int, default=10_000, help="events of the schedule")
    options = parser.parse_args()
    admission(options.past)
    report(mixture(options.events))
    print(f"memory      {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:8.0f} MiB at most")


def admission(past: int) -> None:
    """One decision: price the question, add it to what was spent, compare."""
    law = NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, Fraction(64 * 1000))
    fact = Fact(law, 64, 64 * 64, 1)
    spent = total([fact] * past)
    allowance = Cap(30.0, 1e-6).allowance()
    assert admits(allowance, spent, fact.cost())
    seconds = fastest(lambda: [admits(allowance, spent, fact.cost()) for _ in range(1000)]) / 1000
    print(f"admission   {1e6 * seconds:8.1f} µs with {past} past events (limit 100)")


def mixture(events: int) -> dict[Event, int]:
    tenth = events // 10
    return {
        Gaussian(50.0): 4 * tenth,
        DiscreteLaplace(0.01): 3 * tenth,
        Laplace(0.02): 2 * tenth,
        SubsampledGaussian(0.01, 1.0): events - 9 * tenth,
    }


def report(counts: dict[Event, int]) -> None:
    schedule = Schedule.of(counts)
    whole = fastest(lambda: RunningLoss(schedule, DELTA).epsilon())
    running = RunningLoss(schedule, DELTA)
    epsilon = running.epsilon()
    more = {event: fastest(lambda event=event: one_more(running, event)) for event in counts}
    began = time.perf_counter()
    theirs = from_scratch(counts)
    scratch = time.perf_counter() - began
    slowest = max(more.values())
    print(f"report      {1e3 * whole:8.1f} ms for {schedule.events} mixed events (limit 2000), epsilon {epsilon:.5f}")
    for event, seconds in more.items():
        print(f"one more    {1e3 * seconds:8.1f} ms after {event} (limit 100)")
    print(f"from scratch{1e3 * scratch:8.1f} ms by dp-accounting, epsilon {theirs:.5f}")
    print(f"ratio       {scratch / whole:8.1f} for the report, {scratch / slowest:.1f} for one event more")


def one_more(running: RunningLoss, event: Event) -> float:
    running.add(event)
    return running.epsilon()


def from_scratch(counts: dict[Event, int]) -> float:
    laws = {
        Gaussian: lambda event: oracle.from_gaussian_mechanism(event.z, value_discretization_interval=ORACLE_STEP),
        DiscreteLaplace: lambda event: oracle.from_discrete_laplace_mechanism(
            event.epsilon, value_discretization_interval=ORACLE_STEP
        ),
        Laplace: lambda event: oracle.from_laplace_mechanism(
            1.0 / event.epsilon, value_discretization_interval=ORACLE_STEP
        ),
        SubsampledGaussian: lambda event: oracle.from_gaussian_mechanism(
            event.z, sampling_prob=event.q, value_discretization_interval=ORACLE_STEP
        ),
    }
    composed = oracle.identity(value_discretization_interval=ORACLE_STEP)
    for event, count in counts.items():
        composed = composed.compose(laws[type(event)](event).self_compose(count))
    return float(composed.get_epsilon_for_delta(DELTA))


def fastest(run: Callable[[], object]) -> float:
    """Seconds of the fastest of five runs: what the machine can do when it is left alone."""
    best = math.inf
    for _ in range(5):
        began = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - began)
    return best


if __name__ == "__main__":
    main()
