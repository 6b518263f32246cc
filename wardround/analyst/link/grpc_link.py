"""The analyst's link over gRPC: mutual TLS with the profile's certificate, every call repeatable."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from protos.calls import AnalystCalls
from protos.channels import channel
from protos.tls import TlsKeys
from wardround.analyst.link.retrying import Persistence
from wardround.federation.errors import ConfigurationMistaken, ProtocolViolation
from wardround.federation.plan.ask_request import AskRequest
from wardround.federation.question.answer import Answer, BudgetReport, Preview, Progress
from wardround.federation.study.study import Study
from wardround.federation.study.study_file import parse_study
from wardround.federation.trust.profile import AnalystProfile

# A wrong address or certificate should be said soon; a coordinator that was there will come back.
STRANGER_SECONDS = 5.0
ACQUAINTED_SECONDS = 60.0

_Reply = TypeVar("_Reply")


class GrpcAnalystLink:
    """An `AnalystLink` to the coordinator that a profile names."""

    def __init__(self, profile: AnalystProfile, *, persistence: Persistence | None = None) -> None:
        keys = TlsKeys(
            key=profile.key.encode(),
            certificate=profile.certificate.encode(),
            authority=profile.authority.encode(),
        )
        self._profile = profile
        self._channel = channel(profile.address, keys)
        self._calls = AnalystCalls(self._channel)
        self._persistence = Persistence() if persistence is None else persistence
        self._limit_seconds = STRANGER_SECONDS

    def ask(self, request: AskRequest) -> str:
        """The plan id of the question; repeating it opens no second round."""
        return self._call(lambda: self._calls.ask(request))

    def watch(self, plan_id: str, *, seen: int, wait_seconds: float) -> Progress | Answer:
        """The answer, or the progress once it differs from `seen`."""
        return self._call(lambda: self._calls.watch(plan_id, seen=seen, wait_seconds=wait_seconds))

    def preview(self, request: AskRequest) -> Preview:
        """What the question would cost."""
        return self._call(lambda: self._calls.preview(request))

    def sites(self) -> tuple[str, ...]:
        """The sites that would be asked now."""
        return self._call(self._calls.sites)

    def budget(self) -> BudgetReport:
        return self._call(self._calls.budget)

    def study(self) -> Study:
        """The study, which must be the one the profile was issued for."""
        text = self._call(self._calls.study_text)
        try:
            study = parse_study(text, name="the coordinator's study")
        except ConfigurationMistaken as mistaken:
            raise ProtocolViolation(
                "The coordinator sent a study that cannot be read.", private=mistaken.message
            ) from None
        if study.name != self._profile.study:
            raise ConfigurationMistaken(
                f"the profile is for study {self._profile.study!r}, but the coordinator runs {study.name!r}; "
                "ask the consortium for a new profile (wardround coordinator analyst)."
            )
        return study

    def close(self) -> None:
        self._channel.close()

    def _call(self, attempt: Callable[[], _Reply]) -> _Reply:
        reply = self._persistence.call(attempt, limit_seconds=self._limit_seconds)
        self._limit_seconds = ACQUAINTED_SECONDS
        return reply
