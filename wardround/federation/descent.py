"""How a model moves from one noised sum to the next inside a round.

A site that takes several steps, and whoever replays them from its released sums, call the same function.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wardround.federation.step_form import LENGTH, StepForm, Vector


def moved(weights: Vector, total: NDArray[np.int64], form: StepForm) -> Vector:
    """The weights after one noised sum of gradients."""
    step = form.step
    return weights - step.learning_rate * step.training.clip / step.batch * (total / LENGTH)
