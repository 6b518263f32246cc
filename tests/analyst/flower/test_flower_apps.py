"""An existing ServerApp over the sites of a study: it trains, it is charged as agreed, and it is told why not."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'wardround[flower]'")

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAdam, FedAvg, FedMedian, FedProx, Krum

from site_agent.answering.admission import Policy
from site_agent.reading.dataset import Dataset
from tests.analyst.flower.apps import app_of
from tests.analyst.learning.clinics import SIZES, federation, request, study
from wardround.analyst.flower.grid import WardroundGrid
from wardround.analyst.flower.messages import place_of
from wardround.analyst.flower.run_app import grid_over, run_app
from wardround.federation.errors import BudgetExceeded, PlanRefused, QueryMistaken
from wardround.simulation.federation import DirectAnalystLink, SimulatedFederation, SimulatedSite, default_policy
from wardround.simulation.noise import ZeroNoise

# Products and three gradients: three messages to train.
SHORT = request(rounds=4)


@pytest.fixture
def noiseless(tmp_path: Path, datasets: dict[str, Dataset]) -> Iterator[SimulatedFederation]:
    found = federation(tmp_path / "noiseless", datasets)
    yield found
    found.close()


def spent(clinics: SimulatedFederation) -> float:
    return clinics.client.budget().report.spent.epsilon


def messages(grid: Grid, kind: str = "train", *, size: int = 5, arrays: ArrayRecord | None = None) -> list[Message]:
    record = RecordDict({"arrays": arrays or ArrayRecord([np.zeros(size)]), "config": ConfigRecord({"lr": 0.1})})
    return [Message(record, place, kind) for place in grid.get_node_ids()]


def reasons(replies: object) -> set[str]:
    assert isinstance(replies, list)
    assert all(each.has_error() for each in replies)
    return {str(each.error.reason) for each in replies}


# --- Trainings --------------------------------------------------------------------------------------------


def test_an_app_trains_what_the_project_itself_would(noiseless: SimulatedFederation) -> None:
    """Without noise, FedAvg of the sites' models is the mean step, which is what the sum's own step is."""
    app, kept = app_of(FedAvg, size=5)
    result = run_app(app, noiseless.client, request(rounds=8))
    assert kept.last.arrays.keys() == {"0", "1"}
    own = noiseless.client.train(request(rounds=8), fresh=True)
    columns = {"age": [40, 60, 80], "sbp": [110.0, 130.0, 150.0], "sex": ["F", "M", "F"], "smoker": [False, True, True]}
    np.testing.assert_allclose(result.predictor(kept.last.arrays).predict(columns), own.predict(columns), atol=0.03)


@pytest.mark.parametrize("strategy", [FedAdam, FedMedian, Krum])
def test_strategies_of_flower_train_and_are_charged_once(clinics: SimulatedFederation, strategy: type[FedAvg]) -> None:
    app, kept = app_of(strategy, size=5)
    result = run_app(app, clinics.client, SHORT)
    assert spent(clinics) == pytest.approx(1.0, rel=1e-3)
    assert result.privacy.charged.epsilon == pytest.approx(1.0, rel=1e-3)
    # Moments, products, three gradients, scores.
    assert [answer.answered for answer in result.answers] == [tuple(sorted(SIZES))] * 6
    assert np.abs(kept.weights).max() > 0.1
    # Held-out patients are asked once, after the last round.
    assert list(kept.last.evaluate_metrics_clientapp) == [3]
    # Of a single small clinic the noise may leave none of them.
    assert set(kept.last.evaluate_metrics_clientapp[3]) <= {"auc", "accuracy", "brier", "calibration"}
    assert [metric.name for metric in result.metrics] == ["auc", "accuracy", "brier", "calibration"]


def test_an_app_that_is_run_again_takes_the_same_steps_for_nothing(clinics: SimulatedFederation) -> None:
    """Although Flower writes to sites in another order every time."""
    app, kept = app_of(FedAdam, size=5)
    first = run_app(app, clinics.client, SHORT)
    again = run_app(app, DirectAnalystLink(clinics.coordinator), SHORT)
    assert np.array_equal(kept.results[0].arrays["1"].numpy(), kept.results[1].arrays["1"].numpy())
    assert [answer.plan_id for answer in again.answers] == [answer.plan_id for answer in first.answers]
    assert all(answer.replayed for answer in again.answers)
    assert spent(clinics) == pytest.approx(1.0, rel=1e-3)


def test_another_app_on_the_same_request_is_refused_with_what_to_do(clinics: SimulatedFederation) -> None:
    run_app(app_of(FedAdam, size=5)[0], clinics.client, SHORT)
    with pytest.raises(PlanRefused, match="already asked with other numbers"):
        run_app(app_of(FedMedian, size=5)[0], clinics.client, SHORT)
    run_app(app_of(FedMedian, size=5)[0], clinics.client, SHORT, nonce="ab" * 16)


def test_local_steps_are_replayed_from_released_sums(clinics: SimulatedFederation) -> None:
    app, kept = app_of(FedAvg, size=5)
    run_app(app, clinics.client, request(schedule="local_steps", rounds=2, local_steps=4, validation_fraction=0.0))
    assert spent(clinics) == pytest.approx(1.0, rel=1e-2)
    assert np.isfinite(kept.weights).all()
    assert list(kept.last.evaluate_metrics_clientapp) == []


def test_a_perceptron_begins_where_the_grid_says(clinics: SimulatedFederation) -> None:
    app, found = ServerApp(), []

    @app.main()
    def main(grid: WardroundGrid, context: Context) -> None:
        first = grid.first_arrays()
        found.append((first, FedAvg().start(grid, first, num_rounds=2).arrays))

    result = run_app(app, clinics.client, request(kind="perceptron", rounds=2, hidden=3))
    ((first, last),) = found
    assert first["weights"].shape == (3 * 5 + 4,)
    assert not np.array_equal(first["weights"].numpy(), last["weights"].numpy())
    assert result.predictor(last).predict(
        {"age": [40], "sbp": [120.0], "sex": ["F"], "smoker": [False]}
    ) == pytest.approx(0.5, abs=0.5)


def test_flowers_closed_form_holds_on_the_releases_of_a_federation(clinics: SimulatedFederation) -> None:
    """The grid's replies are the releases; FedAdam over them by hand is what FedAdam made of them."""
    seen: list[list[Message]] = []

    class Watched(FedAdam):
        def aggregate_train(self, server_round: int, replies: object) -> tuple[ArrayRecord | None, MetricRecord | None]:
            seen.append(list(replies))  # type: ignore[call-overload]
            return super().aggregate_train(server_round, seen[-1])

    app, kept = app_of(Watched, size=5)
    run_app(app, clinics.client, SHORT)
    weights, first, second = np.zeros(5), np.zeros(5), np.zeros(5)
    for number, replies in enumerate(seen, start=1):
        examples = np.array([each.content["metrics"]["num-examples"] for each in replies])
        models = np.stack(
            [np.concatenate([a.ravel() for a in each.content["arrays"].to_numpy_ndarrays()]) for each in replies]
        )
        delta = examples @ models / examples.sum() - weights
        first, second = 0.9 * first + 0.1 * delta, 0.99 * second + 0.01 * delta**2
        rate = 0.1 * np.sqrt(1 - 0.99 ** (number + 1)) / (1 - 0.9 ** (number + 1))
        weights = weights + rate * first / (np.sqrt(second) + 1e-3)
    assert len(seen) == 3
    np.testing.assert_allclose(kept.weights, weights, rtol=1e-9)


