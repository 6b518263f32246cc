"""Sound messages to begin with: any word of ours for each decoder, the same for the same seed."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.endurance.seeds import SEED
from tests.protos.conversations import Conversation


def sound_messages(conversation: Conversation, *, count: int) -> tuple[bytes, ...]:
    """What one side writes, for so many words."""
    found: list[bytes] = []

    @seed(SEED)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(conversation.words)
    def collect(word: object) -> None:
        found.append(conversation.write(word))

    collect()
    return tuple(dict.fromkeys(found))
