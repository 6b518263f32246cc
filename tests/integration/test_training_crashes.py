"""kill −9 in the middle of a training: of the coordinator, of a site and of the analyst, at any step of a round.

Whoever died is started again by the ordinary command and nobody does anything else. The training comes to its
end, every site has paid what an undisturbed training costs, and the same training asked again is the same model.
"""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from tests.integration import faulty_coordinator, faulty_site
from tests.integration.stage import PATIENCE_SECONDS, Asked, Federation, command, eventually, sites_in
from wardround.analyst.asking.client import connect, fresh_nonce
from wardround.analyst.learning.driver import TrainingRound
from wardround.analyst.learning.request import TrainingRequest
from wardround.analyst.showing.documents import Json
from wardround.federation.models.training import ModelKind

# With the columns' scales before and the evaluation after, there is a round for every point but the first.
LEARNING_ROUNDS = 10
REQUEST = TrainingRequest(
    ModelKind.LOGISTIC, "encounters", "diagnosis", ("age", "sbp"), epsilon=5.0, rounds=LEARNING_ROUNDS
)
ALL_ROUNDS = LEARNING_ROUNDS + 2

# What dies, and where: a place of the coordinator's round, or of the write order of site two.
COORDINATOR = [("consortium", point) for point in faulty_coordinator.POINTS]
SITE = [("two", point) for point in faulty_site.POINTS]
# Until then the first round has not paid for the training where it is about to die.
UNPAID = {"before_reserve_commit", "after_claim", "before_spend_commit"}

Spent = dict[str, tuple[int, ...]]


@pytest.fixture(scope="module")
def price(federation: Federation) -> Mapping[str, Spent]:
    """What an undisturbed training costs in each ledger."""
    federation.await_sites()
    before = spent(federation)
    document = Trial(federation).train()
    assert rounds_in(document) == {"done": LEARNING_ROUNDS, "planned": LEARNING_ROUNDS}
    cost = since(before, spent(federation))
    assert set(cost) == {"consortium", *federation.sites}
    assert all(any(amounts) for accounts in cost.values() for amounts in accounts.values())
    return cost


@pytest.fixture
def running(federation: Federation) -> Federation:
    """The shared federation with every ordinary process, in case a test before this one failed."""
    if "consortium" not in federation.running:
        federation.start_coordinator()
    for name in federation.sites:
        if name not in federation.running:
            federation.start_site(name)
    return federation


@dataclass
class Trial:
    """One training, in which a process is about to die when a round begins.

    The driver's own thread puts the doomed process into the place of the ordinary one; this one waits for its death
    and starts the ordinary one again.
    """

    federation: Federation
    deaths: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    nonce: str = field(default_factory=fresh_nonce)
    doomed: queue.SimpleQueue[int] = field(default_factory=queue.SimpleQueue)
    whole: threading.Event = field(default_factory=threading.Event)

    def train(self) -> dict[str, Json]:
        with connect(self.federation.profile()) as client:
            return client.train(
                REQUEST, nonce=self.nonce, limit_seconds=10 * PATIENCE_SECONDS, on_round=self._on_round
            ).document()

    def run(self, price: Mapping[str, Spent]) -> dict[str, Json]:
        """Train through every death; at each of them a ledger holds the whole price of the training, or nothing."""
        before = spent(self.federation)
        self.whole.set()
        training = Asked(self.train)
        for number in sorted(self.deaths):
            assert self.doomed.get(timeout=2 * PATIENCE_SECONDS) == number
            name, point = self.deaths[number]
            self.federation.await_death(name)
            paid = since(before, spent(self.federation))[name]
            unpaid = number == 1 and point in UNPAID
            assert paid == {account: (0, 0, 0) if unpaid else cost for account, cost in price[name].items()}
            self._start(name)
            self.whole.set()
        return training.answer()

    def _on_round(self, beginning: TrainingRound) -> None:
        assert beginning.rounds == ALL_ROUNDS
        if beginning.number in self.deaths:
            # A round may end while a site that has done its part is still dead.
            assert self.whole.wait(2 * PATIENCE_SECONDS)
            self.whole.clear()
            name, point = self.deaths[beginning.number]
            self.federation.stop(name)
            self._start(name, failpoint=point)
            self.doomed.put(beginning.number)

    def _start(self, name: str, *, failpoint: str | None = None) -> None:
        if name == "consortium":
            self.federation.start_coordinator(failpoint=failpoint)
        else:
            self.federation.start_site(name, failpoint=failpoint)


