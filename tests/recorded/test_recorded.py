"""What was recorded is still so: plan ids, release bytes, answers, signed bytes, the wire, folders, documents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.recorded.recording import DOCUMENTS, assert_as_recorded, read, same
from tests.recorded.topics import TOPICS
from tests.site_agent.sources.conformance.sources import SOURCES


@pytest.mark.parametrize("topic", TOPICS)
def test_it_is_as_it_was_recorded(topic: str, tmp_path: Path) -> None:
    source = SOURCES.get(topic.removeprefix("questions-"))
    if source is not None and (why := source.absent()):
        pytest.skip(why)
    assert_as_recorded(topic, TOPICS[topic](tmp_path))


def test_everything_recorded_is_compared() -> None:
    assert {file.stem for file in DOCUMENTS.glob("*.json")} == set(TOPICS)


def test_no_damaged_message_is_read_that_the_codecs_written_by_hand_refused() -> None:
    earlier = json.loads((Path(__file__).parent / "earlier" / "wire.json").read_text(encoding="ascii"))
    now = read("wire")
    damaged = [key for key in earlier if key.startswith("damaged: ")]
    same_bytes = [key for key in damaged if now.get(other := f"bytes: {key.partition(': ')[2]}") == earlier[other]]
    assert len(same_bytes) > 40
    for key in same_bytes:
        verdicts = list(zip(earlier[key], now[key], strict=True))
        assert ("0", "1") not in verdicts, f"{key}: damage {verdicts.index(('0', '1'))} is read"


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