def test_examples_are_noised_numbers(clinics: SimulatedFederation, noiseless: SimulatedFederation) -> None:
    told = []
    for found in (clinics, noiseless):
        grid = grid_over(found.client, SHORT)
        replies = list(grid.send_and_receive(messages(grid)))
        assert [grid.sites[each.metadata.src_node_id] for each in replies] == sorted(SIZES)
        told.append([each.content["metrics"]["num-examples"] for each in replies])
    assert np.abs(np.array(told[0]) - np.array(told[1])).min() > 0.1
    assert sum(told[1]) == pytest.approx(0.8 * sum(SIZES.values()), rel=0.1)


# --- What has no answer -----------------------------------------------------------------------------------


def test_a_grid_answers_no_more_rounds_than_the_request_has(clinics: SimulatedFederation) -> None:
    grid = grid_over(clinics.client, SHORT)
    assert reasons(grid.send_and_receive(messages(grid, "evaluate"))) == {
        "held-out patients are asked once, after the last of 3 training rounds; 0 are done."
    }
    for _ in range(3):
        assert all(each.has_content() for each in grid.send_and_receive(messages(grid)))
    assert reasons(grid.send_and_receive(messages(grid))) == {
        "all 3 training rounds of the request are done; more would need a request with more."
    }
    assert all(each.has_content() for each in grid.send_and_receive(messages(grid, "evaluate")))
    assert reasons(grid.send_and_receive(messages(grid, "evaluate"))) == {
        "evaluating was done already; the request has one round of it, after the last of training."
    }
    assert reasons(grid.send_and_receive(messages(grid))) != set()
    assert len(grid.rounds.answers) == 6


