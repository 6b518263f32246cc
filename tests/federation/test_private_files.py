"""Files with keys: the owner's alone, whole or not at all."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from wardround.federation.errors import ConfigurationMistaken
from wardround.federation.identity import write_private


def test_a_private_file_is_its_owners_alone(tmp_path: Path) -> None:
    write_private(tmp_path / "key", b"one")
    write_private(tmp_path / "key", b"two")
    assert (tmp_path / "key").read_bytes() == b"two"
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


@pytest.mark.parametrize("place", ["nowhere/key", "folder"])
def test_a_file_that_cannot_be_written_is_one_sentence_and_leaves_nothing(tmp_path: Path, place: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigurationMistaken, match="cannot be written"):
        write_private(tmp_path / place, b"secret")
    assert [path.name for path in tmp_path.rglob("*")] == ["folder"]
