"""Everything that is recorded, by name; a topic's document is made in an empty folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from tests.recorded import canonical_words, commands, kept_folders, questions, trainings, wire
from tests.recorded.recording import Document
from tests.site_agent.sources.conformance.sources import SOURCES

Topic = Callable[[Path], Document]


def _questions(source: str) -> Topic:
    return lambda folder: dict(questions.documents(source, folder))


def _folders(name: str) -> Topic:
    return lambda folder: kept_folders.document(name, folder)


TOPICS: Mapping[str, Topic] = {
    "canonical": lambda _: dict(canonical_words.documents()),
    "commands": lambda folder: dict(commands.documents(folder)),
    "trainings": lambda folder: dict(trainings.documents(folder)),
    "wire": lambda _: dict(wire.documents()),
    **{f"questions-{source}": _questions(source) for source in SOURCES},
    **{f"folders-{name}": _folders(name) for name in kept_folders.names()},
}
