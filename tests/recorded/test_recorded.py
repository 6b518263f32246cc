"""What was recorded is still so: plan ids, release bytes, answers, signed bytes, the wire, folders, documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recorded.recording import DOCUMENTS, assert_as_recorded, same
from tests.recorded.topics import TOPICS
from tests.sources.conformance.sources import SOURCES


@pytest.mark.parametrize("topic", TOPICS)
def test_it_is_as_it_was_recorded(topic: str, tmp_path: Path) -> None:
    source = SOURCES.get(topic.removeprefix("questions-"))
    if source is not None and (why := source.absent()):
        pytest.skip(why)
    assert_as_recorded(topic, TOPICS[topic](tmp_path))


def test_everything_recorded_is_compared() -> None:
    assert {file.stem for file in DOCUMENTS.glob("*.json")} == set(TOPICS)


def test_a_difference_is_seen() -> None:
    recorded = {"a": [1, 2.0, {"b": None}], "c": "text"}
    assert same(recorded, {"a": [1, 2.0 + 1e-15, {"b": None}], "c": "text"})
    for other in (
        {"a": [1, 2.0, {"b": None}]},
        {"c": "text", "a": [1, 2.0, {"b": None}]},
        {"a": [True, 2.0, {"b": None}], "c": "text"},
        {"a": [1, 2.0001, {"b": None}], "c": "text"},
        {"a": [1, 2.0], "c": "text"},
        {"a": [1, 2.0, {"b": 0}], "c": "text"},
    ):
        assert not same(recorded, other)
