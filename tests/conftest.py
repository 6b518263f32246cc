"""What every test shares: repeatable examples, no clock inside them, no proxy, and `same_noise` on demand."""

from __future__ import annotations

import gc

import hypothesis

from tests.fixtures.entropy import same_noise
from tests.fixtures.surroundings import no_proxy

# A shared machine can stall any single example, or the drawing of one; what must be quick is measured by tests marked
# `serial`. A commit is judged by the same examples every time; `make test-all` looks for new ones.
TIMELESS = hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], print_blob=True)
hypothesis.settings.register_profile("repeating", TIMELESS, derandomize=True)
hypothesis.settings.register_profile("exploring", TIMELESS)
hypothesis.settings.load_profile("repeating")


def pytest_collection_finish() -> None:
    """What was collected stays to the end: no collection of garbage needs to look through it, thousands of times."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()


__all__ = ["no_proxy", "same_noise"]
