"""The examples of the training that is under way, kept in memory so that its rounds read rows once.

They are read again when the source says that it changed, when it cannot say and they are some minutes old, and when
another training asks, or when a question had need of the memory. After the last round nothing is kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from site_agent.reading.batches import Fingerprint, Preparable
from site_agent.reading.examples import Examples
from wardround.federation.errors import FederationError
from wardround.federation.models.step_layout import StepLayout

KEPT_SECONDS = 600.0


@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    asked: object
    state: Fingerprint
    read_at_seconds: float
    examples: Examples


class LastExamples:
    """The examples of one training at a time. Secret."""

    def __init__(self, now_seconds: Callable[[], float] = time.monotonic) -> None:
        self._now_seconds = now_seconds
        self._kept: _Kept | None = None

    def of(self, form: StepLayout, source: object, read: Callable[[StepLayout], Examples]) -> Examples:
        """What `read` gives, or gave for the same training and the same state of its source."""
        asked, state, now = _asked(form), _state(form, source), self._now_seconds()
        kept = self._kept
        if kept is None or state is None or not self._is_good(kept, asked, state, now):
            # Let go first: two of them need not fit into memory.
            self._kept = kept = None
            examples = read(form)
        else:
            examples = kept.examples
        training = form.step.training
        if state is None or form.step.place == training.rounds - 1:
            self._kept = None
        elif kept is None:
            self._kept = _Kept(asked, state, now, examples)
        return examples

    def make_room(self, most_bytes: int) -> None:
        """Let go of examples that take more than so much: a question may need the memory."""
        if self._kept is not None and self._kept.examples.nbytes > most_bytes:
            self._kept = None

    def _is_good(self, kept: _Kept, asked: object, state: Fingerprint, now: float) -> bool:
        fresh = state.sees_changes or now - kept.read_at_seconds <= KEPT_SECONDS
        return kept.asked == asked and kept.state == state and fresh


def _asked(form: StepLayout) -> object:
    model = form.step.training.model
    return form.table, form.unit, form.inputs, form.target, model.cohort, form.step.training.held_out


def _state(form: StepLayout, source: object) -> Fingerprint | None:
    """The state of the source, looked at before it is read; None where it cannot be told."""
    if not isinstance(source, Preparable):
        return None
    try:
        return source.fingerprint(form.table)
    except FederationError:
        return None
