"""A training from its first round to its last: replayed, interrupted, short of sites, and lied to."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from site_agent.answering.admission import Approval
from site_agent.reading.dataset import Dataset
from tests.analyst.learning.clinics import SIZES, federation, request, seeded, spent, study
from wardround.analyst.asking.client import Client
from wardround.analyst.learning.driver import TrainingRound
from wardround.analyst.learning.round_sums import SiteScreening, sums_of
from wardround.analyst.link.link import AnalystLink
from wardround.federation.errors import (
    AwaitingApproval,
    BudgetExceeded,
    MalformedMessage,
    PeerUnreachable,
    ProtocolViolation,
    QueryMistaken,
    TooFewSites,
)
from wardround.federation.models.step_layout import step_form
from wardround.federation.models.training import Step
from wardround.federation.plan.plan import Plan
from wardround.federation.plan.task import AskRequest
from wardround.federation.question.answer import Answer, Preview, Progress, Update
from wardround.federation.question.study_budget import BudgetReport
from wardround.federation.study.study import Study
from wardround.privacy.noise.distribution import Mechanism
from wardround.simulation.federation import DirectAnalystLink, SimulatedFederation, SimulatedSite, default_policy
from wardround.simulation.noise import ZeroNoise

# Moments, products, two gradients and the scores: five rounds, three of which learn.
SHORT = {"rounds": 3}


@dataclasses.dataclass
class Line:
    """A link that breaks at one of its answers, or changes what it carries."""

    inner: AnalystLink
    breaks_at: int | None = None
    change: Callable[[Answer], Answer] = lambda answer: answer
    asked: list[AskRequest] = dataclasses.field(default_factory=list)
    previewed: list[AskRequest] = dataclasses.field(default_factory=list)
    names_the_block: bool = True

    def ask(self, request: AskRequest) -> str:
        self.asked.append(request)
        return self.inner.ask(request)

    def watch(self, plan_id: str, *, seen: int, wait_seconds: float) -> Progress | Answer:
        if len(self.asked) - 1 == self.breaks_at:
            self.breaks_at = None
            raise PeerUnreachable
        found = self.inner.watch(plan_id, seen=seen, wait_seconds=wait_seconds)
        return self.change(found) if isinstance(found, Answer) else found

    def preview(self, request: AskRequest) -> Preview:
        self.previewed.append(request)
        found = self.inner.preview(request)
        return found if self.names_the_block else dataclasses.replace(found, block="")

    def sites(self) -> tuple[str, ...]:
        return self.inner.sites()

    def budget(self) -> BudgetReport:
        return self.inner.budget()

    def study(self) -> Study:
        return self.inner.study()

    def close(self) -> None:
        self.inner.close()


def over(clinics: SimulatedFederation, **faults: object) -> tuple[Client, Line]:
    line = Line(DirectAnalystLink(clinics.coordinator), **faults)  # type: ignore[arg-type]
    return Client(line, signer=clinics.signer), line


def test_a_training_is_charged_once_and_told_round_by_round(clinics: SimulatedFederation) -> None:
    told: list[TrainingRound] = []
    result = clinics.client.train(request(**SHORT), on_round=told.append)
    assert [(each.number, each.rounds) for each in told] == [(place, 5) for place in range(1, 6)]
    assert told[2].title == "gradients 1 of 2"
    assert told[0].remaining.fraction == 1.0
    assert len({each.remaining.epsilon for each in told[1:]}) == 1
    assert spent(clinics) == pytest.approx(1.0, rel=1e-3)
    document = result.document()
    assert document["rounds"] == {"done": 3, "planned": 3}
    assert document["sites"] == {"answered": sorted(SIZES), "refused": {}, "missing": []}
    assert len(set(map(str, document["plan_ids"]))) == 5  # type: ignore[arg-type]
    assert document["privacy"]["charged"]["epsilon"] == pytest.approx(1.0, rel=1e-3)  # type: ignore[index,call-overload]
    assert document["artifact"] is None


def test_a_training_asks_who_takes_part_and_tries_nothing_but_its_first_round(clinics: SimulatedFederation) -> None:
    client, line = over(clinics)
    preview = client.preview_training(request(**SHORT))
    assert [type(each.query) for each in line.previewed] == [Step]
    assert preview.beginning.outline.sites == tuple(sorted(SIZES))
    step = line.previewed[0].query
    assert isinstance(step, Step)
    scales = (step.training.stages[0].scale,)
    plan = Plan(clinics.study.study_hash, step, Mechanism.DISCRETE_GAUSSIAN, scales, tuple(sorted(SIZES)))
    assert preview.beginning.block == plan.block


def test_a_coordinator_that_does_not_name_the_training_gets_one_sentence(clinics: SimulatedFederation) -> None:
    client, line = over(clinics, names_the_block=False)
    with pytest.raises(ProtocolViolation, match="runs an earlier version"):
        client.train(request(**SHORT))
    assert (line.asked, spent(clinics)) == ([], 0.0)


def test_the_same_request_again_is_the_same_model_for_nothing(clinics: SimulatedFederation) -> None:
    first = clinics.client.train(request(**SHORT))
    again = clinics.client.train(request(**SHORT))
    assert spent(clinics) == pytest.approx(1.0, rel=1e-3)
    assert (again.document()["replayed"], first.document()["replayed"]) == (True, False)
    assert again.model_id == first.model_id
    assert np.array_equal(again.predictor.weights, first.predictor.weights)
    assert "paid before (these are the stored rounds and cost nothing now)" in str(again)


def test_a_fresh_training_is_another_one_and_goes_on_with_its_nonce(clinics: SimulatedFederation) -> None:
    first = clinics.client.train(request(**SHORT))
    client, line = over(clinics, breaks_at=2)
    with pytest.raises(PeerUnreachable):
        client.train(request(**SHORT), fresh=True)
    nonce = line.asked[0].nonce
    assert nonce != ""
    second = client.train(request(**SHORT), nonce=nonce)
    assert second.model_id != first.model_id
    assert {asked.nonce for asked in line.asked} == {nonce}
    assert 1.2 < spent(clinics) < 2.0


@pytest.mark.parametrize("broken", [0, 3])
def test_a_training_that_broke_off_goes_on_and_pays_nothing_twice(clinics: SimulatedFederation, broken: int) -> None:
    client, line = over(clinics, breaks_at=broken)
    with pytest.raises(PeerUnreachable) as found:
        client.train(request(**SHORT))
    assert "run the same request again to continue from here." in found.value.message
    assert len(line.asked) == broken + 1
    result = client.train(request(**SHORT))
    assert spent(clinics) == pytest.approx(1.0, rel=1e-3)
    assert result.document()["plan_ids"] == [answer.plan_id for answer in result.trained.answers]
    assert client.train(request(**SHORT)).document()["plan_ids"] == result.document()["plan_ids"]


def test_a_training_that_does_not_fit_is_never_begun(clinics: SimulatedFederation) -> None:
    clinics.client.train(request(**SHORT, epsilon=2.9))
    before = spent(clinics)
    client, line = over(clinics)
    with pytest.raises(BudgetExceeded) as found:
        client.train(request(**SHORT, epsilon=2.5))
    assert found.value.asked == pytest.approx(2.5, rel=1e-2)
    assert "nothing was charged" in found.value.message
    assert (len(line.asked), spent(clinics)) == (1, before)
    with pytest.raises(BudgetExceeded):
        client.train(request(**SHORT, epsilon=30.0))


def test_sites_that_are_away_are_told_and_too_few_are_a_sentence(clinics: SimulatedFederation) -> None:
    away = {name: clinics.agents.pop(name) for name in ("north", "south", "west")}
    with pytest.raises(TooFewSites) as found:
        clinics.client.train(request(**SHORT))
    assert found.value.message.startswith("how many patients, and the scale of each column: 1 of 4 sites answered")
    assert "missing: north, south, west" in found.value.message
    assert found.value.message.endswith("run the same request again to continue from here.")
    clinics.agents.update({name: away[name] for name in ("north", "south")})
    result = clinics.client.train(request(**SHORT))
    assert result.document()["sites"] == {"answered": ["east", "north", "south"], "refused": {}, "missing": ["west"]}
    assert "west missed 5 of 5 rounds." in result.document()["notes"]  # type: ignore[operator]
    assert spent(clinics) == pytest.approx(1.0, rel=1e-3)


def test_a_site_that_joins_the_study_later_does_not_make_it_another_training(
    clinics: SimulatedFederation, tmp_path: Path, datasets: dict[str, Dataset]
) -> None:
    client, _ = over(clinics, breaks_at=2)
    with pytest.raises(PeerUnreachable):
        client.train(request(**SHORT))
    newcomer = SimulatedSite(datasets["east"], 300, noise=ZeroNoise())
    clinics.enrol("zest", newcomer)
    result = client.train(request(**SHORT))
    assert result.document()["sites"]["answered"] == sorted(SIZES)  # type: ignore[index,call-overload]
    assert spent(clinics) == pytest.approx(1.0, rel=1e-3)


def test_a_steward_decides_once_for_the_whole_training(tmp_path: Path, datasets: dict[str, Dataset]) -> None:
    manual = dataclasses.replace(default_policy(study()), approval=Approval.MANUAL)
    found = federation(tmp_path, datasets, policies={"south": manual})
    client, _ = over(found)
    with pytest.raises(AwaitingApproval, match="run the same request again to continue from here"):
        client.train(request(**SHORT))
    (waiting,) = found.agents["south"].ledger.requests()
    found.agents["south"].ledger.decide(waiting.plan_id, approve=True, by="ann")
    found.agents["south"].run_approved()
    result = client.train(request(**SHORT))
    assert result.document()["sites"] == {"answered": sorted(SIZES), "refused": {}, "missing": []}
    found.close()


def test_a_steward_who_denies_keeps_the_site_out_of_the_whole_training(
    tmp_path: Path, datasets: dict[str, Dataset]
) -> None:
    manual = dataclasses.replace(default_policy(study()), approval=Approval.MANUAL)
    found = federation(tmp_path, datasets, policies={"south": manual})
    client, _ = over(found)
    with pytest.raises(AwaitingApproval):
        client.train(request(**SHORT))
    (waiting,) = found.agents["south"].ledger.requests()
    found.agents["south"].ledger.decide(waiting.plan_id, approve=False, by="ann")
    found.agents["south"].run_approved()
    document = client.train(request(**SHORT)).document()
    assert document["sites"]["answered"] == ["east", "north", "west"]  # type: ignore[index,call-overload]
    assert list(document["sites"]["refused"]) == ["south"]  # type: ignore[index,call-overload,arg-type]
    found.close()


# --- Updates ----------------------------------------------------------------------------------------------


def changed(site: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Answer], Answer]:
    """One site's sums, or the total's, as somebody else would have them."""

    def apply(answer: Answer) -> Answer:
        updates = tuple(
            Update(each.site, change(np.frombuffer(each.total, "<i8").copy()).astype("<i8").tobytes())
            if each.site == site
            else each
            for each in answer.updates
        )
        return dataclasses.replace(answer, updates=updates)

    return apply


def in_round(place: int, change: Callable[[Answer], Answer], line: Line) -> None:
    line.change = lambda answer: change(answer) if len(line.asked) == place + 1 else answer


@pytest.mark.parametrize(("site", "place"), [("", 0), ("south", 3)])
def test_an_update_of_the_wrong_length_is_one_sentence(clinics: SimulatedFederation, site: str, place: int) -> None:
    client, line = over(clinics)
    in_round(place, changed(site, lambda values: values[:-1]), line)
    with pytest.raises(MalformedMessage) as found:
        client.train(request(**SHORT, by_site=bool(site)))
    assert "numbers of 8 bytes are expected." in found.value.message
    assert spent(clinics) == pytest.approx(1.0, rel=1e-3)
    # Nothing is lost: without the fault the same rounds make the model.
    line.change = lambda answer: answer
    client.train(request(**SHORT, by_site=bool(site)))
    assert spent(clinics) == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("values", [2**40, -(2**63)])
def test_an_impossible_sum_is_left_out_and_its_site_named(clinics: SimulatedFederation, values: int) -> None:
    client, line = over(clinics)
    in_round(3, changed("south", lambda found: np.full_like(found, values)), line)
    result = client.train(request(**SHORT, by_site=True))
    assert result.document()["sites"]["answered"] == ["east", "north", "west"]  # type: ignore[index,call-overload]
    (note,) = [note for note in result.document()["notes"] if "left out" in str(note)]  # type: ignore[union-attr]
    assert str(note).startswith("south was left out (gradients 2 of 2: its ")
    assert np.abs(result.predictor.weights).max() < 100.0


def test_an_impossible_total_ends_the_training_with_what_to_do(clinics: SimulatedFederation) -> None:
    client, line = over(clinics)
    in_round(3, changed("", lambda found: found + 2**40), line)
    with pytest.raises(MalformedMessage) as found:
        client.train(request(**SHORT))
    assert "gradients 2 of 2: the total is impossible (its length is" in found.value.message
    assert "set by_site = true" in found.value.message


def test_a_site_that_claims_more_patients_than_there_can_be_is_left_out(clinics: SimulatedFederation) -> None:
    client, line = over(clinics)
    in_round(0, changed("south", lambda found: np.full_like(found, 2**40)), line)
    result = client.train(request(**SHORT, by_site=True, patients=900))
    assert result.document()["sites"]["answered"] == ["east", "north", "west"]  # type: ignore[index,call-overload]


def test_honest_sums_are_never_left_out(tmp_path: Path, datasets: dict[str, Dataset]) -> None:
    """Neither the exact ones, nor those with noise, nor those over samples."""
    for noise, changes in (
        (None, SHORT),
        (seeded, {"schedule": "local_steps", "rounds": 2, "local_steps": 3}),
        (None, {"kind": "linear", "target": "stay", "features": ["age"]}),
    ):
        found = federation(tmp_path / str(len(list(tmp_path.iterdir()))), datasets, noise=noise)
        result = found.client.train(request(**{**changes, "by_site": True, "patients": 700}))
        assert "left_out" not in result.document()["sites"]  # type: ignore[operator]
        found.close()


def test_an_answer_without_its_sites_is_refused(clinics: SimulatedFederation) -> None:
    client, line = over(clinics)
    line.change = lambda answer: dataclasses.replace(answer, updates=answer.updates[1:])
    with pytest.raises(MalformedMessage, match="does not hold the sums of the sites that answered"):
        client.train(request(**SHORT, by_site=True))


@pytest.mark.parametrize(
    ("composition", "noiseless", "by_site", "expected"),
    [
        ("parallel", False, False, 2.0),
        ("parallel", False, True, 2.0),
        ("trusted_total", False, False, 1.0),
        ("parallel", True, False, 0.0),
    ],
)
def test_the_noise_of_a_total_is_that_of_the_sites_that_answered(
    clinics: SimulatedFederation, composition: str, noiseless: bool, by_site: bool, expected: float
) -> None:
    beginning = clinics.client._beginning(request(**SHORT, by_site=by_site), nonce="")
    step = Step(beginning.outline.training, 0, 0)
    form = step_form(step, study())
    sums = np.full(form.dimension, 2**20, dtype="<i8").tobytes()
    updates = tuple(Update(site, sums) for site in sorted(SIZES)) if by_site else (Update("", sums),)
    privacy = dataclasses.replace(beginning.preview.privacy, composition=composition)
    answer = Answer("", "patient", False, noiseless, tuple(sorted(SIZES)), (), (), (), privacy, updates)
    found, _ = sums_of(answer, form, SiteScreening(), title="round")
    assert found.noise_sd == pytest.approx(expected * float(step.training.stages[0].scale) / 2**20)
    assert found.answered == 4
    assert found.totals.tolist() == [[4.0 if by_site else 1.0] * form.width]
    assert sorted(found.sites) == (sorted(SIZES) if by_site else [])


@pytest.mark.parametrize(("length", "possible"), [(1.9, True), (2.1, False)])
def test_a_total_may_be_as_long_as_the_noise_of_all_its_sites(
    clinics: SimulatedFederation, length: float, possible: bool
) -> None:
    """Of four sites without a patient it is twice the noise of one, and eight deviations more."""
    beginning = clinics.client._beginning(request(**SHORT), nonce="")
    form = step_form(Step(beginning.outline.training, 0, 0), study())
    longest = float(beginning.outline.training.stages[0].scale) * (np.sqrt(form.width) + 8.0)
    sums = np.zeros(form.dimension, dtype="<i8")
    sums[0] = int(length * longest)
    sites = tuple(sorted(SIZES))
    privacy = beginning.preview.privacy
    answer = Answer("", "patient", False, False, sites, (), (), (), privacy, (Update("", sums.tobytes()),))
    trust = SiteScreening(most={"": 0.0}, counted=frozenset(sites))
    if possible:
        sums_of(answer, form, trust, title="round")
    else:
        with pytest.raises(MalformedMessage, match="the total is impossible"):
            sums_of(answer, form, trust, title="round")


# --- Strategies -------------------------------------------------------------------------------------------


def test_an_unknown_strategy_is_told_the_nearest_before_anybody_is_asked(clinics: SimulatedFederation) -> None:
    pytest.importorskip("flwr", reason="Flower is not installed here")
    client, line = over(clinics)
    with pytest.raises(QueryMistaken, match="did you mean 'FedAdam'"):
        client.train(request(**SHORT, strategy="fedadamm"))
    assert line.asked == []


def test_a_dry_run_says_when_a_training_would_be_refused(clinics: SimulatedFederation) -> None:
    clinics.client.train(request(**SHORT))
    left = clinics.client.budget().report.remaining.epsilon
    told = str(clinics.client.preview_training(request(**SHORT, epsilon=2.99)))
    assert f"It would be refused: ε = {left:.4g} remains, {2.99 - left:.4g} too little." in told
    assert "refused" not in str(clinics.client.preview_training(request(**SHORT, epsilon=0.5)))
