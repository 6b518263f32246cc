"""A coordinator that lies: every lie is refused or ignored, no row is read, nothing is spent, and little is said."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import pytest

from site_agent.serving.agent import Agent
from tests.federation.ledger.ledger_bench import forgotten
from tests.site_agent.lone_site import NAME, STUDY, LoneSite
from wardround.federation import canonical
from wardround.federation.errors import FederationError, NotAuthorized, ProtocolViolation, SiteFrozen, UnprovedHead
from wardround.federation.forms.release import release_hash
from wardround.federation.ledger.entry_body import Plain, encode_body
from wardround.federation.plan.plan import Plan
from wardround.federation.plan.recalled import Recalled
from wardround.federation.plan.task import Declined, Released, SignedTask, Submission
from wardround.federation.question.cohort import Comparison
from wardround.federation.question.query import Aggregate, Grouping, Query, Statistic
from wardround.federation.study.study_file import parse_study
from wardround.federation.trust.enrolment import Standing
from wardround.federation.trust.entry import Entry, Head, make_entry
from wardround.federation.trust.identity import Identity, Purpose
from wardround.privacy.accounting.cost import Cost
from wardround.privacy.noise.distribution import Mechanism

CODES = {"PlanRefused", "StatisticNotAllowed", "EpsilonTooLarge", "SchemaRefused", "BudgetExceeded"}
"""Everything a site ever says in a refusal of its own."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[LoneSite]:
    """A site that allows counts and means up to ε = 1 a plan."""
    made = LoneSite(tmp_path, statistics=(Statistic.COUNT, Statistic.MEAN))
    yield made
    made.ledger.close()


def changed(plan: Plan, **fields: object) -> Plan:
    return dataclasses.replace(plan, **fields)  # type: ignore[arg-type]


def other_study(site: LoneSite, before: str, after: str) -> Plan:
    """An honest plan of another study."""
    text = STUDY.replace(before, after)
    assert text != STUDY
    return site.plan(study=parse_study(text))


def disguised(site: LoneSite, before: str, after: str) -> Plan:
    """The plan of another study under the hash of the one that was signed."""
    sql = "SELECT AVG(sbp) FROM visits"
    return changed(site.plan(sql, study=parse_study(STUDY.replace(before, after))), study_hash=site.study.study_hash)


def less_noise(plan: Plan, factor: Fraction) -> Plan:
    return changed(plan, scales=tuple(scale * factor for scale in plan.scales))


def comparing(value: float) -> Callable[[LoneSite], Plan]:
    def make(site: LoneSite) -> Plan:
        plan = site.plan("SELECT COUNT(*) FROM visits WHERE age >= 40")
        cohort = plan.query.cohort
        assert isinstance(cohort, Comparison)
        return changed(plan, query=dataclasses.replace(plan.query, cohort=dataclasses.replace(cohort, value=value)))

    return make


def aggregates(*wanted: Aggregate, **fields: object) -> Callable[[LoneSite], Plan]:
    return lambda site: changed(
        site.plan(),
        query=dataclasses.replace(Query("visits", wanted), **fields),  # type: ignore[arg-type]
        scales=tuple(site.plan().scales * len(wanted)),
    )


