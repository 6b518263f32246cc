"""The analyst's link over gRPC: mutual TLS with the certificate of a profile that was checked first.

Every call may be repeated under its key, so a coordinator that restarts in the middle of a question costs the analyst
some seconds and nothing else.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from protos.calls import AnalystCalls
from protos.channels import channel
from protos.tls import TlsKeys
from wardround.federation.errors import (
    ConfigurationMistaken,
    DeadlinePassed,
    LedgerBusy,
    NotAuthorized,
    PeerUnreachable,
    ProtocolViolation,
)
from wardround.federation.plan.task import AskRequest
from wardround.federation.question.answer import Answer, Preview, Progress
from wardround.federation.question.study_budget import BudgetReport
from wardround.federation.strict_toml import address_fault
from wardround.federation.study.study import Study
from wardround.federation.study.study_file import parse_study
from wardround.federation.trust.certificates import issued_by, key_from_pem, load_certificate, validity
from wardround.federation.trust.enrolment import AnalystProfile, read_profile
from wardround.federation.trust.public_limits import PublicSite

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 2.0

# A wrong address or certificate should be said soon; a coordinator that was there will come back.
STRANGER_SECONDS = 5.0
ACQUAINTED_SECONDS = 60.0

_Reply = TypeVar("_Reply")

_NEW = "ask the consortium for a new profile (wardround coordinator analyst)."


@dataclass(frozen=True, slots=True)
class Persistence:
    """How to wait between attempts; the clock and the pause are given, so a test needs no time."""

    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep

    def call(self, attempt: Callable[[], _Reply], *, limit_seconds: float) -> _Reply:
        """What `attempt` returns; while the peer is away, busy or silent it is tried again for `limit_seconds`.

        A reply that did not come in time may as well have been lost on its way. A steward's pending decision, a
        refusal or a mistake would be the same a moment later: not repeated.
        """
        ends = self.clock() + limit_seconds
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                return attempt()
            except (PeerUnreachable, LedgerBusy, DeadlinePassed):
                if self.clock() + pause >= ends:
                    raise
            self.pause(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


class GrpcAnalystLink:
    """An `AnalystLink` to the coordinator that a profile names."""

    def __init__(self, profile: AnalystProfile, *, persistence: Persistence | None = None) -> None:
        keys = TlsKeys(
            key=profile.key.encode(), certificate=profile.certificate.encode(), authority=profile.authority.encode()
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
        """The next progress, or the whole answer; a page that fails is asked for again, and not the pages before it."""
        return self._calls.watch(plan_id, seen=seen, wait_seconds=wait_seconds, each=self._call)

    def preview(self, request: AskRequest) -> Preview:
        return self._call(lambda: self._calls.preview(request))

    def sites(self) -> tuple[str, ...]:
        return self._call(self._calls.sites)

    def hospitals(self) -> tuple[PublicSite, ...]:
        return self._call(self._calls.hospitals)

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
        reply = self._persistence.call(lambda: self._attempted(attempt), limit_seconds=self._limit_seconds)
        self._limit_seconds = ACQUAINTED_SECONDS
        return reply

    def _attempted(self, attempt: Callable[[], _Reply]) -> _Reply:
        """One call; a certificate that has expired since is closed the door on without a word, so it is said here."""
        try:
            return attempt()
        except PeerUnreachable:
            _, ends = validity(load_certificate(self._profile.certificate.encode(), name="the profile"))
            if datetime.datetime.now(datetime.UTC) < ends:
                raise
        raise NotAuthorized(
            f"The certificate of the analyst {self._profile.name} expired on {ends:%Y-%m-%d}; {_NEW}", final=True
        )


def open_profile(path: Path, *, now: datetime.datetime) -> AnalystProfile:
    """The profile in a file that can be used at `now`; otherwise one sentence that says what to do."""
    profile = read_profile(path)
    if (fault := address_fault(profile.address)) is not None:
        raise ConfigurationMistaken(f"{path}: the coordinator's address must be {fault}.")
    name = f"the profile {path}"
    authority = load_certificate(profile.authority.encode(), name=name)
    certificate = load_certificate(profile.certificate.encode(), name=name)
    key = key_from_pem(profile.key.encode(), name=name)
    if certificate.public_key() != key.public_key():
        raise ConfigurationMistaken(f"{path}: the key is not the certificate's; {_NEW}")
    if not issued_by(certificate, authority):
        raise ConfigurationMistaken(f"{path}: the certificate is not from the profile's authority; {_NEW}")
    begins, ends = validity(certificate)
    if now >= ends:
        raise ConfigurationMistaken(f"{path}: the certificate expired on {ends:%Y-%m-%d}; {_NEW}")
    if now < begins:
        raise ConfigurationMistaken(
            f"{path}: the certificate is not valid before {begins:%Y-%m-%d %H:%M} UTC; check this computer's clock."
        )
    return profile
