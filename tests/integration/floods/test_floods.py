"""Attacks on a coordinator that may have 1,024 descriptors: it serves throughout, and nothing ends.

`make test-floods` runs them and shows what a victim's calls take meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from coordinator.members.folder import CoordinatorConfiguration
from protos.calls import AnalystCalls
from protos.channels import channel
from protos.tls import TlsKeys
from tests.integration.conftest import Make
from tests.integration.floods.siege import VICTIM, Siege
from tests.integration.stage import PATIENTS, eventually
from tests.integration.test_enrolment_process import enrols
from tests.protos.fairness import most_ahead, times_waited
from wardround.analyst.sql.read import parse
from wardround.federation.errors import Unavailable
from wardround.federation.plan.task import AskRequest
from wardround.federation.trust.enrolment import read_profile

pytestmark = pytest.mark.slow

DESCRIPTORS = 1024
SILENT = 1100
ASKS = 1010
EPSILON = 0.045
FLOODERS = ("mallory", "oscar", "trudy", "craig")
CALLS = 1000
WAITS = 50


@pytest.fixture
def siege(make_federation: Make) -> Siege:
    print()
    return Siege(make_federation(sites=("two",)), DESCRIPTORS)


@pytest.mark.parametrize("note", ["address", "enrolment_address"])
def test_silent_connections_without_a_certificate(siege: Siege, note: str) -> None:
    siege.start()
    with siege.victim() as victim:
        victim.arrives()
        victim.calls_on("alone", times=CALLS)
        with siege.silent(note, SILENT):
            victim.calls_on(f"{SILENT} silent connections to the {note}", times=CALLS)
            # They are ended after five seconds; then whoever is new gets in, while the attacker is still there.
            with siege.victim() as late:
                began = time.monotonic()
                late.arrives()
            eventually(lambda: enrols(siege.federation, "new"), what="a hospital enrols")
            siege.tell(f"  a new analyst and a new hospital: in after {time.monotonic() - began:.1f} s")
        with siege.silent(note, SILENT, again=True):
            victim.calls_on("the same, dialled again and again", times=CALLS)
    assert siege.federation.stop("consortium") == 0


def test_a_restart_among_silent_connections_and_floods(siege: Siege) -> None:
    siege.start()
    with siege.victim() as victim, ExitStack() as attackers:
        victim.arrives()
        for name in FLOODERS[:2]:
            attackers.enter_context(siege.flood(name))
        for note in ("address", "enrolment_address"):
            attackers.enter_context(siege.silent(note, SILENT, again=True))
        for _ in range(3):
            assert siege.federation.stop("consortium") == 0
            began = time.monotonic()
            siege.start()
            siege.tell(f"  started again in {time.monotonic() - began:.1f} s")
            siege.check_alive()
        attackers.close()
        victim.arrives()
        victim.calls_on("afterwards", times=CALLS)
    siege.federation.start_site("two")
    assert siege.federation.ask(PATIENTS)["plan_id"]


@pytest.mark.parametrize("connections", [1, 4])
def test_forty_streams_of_four_flooders_each(siege: Siege, connections: int) -> None:
    siege.start()
    with siege.victim() as victim, ExitStack() as floods:
        victim.arrives()
        victim.calls_on("alone", times=CALLS)
        for name in FLOODERS:
            floods.enter_context(siege.flood(name, connections=connections))
        siege.tell(f"  {len(FLOODERS)} flooders with {connections} connections of 40 streams each")
        victim.calls_on("meanwhile", times=CALLS)
        victim.waits(WAITS)
    events = siege.events()
    ahead = most_ahead(events, VICTIM)
    waited = times_waited(events, VICTIM)
    siege.tell(f"  it waited {waited} times; taken up before one of its calls, at most: {dict(ahead)}")
    assert set(ahead) == set(FLOODERS)
    assert set(ahead.values()) == {1}
    assert siege.federation.stop("consortium") == 0


@pytest.mark.xfail(
    not hasattr(CoordinatorConfiguration, "open_rounds"),
    reason="every open round has a thread and a descriptor of its own here",
    strict=True,
)
def test_a_thousand_questions_of_one_analyst(siege: Siege) -> None:
    siege.start()
    query = parse(PATIENTS)
    ended: Counter[str] = Counter()
    bob = read_profile(siege.analyst("bob"))
    keys = TlsKeys(bob.key.encode(), bob.certificate.encode(), bob.authority.encode())
    with siege.victim() as victim, channel(bob.address, keys) as opened, ThreadPoolExecutor(16) as threads:
        victim.arrives()
        guard = threading.Lock()

        def ask(number: int) -> None:
            outcome = "opened"
            try:
                AnalystCalls(opened).ask(AskRequest(query, EPSILON / ASKS, nonce=f"{number:032x}"))
            except Unavailable as error:
                # No more may be open; what is unreachable would be another matter.
                outcome = error.code
            with guard:
                ended[outcome] += 1

        asked = [threads.submit(ask, number) for number in range(ASKS)]
        victim.calls_on(f"{ASKS} questions of one analyst", times=CALLS)
        for each in asked:
            each.result()
        siege.tell(f"    bob: {dict(ended)}")
        assert ended.total() == ASKS
        assert ended["opened"] > 0
        assert set(ended) <= {"opened", "Unavailable"}
        victim.calls_on("with what is open now", times=CALLS)
    began = time.monotonic()
    assert siege.federation.stop("consortium") == 0
    siege.start()
    siege.tell(f"  started again in {time.monotonic() - began:.1f} s")
    siege.federation.start_site("two")
    assert siege.federation.ask(PATIENTS)["plan_id"]
    siege.check_alive()
