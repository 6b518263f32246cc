"""Apps as Flower's users write them: nothing in this file knows wardround."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg, Result


class Kept:
    """What an app would write to disk."""

    def __init__(self) -> None:
        self.results: list[Result] = []

    @property
    def last(self) -> Result:
        return self.results[-1]

    @property
    def weights(self) -> np.ndarray:
        return np.concatenate([each.ravel() for each in self.last.arrays.to_numpy_ndarrays()])


def app_of(strategy: Callable[[], FedAvg], *, size: int, rounds: int | None = None) -> tuple[ServerApp, Kept]:
    """The app of Flower's template: a strategy started from a model of zeros, cut into two arrays."""
    app, kept = ServerApp(), Kept()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        first = ArrayRecord([np.zeros(1), np.zeros((1, size - 1))])
        number = context.run_config["num-server-rounds"] if rounds is None else rounds
        kept.results.append(strategy().start(grid=grid, initial_arrays=first, num_rounds=int(number)))

    return app, kept
