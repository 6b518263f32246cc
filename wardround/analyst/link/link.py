"""The seam between the analyst and a coordinator: over gRPC in production, direct in a simulation."""

from __future__ import annotations

from typing import Protocol

from wardround.federation.plan.ask_request import AskRequest
from wardround.federation.question.answer import Answer, BudgetReport, Preview, Progress
from wardround.federation.study.study import Study


class AnalystLink(Protocol):
    """What an analyst can say to a coordinator. Every call may be repeated; errors are `FederationError`s."""

    def ask(self, request: AskRequest) -> str:
        """Open a round for the question and return its plan id at once."""

    def watch(self, plan_id: str, *, seen: int, wait_seconds: float) -> Progress | Answer:
        """The answer, or the progress once it differs from `seen`; raises the round's error."""

    def preview(self, request: AskRequest) -> Preview:
        """What the question would cost; nothing is spent."""

    def sites(self) -> tuple[str, ...]:
        """The sites that would be asked now."""

    def budget(self) -> BudgetReport: ...

    def study(self) -> Study: ...

    def close(self) -> None: ...
