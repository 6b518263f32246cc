"""OpenDP's count by category, for the benchmarks: with patients bounded where polars is there, else without.

Bounding a patient's rows is polars' part of OpenDP (`pip install "opendp[polars]"` brings the one version it works
with). The noise is the one our own answers carry, so both give the same ε at every δ. Without polars OpenDP counts rows
and bounds nobody; that time is scaled from fewer rows.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

REPEATS = 3
DEVIATIONS = 25
"""The noise of every answer, in units of its sensitivity."""

_PATHS = ("from a list of texts", "from an array of codes")


@dataclass(frozen=True, slots=True)
class Bounding:
    """Processor seconds of a count with patients bounded: by a random choice of rows, or by the first in the file.

    `calibrating` is what finding the scale of the noise takes before any row is read; it is in neither.
    """

    sampled: float
    first: float
    calibrating: float
    mebibytes: float


def bounding_seconds(path: Path, *, categories: int, cap: int, in_memory: bool) -> Bounding | None:
    """The same question to OpenDP: at most `cap` rows a patient, counted by diagnosis over public keys, noise added.

    From the Parquet file, or from the two columns it needs in memory; one thread. None without polars.
    """
    if importlib.util.find_spec("polars") is None:
        return None
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_bounding, (path,), {"categories": categories, "cap": cap, "in_memory": in_memory})


def comparison(
    path: Path, mine: float, *, rows: int, given: int, categories: int, cap: int, in_memory: bool
) -> Iterator[str]:
    """Lines that compare OpenDP with the `mine` seconds of our own count by diagnosis."""
    if importlib.util.find_spec("opendp") is None:
        yield "OpenDP is not installed"
        return
    if (bounding := bounding_seconds(path, categories=categories, cap=cap, in_memory=in_memory)) is not None:
        where = "two columns in memory" if in_memory else "the same file"
        yield f"OpenDP and polars on {where}, one thread, at most {cap} rows a patient, the same noise:"
        yield f"  rows chosen at random, as here   {bounding.sampled:6.2f} s   {bounding.sampled / mine:5.0f} ×"
        yield f"  the first rows of the file       {bounding.first:6.2f} s   {bounding.first / mine:5.0f} ×"
        yield (
            f"  not in these: {bounding.calibrating:.2f} s to find the noise's scale; peak {bounding.mebibytes:.0f} MiB"
        )
    else:
        yield "OpenDP bounds no patient here: that needs polars (pip install 'opendp[polars]'), which is not installed"
    scaled = unbounded_seconds(rows, given=given, categories=categories, scale=float(DEVIATIONS * cap))
    shown = ", ".join(
        f"{what} {seconds:.2f} s ({seconds / mine:.1f} ×)" for what, seconds in zip(_PATHS, scaled, strict=True)
    )
    yield f"OpenDP alone, nobody bounded, scaled from {given} rows: {shown}"


def _bounding(path: Path, *, categories: int, cap: int, in_memory: bool) -> Bounding:
    # Polars looks at this once, when it is imported.
    os.environ["POLARS_MAX_THREADS"] = "1"
    import opendp.prelude as dp  # noqa: PLC0415 -- it need not be there
    import polars as pl  # noqa: PLC0415 -- nor need this

    if pl.thread_pool_size() != 1:
        raise SystemExit("polars uses more than one thread")
    dp.enable_features("contrib", "honest-but-curious")
    keys = pl.LazyFrame({"diagnosis": [f"D{place:03d}" for place in range(categories)]})
    frame = pl.scan_parquet(path).select("patient_id", "diagnosis")
    if in_memory:
        frame = frame.collect().lazy()
    best = {"calibrating": float("inf")}
    for keep in ("sample", "first"):
        for _ in range(REPEATS):
            asked = dp.Context.compositor(
                data=frame,
                privacy_unit=dp.unit_of(contributions=1, identifier="patient_id"),
                privacy_loss=dp.loss_of(rho=1 / (2 * DEVIATIONS**2)),
                split_evenly_over=1,
                margins=[],
            )
            rows = asked.query().truncate_per_group(cap, keep=keep)
            question = rows.group_by("diagnosis").agg(pl.len().dp.noise()).with_keys(keys)
            begun = time.process_time()
            released = question.release()
            calibrated = time.process_time()
            counts = released.collect()
            ended = time.process_time()
            if counts.height != categories or not np.isclose(question.summarize()["scale"][0], DEVIATIONS * cap):
                raise SystemExit("OpenDP answered another question")
            best["calibrating"] = min(best["calibrating"], calibrated - begun)
            best[keep] = min(best.get(keep, float("inf")), ended - calibrated)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Bounding(best["sample"], best["first"], best["calibrating"], peak)


def unbounded_seconds(rows: int, *, given: int, categories: int, scale: float) -> tuple[float, float]:
    """Processor seconds for `rows` rows, from a list of texts and from an array of codes."""
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
