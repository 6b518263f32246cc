"""Mutated messages against every decoder: a word, or `MalformedMessage`, within a second of a processor's time.

`make fuzz` tries 800,000 of them; `ARGS="-k decoders"` these alone.
"""

from __future__ import annotations

import random
import time

import pytest

from tests.endurance.fuzz.corpus import sound_messages
from tests.endurance.fuzz.mutations import mutated
from tests.endurance.seeds import SEED, say
from tests.protos.conversations import CONVERSATIONS, Conversation
from tests.protos.test_codec_malformed import read_or_refuse

MESSAGES = 800_000
LONGEST_SECONDS = 1.0


def run(conversation: Conversation, *, count: int, words: int) -> None:
    chance = random.Random(f"{SEED} {conversation.name}")
    corpus = sound_messages(conversation, count=words)
    read = 0
    longest = 0.0
    for _ in range(count):
        content = mutated(chance, corpus)
        began = time.thread_time()
        try:
            read += read_or_refuse(conversation, content)
        except BaseException:
            say(f"seed {SEED}, {conversation.name}: {content.hex()}")
            raise
        longest = max(longest, time.thread_time() - began)
    assert longest < LONGEST_SECONDS, f"seed {SEED}, {conversation.name}: a message took {longest:.1f} s"
    say(f"  {conversation.name}: {count} messages, {read} of them words, longest {1000 * longest:.1f} ms; seed {SEED}")


def test_a_few_mutated_messages_are_a_word_or_malformed() -> None:
    for conversation in CONVERSATIONS:
        run(conversation, count=60, words=3)


@pytest.mark.slow
@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=lambda conversation: conversation.name.replace(" ", "_"))
def test_mutated_messages_are_a_word_or_malformed_for_all_decoders(conversation: Conversation) -> None:
    run(conversation, count=-(-MESSAGES // len(CONVERSATIONS)), words=200)