@pytest.mark.parametrize(
    ("arrays", "kind", "sentence"),
    [
        (ArrayRecord([np.zeros(4)]), "train", "the model has 5 numbers, the intercept first, and 4 were given."),
        (ArrayRecord([np.zeros(5, np.int64)]), "train", "the array '0' must hold floating-point numbers, not int64."),
        (ArrayRecord([np.full(5, np.nan)]), "train", "a model's numbers must be finite."),
        (ArrayRecord([np.full(5, np.inf)]), "evaluate", "a model's numbers must be finite."),
        (ArrayRecord(), "train", "the model has 5 numbers, the intercept first, and 0 were given."),
        (
            ArrayRecord([np.zeros(5)]),
            "query",
            "a site answers train and evaluate messages, not 'query': it runs no code of an app.",
        ),
        (
            ArrayRecord([np.zeros(5)]),
            "train.mine",
            "a site answers train and evaluate messages, not 'train.mine': it runs no code of an app.",
        ),
    ],
)
def test_a_message_that_no_round_can_answer_is_told_why(
    clinics: SimulatedFederation, arrays: ArrayRecord, kind: str, sentence: str
) -> None:
    grid = grid_over(clinics.client, SHORT)
    record = RecordDict({"arrays": arrays})
    assert reasons(grid.send_and_receive([Message(record, place, kind) for place in grid.get_node_ids()])) == {sentence}
    # Inputs may have been scaled meanwhile; no round of training was taken.
    assert len(grid.rounds.answers) in (0, 2)


def test_a_round_is_one_model_to_sites_of_the_study(clinics: SimulatedFederation) -> None:
    grid = grid_over(clinics.client, SHORT)
    first, second, *_ = messages(grid)
    other = Message(RecordDict({"arrays": ArrayRecord([np.ones(5)])}), second.metadata.dst_node_id, "train")
    assert reasons(grid.send_and_receive([first, other])) == {
        "a round is one plan to all sites, so all messages of it carry the same model."
    }
    stranger = Message(first.content, place_of("nowhere"), "train")
    for sent in ([stranger], [first, first]):
        assert reasons(grid.send_and_receive(sent)) == {"each message of a round goes to another site of the study."}
    assert reasons(grid.send_and_receive([Message(RecordDict(), first.metadata.dst_node_id, "train")])) == {
        "a message carries one model, as one ArrayRecord."
    }
    assert len(grid.rounds.answers) == 0


