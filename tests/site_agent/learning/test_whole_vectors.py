"""From doubles to whole numbers: never longer than LENGTH, whatever the doubles were."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from site_agent.learning.integer_vectors import Vectors, whole, within
from wardround.federation.models.step_layout import LENGTH

anything = st.lists(st.one_of(st.floats(-2.0, 2.0), st.floats()), min_size=1, max_size=40)


def length_squared(numbers: list[float]) -> int:
    """In integers: a whole number of doubles has no other value."""
    return sum(int(number) ** 2 for number in numbers)


@given(vector=anything, longest=st.one_of(st.floats(0.01, 3.0), st.floats(5e-324, 1e308)))
@example(vector=[math.nan, 1.0], longest=1.0)
@example(vector=[math.inf, -math.inf], longest=1.0)
@example(vector=[1e308] * 40, longest=1.0)
@example(vector=[0.0] * 3, longest=5e-324)
@example(vector=[1 / 3] * 9, longest=1.0)
def test_any_vector_becomes_whole_numbers_no_longer_than_allowed(vector: list[float], longest: float) -> None:
    found = whole(Vectors(np.array([[0.5] * len(vector), vector])), longest)
    assert np.isfinite(found).all()
    assert (found == np.trunc(found)).all()
    assert all(length_squared(row) <= LENGTH**2 for row in found.tolist())
    assert found[:1].tobytes() == whole(Vectors(np.array([[0.5] * len(vector)])), longest).tobytes()


@given(vector=st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=20))
def test_a_short_vector_loses_less_than_a_step_toward_zero(vector: list[float]) -> None:
    length = max(math.hypot(*vector), 1.0)
    (found,) = whole(Vectors(np.array([vector])), 1.0).tolist()
    for number, value in zip(found, vector, strict=True):
        exact = value / length * LENGTH
        assert abs(number) <= abs(exact) * (1 + 1e-12)
        assert abs(exact - number) < 1 + 1e-6


@given(vector=st.lists(st.integers(-3 * LENGTH, 3 * LENGTH), min_size=1, max_size=12))
@example(vector=[LENGTH, 1])
@example(vector=[LENGTH + 1])
def test_what_is_too_long_shrinks_and_what_fits_stays(vector: list[int]) -> None:
    before = [float(number) for number in vector]
    (found,) = within(np.array([before])).tolist()
    assert length_squared(found) <= LENGTH**2
    if length_squared(before) <= LENGTH**2:
        assert found == before
    else:
        pairs = list(zip(found, before, strict=True))
        assert all(abs(new) < abs(old) and new * old >= 0 for new, old in pairs if old)
        assert math.sqrt(length_squared(found)) > LENGTH - 2 * len(vector)


def test_a_row_of_very_many_numbers_is_measured_in_parts() -> None:
    wide = np.random.default_rng(5).normal(size=(2, 10_001))
    found = whole(Vectors(wide.copy()), 1.0)
    assert all(0.999 * LENGTH**2 < length_squared(row) <= LENGTH**2 for row in found.tolist())
    assert found[1:].tobytes() == whole(Vectors(wide[1:].copy()), 1.0).tobytes()
