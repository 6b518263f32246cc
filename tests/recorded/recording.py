"""What wardround said and wrote when it was last recorded, kept so that a rebuilt house can be compared with it.

Each topic is a module with a function `document`; its recorded document lies in `documents/`. A test compares
them key by key. To record on purpose, after a change that is meant to be seen:

    .venv/bin/python -m tests.recorded.record TOPIC
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Mapping
from pathlib import Path

Json = Mapping[str, "Json"] | list["Json"] | str | float | bool | None
Document = Mapping[str, Json]
DOCUMENTS = Path(__file__).parent / "documents"


def place(topic: str) -> Path:
    return DOCUMENTS / f"{topic}.json"


def write(topic: str, document: Document) -> None:
    text = json.dumps(document, indent=1, ensure_ascii=True)
    place(topic).write_text(text + "\n", encoding="ascii")


def read(topic: str) -> Document:
    found = json.loads(place(topic).read_text(encoding="ascii"))
    assert isinstance(found, dict)
    return found


def assert_as_recorded(topic: str, document: Document, *, part: str = "") -> None:
    """The document, or the part of it whose keys begin like `part`, is what was recorded: nothing more or less."""
    recorded = {key: value for key, value in read(topic).items() if key.startswith(part)}
    assert recorded, f"nothing is recorded under {topic}, {part!r}"
    # Through JSON once, so that tuples and numbers are what they are on disk.
    found = json.loads(json.dumps(document))
    differing = [key for key in sorted(recorded | found) if not same(recorded.get(key), found.get(key))]
    assert not differing, (
        "\n".join(
            f"{key}\n  recorded {_short(recorded.get(key))}\n  found    {_short(found.get(key))}"
            for key in differing[:5]
        )
        + f"\n{len(differing)} of {len(recorded)} differ; see tests/recorded/recording.py"
    )


def same(one: Json, other: Json) -> bool:
    """Whether two documents say the same: to the letter, but for the last digits of what was computed with fractions.

    Another processor adds up in another order; whole numbers, ids and hashes do not depend on it.
    """
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) < 600 else text[:600] + " …"


def new_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="wardround-recorded-")
