"""What does not fit is read as shares of the units: each unit is answered for once, and there is an end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from site_agent.reading.bounding.tally import added
from site_agent.reading.bounding.unit_shares import Crammed, Key, UnitShare, pieces


@dataclass
class Units:
    """Units with so many records each, of which only so many fit at once."""

    sizes: Mapping[Key, int]
    most: int
    named: list[Key] = field(default_factory=list)

    def mine(self, share: UnitShare) -> list[Key]:
        return [key for key in self.sizes if hash(key) % share.of == share.place and key not in share.without]

    def at_once(self, share: UnitShare) -> list[Key]:
        if sum(self.sizes[key] for key in self.mine(share)) > self.most:
            raise Crammed
        return self.mine(share)

    def giants(self, share: UnitShare) -> dict[Key, Callable[[], list[Key]]]:
        found = [key for key in self.mine(share) if self.sizes[key] > self.most // 8]
        self.named += found
        return {key: lambda key=key: [key] for key in found}


def test_the_parts_of_a_share_are_its_units_and_leave_out_the_same_ones() -> None:
    parts = list(UnitShare(3, 5, without=("giant",)).parts())
    assert {part.without for part in parts} == {("giant",)}
    units = [unit for unit in range(1000) if unit % 5 == 3]
    assert sorted(unit for part in parts for unit in units if unit % part.of == part.place) == units


@settings(max_examples=100, derandomize=True, deadline=None)
@given(st.dictionaries(st.integers(0, 500), st.integers(1, 60), max_size=60), st.integers(8, 200))
def test_every_unit_is_answered_for_once(sizes: dict[int, int], most: int) -> None:
    units = Units(sizes, most)
    answered = [key for piece in pieces(units) for key in piece]
    assert sorted(answered) == sorted(sizes)
    assert len(units.named) == len(set(units.named))
    if sum(sizes.values()) <= most:
        assert not units.named


def test_without_memory_for_one_unit_there_is_an_end() -> None:
    class Nothing(Units):
        def giants(self, share: UnitShare) -> dict[Key, Callable[[], list[Key]]]:
            raise Crammed

    with pytest.raises(MemoryError):
        list(pieces(Nothing({1: 5}, most=1)))


@pytest.mark.parametrize("left", [2**62, -(2**63), 5])
def test_tallies_add_up_beyond_64_bits(left: int) -> None:
    total = np.array([[left, 1]])
    for _ in range(3):
        total = added(total, np.array([[left, 2]]))
    assert [int(each) for each in total[0]] == [4 * left, 7]
