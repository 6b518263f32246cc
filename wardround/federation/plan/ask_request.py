"""What an analyst asks a coordinator for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from wardround.federation.limits import (
    Above,
    Below,
    Finite,
    Needed,
    Nonce,
)
from wardround.federation.models.training import Step
from wardround.federation.plain_text import fault_in
from wardround.federation.question.query import Query


@dataclass(frozen=True, slots=True)
class AskRequest:
    """A question and how sharp its answer should be; `nonce` is set by the analyst for a fresh answer.

    A step says how sharp it is by itself: ε and δ are None then.
    """

    query: Annotated[Query | Step, Needed("a question asks nothing.")]
    epsilon: Annotated[float, Finite("ε", lower=0.0), Above("ε", 0.0)] | None = None
    delta: Annotated[float, Finite("δ", lower=0.0), Below("δ", 1.0)] | None = None
    nonce: Nonce = ""

    def fault(self) -> str | None:
        """A step is as sharp as its training says, and a text that would forge a line is never asked about."""
        if isinstance(self.query, Step) and (self.epsilon, self.delta) != (None, None):
            return "a step has the noise of its training."
        return None if (fault := fault_in(self.query)) is None else f"a text in a question {fault}."
