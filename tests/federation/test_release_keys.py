"""The bytes of a release with keys: one form for one meaning, and old bytes as they were."""

from __future__ import annotations

import json

import numpy as np
import pytest

from wardround.federation.errors import MalformedMessage
from wardround.federation.forms.release import Release, decode_release, extent, is_one_vote, showable
from wardround.federation.question.query import MAX_KEYS
from wardround.privacy.accounting.cost import Fact
from wardround.privacy.mechanisms.partition_selection import SelectionFact
from wardround.privacy.mechanisms.private_selection import ChoiceFact, Choosing
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution
from wardround.privacy.noise.vectors import IntVector

PLAN = "ab" * 32
LAW = NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, 640)  # type: ignore[arg-type]


def release(*keys: str, values: tuple[int, ...] | None = None) -> Release:
    numbers = tuple(range(5000, 5000 + len(keys))) if values is None else values
    return Release(PLAN, "north", "2026-01-31", np.array(numbers, dtype=np.int64), keys)


def test_a_release_without_keys_has_the_bytes_it_always_had() -> None:
    assert release(values=(1, -1)).encode() == (
        b'{"date":"2026-01-31","plan_id":"' + PLAN.encode() + b'","site":"north","values":2}\n'
        b"\x01\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff"
    )


def test_keys_come_back_and_are_ascii_on_the_way() -> None:
    keys = ("E11", "I10.0", "\u00e4rztlich", "\u4e2d\u6587", "\U0001f9ec")
    payload = release(*keys).encode()
    assert payload.partition(b"\n")[0].isascii()
    back = decode_release(payload)
    assert back.keys == keys
    assert back.values.tolist() == [5000, 5001, 5002, 5003, 5004]
    assert back.encode() == payload


MALFORMED = {
    "unsorted": ("b", "a"),
    "repeated": ("a", "a"),
    "empty": ("",),
    "too long": ("x" * 257,),
    "with a line break": ("a\nb",),
    "with a NUL": ("a\x00",),
    "with an escape": ("a\x1b[31m",),
    "with a C1 control": ("a\x9b31m",),
    "half a character": ("\ud800",),
    "a line separator": ("a\u2028b",),
    "turned around": ("\u202egnp.exe",),
}


@pytest.mark.parametrize("fault", MALFORMED)
def test_keys_that_are_not_plain_texts_in_order_are_refused(fault: str) -> None:
    with pytest.raises(MalformedMessage, match="keys"):
        decode_release(release(*MALFORMED[fault]).encode())


@pytest.mark.parametrize("keys", ["E11", ["a", 1], ["a", None], [["a"]], {"a": 1}, 7, [True], [""], []])
def test_keys_of_another_type_are_refused(keys: object) -> None:
    header = {"date": "2026-01-31", "keys": keys, "plan_id": PLAN, "site": "north", "values": 1}
    line = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    with pytest.raises(MalformedMessage):
        decode_release(line + b"\n" + bytes(8))


@pytest.mark.parametrize("line", [b"[]", b"7", b'"a"', b"null"])
def test_a_header_that_is_no_map_is_refused(line: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_release(line + b"\n")


def test_a_key_needs_a_value_and_a_value_a_key() -> None:
    for values in ((1,), (1, 2, 3)):
        with pytest.raises(MalformedMessage):
            decode_release(release("a", "b", values=values).encode())


def test_too_many_keys_are_refused() -> None:
    keys = tuple(f"{number:06d}" for number in range(MAX_KEYS + 1))
    with pytest.raises(MalformedMessage):
        decode_release(release(*keys).encode())
    assert len(decode_release(release(*keys[1:]).encode()).keys) == MAX_KEYS


def test_what_is_paid_for_is_what_may_be_kept() -> None:
    selection = SelectionFact(LAW, 4999, max_keys=2, steps=64)
    choice, noised = ChoiceFact(Choosing.PERMUTE_AND_FLIP, 1, 3), Fact(LAW, 64, 64**2, 2)  # type: ignore[arg-type]
    assert extent(release("a", "b")).is_paid_by((selection,))
    assert extent(release()).is_paid_by((selection,)), "no key passed"
    assert not extent(release("a", values=(4999,))).is_paid_by((selection,)), "a value must be above the threshold"
    assert not extent(release(values=(6000,))).is_paid_by((selection,)), "a value without a key"
    assert not extent(release("a", "b")).is_paid_by((noised,))
    assert not extent(release("a", "b")).is_paid_by((selection, noised))
    assert not extent(release("a", "b")).is_paid_by((noised, selection))
    assert extent(release(values=(6000, 1))).is_paid_by((noised,))
    assert extent(release(values=(0, 1, 0))).is_paid_by((choice,))
    assert not extent(release(values=(0, 1))).is_paid_by((choice,))


def vector(*values: int) -> IntVector:
    return np.array(values, dtype=np.int64)


def test_one_vote_is_zeros_and_a_single_one() -> None:
    assert is_one_vote(vector(0, 1, 0))
    for wrong in (vector(), vector(0, 0), vector(1, 1), vector(2, -1), vector(2), vector(1, -1, 1), vector(0, 2)):
        assert not is_one_vote(wrong)
    # Two halves of the 64-bit range and a bit add up to 1 when they wrap.
    assert not is_one_vote(vector(2**62, 2**62, 2**62, 2**62, 1))


def test_ordinary_texts_may_be_keys() -> None:
    for text in (
        "E11.9",
        " leading",
        "a'b\"c",
        "50 % NaCl",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        "x" * 256,
    ):
        assert showable(text)
