"""Pieces of large releases wait in bounded room, per site, and only what has its hash comes out."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from protos.chunked_release import CHUNK_BYTES, Chunk, chunks
from protos.pieces import PieceStore
from wardround.federation.errors import InvariantBroken, MalformedMessage, Unavailable
from wardround.federation.forms.release import release_hash


def payload(pieces: int, seed: int = 0) -> bytes:
    return bytes([seed]) * (CHUNK_BYTES * pieces - 5)


@pytest.fixture
def store(tmp_path: Path) -> PieceStore:
    return PieceStore(tmp_path / "pieces", share_bytes=4 * CHUNK_BYTES)


def put(store: PieceStore, site: str, content: bytes, *, leave_out: int | None = None) -> None:
    for chunk in chunks(content):
        if chunk.index != leave_out:
            store.of(site).put(chunk)


def take(store: PieceStore, site: str, content: bytes) -> bytes:
    return store.of(site).assemble(release_hash(content), size=len(content))


def test_a_release_comes_out_once_and_leaves_nothing(store: PieceStore, tmp_path: Path) -> None:
    content = payload(3)
    put(store, "north", content)
    assert take(store, "north", content) == content
    assert list((tmp_path / "pieces").iterdir()) == []
    with pytest.raises(Unavailable):
        take(store, "north", content)


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_release_with_a_hole_does_not_come_out_until_it_is_filled(store: PieceStore, missing: int) -> None:
    content = payload(3)
    put(store, "north", content, leave_out=missing)
    with pytest.raises(Unavailable):
        take(store, "north", content)
    store.of("north").put(list(chunks(content))[missing])
    assert take(store, "north", content) == content


def test_a_site_sees_only_its_own_pieces(store: PieceStore) -> None:
    content = payload(2)
    put(store, "north", content)
    with pytest.raises(Unavailable):
        take(store, "south", content)
    assert take(store, "north", content) == content


def test_bytes_without_their_hash_are_thrown_away(store: PieceStore) -> None:
    content = payload(2)
    put(store, "north", content)
    store.of("north").put(Chunk(release_hash(content), 0, 2, b"\xff" * CHUNK_BYTES))
    with pytest.raises(MalformedMessage):
        take(store, "north", content)
    with pytest.raises(Unavailable):
        take(store, "north", content)


def test_bytes_of_another_size_are_thrown_away(store: PieceStore) -> None:
    content = payload(2)
    put(store, "north", content)
    with pytest.raises(MalformedMessage):
        store.of("north").assemble(release_hash(content), size=len(content) + 1)


def test_a_site_can_fill_only_its_own_share(store: PieceStore, tmp_path: Path) -> None:
    others = payload(2, 200)
    put(store, "south", others)
    for seed in range(20):
        put(store, "north", payload(2, seed), leave_out=0)
        held = sum(path.stat().st_size for path in (tmp_path / "pieces").iterdir())
        assert held <= 6 * CHUNK_BYTES
    assert take(store, "south", others) == others


def test_a_newer_release_takes_the_room_of_an_older_unfinished_one(store: PieceStore) -> None:
    old, new = payload(3, 1), payload(3, 2)
    put(store, "north", old, leave_out=0)
    put(store, "north", new)
    assert take(store, "north", new) == new
    with pytest.raises(Unavailable):
        take(store, "north", old)


def test_more_pieces_than_the_share_are_refused(store: PieceStore) -> None:
    with pytest.raises(MalformedMessage):
        store.of("north").put(Chunk("ab" * 32, 0, 5, b"x" * CHUNK_BYTES))


def test_another_number_of_pieces_begins_anew(store: PieceStore) -> None:
    content = payload(2)
    store.of("north").put(Chunk(release_hash(content), 0, 3, b"x" * CHUNK_BYTES))
    put(store, "north", content)
    assert take(store, "north", content) == content


def test_a_restart_forgets_pieces_and_says_so(store: PieceStore, tmp_path: Path) -> None:
    content = payload(2)
    put(store, "north", content)
    again = PieceStore(tmp_path / "pieces")
    assert list((tmp_path / "pieces").iterdir()) == []
    with pytest.raises(Unavailable):
        take(again, "north", content)


def test_a_name_cannot_leave_the_folder(store: PieceStore, tmp_path: Path) -> None:
    content = payload(2)
    put(store, "../../elsewhere", content)
    assert len(list((tmp_path / "pieces").iterdir())) == 1
    assert take(store, "../../elsewhere", content) == content


def test_a_lost_disk_is_unavailable_not_a_crash(store: PieceStore, tmp_path: Path) -> None:
    content = payload(2)
    put(store, "north", content, leave_out=1)
    shutil.rmtree(tmp_path / "pieces")
    with pytest.raises(Unavailable):
        put(store, "north", content)
    with pytest.raises(Unavailable):
        put(store, "south", content)


def test_the_pieces_are_the_release() -> None:
    for content in (payload(2), payload(2) + b"12345", payload(2) + b"123456"):
        made = list(chunks(content))
        assert b"".join(chunk.content for chunk in made) == content
        assert {len(chunk.content) for chunk in made[:-1]} == {CHUNK_BYTES}
        assert {chunk.total for chunk in made} == {len(made)}
    assert list(chunks(b"x" * CHUNK_BYTES)) == []


def test_a_release_no_site_can_make_is_not_cut() -> None:
    with pytest.raises(InvariantBroken):
        list(chunks(bytes(64 * CHUNK_BYTES + 1)))
