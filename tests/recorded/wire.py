"""The bytes of every conversation, what becomes of them when they are damaged, and the sentence of each bad message."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

from google.protobuf.message import Message

from tests.protos import test_codec_malformed as of_questions
from tests.protos import test_codec_training as of_trainings
from tests.protos.conversations import CONVERSATIONS, Conversation
from tests.protos.putting import put
from tests.recorded.recording import Json
from tests.recorded.spoken import SPOKEN
from wardround.federation.errors import MalformedMessage

_DAMAGED = 400


def documents() -> Iterator[tuple[str, Json]]:
    for conversation in CONVERSATIONS:
        for place, word in enumerate(SPOKEN[conversation.name]):
            content = conversation.write(word)
            yield f"bytes: {conversation.name} {place}", content.hex()
            yield f"damaged: {conversation.name} {place}", _damaged(conversation, content)
    for title, module in (("questions", of_questions), ("trainings", of_trainings)):
        readers: Mapping[object, object] = module.READERS
        for place, (make, path, content) in enumerate(module.BAD):
            message = make()  # type: ignore[operator]
            put(message, path, content)
            yield f"bad: {title} {place}, {make.__name__}.{path}", _sentence(readers[make], message)  # type: ignore[attr-defined]


def _damaged(conversation: Conversation, content: bytes) -> str:
    """For each of some hundred damages, the same in every run, whether the bytes were read (1) or refused (0)."""
    chance = random.Random(conversation.name)
    verdicts = []
    for _ in range(_DAMAGED if content else 0):
        damaged = bytearray(content)
        for _ in range(chance.randrange(1, 4)):
            damaged[chance.randrange(len(content))] = chance.randrange(256)
        verdicts.append("1" if of_questions.read_or_refuse(conversation, bytes(damaged)) else "0")
    return "".join(verdicts)


def _sentence(read: object, message: Message) -> Json:
    try:
        read(message)  # type: ignore[operator]
    except MalformedMessage as error:
        return [error.code, error.message]
    return "read"
