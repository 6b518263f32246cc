"""Ed25519 identities: who said what, checkable offline and for ever.

Every signature names what kind of thing was signed, so a signature over a ledger entry can never be
shown as one over a task.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.file_faults import file_fault
from wardround.federation.limits import hash_of
from wardround.federation.private_files import create_whole, write_private

KEY_FORM = "ed25519:"
"""How a whole public key begins where a person writes it, so that nobody takes a fingerprint for one."""


class Purpose(StrEnum):
    """What a signature is for."""

    STUDY = "study"
    TASK = "task"
    ENTRY = "entry"
    INVITATION = "invitation"
    QUESTION = "question"


def _framed(purpose: Purpose, message: bytes) -> bytes:
    return b"wardround/1/" + purpose.value.encode() + b"\n" + message


# A coordinator checks the same sites' signatures round after round.
@lru_cache(maxsize=4096)
def _loaded(key: str) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))


@dataclass(frozen=True, slots=True)
class PublicIdentity:
    """The public half: 32 bytes, written as hexadecimal."""

    key: Annotated[str, hash_of("an identity key")]

    @property
    def written(self) -> str:
        """The whole key as a person writes it."""
        return f"{KEY_FORM}{self.key}"

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the key in groups of four digits: what two people read to each other to compare it."""
        digits = hashlib.sha256(bytes.fromhex(self.key)).hexdigest()
        return " ".join(digits[start : start + 4] for start in range(0, len(digits), 4))

    def verifies(self, purpose: Purpose, message: bytes, signature: bytes) -> bool:
        """Whether this identity signed `message` for `purpose`."""
        try:
            _loaded(self.key).verify(signature, _framed(purpose, message))
        except (InvalidSignature, ValueError):
            return False
        return True


@dataclass(frozen=True, slots=True, repr=False)
class Identity:
    """The private half; it never leaves its folder."""

    _private: Ed25519PrivateKey

    @classmethod
    def generate(cls) -> Identity:
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load(cls, path: Path, *, lost: str = "restore it from the backup of its folder.") -> Identity:
        """The key in a file; `lost` is what to do where it holds none."""
        try:
            key = load_pem_private_key(path.read_bytes(), password=None)
        except (FileNotFoundError, ValueError):
            key = None
        except OSError as error:
            raise file_fault(str(path), error) from None
        if not isinstance(key, Ed25519PrivateKey):
            raise ConfigurationMistaken(f"{path} does not hold an Ed25519 signing key; {lost}")
        return cls(key)

    def save(self, path: Path) -> None:
        """Write the key, readable by its owner only."""
        write_private(path, self._pem())

    def create(self, path: Path) -> None:
        """The same, and never in place of anything: `FileExistsError` where the name is taken."""
        create_whole(path, self._pem())

    def _pem(self) -> bytes:
        return self._private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    @property
    def public(self) -> PublicIdentity:
        return PublicIdentity(self._private.public_key().public_bytes_raw().hex())

    def sign(self, purpose: Purpose, message: bytes) -> bytes:
        return self._private.sign(_framed(purpose, message))
