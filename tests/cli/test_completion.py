"""Tab in a shell: bash itself loads the script and is asked what it would offer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.calling import call
from wardround.cli.door.table import COMMANDS

# What bash does when Tab is pressed: the words so far, which of them is completed, and the function it was given.
ASK = """
eval "$(wardround completion bash)"
COMP_WORDS=(wardround "$@")
COMP_CWORD=$#
compopt() { printf 'files: %s %s\\n' "$@"; }
$(complete -p wardround | sed 's/.*-F \\([^ ]*\\).*/\\1/') wardround
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def offered(tmp_path: Path) -> object:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash on this machine")
    program = tmp_path / "wardround"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m wardround "$@"\n', encoding="utf-8")
    program.chmod(0o755)

    def ask(*words: str) -> list[str]:
        done = subprocess.run(
            [bash, "--norc", "-c", ASK, "bash", *words],
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
            env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        )
        assert done.stderr == ""
        return done.stdout.split("\n")[:-1]

    return ask


def test_bash_offers_commands_options_and_files(offered: object) -> None:
    assert callable(offered)
    assert offered("") == list(COMMANDS)
    assert offered("si") == ["site", "simulate"]
    assert offered("site", "ap") == ["approve"]
    assert offered("ask", "--pro") == ["--profile"]
    assert {"--epsilon", "--dry-run", "--json"} <= set(offered("ask", "--"))
    assert offered("ask", "--profile", "")[0] == "files: -o default"
    assert offered("completion", "z") == ["zsh"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_script_asks_the_same_program(shell: str) -> None:
    done = call("completion", shell)
    assert (done.code, done.err) == (0, "")
    assert f"_WARDROUND_COMPLETE={shell}_complete" in done.out
    found = shutil.which(shell)
    if found is not None:
        subprocess.run([found, "-n"], input=done.out, text=True, check=True, timeout=300)


def test_another_shell_is_one_sentence() -> None:
    done = call("completion", "tcsh")
    assert done.code == 2
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'. See: wardround completion --help" in done.sentence()
