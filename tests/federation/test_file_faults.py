"""A file that cannot be read or written is told by its cause; what passes says to try again, and nothing is blamed."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from site_agent.serving.folder import SiteFolder
from wardround.federation.errors import ConfigurationMistaken, FederationError, Unavailable
from wardround.federation.file_faults import PASSING, file_fault
from wardround.federation.ledger.serving_lock import serving_lock
from wardround.federation.private_files import write_private
from wardround.federation.strict_toml import read_text
from wardround.federation.trust.identity import Identity

NOBODY = 65534


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    """A process that can open no more files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def nobody() -> Iterator[None]:
    """A user who may not read what is root's; whoever is not root is one already."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


def a_file(path: Path) -> None:
    path.write_text("[site]\n", encoding="utf-8")


def a_folder(path: Path) -> None:
    path.mkdir()


def other_bytes(path: Path) -> None:
    path.write_bytes(b"\xff\xfe")


def a_ring(path: Path) -> None:
    path.symlink_to(path)


def private(path: Path) -> None:
    a_file(path)
    path.chmod(0)


def nothing(path: Path) -> None:
    del path


CASES: dict[str, tuple[Callable[[Path], None], Callable[[], contextlib.AbstractContextManager[None]], str]] = {
    "nothing": (nothing, contextlib.nullcontext, "does not exist; name an existing file."),
    "a folder": (a_folder, contextlib.nullcontext, "is a folder; name a file."),
    "other bytes": (
        other_bytes,
        contextlib.nullcontext,
        "cannot be read as UTF-8 text; save it as UTF-8, or name another.",
    ),
    "a ring of links": (a_ring, contextlib.nullcontext, "cannot be read: Too many levels of symbolic links."),
    "another's": (
        private,
        nobody,
        "cannot be read with this user's permissions; correct them, or be the user who owns it.",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_configuration_that_cannot_be_read_is_told_by_its_cause(case: str, tmp_path: Path) -> None:
    make, circumstance, says = CASES[case]
    path = tmp_path / "site.toml"
    make(path)
    with circumstance(), pytest.raises(ConfigurationMistaken) as mistake:
        read_text(path)
    assert mistake.value.message == f"{path} {says}"


READERS: dict[str, Callable[[Path], object]] = {
    "a configuration": lambda folder: read_text(folder / "site.toml"),
    "a signing key": lambda folder: Identity.load(folder / "identity.pem"),
    "the key of the rows": lambda folder: SiteFolder(folder).row_key(),
    "the coordinator's record": lambda folder: SiteFolder(folder).coordinator(),
    "a lock": lambda folder: serving_lock(folder).__enter__(),
    "a new file": lambda folder: write_private(folder / "new", b""),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_process_without_descriptors_blames_no_file(reader: str, tmp_path: Path) -> None:
    for name in ("site.toml", "identity.pem", "rows.key", "coordinator.json"):
        a_file(tmp_path / name)
    with no_descriptors(), pytest.raises(Unavailable) as busy:
        READERS[reader](tmp_path)
    assert "too many files are open" in busy.value.message
    assert busy.value.message.endswith("then try again.")
    assert busy.value.exit_code == 3


@pytest.mark.parametrize("number", sorted(PASSING))
def test_what_passes_is_to_be_tried_again(number: int) -> None:
    fault = file_fault("x", OSError(number, "theirs"), done="written")
    assert isinstance(fault, Unavailable)
    assert fault.message.startswith("x cannot be written now: ")
    assert "theirs" not in fault.message


def test_what_does_not_pass_is_to_be_corrected() -> None:
    fault: FederationError = file_fault("x", OSError(errno.EROFS, "Read-only file system"), done="written")
    assert isinstance(fault, ConfigurationMistaken)
    assert fault.message == "x cannot be written: Read-only file system."
