"""Sound requests of every call, as a federation at work sends them: the plans, entries and keys in them are its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest
from google.protobuf.message import Message

from protos import calls, chunked_release, statuses
from protos.channels import channel
from protos.chunked_release import CHUNK, Chunk
from protos.tls import TlsKeys
from site_agent.serving import agent
from site_agent.serving.link import tls_keys
from tests.endurance.founding import found
from tests.endurance.in_process import ServedCoordinator, ServedSite
from tests.integration.stage import AGES, PATIENTS, Federation, eventually
from tests.integration.terms import Terms
from wardround.analyst.asking.client import connect
from wardround.federation.errors import BudgetExceeded, DeadlinePassed
from wardround.federation.trust.certificates import key_from_pem, make_request
from wardround.federation.trust.enrolment import read_profile

EPSILON = 5.0
CALLS = {
    "one": ("Greet", "ShowChain", "ClaimTask", "PutChunk", "SubmitRelease", "RenewCertificate"),
    "ada": ("Ask", "AskByError", "Await", "Preview", "PreviewByError", "Sites", "Hospitals", "Describe", "Budget"),
}
SERVICES = {"one": "SiteService", "ada": "AnalystService"}


@dataclass
class Recorded:
    """A federation with an answered question and two open ones, and what was said in it."""

    stage: Federation
    coordinator: ServedCoordinator
    requests: defaultdict[str, set[bytes]] = field(default_factory=lambda: defaultdict(set))

    @contextmanager
    def line(self, name: str) -> Iterator[grpc.Channel]:
        """A connection with the certificate of a site or of an analyst."""
        if name in self.stage.sites:
            keys = tls_keys(self.stage.site(name) / "tls")
        else:
            profile = read_profile(self.stage.profile(name))
            keys = TlsKeys(profile.key.encode(), profile.certificate.encode(), profile.authority.encode())
        with channel(self.coordinator.address, keys) as opened:
            yield opened

    def check(self) -> None:
        """No fault of the coordinator's own."""
        assert self.coordinator.broken == []
        assert self.coordinator.coordinator.fault() is None


@contextmanager
def recorded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    stage = found(folder, Terms())
    federation = Recorded(stage, ServedCoordinator(stage.consortium))

    def call(
        method: grpc.UnaryUnaryMultiCallable[Message, Message], request: Message, *, deadline_seconds: float
    ) -> Message:
        name = method._method.decode().rpartition("/")[2]  # type: ignore[attr-defined]
        federation.requests[name].add(request.SerializeToString())
        return statuses.call(method, request, deadline_seconds=deadline_seconds)

    with monkeypatch.context() as patched:
        patched.setattr(calls, "call", call)
        patched.setattr(chunked_release, "call", call)
        patched.setattr(agent, "POLL_SECONDS", 0.2)
        patched.setattr(agent, "MAX_CHAIN", 0)
        _talk(federation)
    yield federation
    federation.coordinator.stop()


def _talk(federation: Recorded) -> None:
    stage = federation.stage
    sites = [ServedSite(stage.site(name)) for name in stage.sites]
    with connect(stage.profile("ada")) as ada:
        ada.ask(AGES, epsilon=EPSILON)
        # One site has gone: what is asked now stays open.
        sites.pop().stop()
        for epsilon, error in ((EPSILON, None), (None, 3.0)):
            with pytest.raises(DeadlinePassed):
                ada.ask(PATIENTS, epsilon=epsilon, error=error, limit_seconds=0.5)
        with pytest.raises(BudgetExceeded):
            ada.ask("SELECT diagnosis, AVG(sbp) FROM encounters WHERE age > 40 GROUP BY diagnosis", epsilon=9500.0)
        eventually(lambda: stage.received() == 3 * len(stage.sites) - 2, what="the others have answered")
        ada.preview(PATIENTS, epsilon=1.0)
        ada.preview(PATIENTS, error=3.0)
        ada.link.sites()
        ada.describe()
    key = key_from_pem((stage.site("one") / "tls" / "key.pem").read_bytes(), name="one")
    sites[0].agent.link._calls.renew(make_request(key, "one"))  # type: ignore[attr-defined]
    for site in sites:
        site.stop()
    federation.requests["PutChunk"].add(CHUNK.write(Chunk("ab" * 32, 1, 2, b"x" * 200)).SerializeToString())
    federation.requests["Budget"].add(b"")
