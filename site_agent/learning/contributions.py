"""What one row contributes to each kind of step (decision 18's table), many rows at once.

Every number that comes out is finite, whatever weights and scales were sent: inputs lie within their bounds, and
what is public is cut where a product could leave a double. What a row becomes never depends on the rows beside it,
to the last bit: otherwise a patient who comes or goes would move what others contribute.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from site_agent.learning.integer_vectors import Vectors
from wardround.federation.models import definition_of
from wardround.federation.models.model_definition import SPREADS_OF_TARGET, TargetScale, over, row_products
from wardround.federation.models.step_layout import StepLayout, is_binary, unpack
from wardround.federation.models.training import Input, Matrix, StageKind, Vector

Contribution = Callable[[Matrix, Vector, Vector], Vectors]
"""From the inputs and targets of rows, and where the model stands, to one vector for each row."""

_MOST = 1e100
"""Public numbers beyond it are cut: products of two of them, and sums of those, are still doubles."""

_REMEMBERED = 8
_NEAR = 2.0**16
_ROWS = 64
_HALF = 0.5


# It follows from public words alone and keeps nothing of the rows it is called with.
@lru_cache(maxsize=_REMEMBERED)
def contribution(form: StepLayout) -> Contribution:
    """How rows become vectors in this step."""
    match form.step.kind:
        case StageKind.MOMENTS:
            return _Moments(form)
        case StageKind.PRODUCTS:
            return _Products(form)
        case StageKind.GRADIENT:
            return _Gradient(form)
        case StageKind.SCORES:
            return _Scores(form)


def finite(weights: Vector) -> Vector:
    """Weights that no product with an input can make infinite; `moved` leaves them so."""
    return np.clip(weights, -_MOST, _MOST)


# --- Inputs -----------------------------------------------------------------------------------------------


class _Scale:
    """`(x − middle)·factor − offset`: some columns between their bounds, standardised and divided by a number."""

    def __init__(self, middle: Vector, factor: Vector, offset: Vector) -> None:
        # The same numbers again for some rows more: one long run of numbers is worked through several times as
        # quickly as many short ones.
        # Where bounds are not far from zero for their width, the middle is taken off together with the offset.
        with np.errstate(over="ignore"):
            away = middle * factor
        self._near = bool((np.abs(away) <= _NEAR).all())
        if self._near:
            offset = offset + away
        self._middle, self._factor, self._offset = (np.tile(each, _ROWS) for each in (middle, factor, offset))

    def __call__(self, values: Matrix) -> Matrix:
        flat, run = np.ascontiguousarray(values).reshape(-1), self._middle.size
        found = np.empty_like(flat)
        most = flat.size // run * run
        self._put(flat[:most].reshape(-1, run), found[:most].reshape(-1, run), slice(run))
        self._put(flat[most:], found[most:], slice(flat.size - most))
        return found.reshape(values.shape)

    def _put(self, values: Matrix, out: Matrix, run: slice) -> None:
        if not self._near:
            values = np.subtract(values, self._middle[run], out=out)
        np.multiply(values, self._factor[run], out=out)
        out -= self._offset[run]


def _scale(inputs: tuple[Input, ...], centre: Vector, spread: Vector, divisor: float) -> _Scale:
    low, high = np.array([each.low for each in inputs]), np.array([each.high for each in inputs])
    # Halved first: the bounds may be as far apart as doubles go.
    middle, half = low / 2 + high / 2, high / 2 - low / 2
    wide = np.maximum(spread, 1.0 / _MOST)
    with np.errstate(over="ignore", divide="ignore"):
        factor = np.minimum(1.0 / wide / divisor / half, 1.0 / np.finfo(np.float64).tiny)
        offset = np.clip(centre / wide / divisor, -_MOST, _MOST)
    return _Scale(middle, np.where(half > 0.0, factor, 0.0), offset)


def _between_bounds(inputs: tuple[Input, ...]) -> _Scale:
    """y: −1 at the lower bound and 1 at the upper."""
    return _scale(inputs, np.zeros(len(inputs)), np.ones(len(inputs)), 1.0)


class _Inputs:
    """z = (1, s)/√(d+1), shortened to length 1 where it is longer."""

    def __init__(self, form: StepLayout) -> None:
        number = len(form.inputs)
        self.width = number + 1
        self.root = math.sqrt(self.width)
        centre, spread = unpack(form.step.centre)[:number], unpack(form.step.spread)[:number]
        self._scale = _scale(form.inputs, centre, spread, self.root)

    def __call__(self, inputs: Matrix) -> Matrix:
        found, shortened, _ = self.parts(inputs)
        found *= shortened[:, np.newaxis]
        return found

    def unscaled(self, inputs: Matrix) -> Matrix:
        """z·√(d + 1), as a hidden layer takes it."""
        found = self(inputs)
        found *= self.root
        return found

    def parts(self, inputs: Matrix) -> tuple[Matrix, Vector, Vector]:
        """What is shortened, by how much, and how long it was, squared."""
        found = np.empty((inputs.shape[0], self.width))
        found[:, 0] = 1.0 / self.root
        found[:, 1:] = self._scale(inputs)
        squares = row_products(found, found)
        factor = np.sqrt(squares)
        np.maximum(factor, 1.0, out=factor)
        return found, np.divide(1.0, factor, out=factor), squares


class _Target:
    """A numeric target as t = (y − centre)/(3·spread), cut to [−1, 1]; and errors of it on the same scale."""

    def __init__(self, form: StepLayout) -> None:
        place = len(form.inputs)
        centre, spread = unpack(form.step.centre)[place:], unpack(form.step.spread)[place:]
        self._scale = _scale((form.target,), centre, spread, SPREADS_OF_TARGET)
        half = form.target.high / 2 - form.target.low / 2
        reach = SPREADS_OF_TARGET * max(float(spread[0]), 1.0 / _MOST) * half
        self._reach = min(reach, float(np.finfo(np.float64).max))

    def __call__(self, target: Vector) -> Vector:
        return np.clip(self._scale(target), -1.0, 1.0)

    def error(self, predicted: Vector, target: Vector) -> Vector:
        """How far predictions of t are off the target, cut to [−1, 1]; the target itself is not cut before."""
        return np.clip(predicted - self._scale(target), -1.0, 1.0)

    def error_in_units(self, predicted: Vector, target: Vector) -> Vector:
        """The same of predictions in the target's own units."""
        return over(predicted - target, self._reach)


