"""The one place where noise meets a total.

What goes in is secret and bounded; what comes out is an integer vector that may leave.
Overflow would wrap a large total to the other end of the number line, which no bound
covers; so both ends saturate, in the order that makes saturation pure post-processing
(noise/PROOFS.md#mechanism-application).
"""

import numpy as np

from wardround.privacy.noise.discrete import LARGEST_NOISE
from wardround.privacy.noise.distribution import NoiseDistribution
from wardround.privacy.noise.sampler import Noise
from wardround.privacy.noise.vectors import Bounded, IntVector, Noised

LARGEST_TOTAL = 1 << 61
"""Totals and releases stay within ± this many grid steps."""


def apply(bounded: Bounded, law: NoiseDistribution, noise: Noise) -> Noised:
    """Add one independent draw of `law` to every coordinate; saturate at ±2^61."""
    drawn = noise.draw(law, bounded.total.size)
    if drawn.shape != bounded.total.shape:
        raise ValueError("the noise does not have one value per coordinate")
    # |total| ≤ 2^61 and |drawn| ≤ 2^62: the sum cannot wrap.
    total = _saturated(bounded.total, LARGEST_TOTAL)
    total += _saturated(drawn, LARGEST_NOISE)
    return Noised(_saturated(total, LARGEST_TOTAL), bounded.grid)


def _saturated(values: IntVector, most: int) -> IntVector:
    """Cut to ± `most`, in a new vector: a training noises many short ones, for which np.clip is slow."""
    found = np.maximum(values, -most)
    return np.minimum(found, most, out=found)
