"""REGRESS(y, x, …): linear regression from the sums of products, with a sandwich of noise and sampling around it.

There is an estimate as long as every direction of the predictors stands clear of the noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from wardround.federation.forms.definition import EVEN, Definition, Function, TermLayout, need_numbers, the_first
from wardround.federation.forms.grids import Quantiser
from wardround.federation.forms.totals import NORMAL, Estimated, Floats, Sloped, Total, Unknown, estimate, farthest
from wardround.federation.question.answer import Estimate, NoEstimate
from wardround.federation.question.query import MAX_COLUMNS, Statistic
from wardround.federation.statistics.products import Products, coordinates, never_below_nought, part, typical
from wardround.federation.statistics.spread import root_of

_SINGULAR = 1e-12
_OUTCOME = 1
_SUMMARY = ("r_squared", "residual_sd")
_LARGEST = 4.0
"""The largest square of a difference of two scaled values."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Coefficients in the scaled columns, intercept first, and their covariance; the residual variance and R².

    Each of the latter two is a value, its error, and the part of the error that is the sample's; so is `sampled` that
    of the covariance. `clearance` says by how many deviations the predictors' least direction is clear of the noise.
    Without an outcome that varies there is no R². `related` is the least share of it that the slopes leave.
    """

    coefficients: Floats
    covariance: Floats
    sampled: Floats
    residual: tuple[float, float, float]
    explained: tuple[float, float, float] | None
    clearance: float
    related: float


def estimates(total: Total) -> Iterator[Estimate]:
    """A coefficient for each predictor and the intercept, then R² and the residual standard deviation."""
    aggregate, quantisers = total.part.aggregates[0], total.part.quantisers
    terms = ("intercept", *aggregate.others)
    scale = _Scale.of(quantisers)
    order = (*range(1, len(terms)), 0)
    names = (*(terms[place] for place in order), *_SUMMARY)
    for group, numbers in total.groups:
        products = Products.of(total.part, numbers, total.noise.deviation)
        fit = fitted(products, total.noise.wide)
        found: list[Estimated | Unknown]
        if isinstance(fit, NoEstimate):
            widest = [float(scale.widest[place]) for place in order]
            found = [Unknown(fit, (-most, most)) for most in widest]
            found += [Unknown(fit, (0.0, 1.0)), Unknown(fit, (0.0, scale.outcome))]
        else:
            # What is asked of a direction is more than its own noise, which therefore has moved it little.
            surer = total.noise.shown(fit.clearance, moved=0.0)
            judged = _Judged(products, fit, total.noise.wide, surer)
            found = [judged.coefficient(scale, place) for place in order]
            found += [judged.explained(), root_of(judged.residual()).scaled(scale.outcome)]
        for name, each in zip(names, found, strict=True):
            yield estimate(aggregate, group, each, place=total.place, term=name, sampling=True)


def fitted(products: Products, critical: float) -> Fit | NoEstimate:
    """Least squares of the first column on the others and a constant; why not, where the noise hides them."""
    chosen = _predictors(products.sums)
    matrix = products.sums[np.ix_(chosen, chosen)]
    if products.number <= max(critical * float(products.noise[0, 0]), float(len(chosen))):
        return NoEstimate.TOO_FEW
    eigenvalues, vectors = np.linalg.eigh(matrix)
    eigenvalue, along = float(eigenvalues[0]), np.zeros(len(products.sums))
    along[chosen] = vectors[:, 0]
    # The eigenvalues of such noise hardly ever reach so far: two deviations of it for every direction.
    lost = math.sqrt(len(chosen)) * float(products.noise[np.ix_(chosen, chosen)].max())
    rounding = _SINGULAR * max(float(np.abs(matrix).max()), 1.0)
    if eigenvalue <= critical * lost + rounding:
        return NoEstimate.PREDICTORS_ALIKE
    own = max(products.error(_halved(np.outer(along, along))), rounding)
    return _fit(products, chosen, critical + (eigenvalue - critical * lost) / own)


def _fit(products: Products, chosen: list[int], clearance: float) -> Fit:
    inverse: Floats = np.linalg.inv(products.sums[np.ix_(chosen, chosen)]).astype(np.float64)
    weights = _weights(products.sums, chosen)
    # With w = (β, −1) the residual sum of squares is wᵀSw, and the noise E of S moves β by −A⁻¹(Ew).
    pairs = np.outer(weights, weights)
    moved = (pairs * products.noise**2)[np.ix_(chosen, chosen)]
    np.fill_diagonal(moved, (products.noise**2 @ weights**2)[chosen])
    squares = float(weights @ products.sums @ weights)
    number, free = products.number, products.number - len(chosen)
    # β is where the sum of squares is least, so to first order it only moves with S itself.
    slopes = _halved(pairs)
    noise = products.error(slopes)
    residual = min(max(squares / free, 0.0), _LARGEST)
    # A sum of squares that the noise has pushed to 0 is still as large as the noise allows.
    sampled = max(squares, noise, 0.0) / free
    covariance: Floats = inverse @ moved @ inverse + sampled * inverse
    whole, around = _whole(products.sums)
    explained = None
    if whole > 0.0:
        share = min(max(squares / whole, 0.0), 1.0)
        explained_sampled = 2.0 * math.sqrt(1.0 - share) * share / math.sqrt(number)
        explained_noise = products.error(slopes - share * around) / whole
        explained = (1.0 - share, math.hypot(explained_noise, explained_sampled), explained_sampled)
    own = slopes.copy()
    own[0, 0] -= residual
    residual_sampled = sampled * math.sqrt(2.0 / free)
    return Fit(
        weights[chosen],
        covariance,
        sampled * inverse,
        (residual, math.hypot(products.error(own) / free, residual_sampled), residual_sampled),
        explained,
        clearance,
        _related(weights[chosen][1:], covariance[1:, 1:]),
    )


def _related(slopes: Floats, covariance: Floats) -> float:
    """The least part of R² that remains when the slopes lose what noise and sample may have given them.

    A square is never below nought: noise makes R² too large, most of all where there is none. Slopes in their own
    deviations have a squared length of a noncentral χ² law, whose lower end is taken by Sankaran's approximation.
    """
    length, spare = float(slopes @ np.linalg.solve(covariance, slopes)), (len(slopes) - 1) / 2.0
    left = max(math.sqrt(max(length - spare, 0.0)) - NORMAL, 0.0) ** 2 - spare
    return min(max(left / length, 0.0), 1.0) if length > 0.0 else 0.0


@dataclass(frozen=True, slots=True)
class _Judged:
    """A fit and its sums: from these its numbers with intervals, the noise's part of which is as far as it reaches."""

    products: Products
    fit: Fit
    critical: float
    surer: float

    def coefficient(self, scale: _Scale, place: int) -> Estimated | Unknown:
        """One coefficient in its columns' own units."""
        row, most = scale.back[place], float(scale.widest[place])
        value = min(max(float(scale.shift[place] + row @ self.fit.coefficients), -most), most)
        error, sampled = (
            math.sqrt(max(float(row @ part @ row), 0.0)) for part in (self.fit.covariance, self.fit.sampled)
        )

        def sloped(entries: Floats) -> tuple[float, Floats] | None:
            solved = _solved(_folded(entries))
            if solved is None:
                return None
            weights, chosen, inverse = solved
            pull = np.zeros_like(weights)
            pull[chosen] = inverse @ row
            both = np.outer(pull, weights)
            slopes = -np.triu(both + both.T, 1) - np.diag(pull * weights)
            return float(scale.shift[place] + row @ weights[chosen]), _unfolded(slopes)

        return self._found(sloped, (value, min(error, most), sampled), (-most, most), critical=self.surer)

    def explained(self) -> Estimated | Unknown:
        """The share of the outcome's variance that is explained."""
        if self.fit.explained is None:
            return Unknown(NoEstimate.NO_SPREAD, (0.0, 1.0))
        value, error, sampled = self.fit.explained
        # The noise's reach bends R² so far that it covers without being surer.
        found = self._found(_explained, (value, min(error, 0.5), sampled), (0.0, 1.0), critical=self.critical)
        if isinstance(found, Unknown) or not self.products.noise.any():
            return found
        return Estimated(found.value, found.error, (min(found.ends[0], value * self.fit.related), found.ends[1]))

    def residual(self) -> Estimated | Unknown:
        """The variance around the fit."""
        value, error, sampled = self.fit.residual
        return self._found(_residual, (value, min(error, _LARGEST / 2), sampled), (0.0, _LARGEST), critical=self.surer)

    def _found(
        self, sloped: Sloped, found: tuple[float, float, float], bounds: tuple[float, float], *, critical: float
    ) -> Estimated | Unknown:
        """The number with an interval that joins what the noise reaches with what the sample does, on each side."""
        value, error, sampled = found
        at, deviations = _unfolded(self.products.sums), _unfolded(self.products.noise)
        low, high = (farthest(sloped, at, deviations, critical=critical, upwards=up) for up in (False, True))
        if low is None or high is None:
            return Unknown(NoEstimate.NO_SPREAD if sloped is _explained else NoEstimate.PREDICTORS_ALIKE, bounds)
        below = math.hypot(max(value - low, 0.0), self.critical * sampled)
        above = math.hypot(max(high - value, 0.0), self.critical * sampled)
        return Estimated(value, error, (max(value - below, bounds[0]), min(value + above, bounds[1])))


