"""What is committed is what the .proto files say, and they say what an rpc decides."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import descriptor_pool

from tests.protos import conversations
from tools import generate_protos as generate

ROOT = Path(generate.__file__).parents[1]
PROTOS = sorted(generate.SOURCE.glob("*.proto"))
SERVICES = [path for path in PROTOS if path.name.endswith("_service.proto")]


def test_the_committed_code_is_what_is_generated() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tools.generate_protos", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def test_drift_is_found() -> None:
    committed = {path.name: path.read_text() for path in generate.GENERATED.glob("*.py*")}
    assert generate.drift(committed) == []
    changed = dict(committed, **{"plan_pb2.py": committed["plan_pb2.py"] + "#"})
    assert generate.drift(changed) == ["plan_pb2.py"]
    assert generate.drift({name: text for name, text in committed.items() if name != "plan_pb2.pyi"}) == [
        "plan_pb2.pyi"
    ]
    assert generate.drift(committed | {"new_pb2.py": ""}) == ["new_pb2.py"]


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.name)
def test_every_rpc_says_whether_it_may_be_repeated_and_what_it_decides(path: Path) -> None:
    text = path.read_text()
    calls = re.findall(r"((?:^  //.*\n)*)^  rpc (\w+)", text, re.MULTILINE)
    assert calls
    for comment, name in calls:
        said = " ".join(comment.replace("//", " ").split()).lower()
        assert "may be repeated" in said, name
        assert "decides" in said, name
    assert text.startswith("// The ")
    assert "conversation" in text.partition("syntax")[0]


@pytest.mark.parametrize("path", PROTOS, ids=lambda path: path.name)
def test_the_zero_of_every_enumeration_is_unspecified(path: Path) -> None:
    file = descriptor_pool.Default().FindFileByName(f"protos/{path.name}")
    for name, kind in file.enum_types_by_name.items():
        zero = kind.values_by_number[0].name
        assert zero == "_".join(re.findall("[A-Z][a-z]*", name)).upper() + "_UNSPECIFIED"


def test_every_message_that_carries_something_is_a_conversation_under_test() -> None:
    """A message added to a service without a codec test would be found here."""
    carried = {
        kind.name
        for path in SERVICES
        for service in descriptor_pool.Default().FindFileByName(f"protos/{path.name}").services_by_name.values()
        for method in service.methods
        for kind in (method.input_type, method.output_type)
        if kind.fields
    }
    source = Path(conversations.__file__).read_text()
    assert {name for name in carried if name not in source} == set()
