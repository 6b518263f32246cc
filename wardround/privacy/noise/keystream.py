"""Secret random bits: an AES-256-CTR keystream under a key that nobody ever stores.

One stream serves one draw. Its key comes fresh from the operating system, so a forked
process, a restored snapshot or a repeated call never sees the same noise twice.
"""

import os
from typing import Protocol, TypeAlias

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

WordVector: TypeAlias = NDArray[np.uint64]

LARGEST_BLOCK = 1 << 15
"""Words served by one call at most: enough to amortise the call, and still in cache."""

_WORD_BYTES = 8
_KEY_BYTES = 32
_COUNTER_BYTES = 16
# `update_into` asks for room for one more cipher block, although counter mode never fills it.
_SPARE_BYTES = 16
_ZEROS = memoryview(bytes(LARGEST_BLOCK * _WORD_BYTES))


class BitSource(Protocol):
    """Independent fair bits, in blocks for the many and one by one for the rare."""

    def words(self, count: int) -> WordVector:
        """Serve `count` ≤ LARGEST_BLOCK fresh words; the view lasts until the next block."""
        ...

    def bits(self, count: int) -> int:
        """Serve `count` fresh bits as an integer below 2^count; leaves a served block intact."""
        ...


class KeyStream:
    """The bit source of production: AES-256 in counter mode, keyed by `os.urandom`."""

    __slots__ = ("_block", "_cipher")

    def __init__(self) -> None:
        key, counter = os.urandom(_KEY_BYTES), os.urandom(_COUNTER_BYTES)
        self._cipher = Cipher(algorithms.AES256(key), modes.CTR(counter)).encryptor()
        self._block = bytearray(_SPARE_BYTES)

    def words(self, count: int) -> WordVector:
        if not 0 <= count <= LARGEST_BLOCK:
            raise ValueError(f"a block has at most {LARGEST_BLOCK} words, not {count}")
        size = count * _WORD_BYTES
        if len(self._block) < size + _SPARE_BYTES:
            self._block = bytearray(size + _SPARE_BYTES)
        self._cipher.update_into(_ZEROS[:size], self._block)
        return np.frombuffer(self._block, np.uint64, count)

    def bits(self, count: int) -> int:
        keystream = self._cipher.update(bytes((count + 7) // 8))
        return int.from_bytes(keystream, "little") >> (-count % 8)
