"""Where the pieces of large releases wait for the submission that names them.

A site can fill only its own share, on disk; what does not have the hash it was announced under is thrown
away. Losing pieces is harmless: the site still has the bytes and sends them again.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
from dataclasses import dataclass, field
from pathlib import Path

from protos.chunked_release import CHUNK_BYTES, MAX_RELEASE_BYTES, Chunk
from wardround.federation.errors import MalformedMessage, Unavailable
from wardround.federation.private_files import create_private, make_private_folder


@dataclass(slots=True)
class _Parcel:
    """The pieces of one release that have come so far."""

    path: Path
    total: int
    here: set[int] = field(default_factory=set)


class PieceStore:
    """The pieces of every site, in a folder of their own that is emptied at the start."""

    def __init__(self, folder: Path, *, share_bytes: int = MAX_RELEASE_BYTES) -> None:
        self._folder = folder
        self._share = share_bytes // CHUNK_BYTES
        self._parcels: dict[str, dict[str, _Parcel]] = {}
        self._lock = threading.Lock()
        shutil.rmtree(folder, ignore_errors=True)
        make_private_folder(folder)

    def of(self, site: str) -> SitePieces:
        return SitePieces(self, site)

    def put(self, site: str, chunk: Chunk) -> None:
        """Hold a piece; the site's oldest unfinished release makes room for a newer one."""
        if chunk.total > self._share:
            raise MalformedMessage("a release is larger than the wire allows.")
        with self._lock:
            parcel = self._parcel(site, chunk)
            try:
                with parcel.path.open("r+b") as stream:
                    stream.seek(chunk.index * CHUNK_BYTES)
                    stream.write(chunk.content)
            except OSError as error:
                self._drop(site, chunk.release_hash)
                raise Unavailable(private=f"a piece cannot be written: {error.strerror}") from None
            parcel.here.add(chunk.index)

    def take(self, site: str, release_hash: str, *, size: int) -> bytes:
        """The whole release, which is no longer held afterwards."""
        with self._lock:
            parcel = self._parcels.get(site, {}).get(release_hash)
            if parcel is None or len(parcel.here) < parcel.total:
                raise Unavailable("Pieces of the release are missing; send them again.")
            try:
                content = parcel.path.read_bytes()
            except OSError as error:
                raise Unavailable(private=f"a release cannot be read: {error.strerror}") from None
            finally:
                self._drop(site, release_hash)
        if len(content) != size or hashlib.sha256(content).hexdigest() != release_hash:
            raise MalformedMessage("the pieces of a release do not have the hash or size it was announced under.")
        return content

    def _parcel(self, site: str, chunk: Chunk) -> _Parcel:
        held = self._parcels.setdefault(site, {})
        parcel = held.get(chunk.release_hash)
        if parcel is not None and parcel.total == chunk.total:
            return parcel
        self._drop(site, chunk.release_hash)
        while held and sum(other.total for other in held.values()) + chunk.total > self._share:
            self._drop(site, next(iter(held)))
        # The name comes from a certificate; hashed, it can hold nothing that means something to a file system.
        name = hashlib.sha256(f"{site}\n{chunk.release_hash}".encode()).hexdigest()
        parcel = _Parcel(self._folder / name, chunk.total)
        try:
            create_private(parcel.path).close()
        except OSError as error:
            raise Unavailable(private=f"a piece cannot be held: {error.strerror}") from None
        held[chunk.release_hash] = parcel
        return parcel

    def _drop(self, site: str, release_hash: str) -> None:
        parcel = self._parcels.get(site, {}).pop(release_hash, None)
        if parcel is not None:
            parcel.path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class SitePieces:
    """One site's share of the store: what its calls put and its submissions take."""

    store: PieceStore
    site: str

    def put(self, chunk: Chunk) -> None:
        self.store.put(self.site, chunk)

    def assemble(self, release_hash: str, *, size: int) -> bytes:
        """The whole release with this hash and size."""
        return self.store.take(self.site, release_hash, size=size)
