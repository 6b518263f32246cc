"""A hospital's process loads its own role and nothing of the others'."""

from __future__ import annotations

import subprocess
import sys

import pytest

# sqlglot and DuckDB are a source's own driver, and load when a dataset is opened.
STRANGERS = (
    "wardround.analyst",
    "wardround.simulation",
    "coordinator",
    "sqlglot",
    "duckdb",
    "flwr",
    "pandas",
    "pyarrow",
)

PROGRAMS = {
    "serving": "import site_agent.serving.serve",
    "the command's help": "from wardround.cli.main import main\ntry:\n    main(['site', 'serve', '--help'])\n"
    "except SystemExit:\n    pass",
    "a refused command": "from wardround.cli.main import main\ntry:\n    main(['site', 'serve', '/nowhere'])\n"
    "except SystemExit:\n    pass",
    "the library": "import wardround",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_site_loads_no_stranger(program: str) -> None:
    look = f"{PROGRAMS[program]}\nimport sys\nsys.stderr.write('\\n'.join(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True, timeout=300)
    loaded = done.stderr.split("\n")
    strangers = [m for m in loaded if any(m == name or m.startswith(f"{name}.") for name in STRANGERS)]
    assert strangers == []
