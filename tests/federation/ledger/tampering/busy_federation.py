"""A federation in which everything happened that leaves a row in a ledger."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

from site_agent.store.askers import Asking
from tests.fixtures.asking import ADA
from tests.simulation.hospitals_on_disk import study_text
from wardround.analyst.asking.client import Client
from wardround.analyst.learning.request import parse_request
from wardround.analyst.link.signing import SignedLink, Signer
from wardround.federation.errors import AwaitingApproval
from wardround.federation.plan.plan import price
from wardround.federation.plan.task import AskRequest
from wardround.federation.question.query import Aggregate, Query, Statistic
from wardround.federation.study.study_file import parse_study
from wardround.federation.trust.identity import Identity
from wardround.simulation.federation import DirectAnalystLink, SimulatedFederation, SimulatedSite, default_policy
from wardround.simulation.noise import ZeroNoise
from wardround.simulation.sites import find_sites

COUNT = "SELECT COUNT(*) FROM encounters"
TRAINING = """\
kind = "logistic"
table = "encounters"
target = "urgent"
features = ["age"]
epsilon = 2.0
rounds = 2
"""


def busy_federation(folder: Path) -> Path:
    """Questions that were answered, refused, approved, denied and left waiting; a training; members who came and went.

    The folder itself is the coordinator's, and each site has one inside.
    """
    text = study_text(min_sites=1, approval_seconds=3600)
    study = parse_study(text)
    for name in ("one", "two", "three"):
        (folder / name).mkdir(parents=True)
        lines = ["patient_id,age,sbp,cost,diagnosis,urgent,seen"]
        lines += [f"{name}-{n},{20 + n % 70},{100 + n % 80}.5,10.25,E11,1,2026-01-02" for n in range(200)]
        (folder / name / "encounters.csv").write_text("\n".join(lines), encoding="utf-8")
    policy = default_policy(study)
    few = replace(policy, statistics=(Statistic.COUNT, Statistic.MEAN), training=False)
    sites = {
        name: SimulatedSite(dataset, 200, ZeroNoise(), few if name == "three" else policy)
        for name, dataset in find_sites(folder, study).items()
    }
    (folder / "study.toml").write_text(text, encoding="utf-8")
    federation = SimulatedFederation(study, sites, folder=folder, noiseless=True)
    _everything(federation)
    federation.coordinator.identity.save(folder / "identity.pem")
    for name, agent in federation.agents.items():
        agent.ledger._identity.save(folder / name / "identity.pem")
    federation.close()
    return folder


def _everything(federation: SimulatedFederation) -> None:
    coordinator, members = federation.coordinator, federation.coordinator.ledger.members
    two = federation.agents["two"].ledger
    coordinator.roster.add_analyst("ben")
    coordinator.roster.add_analyst("ada")
    for number, name in enumerate(("one", "two", "three", "ada", "ben")):
        members.note_tls_key(name, f"{number}" * 64)
    members.note_tls_key("ben", "b" * 64)
    for number, name in enumerate(("one", "four", "five")):
        members.invite(name, secret_hash=f"{number}" * 64, expires=2.5e9)
    with members.using_invitation("one", secret_hash="0" * 64) as invitation:
        invitation.use("a" * 64)
    client = federation.client
    client.ask(COUNT, epsilon=0.5)
    client.ask("SELECT diagnosis, AVG(sbp) FROM encounters GROUP BY diagnosis", epsilon=0.5)
    client.train(parse_request(TRAINING))
    two.analysts.trust("ada", ADA.public, by="eve")
    # A name under another key: every site's steward is asked.
    own = Client(DirectAnalystLink(coordinator, "ben"), signer=Signer("ben", lambda: ADA))
    own.ask("SELECT AVG(age) FROM encounters", epsilon=0.25)
    stranger = Client(DirectAnalystLink(coordinator, "ben"), signer=Signer("ben", Identity.generate))
    for number, decide in enumerate((True, False, None)):
        with contextlib.suppress(AwaitingApproval):
            stranger.ask(f"SELECT COUNT(*) FROM encounters WHERE age >= {40 + number}", epsilon=0.25)
        (waiting,) = [request.plan_id for request in two.requests() if request.state.value == "pending"]
        if decide is not None:
            two.decide(waiting, approve=decide, by="eve")
            federation.agents["two"].run_approved()
    _interrupted(federation)
    coordinator.roster.revoke("ben")
    coordinator.roster.freeze("three", "two entries at one place")
    coordinator.roster.revoke("one")


def _interrupted(federation: SimulatedFederation) -> None:
    """A plan that is paid for and being read, and a table that is closed."""
    two = federation.agents["two"]
    query = Query("encounters", (Aggregate(Statistic.COUNT, "patient_id"),))
    request = AskRequest(query, 0.125)
    plan_id = SignedLink(
        DirectAnalystLink(federation.coordinator), federation.signer, lambda: federation.study.study_hash
    ).ask(request)
    signed = two.link.claim(wait_seconds=0.0)
    while signed is not None and signed.task.plan.plan_id != plan_id:
        signed = two.link.claim(wait_seconds=0.0)
    if signed is None:
        raise LookupError(plan_id)
    plan = signed.task.plan
    two.ledger.spend(
        price(plan, federation.study), Asking(plan, signed.asked_by), head=signed.task.head, table="encounters"
    )
    federation.agents["one"].ledger.tables.close("encounters", source="")
    two.ledger.tables.begin_again(plan_id, "encounters")
