"""Makes the committed wire code from the `.proto` files: `python -m tools.generate_protos`.

What is committed is what runs, and `--check` fails when the two differ, so nobody has to trust that a
generated file was made from the text beside it.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "protos"
GENERATED = SOURCE / "_generated"
_INIT = '"""Generated from the .proto files by `python -m tools.generate_protos`; never edited by hand."""\n'


def generate() -> dict[str, str]:
    """The text of every generated file by name, made anew."""
    messages = sorted(path.name for path in SOURCE.glob("*.proto"))
    services = [name for name in messages if name.endswith("_service.proto")]
    with tempfile.TemporaryDirectory() as folder:
        _protoc(messages, f"--python_out={folder}", f"--mypy_out={folder}")
        _protoc(services, f"--grpc_python_out={folder}", f"--mypy_grpc_out={folder}")
        made = sorted((Path(folder) / SOURCE.name).iterdir())
        files = {path.name: _fenced(path.read_text(encoding="utf-8")) for path in made}
    return {"__init__.py": _INIT, **files}


def drift(files: dict[str, str]) -> list[str]:
    """The names whose committed text is not the generated one."""
    committed = {
        path.name: path.read_text(encoding="utf-8")
        for path in GENERATED.glob("*.py*")
        if path.suffix in {".py", ".pyi"}
    }
    return sorted(name for name in files.keys() | committed.keys() if files.get(name) != committed.get(name))


def _protoc(names: list[str], *outputs: str) -> None:
    tools = Path(sys.executable).parent
    plugins = [f"--plugin={name}={tools / name}" for name in ("protoc-gen-mypy", "protoc-gen-mypy_grpc")]
    root = SOURCE.parent
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{root}", *plugins, *outputs]
    subprocess.run([*command, *(f"{SOURCE.name}/{name}" for name in names)], check=True, cwd=root)


def _fenced(text: str) -> str:
    """The same module, importing its neighbours from the fenced package."""
    return re.sub(r"^from protos import ", "from protos._generated import ", text, flags=re.MULTILINE)


def main() -> int:
    """Write the files, or with `--check` only compare them."""
    parser = argparse.ArgumentParser(prog="python -m tools.generate_protos", description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail when the committed code differs")
    check: bool = parser.parse_args().check
    files = generate()
    stale = drift(files)
    if check:
        if stale:
            print(f"Run python -m tools.generate_protos; these differ: {', '.join(stale)}", file=sys.stderr)
        return 1 if stale else 0
    GENERATED.mkdir(exist_ok=True)
    for name in stale:
        if name in files:
            (GENERATED / name).write_text(files[name], encoding="utf-8")
        else:
            (GENERATED / name).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