LIES: dict[str, Callable[[LoneSite], Plan]] = {
    "another study": lambda s: other_study(s, 'name = "trial"', 'name = "trail"'),
    "a study with wider bounds": lambda s: other_study(s, "upper = 200", "upper = 2000"),
    "a study with more rows": lambda s: other_study(s, "max_rows_per_unit = 2", "max_rows_per_unit = 3"),
    "a study with a larger budget": lambda s: other_study(s, "epsilon = 4.0", "epsilon = 40.0"),
    "a study of events": lambda s: other_study(s, 'unit = "patient"', 'unit = "event"'),
    "a raised loss": lambda s: s.plan(epsilon=1.5),
    "half the noise": lambda s: less_noise(s.plan(epsilon=0.9), Fraction(1, 2)),
    "hardly any noise": lambda s: changed(s.plan(), scales=(Fraction(4),)),
    "noise below four grid steps": lambda s: changed(s.plan(), scales=(Fraction(4095, 1024),)),
    "no noise": lambda s: changed(s.plan(), scales=(Fraction(0),)),
    "negative noise": lambda s: changed(s.plan(), scales=(Fraction(-5000),)),
    "noise off the wire's grid": lambda s: changed(s.plan(), scales=(Fraction(10**6, 3),)),
    "too much noise to hold": lambda s: changed(s.plan(), scales=(Fraction(2**51),)),
    "hardly any Laplace noise": lambda s: changed(
        s.plan(), mechanism=Mechanism.DISCRETE_LAPLACE, scales=(Fraction(1, 1024),)
    ),
    "another mechanism": lambda s: changed(
        s.plan("SELECT AVG(sbp) FROM visits"), mechanism=Mechanism.DISCRETE_LAPLACE, scales=(Fraction(2),)
    ),
    "a scale too few": lambda s: changed(s.plan("SELECT COUNT(*), AVG(sbp) FROM visits"), scales=(Fraction(10**6),)),
    "a scale too many": lambda s: changed(s.plan(), scales=s.plan().scales * 2),
    "no scales": lambda s: changed(s.plan(), scales=()),
    "no site among the participants": lambda s: s.plan(participants=("south", "west")),
    "no participants": lambda s: changed(s.plan(), participants=()),
    "a participant twice": lambda s: changed(s.plan(), participants=(NAME, NAME, "south")),
    "participants out of order": lambda s: changed(s.plan(), participants=("south", NAME)),
    "a statistic that the policy forbids": lambda s: s.plan("SELECT SUM(age) FROM visits"),
    "one forbidden statistic among others": lambda s: s.plan("SELECT COUNT(*), SUM(age) FROM visits"),
    "a cohort not in canonical form": comparing(40.0),
    "a cohort of another type": comparing(True),
    "a cohort beyond all numbers": comparing(10**400),
    "no aggregate": aggregates(),
    "a thousand aggregates": aggregates(*[Aggregate(Statistic.COUNT)] * 1000),
    "a mean of nothing": aggregates(Aggregate(Statistic.MEAN)),
    "a mean of the patients' names": aggregates(Aggregate(Statistic.MEAN, "patient_id")),
    "a mean of a category": aggregates(Aggregate(Statistic.MEAN, "code")),
    "an unknown column": aggregates(Aggregate(Statistic.MEAN, "salary")),
    "an unknown table": aggregates(Aggregate(Statistic.COUNT), table="staff"),
    "groups without public values": aggregates(Aggregate(Statistic.COUNT), group_by=(Grouping("sbp"),)),
    "one group column a hundred times": aggregates(Aggregate(Statistic.COUNT), group_by=(Grouping("age"),) * 100),
    "groups of patients": aggregates(Aggregate(Statistic.COUNT), group_by=(Grouping("patient_id"),)),
}


def unhurt(site: LoneSite, entries: int) -> None:
    """Nothing was read and nothing spent, and the ledger has no more than one refusal more."""
    assert not site.read
    assert site.spent == Cost.zero()
    assert site.ledger.head().sequence <= entries + 1
    assert site.ledger.frozen() is None


def answered(site: LoneSite, signed: SignedTask) -> Submission | None:
    """What leaves the site; None is silence."""
    try:
        return site.pipeline.run(signed)
    except FederationError:
        return None


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_refused_in_one_word_and_nothing_is_read_or_spent(site: LoneSite, lie: str) -> None:
    entries = site.ledger.head().sequence
    plan = LIES[lie](site)
    told = answered(site, site.task(plan))
    assert isinstance(told, Declined)
    assert told.code in CODES
    assert told.plan_id == plan.plan_id
    unhurt(site, entries)
    assert answered(site, site.task(plan)) == told, "asking again learns nothing more"
    unhurt(site, entries)