def spent(federation: Federation) -> dict[str, Spent]:
    """What each account of each ledger has spent, in the integers that the ledger adds up."""
    statement = "SELECT account, mu_squared, pure, slack FROM accounts"
    return {
        ledger: {str(account): tuple(int(str(each)) for each in amounts) for account, *amounts in rows}
        for ledger in ("consortium", *federation.sites)
        if (rows := federation.rows(ledger, statement))
    }


def since(before: Mapping[str, Spent], now: Mapping[str, Spent]) -> dict[str, Spent]:
    return {
        ledger: {
            account: tuple(last - first for first, last in zip(before[ledger][account], amounts, strict=True))
            for account, amounts in accounts.items()
        }
        for ledger, accounts in now.items()
    }


def rounds_in(document: dict[str, Json]) -> Json:
    return document["rounds"]


def check_whole(federation: Federation, document: dict[str, Json]) -> None:
    """The training ended with every round, each charged and released once at every site."""
    assert rounds_in(document) == {"done": LEARNING_ROUNDS, "planned": LEARNING_ROUNDS}
    assert sites_in(document) == {"answered": ["one", "three", "two"], "refused": {}, "missing": []}
    plan_ids = document["plan_ids"]
    assert isinstance(plan_ids, list)
    assert len(plan_ids) == len(set(map(str, plan_ids))) == ALL_ROUNDS
    undelivered = "SELECT plan_id FROM releases EXCEPT SELECT plan_id FROM receipts"
    for name in federation.sites:
        eventually(lambda name=name: not federation.rows(name, undelivered), what=f"{name} has its receipts")  # type: ignore[misc]
    for plan_id in plan_ids:
        federation.check_charged_once(str(plan_id))
    federation.check_ledgers()


def survive(federation: Federation, price: Mapping[str, Spent], deaths: Mapping[int, tuple[str, str]]) -> None:
    before = spent(federation)
    trial = Trial(federation, deaths)
    document = trial.run(price)
    check_whole(federation, document)
    assert since(before, spent(federation)) == price
    again = Trial(federation, nonce=trial.nonce).train()
    assert again["coefficients"] == document["coefficients"]
    assert again["plan_ids"] == document["plan_ids"]
    assert again["replayed"] is True
    assert since(before, spent(federation)) == price


def test_a_training_survives_a_crash_of_anybody_under_one_charge(
    running: Federation, price: Mapping[str, Spent]
) -> None:
    # Paid and nothing read; in the middle of what a site waits for. Every other point is tried by `make test-all`.
    survive(running, price, {1: ("two", "after_spend"), 3: ("consortium", "before_accept_commit")})


@pytest.mark.slow
@pytest.mark.parametrize("death", [*COORDINATOR, *SITE], ids="-".join)
def test_the_round_that_pays_is_paid_once_wherever_it_is_broken_off(
    running: Federation, price: Mapping[str, Spent], death: tuple[str, str]
) -> None:
    survive(running, price, {1: death})


@pytest.mark.slow
@pytest.mark.parametrize("deaths", [COORDINATOR, SITE], ids=["the coordinator", "a site"])
def test_a_training_survives_a_crash_at_every_step_one_after_another(
    running: Federation, price: Mapping[str, Spent], deaths: list[tuple[str, str]]
) -> None:
    survive(running, price, dict(enumerate(deaths, start=2)))


REQUEST_TOML = f"""\
kind = "logistic"
table = "encounters"
target = "diagnosis"
features = ["age", "sbp"]
epsilon = 5.0
rounds = {LEARNING_ROUNDS}
"""


@pytest.mark.slow
def test_a_researcher_who_was_cut_off_goes_on_by_the_same_command(
    running: Federation, price: Mapping[str, Spent]
) -> None:
    before = spent(running)
    # The fourth round waits for a hospital that is away, so that the researcher is cut off in the middle of it.
    running.stop("two")
    running.start_site("two", failpoint="after_claim:4")
    (running.folder / "request.toml").write_text(REQUEST_TOML, encoding="utf-8")
    words = ("train", "--profile", running.profile(), "request.toml", "--json")
    running.spawn("analyst", command(*words))
    running.await_death("two")
    assert running.stop("analyst", number=signal.SIGKILL) == -signal.SIGKILL
    running.start_site("two")
    done = running.run(*words)
    assert done.code == 0, done.err
    check_whole(running, done.document)
    assert since(before, spent(running)) == price
