"""`import wardround` is light, and has everything it promises."""

from __future__ import annotations

import subprocess
import sys

import pytest

import wardround

HEAVY = ("google.protobuf", "grpc", "numpy", "pandas", "pyarrow", "sqlglot", "cryptography", "wardround.analyst")


def loaded_after(statements: str) -> set[str]:
    """Which of the heavy modules a fresh Python has loaded after these statements."""
    code = f"import sys\n{statements}\nprint(*(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stderr == ""
    return set(done.stdout.split())


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert loaded_after("import wardround") == set()


def test_words_and_a_draft_need_neither_the_wire_nor_the_sql_reader_nor_a_frame() -> None:
    found = loaded_after("import wardround\nwardround.query('t').count()\nwardround.Client\nwardround.Result")
    assert not found & {"grpc", "google.protobuf", "sqlglot", "pandas", "pyarrow"}


def test_reading_sql_does_not_load_the_wire() -> None:
    found = loaded_after("import wardround\nwardround.parse('SELECT COUNT(*) FROM t')")
    assert "sqlglot" in found
    assert not found & {"grpc", "google.protobuf", "pandas", "pyarrow"}


@pytest.mark.parametrize("name", wardround.__all__)
def test_every_promised_name_exists(name: str) -> None:
    assert getattr(wardround, name).__module__.startswith("wardround.")
    assert name in dir(wardround)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'wardround' has no attribute 'nothing'"):
        _ = wardround.nothing
