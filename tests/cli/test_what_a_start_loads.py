"""A command loads what it needs: a help nothing but the words it shows, a question no picture, no table, no driver."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.cli.calling import commands

# What questions and models are made of, what pages are drawn with, and every library of a role.
NOT_FOR_HELP = (
    "cryptography",
    "google.protobuf",
    "grpc",
    "markdown_it",
    "numpy",
    "rich",
    "sqlglot",
    "wardround.analyst",
    "wardround.federation.forms",
    "wardround.federation.models",
    "wardround.federation.statistics",
)
HELP = """
import sys
from wardround.cli.main import main

for words in {paths!r}:
    try:
        main([*words, "--help"])
    except SystemExit as left:
        assert left.code == 0, words
sys.stderr.write(chr(10).join(sys.modules))
"""


def strangers(loaded: str, names: tuple[str, ...]) -> list[str]:
    """The modules among those loaded that belong to what is named."""
    return [m for m in loaded.split() if any(m == name or m.startswith(f"{name}.") for name in names)]


def looked(program: str, *words: str, folder: Path | None = None) -> str:
    """What a process has loaded at its end."""
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, check=True, timeout=300, cwd=folder
    )
    return done.stderr


def test_no_help_loads_what_a_command_works_with() -> None:
    loaded = looked(HELP.format(paths=[(), ("site",), ("coordinator",), *sorted(commands())]))
    assert strangers(loaded, NOT_FOR_HELP) == []
    assert "wardround.cli.study_commands" in loaded.split()


def test_a_help_loads_no_other_command() -> None:
    loaded = looked(HELP.format(paths=[("ask",)]))
    assert strangers(loaded, ("wardround.cli.site_commands", "wardround.cli.privacy_commands")) == []
    assert "wardround.cli.analyst_commands" in loaded.split()
