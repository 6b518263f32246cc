"""OpenDP's count by category, for the benchmarks: it bounds no patient, and its time is scaled from fewer rows."""

from __future__ import annotations

import importlib.util
import time

import numpy as np

REPEATS = 3


def opendp_seconds(rows: int, *, given: int, categories: int, scale: float) -> tuple[float, float] | None:
    """Processor seconds for `rows` rows, from a list of texts and from an array of codes; None where it is absent."""
    if importlib.util.find_spec("opendp") is None:
        return None
    import opendp.prelude as dp  # noqa: PLC0415 -- it need not be there

    dp.enable_features("contrib")
    codes = np.random.default_rng(1).integers(0, categories, given)
    names = [f"D{place:03d}" for place in range(categories)]
    found: list[float] = []
    for kind, words, column in (
        (str, names, [names[code] for code in codes]),
        (int, list(range(categories)), codes.astype(np.int32)),
    ):
        space = dp.vector_domain(dp.atom_domain(T=kind)), dp.symmetric_distance()
        counts = dp.t.then_count_by_categories(categories=words, MO="L2Distance<i32>", TOA="i32")
        measurement = space >> counts >> dp.m.then_gaussian(scale=scale)
        best = float("inf")
        for _ in range(REPEATS):
            begun = time.process_time()
            measurement(column)
            best = min(best, time.process_time() - begun)
        found.append(best * rows / given)
    return found[0], found[1]