def test_the_honest_plan_beside_the_lies_is_answered(site: LoneSite) -> None:
    for make in LIES.values():
        answered(site, site.task(make(site)))
    assert isinstance(answered(site, site.task()), Released)


def test_bounds_widened_under_the_old_hash_do_not_widen_what_one_patient_can_do(site: LoneSite) -> None:
    """Sensitivity is never sent: the site derives it from what it signed, whatever the coordinator believes."""
    plan = disguised(site, "lower = 80, upper = 200", "lower = 80, upper = 2000")
    told = answered(site, site.task(plan))
    honest = site.plan("SELECT AVG(sbp) FROM visits")
    if isinstance(told, Released):
        assert plan.scales[0] >= honest.scales[0] * Fraction(99, 100)
    else:
        assert isinstance(told, Declined)


# --- tasks that are not what they seem ----------------------------------------------------------------------


def resigned(site: LoneSite, signer: Identity, purpose: Purpose) -> SignedTask:
    task = site.task().task
    return SignedTask(task, signer.sign(purpose, canonical.encode(task)))


FORGERIES: dict[str, Callable[[LoneSite], SignedTask]] = {
    "unsigned": lambda s: SignedTask(s.task().task, b""),
    "signed by nobody": lambda s: SignedTask(s.task().task, bytes(64)),
    "signed by a stranger": lambda s: s.task(signer=Identity.generate()),
    "signed by the site itself": lambda s: s.task(signer=s.identity),
    "signed as an entry": lambda s: resigned(s, s.coordinator, Purpose.ENTRY),
    "signed as a study": lambda s: resigned(s, s.coordinator, Purpose.STUDY),
    "signed as an invitation": lambda s: resigned(s, s.coordinator, Purpose.INVITATION),
    "the signature of another plan": lambda s: SignedTask(
        s.task().task, s.task(s.plan("SELECT AVG(sbp) FROM visits")).signature
    ),
    "the signature of another head": lambda s: SignedTask(s.task().task, s.task(head=s.ledger.head()).signature),
    "for another site": lambda s: s.task(site="south"),
    "another site's, with the name changed": lambda s: SignedTask(
        dataclasses.replace(s.task().task, site=NAME), s.task(site="south").signature
    ),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_task_that_our_coordinator_did_not_sign_for_us_is_met_with_silence(site: LoneSite, forgery: str) -> None:
    entries = site.ledger.head().sequence
    with pytest.raises(NotAuthorized):
        site.pipeline.run(FORGERIES[forgery](site))
    assert not site.rows.events, "not even the schema is looked at"
    assert site.ledger.head().sequence == entries
    unhurt(site, entries)


def test_a_forged_copy_does_not_refuse_the_true_plan(site: LoneSite) -> None:
    for make in FORGERIES.values():
        assert answered(site, make(site)) is None
    assert isinstance(answered(site, site.task()), Released)


@pytest.mark.parametrize("sequence", [1, 2, 3, 1000])
def test_a_head_that_is_invented_is_refused_and_the_site_serves_on(site: LoneSite, sequence: int) -> None:
    forged = site.task(head=Head(sequence, "ab" * 32))
    for _ in range(100):
        with pytest.raises(UnprovedHead):
            site.pipeline.run(forged)
    assert not site.rows.events
    assert site.spent == Cost.zero()
    assert site.ledger.frozen() is None
    assert isinstance(site.pipeline.run(site.task()), Released)


def test_a_frozen_site_does_not_even_repeat_itself(site: LoneSite) -> None:
    assert isinstance(answered(site, site.task()), Released)
    with pytest.raises(SiteFrozen):
        site.ledger.reconcile(forgotten(site.identity, 99))
    assert answered(site, site.task()) is None


def test_a_replayed_task_gets_the_stored_bytes_and_no_second_charge(site: LoneSite) -> None:
    signed = site.task()
    first = site.pipeline.run(signed)
    assert isinstance(first, Released)
    spent, head = site.spent, site.ledger.head()
    # The head has moved on since; an older one is still in the chain.
    assert site.pipeline.run(signed) == first
    assert site.pipeline.run(site.task(head=head)) == first
    assert (site.spent, site.ledger.head()) == (spent, head)
    assert site.rows.events.count("read") == 1


def test_near_identical_plans_are_charged_each(site: LoneSite) -> None:
    for number in range(3):
        told = site.pipeline.run(site.task(site.plan(nonce=f"{number:02x}")))
        assert isinstance(told, Released)
    one = site.spent.mu_squared // 3
    assert site.spent.mu_squared == 3 * one > 0


def test_a_site_stops_at_its_own_budget_whatever_the_study_allows(tmp_path: Path) -> None:
    cap = parse_study(STUDY.replace("epsilon = 4.0", "epsilon = 1.2")).cap
    site = LoneSite(tmp_path, cap=cap)
    told = [site.pipeline.run(site.task(site.plan(epsilon=0.15, nonce=f"{number:02x}"))) for number in range(6)]
    refusals = [word for word in told if isinstance(word, Declined)]
    assert refusals
    assert {word.code for word in refusals} == {"BudgetExceeded"}
    assert site.spent.fits(cap.allowance())
    assert site.rows.events.count("read") == len(told) - len(refusals)
    site.ledger.close()


# --- receipts ---------------------------------------------------------------------------------------------------


class Receipts:
    """A link whose coordinator answers submissions as the test says."""

    def __init__(self, task: SignedTask, reply: Callable[[Submission], Entry | None]) -> None:
        self.task, self.reply = task, reply

    def claim(self, *, wait_seconds: float, receipt: Entry | None = None) -> SignedTask | None:
        return self.task

    def submit(self, submission: Submission) -> Entry | None:
        return self.reply(submission)

    def show(self, chain: Sequence[Entry]) -> None:
        pass

    def rejoin(self, chain: Sequence[Entry], recalled: Iterable[Recalled], head: Head) -> None:
        """Nobody comes back."""

    def upkeep(self, receipt: Entry | None = None) -> Standing | None:
        return None

    def greet_again(self) -> None:
        pass

    def close(self) -> None:
        pass


def receipt(of: LoneSite, released: Released, *, signer: Identity | None = None, **body: Plain) -> Entry:
    told: dict[str, Plain] = {
        "plan_id": released.plan_id,
        "site": NAME,
        "release_hash": release_hash(released.payload),
        "sequence": released.entry.sequence,
        "digest": released.entry.digest,
    } | body
    after = Head(8, "0" * 64)
    return make_entry(signer or of.coordinator, after=after, kind="received", body=encode_body(told))


FALSE_RECEIPTS: dict[str, Callable[[LoneSite, Released], Entry | None]] = {
    "none": lambda s, r: None,
    "by a stranger": lambda s, r: receipt(s, r, signer=Identity.generate()),
    "by the site itself": lambda s, r: receipt(s, r, signer=s.identity),
    "the site's own entry": lambda s, r: r.entry,
    "for another plan": lambda s, r: receipt(s, r, plan_id="0" * 64),
    "for another site": lambda s, r: receipt(s, r, site="south"),
    "for other bytes": lambda s, r: receipt(s, r, release_hash="0" * 64),
    "for another place": lambda s, r: receipt(s, r, sequence=1),
    "for another entry": lambda s, r: receipt(s, r, digest="0" * 64),
}


@pytest.mark.parametrize("false", FALSE_RECEIPTS)
def test_a_false_receipt_is_not_accepted_and_the_answer_stays_owed(site: LoneSite, false: str) -> None:
    def reply(submission: Submission) -> Entry | None:
        assert isinstance(submission, Released)
        return FALSE_RECEIPTS[false](site, submission)

    agent = Agent(site.pipeline, site.ledger, Receipts(site.task(), reply))
    with pytest.raises(ProtocolViolation):
        agent.step(wait_seconds=0)
    (owed,) = site.ledger.undelivered()
    assert isinstance(owed, Released)
    agent.link = Receipts(site.task(), lambda _: receipt(site, owed))
    agent.deliver()
    assert site.ledger.undelivered() == []
