"""A model's numbers and the public words they belong to: enough to say what it expects of rows it is given.

It is the same function of a row that steps and scores used: inputs go through the study's bounds and the released
scaling, and a row that is longer than 1 is shortened, as it was for every patient the model was fitted to and tried on.
A row with an absent value, or with a category that is none of the public ones, has no prediction, as it had no part
in the training.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from wardround.analyst.estimation.fitted import Standardisation
from wardround.federation.errors import QueryMistaken
from wardround.federation.models import definition_of
from wardround.federation.models.model_definition import SPREADS_OF_TARGET, TargetScale
from wardround.federation.models.step_layout import measured, weights_of
from wardround.federation.models.training import Input, Matrix, Model, ModelKind, Vector
from wardround.federation.strict_toml import nearest
from wardround.federation.study.study import Table

Columns = Mapping[str, Sequence[object] | NDArray[np.generic]]

_TRUTHS = {"true": 1.0, "false": 0.0}


@dataclass(frozen=True, slots=True)
class Predictor:
    """What is predicted, from what, and how.

    `categories` holds the public values of each feature that is a category: no input is about the first of them, and
    without it a misspelt value would be taken for that one.
    """

    kind: ModelKind
    inputs: tuple[Input, ...]
    target: Input
    weights: Vector
    scaling: Standardisation
    hidden: int = 0
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def check(self) -> None:
        """`ValueError` unless there are as many numbers as the model has."""
        model = Model(self.kind, "", "", (), hidden=self.hidden)
        expected = (weights_of(model, len(self.inputs)), *[measured(self.kind, len(self.inputs))] * 2)
        arrays = (self.weights, self.scaling.centre, self.scaling.spread)
        if tuple(array.shape for array in arrays) != tuple((number,) for number in expected):
            raise ValueError("a model does not hold as many numbers as it has parameters")

    def predict(self, columns: Columns) -> Vector:
        """A probability for a yes-or-no outcome, otherwise the expected value; one number for each row.

        `columns` holds a sequence for each feature, all equally long; a data frame is such a thing.
        """
        values = np.stack([self._input(columns, each) for each in self._equally_long(columns)], axis=1)
        found = predicted(
            self.kind, self.weights, self.scaling, self.inputs, self.target, np.nan_to_num(values), hidden=self.hidden
        )
        return np.where(np.isnan(values).any(axis=1), np.nan, found)

    def _equally_long(self, columns: Columns) -> Iterable[Input]:
        lengths: dict[str, int] = {}
        for each in self.inputs:
            # A data frame's `in` and `len` are those of its columns and rows.
            if each.column not in columns:
                raise QueryMistaken(f"the column {each.column!r} is absent; {nearest(each.column, map(str, columns))}")
            values = np.asarray(columns[each.column])
            if values.ndim != 1:
                raise QueryMistaken(f"the column {each.column!r} must be a sequence of values, one for each row.")
            lengths[each.column] = len(values)
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{name} has {number}" for name, number in sorted(lengths.items()))
            raise QueryMistaken(f"the columns must be equally long: {told}.")
        return self.inputs

    def _input(self, columns: Columns, each: Input) -> Vector:
        values = np.asarray(columns[each.column])
        if each.value is not None:
            known = self.categories.get(each.column)
            found = [_indicator(_category(value), each.value, known) for value in values.tolist()]
            return np.array(found, dtype=np.float64)
        numbers = (
            values.astype(np.float64)
            if values.dtype.kind in "biuf"
            else np.array([_number(value) for value in values.tolist()], dtype=np.float64)
        )
        # As at a site, where an infinite value is an absent one.
        return np.where(np.isfinite(numbers), numbers, np.nan)


def coordinates(values: Matrix, inputs: Sequence[Input], scaling: Standardisation) -> Matrix:
    """Rows of inputs in their own units as the z of a step."""
    low, high = np.array([each.low for each in inputs]), np.array([each.high for each in inputs])
    half = high / 2.0 - low / 2.0
    number = len(inputs)
    within = (np.clip(values, low, high) - (low / 2.0 + high / 2.0)) / np.where(half > 0.0, half, 1.0)
    placed = (within - scaling.centre[:number]) / scaling.spread[:number]
    rows = np.column_stack((np.ones(len(values)), placed)) / math.sqrt(number + 1)
    shortened: Matrix = rows / np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
    return shortened


def scores(kind: ModelKind, weights: Vector, rows: Matrix, *, hidden: int = 0) -> Vector:
    """The linear or hidden-layer score of rows of z."""
    if (layer := definition_of(kind).layer) is not None:
        return layer.scores(rows * math.sqrt(rows.shape[1]), weights, hidden)
    return rows @ weights


def predicted(
    kind: ModelKind,
    weights: Vector,
    scaling: Standardisation,
    inputs: Sequence[Input],
    target: Input,
    values: Matrix,
    *,
    hidden: int = 0,
) -> Vector:
    """Chances for a binary outcome, expected values in the target's own units otherwise."""
    model = definition_of(kind)
    found = model.expected(scores(kind, weights, coordinates(values, inputs, scaling), hidden=hidden), target.high)
    if model.scale is not TargetScale.STANDARDISED:
        return found
    half = (target.high - target.low) / 2.0
    between = SPREADS_OF_TARGET * float(scaling.spread[-1]) * found + float(scaling.centre[-1])
    return target.low + half + half * between


def categories_of(inputs: Iterable[Input], table: Table) -> dict[str, tuple[str, ...]]:
    """The public values of every category among the inputs."""
    return {each.column: table.column(each.column).values for each in inputs if each.value is not None}


def _category(value: object) -> str | None:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    # A data frame makes whole numbers with gaps into floats.
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _indicator(value: str | None, wanted: str, known: tuple[str, ...] | None) -> float:
    absent = value is None or (known is not None and value not in known)
    return math.nan if absent else float(value == wanted)


def _number(value: object) -> float:
    text = str(value).strip().lower()
    if text in _TRUTHS:
        return _TRUTHS[text]
    try:
        return float(text)
    except ValueError:
        return math.nan
