"""A site of a simulation: its tables, its noise, and the production agent that is made of them."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path

from site_agent.answering.admission import Approval, Policy
from site_agent.answering.pipeline import Pipeline
from site_agent.reading.dataset import Dataset
from site_agent.serving.agent import Agent, CoordinatorLink
from site_agent.store.ledger import SiteLedger
from wardround.federation.ledger.sqlite_file import Durability
from wardround.federation.question.query import Statistic
from wardround.federation.study.study import Study
from wardround.federation.trust.identity import Identity, PublicIdentity, Purpose
from wardround.privacy.mechanisms.randomness import Chance, SecureChance

_TODAY = datetime.date(2026, 1, 1)


@dataclass(frozen=True, slots=True)
class SimulatedSite:
    """A site of the simulation: its tables, its declared number of patients, its noise and its policy."""

    dataset: Dataset
    patients: int
    noise: Chance | None = None
    policy: Policy | None = None


@dataclass(frozen=True, slots=True)
class Ground:
    """What every site of a simulation is given: the study, whose tasks to trust, and where ledgers lie."""

    study: Study
    coordinator: PublicIdentity
    folder: Path
    keeping: Durability


@dataclass(frozen=True, slots=True)
class Newcomer:
    """What the coordinator's roster needs to know of a site."""

    name: str
    identity: PublicIdentity
    patients: int
    study_signature: bytes


def begin_site(name: str, site: SimulatedSite, link: CoordinatorLink, ground: Ground) -> tuple[Agent, Newcomer]:
    """The agent over a ledger of its own, and what the roster is told of it."""
    folder, study = ground.folder / name, ground.study
    folder.mkdir(parents=True, exist_ok=True)
    identity = Identity.generate()
    ledger = SiteLedger.create(
        folder,
        identity=identity,
        name=name,
        study_hash=study.study_hash,
        dataset=name,
        coordinator_key=ground.coordinator.key,
        keeping=ground.keeping,
    )
    policy = site.policy or default_policy(study)
    ledger.set_cap(policy.cap)
    noise = SecureChance() if site.noise is None else site.noise
    pipeline = Pipeline(name, study, policy, ground.coordinator, ledger, site.dataset, noise, lambda: _TODAY)
    signature = identity.sign(Purpose.STUDY, bytes.fromhex(study.study_hash))
    return Agent(pipeline, ledger, link), Newcomer(name, identity.public, site.patients, signature)


def default_policy(study: Study) -> Policy:
    """A site that allows what the study allows."""
    return Policy(
        cap=study.cap,
        max_epsilon_per_plan=study.cap.epsilon,
        statistics=tuple(Statistic),
        approval=Approval.AUTOMATIC,
        min_sites=study.min_sites,
    )
