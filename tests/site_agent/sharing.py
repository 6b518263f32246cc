"""Folders that share an account: what serving, asking and checking does to it, and how it is refused."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from coordinator.members.folder import CoordinatorFolder
from site_agent.serving.check import CheckFinding, _account
from site_agent.serving.folder import SiteFolder
from tests.roles.enrolled import Serving
from tests.site_agent.answering.test_hostile_training import step
from tests.site_agent.lone_site import STUDY
from wardround.federation.errors import ConfigurationMistaken, LedgerCorrupt
from wardround.federation.plan.plan import Plan
from wardround.federation.plan.task import Released
from wardround.privacy.accounting.cost import Cost
from wardround.privacy.noise.distribution import Mechanism

ACCOUNT = 'account = "../shared/ehr.sqlite"'
EVENTS = STUDY.replace('unit = "patient"', 'unit = "event"').replace('name = "trial"', 'name = "events"')


@contextlib.contextmanager
def serving(consortium: CoordinatorFolder, site: SiteFolder) -> Iterator[Serving]:
    opened = Serving(consortium, site)
    try:
        yield opened
    finally:
        opened.close()


def ask(consortium: CoordinatorFolder, site: SiteFolder, *nonces: str, epsilon: float = 0.5) -> Cost:
    """Serve, answer, stop; what the account holds then."""
    with serving(consortium, site) as agent:
        for nonce in nonces:
            assert isinstance(agent.ask(nonce, epsilon=epsilon), Released)
        assert agent.pipeline.shared is not None
        return agent.pipeline.shared.spent()


def train(consortium: CoordinatorFolder, site: SiteFolder, *turns: int) -> None:
    with serving(consortium, site) as agent:
        for turn in turns:
            asked = step(turn)
            scale = asked.training.stages[0].scale
            study = agent.pipeline.study.study_hash
            plan = Plan(study, asked, Mechanism.DISCRETE_GAUSSIAN, (scale,), (agent.pipeline.site,))
            assert isinstance(agent.run(plan), Released)


def checked(site: SiteFolder) -> CheckFinding:
    """What `check` says of the account."""
    configuration = site.configuration()
    assert configuration.account is not None
    try:
        return _account(site, configuration, configuration.account, site.study())
    except (ConfigurationMistaken, LedgerCorrupt) as error:
        return CheckFinding("account", ok=False, text=error.message)


def refused(consortium: CoordinatorFolder, site: SiteFolder) -> str:
    """The one sentence with which `serve` ends and `check` fails."""
    with pytest.raises((ConfigurationMistaken, LedgerCorrupt)) as told:
        Serving(consortium, site)
    assert checked(site) == CheckFinding("account", ok=False, text=told.value.message)
    return told.value.message