def test_only_the_sites_that_are_written_to_reply(clinics: SimulatedFederation) -> None:
    grid = grid_over(clinics.client, SHORT)
    two = messages(grid)[2:0:-1]
    numbers = list(grid.push_messages(two))
    assert clinics.client.budget().report.events == 0
    replies = list(grid.pull_messages(numbers))
    # In the order of names, whatever the order of messages was: sums over them have the same last bits every time.
    assert [grid.sites[each.metadata.src_node_id] for each in replies] == ["north", "south"]
    assert [each.metadata.reply_to_message_id for each in replies] == numbers[::-1]
    assert list(grid.pull_messages(numbers)) == []
    assert grid.rounds.answers[-1].answered == tuple(sorted(SIZES))


def test_a_site_that_refuses_replies_with_an_error(tmp_path: Path, datasets: dict[str, Dataset]) -> None:
    def policy(site: str) -> Policy:
        return dataclasses.replace(default_policy(study()), training=site != "west")

    sites = {
        name: SimulatedSite(dataset, 300, noise=ZeroNoise(), policy=policy(name)) for name, dataset in datasets.items()
    }
    found = SimulatedFederation(study(), sites, folder=tmp_path, noiseless=True)
    grid = grid_over(found.client, SHORT)
    replies = list(grid.send_and_receive(messages(grid)))
    assert [each.has_error() for each in replies] == [False, False, False, True]
    assert replies[-1].error.reason == "west refused (it does not allow models to be trained)."
    app, kept = app_of(FedMedian, size=5)
    run_app(app, found.client, request(rounds=3))
    assert np.abs(kept.weights).max() > 0.1
    found.close()


def test_a_time_that_is_over_gives_no_replies_and_loses_nothing(clinics: SimulatedFederation) -> None:
    ticks = iter(range(1000))
    grid = grid_over(clinics.client, SHORT, clock=lambda: float(next(ticks)))
    sent = messages(grid)
    assert list(grid.send_and_receive(sent, timeout=0.5)) == []
    assert all(each.has_content() for each in grid.send_and_receive(sent, timeout=60.0))
    assert spent(clinics) == pytest.approx(1.0, rel=1e-3)


def test_what_ends_a_training_is_raised_through_the_app(clinics: SimulatedFederation) -> None:
    app, _ = app_of(FedAvg, size=5)
    with pytest.raises(BudgetExceeded):
        run_app(app, clinics.client, request(rounds=4, epsilon=5.0))
    assert spent(clinics) == 0.0


def test_an_app_whose_strategy_gives_up_is_one_sentence(clinics: SimulatedFederation) -> None:
    app, _ = app_of(lambda: FedAvg(weighted_by_key="steps"), size=5)
    with pytest.raises(QueryMistaken) as found:
        run_app(app, clinics.client, SHORT)
    assert found.value.message.startswith("the app could not go on: Missing required key `steps`")
    assert found.value.message.endswith("The rounds so far are kept and paid for.")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"kind": "linear", "target": "stay", "features": ["age"]}, "train it without an app."),
        ({"strategy": "fedadam"}, "leave strategy out of the request."),
    ],
)
def test_a_request_that_no_app_can_follow_is_refused(
    clinics: SimulatedFederation, changes: dict[str, object], sentence: str
) -> None:
    with pytest.raises(QueryMistaken) as found:
        grid_over(clinics.client, request(**changes))
    assert found.value.message.endswith(sentence)


def test_what_an_app_cannot_have_here_is_said_and_not_left_away(clinics: SimulatedFederation) -> None:
    with pytest.raises(QueryMistaken, match="server_fn and its like are not run here"):
        run_app(ServerApp(), clinics.client, SHORT)
    app, kept = app_of(lambda: FedProx(proximal_mu=0.1), size=5)
    assert run_app(app, clinics.client, SHORT).answers == ()
    assert len(kept.last.arrays) == 0
    assert spent(clinics) == 0.0


def test_a_model_has_no_scale_before_the_first_round(clinics: SimulatedFederation) -> None:
    grid = grid_over(clinics.client, SHORT)
    with pytest.raises(QueryMistaken, match="no scale before the first round"):
        grid.rounds.predictor(np.zeros(5))
    with pytest.raises(QueryMistaken, match="5 numbers, the intercept first, and 6 were given"):
        grid.rounds.predictor(np.zeros(6))