def _explained(entries: Floats) -> tuple[float, Floats] | None:
    sums = _folded(entries)
    solved, (whole, around) = _solved(sums), _whole(sums)
    if solved is None or whole <= 0.0:
        return None
    weights, _, _ = solved
    share = float(weights @ sums @ weights) / whole
    return 1.0 - share, _unfolded(-(_halved(np.outer(weights, weights)) - share * around) / whole)


def _residual(entries: Floats) -> tuple[float, Floats] | None:
    sums = _folded(entries)
    solved = _solved(sums)
    if solved is None or sums[0, 0] <= len(solved[1]):
        return None
    weights, chosen, _ = solved
    free = float(sums[0, 0]) - len(chosen)
    value = float(weights @ sums @ weights) / free
    slopes = _halved(np.outer(weights, weights))
    slopes[0, 0] -= value
    return value, _unfolded(slopes / free)


def _predictors(sums: Floats) -> list[int]:
    return [0, *range(_OUTCOME + 1, len(sums))]


def _weights(sums: Floats, chosen: list[int]) -> Floats:
    """(β, −1): what makes residuals of records."""
    weights = np.zeros(len(sums))
    weights[chosen] = np.linalg.solve(sums[np.ix_(chosen, chosen)], sums[chosen, _OUTCOME])
    weights[_OUTCOME] = -1.0
    return weights


