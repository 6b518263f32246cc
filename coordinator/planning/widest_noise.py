"""The widest noise with which something is known well enough.

It is sought among scales of at most twenty binary digits, so that a step is a millionth: whether a scale is enough is
decided in floating point, and where the last digit of another computer differs it then decides otherwise about one plan
in a billion.

A wider noise makes an interval wider, but for one thing: the interval of a noised total reaches whole numbers, equally
far for a range of scales, and within such a range its critical value falls until it is the normal one. So where
sampling is part of an error, the sharpest scale of a further range may be enough although its first one is not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from wardround.federation.forms.totals import NORMAL, TotalNoise, noise_of
from wardround.privacy.accounting.cost import LEAST_GAUSSIAN_SCALE
from wardround.privacy.noise.distribution import LARGEST_SCALE, SCALE_UNIT, Mechanism, NoiseDistribution

_DIGITS = 20
_TOP, _HALF = 1 << _DIGITS, 1 << (_DIGITS - 1)
_LOOKED_AT = 8
_NORMAL = NORMAL * (1 + 1e-9)
# Below it Laplace noise is hardly ever anything but 0.
_LEAST = {Mechanism.DISCRETE_GAUSSIAN: LEAST_GAUSSIAN_SCALE, Mechanism.DISCRETE_LAPLACE: Fraction(1, 64)}


def ordinal(multiple: int) -> int:
    """The place of a multiple of 1/1024 among those of at most twenty binary digits; of any other, the one below."""
    shift = max(multiple.bit_length() - _DIGITS, 0)
    return (multiple >> shift) + shift * _HALF


def multiple_at(place: int) -> int:
    """The multiple at this place: the inverse of `ordinal`."""
    if place < _TOP:
        return place
    shift, above = divmod(place - _HALF, _HALF)
    return (_HALF + above) << shift


@dataclass(frozen=True, slots=True)
class WidestNoise:
    """A search over the scales of one kind of noise, of which a total holds so many."""

    mechanism: Mechanism
    noises: int
    is_enough: Callable[[TotalNoise], bool]

    def scale(self, *, alone: bool) -> Fraction | None:
        """The widest scale that is enough; None where none is. `alone` says that noise is all of the error."""
        least, most = ordinal(int(_LEAST[self.mechanism] * SCALE_UNIT)), ordinal(LARGEST_SCALE * SCALE_UNIT)
        if not self._enough(least):
            return None
        found = _last(least, most, self._enough)
        return Fraction(multiple_at(found if alone else self._in_further_ranges(found, most)), SCALE_UNIT)

    def _in_further_ranges(self, found: int, most: int) -> int:
        """The same once the sharpest scales of the next ranges were looked at, too."""
        end, failed = self._end_of_range(found, most), 0
        while end < most and failed < _LOOKED_AT:
            start = end + 1
            end = self._end_of_range(start, most)
            sharpest = start if self._is_normal(start) else min(end, _last(start, end, self._is_not_normal) + 1)
            if self._enough(sharpest):
                found, failed = _last(sharpest, end, self._enough), 0
            else:
                failed += 1
        return found

    def _noise(self, place: int) -> TotalNoise:
        law = NoiseDistribution(self.mechanism, Fraction(multiple_at(place), SCALE_UNIT))
        return noise_of(law, noises=self.noises)

    def _enough(self, place: int) -> bool:
        return self.is_enough(self._noise(place))

    def _reach(self, place: int) -> int:
        noise = self._noise(place)
        return round(noise.critical * noise.deviation)

    def _end_of_range(self, place: int, most: int) -> int:
        reach = self._reach(place)
        double = min(most, ordinal(2 * multiple_at(place)) + 1)
        return _last(place, double, lambda farther: self._reach(farther) <= reach)

    def _is_normal(self, place: int) -> bool:
        return self._noise(place).critical <= _NORMAL

    def _is_not_normal(self, place: int) -> bool:
        return not self._is_normal(place)


def _last(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The last place up to which it holds, found by halving; it holds at `low`."""
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low
