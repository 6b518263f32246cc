"""How a model moves from one noised sum to the next inside a round.

A site that takes several steps, and whoever replays them from its released sums, call the same function.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wardround.federation.models.step_layout import LENGTH, StepForm, Vector

_FARTHEST = 1e100


def moved(weights: Vector, total: NDArray[np.int64], form: StepForm) -> Vector:
    """The weights after one noised sum of gradients; finite, however far a step was told to go."""
    step = form.step
    factor = min(step.learning_rate * step.training.clip / step.batch, _FARTHEST)
    found = weights - max(factor, -_FARTHEST) * (total / LENGTH)
    return np.minimum(np.maximum(found, -_FARTHEST), _FARTHEST)
