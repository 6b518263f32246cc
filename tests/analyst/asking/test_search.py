"""The arithmetic of a search: where it looks next, which values its rounds exclude, and what they agree on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wardround.analyst.asking.quantile_search import ROUNDS, ReleasedShare, found, next_value

BOUNDS = (0.0, 1024.0)
shares = st.lists(
    st.builds(ReleasedShare, st.floats(0.0, 1024.0), st.floats(-1.0, 2.0), st.sampled_from([0.0, 0.01, 0.3])),
    max_size=12,
)


def rounds(share: float, error: float) -> list[ReleasedShare]:
    """Ten shares, of which one says something."""
    return [ReleasedShare(512.0, share, error), *([ReleasedShare(0.0, 0.0, error)] * (ROUNDS - 1))]


def test_the_next_value_is_the_middle_of_what_is_left() -> None:
    assert next_value(0.5, BOUNDS, []) == 512.0
    assert next_value(0.5, BOUNDS, [ReleasedShare(512.0, 0.4, 0.1)]) == 768.0
    assert next_value(0.5, BOUNDS, [ReleasedShare(512.0, 0.4, 0.1), ReleasedShare(768.0, 0.5, 0.1)]) == 640.0


def test_all_rounds_together_err_as_often_as_one_interval() -> None:
    # 1 − 0.05/20 of a normal law is below 2.807.
    assert found(0.5, BOUNDS, rounds(0.5 + 0.2810, 0.1)).interval == (0.0, 512.0)
    assert found(0.5, BOUNDS, rounds(0.5 + 0.2805, 0.1)).interval == (0.0, 1024.0)
    assert found(0.5, BOUNDS, rounds(0.5 - 0.2810, 0.1)).interval == (512.0, 1024.0)
    assert found(0.5, BOUNDS, rounds(0.5 - 0.2805, 0.1)).interval == (0.0, 1024.0)


def test_the_value_is_where_the_rising_curve_crosses_the_level() -> None:
    curve = [ReleasedShare(256.0, 0.25, 0.1), ReleasedShare(512.0, 0.35, 0.1), ReleasedShare(768.0, 0.85, 0.1)]
    assert found(0.6, BOUNDS, curve).value == 640.0
    # Neighbours that fall are averaged: 0.5 and 0.3 are 0.4 twice.
    falling = [ReleasedShare(256.0, 0.5, 0.1), ReleasedShare(512.0, 0.3, 0.1), ReleasedShare(768.0, 0.8, 0.1)]
    assert found(0.6, BOUNDS, falling).value == 640.0
    # The better known one counts more.
    uneven = [ReleasedShare(256.0, 0.5, 0.1), ReleasedShare(512.0, 0.3, 0.2), ReleasedShare(768.0, 0.86, 0.1)]
    assert abs(found(0.66, BOUNDS, uneven).value - 640.0) < 1e-9


@given(shares, st.floats(0.001, 0.999))
def test_whatever_was_released_the_answer_is_inside_its_interval_and_the_bounds(
    released: list[ReleasedShare], level: float
) -> None:
    result = found(level, BOUNDS, released)
    assert BOUNDS[0] <= result.interval[0] <= result.value <= result.interval[1] <= BOUNDS[1]
    assert result.standard_error >= 0.0
    assert BOUNDS[0] <= next_value(level, BOUNDS, released) <= BOUNDS[1]
