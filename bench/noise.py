"""How fast is the noise? Against numpy's insecure normals and OpenDP's secure ones, in one run, on one core.

Run: python bench/noise.py [--draws 10000000]
"""

import argparse
import os
import resource
import time
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import opendp.prelude as dp

from wardround.privacy.noise import alias_table as alias
from wardround.privacy.noise import discrete as exact
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution
from wardround.privacy.noise.keystream import KeyStream
from wardround.privacy.noise.sampler import SecureNoise

SIGMAS = (10, 1000)
REPEATS = 5
SMALL_DRAW = 8
# OpenDP is slow enough for a short vector to measure it well.
OPENDP_DRAWS = 20_000
EXACT_DRAWS = 1_000_000
GOAL_NUMPY, GOAL_OPENDP = 1.0, 1000.0


def best_seconds(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """The least processor time of several runs: what the machine can do when left alone."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def opendp_rate(sigma: float) -> float:
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    noise = space >> dp.m.then_gaussian(scale=sigma)
    zeros = [0] * OPENDP_DRAWS
    return OPENDP_DRAWS / best_seconds(lambda: noise(zeros), repeats=2)


def long_draws(draws: int) -> bool:
    noise, generator = SecureNoise(), np.random.default_rng()
    before = peak_mib()
    # Both sides once before the clock starts: pages are touched, tables are built.
    generator.standard_normal(draws)
    numpy_rate = draws / best_seconds(lambda: generator.standard_normal(draws))
    print(f"{'numpy standard_normal (insecure, float64)':<46}{numpy_rate / 1e6:9.1f} M/s")
    goals_met = True
    for sigma in SIGMAS:
        law = NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, Fraction(sigma))
        alias.gaussian_table.cache_clear()
        build = best_seconds(lambda law=law: alias.gaussian_table(law.scale), repeats=1)  # type: ignore[misc]
        ours = draws / best_seconds(lambda law=law: noise.draw(law, draws))  # type: ignore[misc]
        theirs = opendp_rate(float(sigma))
        print(f"{f'wardround discrete Gaussian, σ = {sigma}':<46}{ours / 1e6:9.1f} M/s")
        print(f"{'  table built once, in':<46}{build * 1e3:9.1f} ms")
        print(f"{'  OpenDP discrete Gaussian':<46}{theirs / 1e6:9.3f} M/s")
        print(f"{'  ratio to numpy (goal 1)':<46}{ours / numpy_rate:9.2f} ×")
        print(f"{'  ratio to OpenDP (goal 1000)':<46}{ours / theirs:9.0f} ×")
        goals_met &= ours >= GOAL_NUMPY * numpy_rate and ours >= GOAL_OPENDP * theirs
    vector = draws * 8 / 2**20
    print(f"{'peak memory, of which one vector of draws':<46}{peak_mib():9.0f} MiB, {vector:.0f} MiB")
    print(f"{'  before the long draws':<46}{before:9.0f} MiB")
    return goals_met


def exact_and_small_draws() -> None:
    noise = SecureNoise()
    print("\nexact sampler, any scale                          rate     8 values")
    for mechanism in Mechanism:
        for scale in (Fraction(5, 4), Fraction(10), Fraction(1000), Fraction(2**33), Fraction(2**45)):
            law = NoiseDistribution(mechanism, scale)
            rate = EXACT_DRAWS / best_seconds(lambda law=law: exact.draw(law, EXACT_DRAWS, KeyStream()))  # type: ignore[misc]
            laps = []
            for _ in range(500):
                start = time.perf_counter()
                noise.draw(law, SMALL_DRAW)
                laps.append(time.perf_counter() - start)
            median, late = np.quantile(laps, (0.5, 0.99)) * 1e6
            name = f"{mechanism} {float(scale):.6g}"
            print(f"  {name:<40}{rate / 1e6:8.1f} M/s  {median:6.0f} µs (p99 {late:.0f})")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--draws", type=int, default=10_000_000)
    draws: int = arguments.parse_args().draws
    # One core for everyone, so that nobody wins by threads.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    goals_met = long_draws(draws)
    exact_and_small_draws()
    print("\ngoals met" if goals_met else "\nGOALS MISSED")


if __name__ == "__main__":
    main()