def _solved(sums: Floats) -> tuple[Floats, list[int], Floats] | None:
    """Weights, the places of the predictors and the inverse of their sums; None where a direction is lost."""
    chosen = _predictors(sums)
    matrix = sums[np.ix_(chosen, chosen)]
    if float(np.linalg.eigvalsh(matrix)[0]) <= _SINGULAR * max(float(np.abs(matrix).max()), 1.0):
        return None
    return _weights(sums, chosen), chosen, np.linalg.inv(matrix).astype(np.float64)


def _whole(sums: Floats) -> tuple[float, Floats]:
    """The outcome's sum of squares about its mean, and its slopes."""
    number, mean = float(sums[0, 0]), float(sums[0, _OUTCOME] / sums[0, 0])
    around = np.zeros_like(sums)
    around[_OUTCOME, _OUTCOME], around[0, _OUTCOME], around[0, 0] = 1.0, -2.0 * mean, mean**2
    return float(sums[_OUTCOME, _OUTCOME]) - number * mean**2, around


def _halved(pairs: Floats) -> Floats:
    """The slopes of a quadratic form in the entries above and on the diagonal."""
    found: Floats = 2.0 * np.triu(pairs, 1) + np.diag(np.diag(pairs))
    return found


def _unfolded(matrix: Floats) -> Floats:
    """The entries above and on the diagonal, in a row."""
    return np.asarray(matrix[np.triu_indices(len(matrix))], dtype=np.float64)


def _folded(entries: Floats) -> Floats:
    """The symmetric matrix of such a row."""
    width = math.isqrt(2 * len(entries))
    matrix = np.zeros((width, width))
    matrix[np.triu_indices(width)] = entries
    return np.asarray(matrix + np.triu(matrix, 1).T, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class _Scale:
    """From scaled coefficients to the columns' own units: a linear map, its shift, and the widest possible values.

    Two values of a predictor are at least one level apart, so a slope is at most the outcome's range over a level.
    `outcome` is half of the outcome's range.
    """

    back: Floats
    shift: Floats
    widest: Floats
    outcome: float

    @classmethod
    def of(cls, quantisers: tuple[Quantiser, ...]) -> _Scale:
        """The scale of these columns, the outcome first."""
        halves = [float(quantiser.high / quantiser.per_unit) / 2 for quantiser in quantisers]
        centres = [float(quantiser.value(quantiser.high // 2)) for quantiser in quantisers]
        outcome, width = halves[0], len(quantisers)
        back = np.zeros((width, width))
        back[0, 0] = outcome
        widest = np.full(width, 2.0 * outcome)
        for place in range(1, width):
            back[place, place] = outcome / halves[place]
            back[0, place] = -outcome * centres[place] / halves[place]
            widest[place] = 2.0 * outcome * float(quantisers[place].per_unit)
            widest[0] += widest[place] * abs(centres[place])
        shift = np.zeros(width)
        shift[0] = centres[0]
        widest[0] += abs(centres[0])
        return cls(back, shift, widest, outcome)


REGRESSION = Definition(
    statistic=Statistic.REGRESSION,
    functions=(Function("REGRESS", "REGRESS({y}, {x})"),),
    check=need_numbers,
    part=part,
    coordinates=coordinates,
    estimates=estimates,
    columns=(2, MAX_COLUMNS),
    never_below_nought=never_below_nought,
    typical=typical,
    assumed=f"the first slope of unrelated columns, {EVEN}, sampling included",
    stands_for=the_first,
    one_number=False,
    terms=TermLayout("coefficient", summary=_SUMMARY),
    term_axis="column",
    axis="change in {column} for one more unit of each column",
    aside=(("intercept", "intercept"), ("r_squared", "R²"), ("residual_sd", "residual standard deviation")),
)
