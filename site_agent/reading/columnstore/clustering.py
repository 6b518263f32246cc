"""The order of a snapshot: patient after patient, and within a patient an order that only the site's key knows.

A row's place among its patient's rows follows from the patient's key and from what the row holds, never from where
it stood in a file or from other patients: so the rows of one patient that count are a choice among its own. Rows
that are equal in every column of the study are the same to every question.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Sequence

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

Words = NDArray[np.uint64]

PARTITIONS = 256
_WORD = 64
_TEXT_BYTES = 256
"""What a text takes beside its letters."""

_MOST_UNIT_BITS = 40
# The golden ratio in 64 bits: spreads neighbouring numbers evenly, and need do nothing else.
_SPREADING = np.uint64(0x9E3779B97F4A7C15)


class KeyedOrder:
    """64 bits for each row that nobody without the key can tell from random ones."""

    def __init__(self, key: bytes) -> None:
        self._rows = hashlib.blake2b(b"rows", key=key, digest_size=32, person=b"wardround order").digest()
        self._texts = hashlib.blake2b(b"texts", key=key, digest_size=32, person=b"wardround order").digest()

    def of_rows(self, words: Sequence[Words]) -> Words:
        """One number for each row, of the unit's word and the words of its columns, always as many (a CBC-MAC)."""
        rows = words[0].size
        state = np.zeros((rows, 2), dtype="<u8")
        for place in range(0, len(words), 2):
            for half, word in enumerate(words[place : place + 2]):
                state[:, half] ^= word
            state = self._permuted(state)
        return np.ascontiguousarray(state[:, 0]).astype(np.uint64)

    def of_text(self, text: str | bytes) -> int:
        """A number for a text: what a row holds, not the place the text happens to have in a list."""
        raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
        return int.from_bytes(hashlib.blake2b(raw, key=self._texts, digest_size=8).digest(), "little")

    def _permuted(self, state: NDArray[np.uint64]) -> NDArray[np.uint64]:
        permutation = Cipher(algorithms.AES(self._rows), modes.ECB()).encryptor()  # noqa: S305
        return np.frombuffer(permutation.update(state.tobytes()), dtype="<u8").reshape(state.shape).copy()


class _Places(dict[str | bytes, int]):
    """The next number for whatever is asked for the first time."""

    def __missing__(self, text: str | bytes) -> int:
        self[text] = place = len(self)
        return place


class Overfull(Exception):
    """More texts than fit into memory, and of what in a few words without a value."""


class Dictionary:
    """Texts numbered as they come, each with a keyed word of its own; `Overfull` where they take too much memory."""

    def __init__(self, order: KeyedOrder, *, room_bytes: int, what: str) -> None:
        self._order = order
        self._room_bytes, self._what = room_bytes, what
        self._places = _Places()
        self._words = np.zeros(16, dtype=np.uint64)
        self._known = 0

    def numbers(self, texts: Iterable[str | bytes], count: int) -> NDArray[np.int64]:
        """The number of each text."""
        found = np.fromiter(map(self._places.__getitem__, texts), dtype=np.int64, count=count)
        if len(self._places) > self._known:
            self._learn()
        return found

    def words(self, numbers: NDArray[np.int64]) -> Words:
        """The keyed word of each number."""
        return self._words[numbers]

    def texts(self) -> list[str | bytes]:
        """Every text, in the order of the numbers."""
        return list(self._places)

    def _learn(self) -> None:
        size = len(self._places)
        if size > self._words.size:
            self._words = np.concatenate((self._words, np.zeros(max(size, self._words.size), dtype=np.uint64)))
        fresh = list(itertools.islice(self._places, self._known, None))
        self._room_bytes -= sum(_TEXT_BYTES + len(text) for text in fresh)
        if self._room_bytes < 0:
            raise Overfull(self._what)
        self._words[self._known : size] = [self._order.of_text(text) for text in fresh]
        self._known = size


def partition_of(units: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Which of the partitions a unit belongs to; all rows of a unit meet in one."""
    return ((units.view(np.uint64) * _SPREADING) >> np.uint64(_WORD - 8)).astype(np.uint8)


def clustered(units: NDArray[np.int64], order: Words) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """The places of the rows, unit by unit and in keyed order within one; and where a unit begins."""
    low, high = int(units.min()), int(units.max())
    if (high - low).bit_length() > _MOST_UNIT_BITS:
        units = np.unique(units, return_inverse=True)[1].astype(np.int64)
        low, high = 0, int(units.max())
    bits = (high - low).bit_length()
    # Sorting one number is many times quicker than ordering by two.
    number = units.view(np.uint64) - np.uint64(low % 2**_WORD)
    packed = order if bits == 0 else number << np.uint64(_WORD - bits) | order >> np.uint64(bits)
    places = np.argsort(packed)
    if _mixed(packed[places], order[places]):
        places = np.lexsort((order, units))
    sorted_units = units[places]
    begins = np.ones(units.size, dtype=np.bool_)
    np.not_equal(sorted_units[1:], sorted_units[:-1], out=begins[1:])
    return places, begins


def _mixed(packed: Words, order: Words) -> bool:
    """Whether rows that differ have the same packed number, so that their order would be the file's."""
    same = packed[1:] == packed[:-1]
    return bool((same & (order[1:] != order[:-1])).any())
