"""The import rule of ARCHITECTURE.md holds, and import-linter would notice if it did not."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.rules import ROOT, SHIPPED

MODULES = sorted(
    path.relative_to(ROOT) for name in SHIPPED for path in (ROOT / name).rglob("*.py") if "_generated" not in path.parts
)

ILLEGAL = (
    ("wardround/privacy/x.py", "import time"),
    ("wardround/privacy/x.py", "from sqlite3 import connect"),
    ("wardround/privacy/x.py", "import wardround.federation"),
    ("wardround/privacy/accounting/x.py", "import wardround.privacy.mechanisms"),
    ("wardround/privacy/budget/x.py", "import wardround.privacy.report"),
    ("wardround/federation/x.py", "import grpc"),
    ("wardround/federation/x.py", "import protos"),
    ("wardround/federation/canonical.py", "import wardround.federation.study"),
    ("wardround/federation/errors.py", "def late():\n    import wardround.federation.limits"),
    ("wardround/federation/study/x.py", "import wardround.federation.question"),
    ("wardround/federation/question/x.py", "import wardround.federation.trust"),
    ("wardround/federation/trust/x.py", "import wardround.federation.ledger"),
    ("wardround/federation/forms/x.py", "import wardround.federation.models"),
    ("wardround/federation/models/x.py", "import wardround.federation.statistics"),
    ("wardround/federation/statistics/x.py", "import wardround.federation.plan"),
    ("wardround/federation/plan/x.py", "import wardround.federation.ledger"),
    ("wardround/federation/ledger/chain.py", "import wardround.federation.ledger.verify"),
    ("protos/x.py", "import site_agent"),
    ("protos/fields.py", "import protos.codec"),
    ("protos/codec.py", "import protos.words"),
    ("protos/words.py", "import protos.pages"),
    ("protos/pages.py", "def late():\n    import protos.calls"),
    ("site_agent/x.py", "import coordinator"),
    ("site_agent/reading/x.py", "import site_agent.store"),
    ("site_agent/store/x.py", "import site_agent.answering"),
    ("site_agent/learning/x.py", "import site_agent.store"),
    ("site_agent/answering/x.py", "def late():\n    import site_agent.serving"),
    ("site_agent/reading/batches.py", "import site_agent.reading.dataset"),
    ("site_agent/reading/bounding/x.py", "import site_agent.reading.statements"),
    ("site_agent/reading/statements/x.py", "import site_agent.reading.columnstore"),
    ("site_agent/reading/columnstore/x.py", "import site_agent.reading.sources"),
    ("site_agent/reading/sources/sqlite/x.py", "import site_agent.reading.sources.duckdb"),
    ("site_agent/reading/sources/duckdb/x.py", "import site_agent.reading.sources.files"),
    ("coordinator/x.py", "import wardround.analyst"),
    ("coordinator/clock.py", "import coordinator.store"),
    ("coordinator/store/x.py", "import coordinator.members"),
    ("coordinator/members/x.py", "import coordinator.accounts"),
    ("coordinator/accounts/x.py", "import coordinator.rounds"),
    ("coordinator/rounds/x.py", "def late():\n    import coordinator.serving"),
    ("wardround/analyst/x.py", "import wardround.simulation"),
    ("wardround/analyst/learning/x.py", "def late():\n    import wardround.analyst.flower"),
    ("wardround/analyst/estimation/x.py", "import wardround.analyst.learning"),
    ("wardround/analyst/estimation/x.py", "import wardround.analyst.showing"),
    ("wardround/analyst/showing/x.py", "import wardround.analyst.sql"),
    ("wardround/analyst/sql/x.py", "import wardround.analyst.link"),
    ("wardround/analyst/link/x.py", "import wardround.analyst.learning"),
    ("wardround/analyst/flower/x.py", "def late():\n    import wardround.analyst.asking"),
    ("wardround/simulation/sites.py", "import wardround.simulation.federation"),
    ("wardround/simulation/federation.py", "import wardround.simulation.trial"),
    ("wardround/simulation/trial.py", "import wardround.simulation.audit"),
    ("wardround/simulation/x.py", "def late():\n    import wardround.cli"),
)


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-cache"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def skeleton(folder: Path) -> Path:
    """Every module, empty, under the project's own contracts."""
    shutil.copy(ROOT / "pyproject.toml", folder)
    for module in MODULES:
        (folder / module).parent.mkdir(parents=True, exist_ok=True)
        (folder / module).touch()
    return folder


def test_every_layer_imports_only_the_layers_below_it() -> None:
    checked = lint(ROOT)
    assert checked.returncode == 0, checked.stdout


def test_empty_layers_are_legal(tmp_path: Path) -> None:
    checked = lint(skeleton(tmp_path))
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize(("path", "line"), ILLEGAL)
def test_an_import_against_the_layers_is_found(tmp_path: Path, path: str, line: str) -> None:
    (skeleton(tmp_path) / path).write_text(line + "\n", "utf-8")
    checked = lint(tmp_path)
    assert checked.returncode == 1, checked.stdout
    assert "BROKEN" in checked.stdout