# --- Stages -----------------------------------------------------------------------------------------------


class _Moments:
    """(1, y, y² − ½)/√(1 + 5k/4) over the inputs and a numeric target."""

    def __init__(self, form: StepLayout) -> None:
        numeric = not is_binary(form.step.training.model.kind)
        self._columns = len(form.inputs) + numeric
        self._inputs = _between_bounds(form.inputs)
        self._target = _between_bounds((form.target,)) if numeric else None
        self._root = math.sqrt(1.0 + 1.25 * self._columns)

    def __call__(self, inputs: Matrix, target: Vector, weights: Vector) -> Vectors:
        del weights
        number = inputs.shape[1]
        found = np.empty((inputs.shape[0], 1 + 2 * self._columns))
        found[:, 0] = 1.0
        found[:, 1 : 1 + number] = self._inputs(inputs)
        if self._target is not None:
            found[:, 1 + number] = self._target(target)
        first, second = found[:, 1 : 1 + self._columns], found[:, 1 + self._columns :]
        np.multiply(first, first, out=second)
        second -= _HALF
        found /= self._root
        return Vectors(found)


class _Products:
    """zᵢzⱼ from the diagonal on, those beside it times √2; of (z, t)/√2 for least squares."""

    def __init__(self, form: StepLayout) -> None:
        self._inputs = _Inputs(form)
        self._target = _Target(form) if definition_of(form.step.training.model.kind).least_squares else None
        self._width = form.width

    def __call__(self, inputs: Matrix, target: Vector, weights: Vector) -> Vectors:
        del weights
        found = self._inputs(inputs)
        if self._target is not None:
            found = np.column_stack((found, self._target(target))) / math.sqrt(2.0)
        beside = found * math.sqrt(2.0)
        products = np.empty((inputs.shape[0], self._width))
        place, columns = 0, found.shape[1]
        for column in range(columns):
            own = found[:, column : column + 1]
            np.multiply(own, own, out=products[:, place : place + 1])
            np.multiply(own, beside[:, column + 1 :], out=products[:, place + 1 : place + columns - column])
            place += columns - column
        return Vectors(products)


class _Gradient:
    """The gradient of the model's loss, not yet clipped."""

    def __init__(self, form: StepLayout) -> None:
        model = form.step.training.model
        self._model, self._hidden, self._high = definition_of(model.kind), model.hidden, form.target.high
        self._inputs = _Inputs(form)
        self._target = _Target(form) if self._model.scale is TargetScale.STANDARDISED else None

    def __call__(self, inputs: Matrix, target: Vector, weights: Vector) -> Vectors:
        if (layer := self._model.layer) is not None:
            return Vectors(layer.gradient(self._inputs.unscaled(inputs), target, weights, self._hidden))
        found, shortened, squares = self._inputs.parts(inputs)
        aim = target if self._target is None else self._target(target)
        residual = self._model.residual(row_products(found, weights) * shortened, aim, self._high)
        residual *= shortened
        return Vectors(found, residual, squares)


class _Scores:
    """How predictions and outcomes agree: a cell for each row, or (1, e², t, t²)/2."""

    def __init__(self, form: StepLayout) -> None:
        self._form = form
        self._model, self._hidden = definition_of(form.step.training.model.kind), form.step.training.model.hidden
        self._edges = np.array(form.step.edges)
        self._inputs = _Inputs(form)
        self._numeric = None if self._model.scale is TargetScale.YES_OR_NO else _Target(form)

    def __call__(self, inputs: Matrix, target: Vector, weights: Vector) -> Vectors:
        score = self._score(inputs, weights)
        if self._numeric is None:
            return Vectors(self._cells(score, target))
        found = np.empty((target.size, 4))
        found[:, 0] = 1.0
        found[:, 1] = self._error(self._numeric, score, target) ** 2
        found[:, 2] = self._numeric(target)
        np.multiply(found[:, 2], found[:, 2], out=found[:, 3])
        found *= _HALF
        return Vectors(found)

    def _score(self, inputs: Matrix, weights: Vector) -> Vector:
        if (layer := self._model.layer) is not None:
            return layer.score(self._inputs.unscaled(inputs), weights, self._hidden)
        return row_products(self._inputs(inputs), weights)

    def _cells(self, score: Vector, target: Vector) -> Matrix:
        found = np.zeros((target.size, self._form.width))
        cell = 2 * np.searchsorted(self._edges, score, side="right") + (target >= _HALF)
        found[np.arange(target.size), cell] = 1.0
        return found

    def _error(self, numeric: _Target, score: Vector, target: Vector) -> Vector:
        expected = self._model.expected(score, self._form.target.high)
        if self._model.scale is TargetScale.STANDARDISED:
            return numeric.error(expected, target)
        return numeric.error_in_units(expected, target)
