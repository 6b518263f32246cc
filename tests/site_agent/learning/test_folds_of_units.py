"""Who is held out: by the patient's own key alone, for ever, and alike from every source."""

from __future__ import annotations

import hashlib
import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from site_agent.reading.examples import Examples, Folds, UnitKey, key_text

KEY = hashlib.sha256(b"the site's own key").digest()
QUARTER = Fraction(1, 4)


def held_out(keys: list[UnitKey], share: Fraction = QUARTER, key: bytes = KEY) -> list[bool]:
    return Folds(key, share).held_out(keys, len(keys)).tolist()


@given(keys=st.lists(st.integers(-(2**63), 2**63 - 1)), more=st.integers(0, 2**63 - 1))
def test_nobody_moves_when_somebody_comes_or_the_order_changes(keys: list[int], more: int) -> None:
    found = dict(zip(keys, held_out([*keys]), strict=True))
    again = dict(zip([more, *reversed(keys)], held_out([more, *reversed(keys)]), strict=True))
    assert {**again, **found} == again


@given(number=st.integers(-(2**63), 2**63 - 1))
def test_a_whole_number_is_one_key_from_every_source(number: int) -> None:
    keys: list[UnitKey] = [number, str(number), b"i" + str(number).encode()]
    assert len({key_text(key) for key in keys}) == 1
    assert len(set(held_out(keys, Fraction(1, 2)))) == 1


def test_a_text_and_a_fraction_are_one_key_from_every_source() -> None:
    assert key_text("ä-7") == key_text(b"t" + "ä-7".encode())
    assert key_text("1.5") == key_text(b"r" + struct.pack("<d", 1.5))
    assert key_text("\udcff") == b"\xed\xb3\xbf"


def test_a_share_is_exact_to_the_last_part() -> None:
    folds = Folds(KEY, Fraction(0))
    number = folds._hash("p1")
    assert held_out(["p1"], Fraction(number, 2**32)) == [False]
    assert held_out(["p1"], Fraction(number + 1, 2**32)) == [True]


@pytest.mark.parametrize("share", [Fraction(0), Fraction(1, 5 * 2**8) * 5, QUARTER, Fraction(9, 16)])
def test_about_the_share_is_held_out_and_a_larger_share_keeps_who_was(share: Fraction) -> None:
    keys: list[UnitKey] = [f"p{place}" for place in range(20_000)]
    found = np.array(held_out(keys, share))
    # Five and a half standard deviations: once in twenty million.
    assert abs(found.sum() - 20_000 * share) <= 5.5 * (20_000 * float(share * (1 - share))) ** 0.5
    assert not (found & ~np.array(held_out(keys, Fraction(11, 16)))).any()


def test_another_site_holds_out_others() -> None:
    keys: list[UnitKey] = [f"p{place}" for place in range(200)]
    assert held_out(keys) != held_out(keys, key=hashlib.sha256(b"another site's").digest())


def test_folds_are_disjoint_and_together_everybody() -> None:
    draw = np.random.default_rng(1)
    for out in (draw.random(50) < 0.3, np.arange(50) >= 40, np.zeros(50, np.bool_), np.ones(50, np.bool_)):
        starts = np.concatenate(([0], np.cumsum(draw.integers(1, 4, 50)))).astype(np.intp)
        units = np.repeat(np.arange(50.0), np.diff(starts))
        examples = Examples(units[:, np.newaxis], units, starts, out)
        learnt, tried = (examples.fold(held_out=each) for each in (False, True))
        assert set(learnt.target) == set(np.flatnonzero(~out))
        assert set(tried.target) == set(np.flatnonzero(out))
        for fold in (learnt, tried):
            sizes = np.diff(fold.starts)
            assert fold.target.tolist() == np.repeat(fold.target[fold.starts[:-1]], sizes).tolist()
            assert fold.inputs[:, 0].tolist() == fold.target.tolist()


def test_rows_that_are_nobodys_are_refused() -> None:
    rows = np.zeros((3, 1)), np.zeros(3)
    for starts in ([0, 2], [1, 3], [0, 2, 2, 3]):
        with pytest.raises(ValueError, match="do not belong"):
            Examples(*rows, np.array(starts), np.zeros(len(starts) - 1, np.bool_))


def test_what_is_secret_is_in_no_text() -> None:
    examples = Examples(np.full((1, 1), 77.5), np.full(1, 77.5), np.arange(2), np.zeros(1, np.bool_))
    assert "77" not in repr(examples)
    assert "77" not in repr(examples.fold(held_out=False))
