"""Drop-outs, deadlines, refusals and stewards, seen through three sites with true counts 1, 10 and 100."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.coordinator.hospitals import ANALYST, ask, oracle
from wardround.federation.errors import AwaitingApproval, NotAuthorized, QueryMistaken, TooFewSites
from wardround.federation.question.answer import Answer, Progress, SiteState
from wardround.federation.refusal import RefusalReason

NO = RefusalReason.PLAN.words


def test_all_three_sites_answer_111(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    answer = world.ask()
    assert answer.estimates[0].value == 111
    assert (answer.answered, answer.refused, answer.missing) == (("one", "three", "two"), (), ())
    assert answer.estimates[0].standard_error == 0
    assert not answer.replayed
    assert world.verified().valid


def test_a_sleeping_site_is_missing_after_the_deadline(tmp_path: Path) -> None:
    world = oracle(tmp_path, moods={"two": "sleep"})
    answer = world.ask()
    assert answer.estimates[0].value == 101
    assert answer.missing == ("two",)
    assert world.clock.now() == pytest.approx(60)


def test_nobody_is_counted_twice_however_often_it_resends(tmp_path: Path) -> None:
    world = oracle(tmp_path, moods={"one": "sleep"})
    plan_id = world.coordinator.ask(ANALYST, ask())
    two = world.hospitals["two"]
    two.step(world.coordinator)
    receipts = {world.coordinator.submit("two", two.kept[plan_id]) for _ in range(20)}
    assert len(receipts) == 1
    assert world.watch(plan_id).estimates[0].value == 110
    assert world.kinds().count("received") == 2


def test_a_question_asked_again_is_the_stored_answer_and_costs_nothing(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    first = world.ask()
    spent, entries = world.spent(), world.kinds()
    second = world.ask()
    assert second.replayed
    assert (second.plan_id, second.estimates) == (first.plan_id, first.estimates)
    assert (world.spent(), world.kinds()) == (spent, entries)
    assert [len(hospital.seen) for hospital in world.hospitals.values()] == [1, 1, 1]


def test_a_fresh_question_is_asked_anew_and_paid_anew(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    first, second = world.ask(), world.ask(ask(nonce="ab12"))
    assert first.plan_id != second.plan_id
    assert not second.replayed
    assert world.kinds().count("reserved") == 2


def test_another_analyst_hears_the_stored_answer_as_a_replay(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    world.coordinator.roster.add_analyst("grace")
    plan_id = world.ask().plan_id
    assert world.watch(plan_id, analyst="grace").replayed


def test_a_signed_refusal_gives_the_charge_back_and_the_others_answer(tmp_path: Path) -> None:
    world = oracle(tmp_path, moods={"two": "refuse"})
    answer = world.ask()
    assert answer.estimates[0].value == 101
    assert answer.refused == (("two", "PlanRefused"),)
    sites = {site.name: site.spent.epsilon for site in world.coordinator.budget(ANALYST).sites}
    assert sites["two"] == 0
    assert sites["one"] == sites["three"] > 0
    assert world.verified().valid


def test_a_missing_site_stays_charged(tmp_path: Path) -> None:
    world = oracle(tmp_path, moods={"two": "sleep"})
    world.ask()
    sites = {site.name: site.spent.epsilon for site in world.coordinator.budget(ANALYST).sites}
    assert sites["two"] == sites["one"]


def test_where_too_many_refused_the_way_on_is_a_fresh_question(tmp_path: Path) -> None:
    world = oracle(tmp_path, min_sites=2, moods={"two": "refuse", "three": "refuse"})
    with pytest.raises(TooFewSites) as refusal:
        world.ask()
    assert refusal.value.message == (
        f"1 of 3 sites answered and the study needs 2; refused: three ({NO}), two ({NO}). A refusal is "
        "final for this question: once the hospitals have changed their policy, ask it again (--fresh)."
    )


def test_too_few_answers_are_no_answer_and_asking_again_costs_nothing(tmp_path: Path) -> None:
    world = oracle(tmp_path, min_sites=2, moods={"two": "sleep", "three": "refuse"})
    with pytest.raises(TooFewSites) as refusal:
        world.ask()
    assert refusal.value.message == (
        f"1 of 3 sites answered and the study needs 2; missing: two; refused: three ({NO}). "
        "Asking again costs nothing more."
    )
    with pytest.raises(TooFewSites):
        world.watch(next(iter(world.hospitals["one"].kept)))
    world.hospitals["two"].mood = "release"
    answer = world.ask()
    assert answer.estimates[0].value == 11
    assert not answer.replayed
    assert world.kinds().count("reserved") == 1
    assert world.verified().valid


def test_refusals_are_final_so_asking_again_writes_nothing(tmp_path: Path) -> None:
    world = oracle(tmp_path, min_sites=2, moods={"two": "refuse", "three": "refuse"})
    with pytest.raises(TooFewSites):
        world.ask()
    entries = world.kinds()
    with pytest.raises(TooFewSites):
        world.ask()
    assert world.kinds() == entries


def test_too_few_sites_on_the_roster_are_not_even_asked(tmp_path: Path) -> None:
    world = oracle(tmp_path, min_sites=3)
    world.coordinator.roster.revoke("two")
    with pytest.raises(TooFewSites) as refusal:
        world.coordinator.ask(ANALYST, ask())
    assert refusal.value.message == "2 sites can be asked and the study needs 3; nothing was charged."
    assert "reserved" not in world.kinds()


def test_a_late_release_gets_a_receipt_and_never_changes_the_answer(tmp_path: Path) -> None:
    world = oracle(tmp_path, moods={"two": "sleep"})
    first = world.ask()
    two = world.hospitals["two"]
    plan = world.hospitals["one"].seen[0].task.plan
    receipt = world.coordinator.submit("two", two.release(plan))
    assert receipt is not None
    assert receipt.kind == "received"
    again = world.ask()
    assert (again.estimates, again.missing) == (first.estimates, ("two",))
    assert world.verified().valid


def test_a_late_release_counts_when_the_round_is_opened_again(tmp_path: Path) -> None:
    world = oracle(tmp_path, min_sites=3, moods={"two": "sleep"})
    with pytest.raises(TooFewSites):
        world.ask()
    plan = world.hospitals["one"].seen[0].task.plan
    world.coordinator.submit("two", world.hospitals["two"].release(plan))
    assert world.ask().estimates[0].value == 111


def test_a_site_that_failed_is_asked_again_before_the_deadline(tmp_path: Path) -> None:
    world = oracle(tmp_path, moods={"two": "fail"})
    plan_id = world.coordinator.ask(ANALYST, ask())
    assert world.hospitals["two"].step(world.coordinator)
    assert not world.hospitals["two"].step(world.coordinator), "not in a tight loop"
    assert world.states(world.hospitals["two"].seen[0].task.plan)["two"] is SiteState.FAILED
    world.hospitals["two"].mood = "release"
    answer = world.watch(plan_id)
    assert answer.estimates[0].value == 111
    assert len(world.hospitals["two"].seen) == 2


def test_a_site_that_keeps_failing_is_missing(tmp_path: Path) -> None:
    world = oracle(tmp_path, moods={"two": "fail"})
    answer = world.ask()
    assert (answer.estimates[0].value, answer.missing) == (101, ("two",))


def test_a_steward_keeps_the_round_open_until_the_approval(tmp_path: Path) -> None:
    world = oracle(tmp_path, moods={"two": "hold"})
    plan_id = world.coordinator.ask(ANALYST, ask())
    with pytest.raises(AwaitingApproval) as waiting:
        world.watch(plan_id)
    assert waiting.value.message == "The question is waiting for approval at two; ask again later."
    assert world.coordinator.ask(ANALYST, ask()) == plan_id
    with pytest.raises(AwaitingApproval):
        world.watch(plan_id)
    assert not world.hospitals["two"].step(world.coordinator), "a task that waits for a steward is not handed out again"
    world.hospitals["two"].approve(world.coordinator)
    answer = world.ask()
    assert (answer.plan_id, answer.estimates[0].value) == (plan_id, 111)
    assert world.kinds().count("reserved") == 1


def test_a_steward_who_decides_after_the_wait_is_missing(tmp_path: Path) -> None:
    world = oracle(tmp_path, moods={"two": "hold"})
    with pytest.raises(AwaitingApproval):
        world.ask()
    world.clock.pass_seconds(3600)
    answer = world.ask()
    assert (answer.estimates[0].value, answer.missing) == (101, ("two",))


def test_the_wait_for_a_steward_survives_a_restart(tmp_path: Path) -> None:
    world = oracle(tmp_path, moods={"two": "hold"})
    with pytest.raises(AwaitingApproval):
        world.ask()
    world.clock.pass_seconds(3000)
    world.restart()
    with pytest.raises(AwaitingApproval):
        world.ask()
    world.clock.pass_seconds(600)
    assert world.ask().missing == ("two",)


def test_a_denied_plan_is_a_refusal(tmp_path: Path) -> None:
    world = oracle(tmp_path, moods={"two": "hold"})
    with pytest.raises(AwaitingApproval):
        world.ask()
    two = world.hospitals["two"]
    world.coordinator.submit("two", two.decline(two.held[0]))
    answer = world.ask()
    assert (answer.estimates[0].value, answer.refused) == (101, (("two", "PlanRefused"),))


def test_a_site_revoked_during_the_round_is_missing_and_not_waited_for(tmp_path: Path) -> None:
    world = oracle(tmp_path, moods={"two": "sleep"})
    plan_id = world.coordinator.ask(ANALYST, ask())
    world.coordinator.roster.revoke("two")
    answer = world.watch(plan_id)
    assert (answer.estimates[0].value, answer.missing) == (101, ("two",))
    assert world.clock.now() < 60


def test_a_revoked_site_gets_nothing_and_hands_in_nothing(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    world.coordinator.ask(ANALYST, ask())
    world.coordinator.roster.revoke("two")
    with pytest.raises(NotAuthorized):
        world.coordinator.claim("two", wait_seconds=0)
    plan = world.coordinator.claim("one", wait_seconds=0)
    assert plan is not None
    with pytest.raises(NotAuthorized):
        world.coordinator.submit("two", world.hospitals["two"].release(plan.task.plan))


def test_a_revoked_analyst_hears_nothing(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    plan_id = world.ask().plan_id
    world.coordinator.roster.revoke(ANALYST)
    for call in (
        lambda: world.coordinator.ask(ANALYST, ask()),
        lambda: world.coordinator.watch(ANALYST, plan_id, seen=0, wait_seconds=0),
        lambda: world.coordinator.preview(ANALYST, ask()),
        lambda: world.coordinator.budget(ANALYST),
    ):
        with pytest.raises(NotAuthorized):
            call()


def test_a_plan_nobody_asked_is_a_mistake(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    with pytest.raises(QueryMistaken, match="no question with this plan id was asked"):
        world.coordinator.watch(ANALYST, "0" * 64, seen=0, wait_seconds=0)


def test_tasks_are_handed_out_oldest_first(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    plans = [world.coordinator.ask(ANALYST, ask(0.1, nonce=f"{n:02x}")) for n in range(5)]
    one = world.hospitals["one"]
    while one.step(world.coordinator):
        pass
    assert [signed.task.plan.plan_id for signed in one.seen] == plans


def test_a_task_names_the_last_place_the_coordinator_has_a_receipt_for(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    one = world.hospitals["one"]
    world.ask()
    place = one.head
    world.ask(ask(nonce="01"))
    assert one.seen[0].task.head.sequence == 0
    assert one.seen[1].task.head == place
    assert all(signed.signed_by(world.identity.public) for signed in one.seen)
    assert all(signed.task.site == "one" for signed in one.seen)


def test_progress_names_every_site_and_ends_in_the_answer(tmp_path: Path) -> None:
    world = oracle(tmp_path)
    plan_id = world.coordinator.ask(ANALYST, ask())
    world.hospitals["one"].step(world.coordinator)
    world.coordinator.claim("two", wait_seconds=0)
    states = world.states(world.hospitals["one"].seen[0].task.plan)
    assert states == {"one": SiteState.RELEASED, "three": SiteState.OPEN, "two": SiteState.CLAIMED}
    told = world.coordinator.watch(ANALYST, plan_id, seen=0, wait_seconds=0)
    assert isinstance(told, Answer)
    assert not isinstance(told, Progress)
