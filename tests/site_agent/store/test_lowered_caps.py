"""A cap that is lowered below what was spent: nothing is undone, nothing breaks, and nothing more is spent."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest

from coordinator.members.folder import CoordinatorFolder
from site_agent.serving.check import _ledger
from site_agent.serving.folder import SiteFolder
from site_agent.serving.serve import make_agent
from tests.federation.ledger.test_verify_site import Said, codes, signed
from tests.roles.enrolled import Serving, found, hospital
from tests.site_agent.answering.test_hostile_training import TRAINED, run, step
from tests.site_agent.lone_site import LoneSite
from wardround.federation.ledger.entry_body import cap_body, cost_body, facts_body
from wardround.federation.ledger.verify.verify import judge, verify
from wardround.federation.plan.plan import Charge
from wardround.federation.plan.task import Declined, Released
from wardround.privacy.accounting.cost import Fact
from wardround.privacy.budget.filter import Cap, epsilon_charged
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution
from wardround.privacy.noise.sampler import SecureNoise

GAUSSIAN, LAPLACE = Mechanism.DISCRETE_GAUSSIAN, Mechanism.DISCRETE_LAPLACE
CAP = Cap(4.0, 1e-6, 1.0)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[LoneSite]:
    """ε = 4 in all, 1 of it pure."""
    made = LoneSite(tmp_path, study=TRAINED, max_epsilon_per_plan=4.0)
    yield made
    made.ledger.close()


def ask(site: LoneSite, mechanism: Mechanism, epsilon: float, nonce: str) -> str:
    """How a question ends: "Released", or the code of its refusal."""
    reply = site.pipeline.run(site.task(site.plan(epsilon=epsilon, mechanism=mechanism, nonce=nonce)))
    assert isinstance(reply, Released | Declined)
    return reply.code if isinstance(reply, Declined) else "Released"


LOWERED = {
    "the pure lane": (LAPLACE, 0.8, Cap(4.0, 1e-6, 0.5)),
    "the pure lane to nothing": (LAPLACE, 0.8, Cap(4.0, 1e-6, 0.0)),
    "the Gaussian lane": (GAUSSIAN, 2.0, Cap(2.5, 1e-6, 1.0)),
    "the Gaussian lane by the share of the other": (GAUSSIAN, 2.9, Cap(4.0, 1e-6, 4.0)),
    "both": (GAUSSIAN, 2.0, Cap(1.0, 1e-6, 0.0)),
    "δ": (GAUSSIAN, 2.9, Cap(4.0, 1e-9, 1.0)),
    "δ to nothing": (GAUSSIAN, 0.5, Cap(4.0, 0.0, 0.0)),
}


@pytest.mark.parametrize("case", LOWERED)
def test_nothing_more_is_spent_in_any_lane_once_one_is_above_its_cap(site: LoneSite, case: str) -> None:
    mechanism, epsilon, lowered = LOWERED[case]
    assert ask(site, mechanism, epsilon, "01") == "Released"
    before = site.spent
    site.ledger.set_cap(lowered)
    site.rows.events.clear()
    for number, (asked, small) in enumerate([(LAPLACE, 0.1), (GAUSSIAN, 0.1), (GAUSSIAN, 2.0), (LAPLACE, 1.0)]):
        assert ask(site, asked, small, f"a{number}") == "BudgetExceeded"
    assert (site.spent, site.read) == (before, False)
    assert verify(site.folder).problems == ()
    # Allowing as much as was spent lets it go on.
    site.ledger.set_cap(CAP)
    assert ask(site, LAPLACE, 0.1, "b0") == "Released"
    assert verify(site.folder).problems == ()


def test_the_shares_of_a_cap_cannot_be_spent_one_after_the_other(site: LoneSite) -> None:
    """What was spent as pure loss is not spent again as Gaussian: ε = 4 stays ε = 4 whatever site.toml says next."""
    assert ask(site, LAPLACE, 1.0, "01") == "Released"
    site.ledger.set_cap(Cap(4.0, 1e-6, 0.0))
    assert ask(site, GAUSSIAN, 3.9, "02") == "BudgetExceeded"
    assert epsilon_charged(site.spent, delta=1e-6) <= 4.0


def test_a_training_that_is_paid_for_goes_on_below_a_lowered_cap(site: LoneSite) -> None:
    site.rows.total = 5
    assert isinstance(run(site, step(0)), Released)
    site.ledger.set_cap(Cap(0.01, 1e-6))
    assert isinstance(run(site, step(1)), Released)
    assert verify(site.folder).problems == ()


def charged(word: str, mechanism: Mechanism, scale: int) -> Said:
    facts = (Fact(NoiseDistribution(mechanism, Fraction(scale)), 64, 64**2, 1),)
    body = {"plan_id": word, "account": "d", "facts": facts_body(facts), **cost_body(Charge(word, facts).cost)}
    return "charged", body


def test_verify_finds_a_ledger_that_spent_both_shares() -> None:
    capped, lowered = (("capped", cap_body("d", cap)) for cap in (Cap(2.0, 1e-6, 1.0), Cap(2.0, 1e-6, 0.0)))
    pure, gaussian = charged("a", LAPLACE, 64), charged("b", GAUSSIAN, 200)
    assert judge(signed(capped, pure, lowered)).problems == ()
    assert codes(judge(signed(capped, pure, lowered, gaussian))) == {"Overspent"}


# --- what people see -----------------------------------------------------------------------------------------------


@pytest.fixture
def consortium(tmp_path: Path) -> CoordinatorFolder:
    return found(tmp_path / "consortium")


def change(site: SiteFolder, before: str, after: str) -> None:
    config = site.path / "site.toml"
    text = config.read_text(encoding="utf-8")
    assert before in text
    config.write_text(text.replace(before, after), encoding="utf-8")


def spend(consortium: CoordinatorFolder, site: SiteFolder, mechanism: Mechanism, epsilon: float) -> None:
    agent = Serving(consortium, site)
    assert isinstance(agent.ask(epsilon=epsilon, mechanism=mechanism), Released)
    agent.close()


@pytest.mark.parametrize(
    ("mechanism", "epsilon", "before", "after", "says"),
    [
        (LAPLACE, 0.8, "delta", "pure_epsilon = 0.5\ndelta", "ε = 0.8 under Laplace noise, where 0.5 is allowed"),
        (GAUSSIAN, 2.0, "epsilon = 4.0", "epsilon = 1.5", "ε = 2 under Gaussian noise, where 0.5 is allowed"),
    ],
)
def test_a_cap_below_what_was_spent_is_said_at_start_and_fails_the_check(
    consortium: CoordinatorFolder,
    caplog: pytest.LogCaptureFixture,
    mechanism: Mechanism,
    epsilon: float,
    before: str,
    after: str,
    says: str,
) -> None:
    site = hospital(consortium)
    spend(consortium, site, mechanism, epsilon)
    assert _ledger(site, site.configuration()).ok
    change(site, before, after)
    finding = _ledger(site, site.configuration())
    assert not finding.ok
    assert says in finding.text
    assert finding.text.endswith("; no question is answered until site.toml allows as much as was spent")
    agent = Serving(consortium, site)
    with caplog.at_level(logging.WARNING):
        make_agent(site, agent.ledger, noise=SecureNoise()).link.close()  # type: ignore[arg-type]
    assert says in caplog.text
    reply = agent.ask("ff", epsilon=0.01)
    assert isinstance(reply, Declined)
    assert reply.code == "BudgetExceeded"
    agent.close()
    assert not _ledger(site, site.configuration()).ok
