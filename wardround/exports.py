"""What a package offers, from one table: the imports of its stub, `__init__.pyi`, which type checkers read too.

A name is loaded when it is first used, so that whoever imports the package for something else loads nothing of it.
"""

import ast
import importlib
import sys
from collections.abc import Callable
from pathlib import Path


def exported(package: str, file: str) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of the package whose stub stands beside `file`."""
    stub = ast.parse(Path(file).with_name("__init__.pyi").read_text("utf-8"))
    homes = {
        name.name: str(found.module) for found in stub.body if isinstance(found, ast.ImportFrom) for name in found.names
    }

    def attribute(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found: object = getattr(importlib.import_module(homes[name]), name)
        setattr(sys.modules[package], name, found)
        return found

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return attribute, listed, sorted(homes)
