"""Flower's strategies on the sites' models: their arithmetic, their memory, and sites that lie."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

import numpy as np
import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'wardround[flower]'")

from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp.strategy import FedAvg

from tests.site_agent.learning.sums import People, people, study_of, train, training_of
from wardround.analyst.asking.named_strategy import combine_named
from wardround.analyst.estimation.fitted import settled
from wardround.analyst.flower.strategies import KEPT, StrategyCombine, combine_by
from wardround.federation.errors import QueryMistaken
from wardround.federation.models.training import ModelKind

SIZES = {"a": 100.0, "b": 300.0, "c": 50.0, "d": 250.0, "e": 200.0, "f": 120.0, "g": 180.0}


def rounds(number: int, *, sites: int = 7, width: int = 4) -> list[dict[str, np.ndarray]]:
    """How far each site would move the model, in each of so many rounds."""
    draw = np.random.default_rng(5)
    names = list(SIZES)[:sites]
    return [{name: draw.normal(0.3, 0.1, width) for name in names} for _ in range(number)]


def combined(combine: StrategyCombine, moves: list[dict[str, np.ndarray]], start: np.ndarray) -> list[np.ndarray]:
    """The models after each round, as a training goes through them."""
    weights, found = settled(start), []
    for each in moves:
        updates = {site: weights + move for site, move in each.items()}
        weights = settled(combine(weights, updates, {site: SIZES[site] for site in updates}))
        found.append(weights)
    return found


def mean_move(weights: np.ndarray, each: dict[str, np.ndarray]) -> np.ndarray:
    whole = sum(SIZES[site] for site in each)
    return sum(SIZES[site] / whole * (weights + move) for site, move in each.items()) - weights  # type: ignore[return-value]


def test_fedadam_is_its_closed_form_on_the_same_releases() -> None:
    moves, start = rounds(6), np.array([0.5, -1.0, 0.0, 2.0])
    found = combined(combine_by("FedAdam", eta=0.2, beta_1=0.8, beta_2=0.95, tau=0.01), moves, start)
    weights, first, second = settled(start), np.zeros(4), np.zeros(4)
    for number, (each, got) in enumerate(zip(moves, found, strict=True), start=1):
        delta = mean_move(weights, each)
        first = 0.8 * first + 0.2 * delta
        second = 0.95 * second + 0.05 * delta**2
        rate = 0.2 * np.sqrt(1 - 0.95 ** (number + 1)) / (1 - 0.8 ** (number + 1))
        weights = settled(weights + rate * first / (np.sqrt(second) + 0.01))
        np.testing.assert_allclose(got, weights, rtol=1e-8)


def test_momentum_is_its_closed_form_too() -> None:
    moves, start = rounds(4), np.zeros(4)
    found = combined(combine_by("fedavgm", server_momentum=0.6, server_learning_rate=0.5), moves, start)
    weights, pace = start, np.zeros(4)
    for each, got in zip(moves, found, strict=True):
        pace = 0.6 * pace - mean_move(weights, each)
        weights = weights - 0.5 * pace
        np.testing.assert_allclose(got, weights, rtol=1e-6)


def test_fedavg_weighs_sites_by_their_noised_numbers() -> None:
    (moves,) = rounds(1)
    (found,) = combined(combine_by("FedAvg"), [moves], np.zeros(4))
    np.testing.assert_allclose(found, mean_move(np.zeros(4), moves), rtol=1e-8)


@pytest.mark.parametrize("name", ["FedAdam", "FedYogi", "FedAdagrad", "FedAvgM(server_momentum = 0.9)"])
def test_a_strategy_that_remembers_is_the_same_on_a_replay_and_in_any_branch(name: str) -> None:
    moves, start = rounds(5), np.ones(4)
    combine = combine_by(name)
    first = combined(combine, moves, start)
    again = combined(combine, moves, start)
    fresh = combined(combine_by(name), moves, start)
    assert np.array_equal(first, again)
    assert np.array_equal(first, fresh)
    # A round that is combined twice, as a fitting that is a value may be, remembers nothing of the first time.
    updates = {site: first[2] + move for site, move in moves[3].items()}
    for _ in range(3):
        assert np.array_equal(settled(combine(first[2], updates, SIZES)), first[3])


def test_memories_are_few_however_many_rounds_there_are() -> None:
    combine = combine_by("FedAdam")
    combined(combine, rounds(3 * KEPT), np.ones(4))
    assert len(combine._memories) == KEPT + 1


def test_a_combination_is_for_one_training() -> None:
    combine = combine_by("FedAdam")
    combined(combine, rounds(2), np.ones(4))
    with pytest.raises(QueryMistaken, match="make one for each training"):
        combined(combine, rounds(2), np.zeros(4))


# --- Poisoned sites ---------------------------------------------------------------------------------------

POISONS = {
    "huge": lambda honest: np.full_like(honest, 1e9),
    "sign-flipped": lambda honest: -20.0 * honest,
    "not a number": lambda honest: np.full_like(honest, np.nan),
    "infinite": lambda honest: np.full_like(honest, np.inf),
    "beyond doubles' squares": lambda honest: np.full_like(honest, -1e200),
}
ROBUST = (
    "FedMedian",
    "FedTrimmedAvg(beta = 0.3)",
    "Krum(num_malicious_nodes = 2)",
    "MultiKrum(num_malicious_nodes = 2, num_nodes_to_select = 3)",
)


def poisoned(moves: dict[str, np.ndarray], poison: str, sites: tuple[str, ...]) -> dict[str, np.ndarray]:
    return {site: POISONS[poison](move) if site in sites else move for site, move in moves.items()}


@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize("name", ROBUST)
def test_robust_strategies_stay_among_the_honest_sites(name: str, poison: str) -> None:
    (moves,) = rounds(1)
    honest = np.stack([move for site, move in moves.items() if site not in ("b", "e")])
    (found,) = combined(combine_by(name), [poisoned(moves, poison, ("b", "e"))], np.zeros(4))
    assert (found >= honest.min(axis=0) - 1e-9).all()
    assert (found <= honest.max(axis=0) + 1e-9).all()


@pytest.mark.parametrize("poison", ["huge", "sign-flipped"])
def test_fedavg_does_not_withstand_them(poison: str) -> None:
    (moves,) = rounds(1)
    honest = np.stack(list(moves.values()))
    (found,) = combined(combine_by("FedAvg"), [poisoned(moves, poison, ("b", "e"))], np.zeros(4))
    assert ((found < honest.min(axis=0)) | (found > honest.max(axis=0))).all()


def test_bulyan_withstands_one_of_seven() -> None:
    (moves,) = rounds(1)
    honest = np.stack([move for site, move in moves.items() if site != "b"])
    (found,) = combined(combine_by("bulyan(num_malicious_nodes = 1)"), [poisoned(moves, "huge", ("b",))], np.zeros(4))
    assert (found >= honest.min(axis=0)).all()
    assert (found <= honest.max(axis=0)).all()


def test_models_that_are_no_numbers_never_reach_a_strategy() -> None:
    (moves,) = rounds(1)
    kept = {site: move for site, move in moves.items() if site != "b"}
    (found,) = combined(combine_by("FedAvg"), [poisoned(moves, "not a number", ("b",))], np.zeros(4))
    np.testing.assert_allclose(found, mean_move(np.zeros(4), kept), rtol=1e-8)
    with pytest.raises(QueryMistaken, match="none of them is a model of finite numbers"):
        combined(combine_by("FedAvg"), [poisoned(moves, "infinite", tuple(moves))], np.zeros(4))


def seven_hospitals() -> People:
    draw = np.random.default_rng(3)
    inputs = draw.normal(0.0, 1.0, (7000, 3))
    chance = 1 / (1 + np.exp(-(inputs @ np.array([1.5, -1.0, 0.5]))))
    return people(inputs, (draw.random(7000) < chance).astype(np.float64), sites=7)


@pytest.mark.parametrize(
    ("name", "survives"), [("FedMedian", True), ("Krum(num_malicious_nodes = 2)", True), ("FedAvg", False)]
)
def test_a_training_with_two_of_seven_sites_flipped(name: str, survives: bool) -> None:
    """Whole trainings over decision 18's sums: two sites turn their models around before they are combined."""
    inner = combine_by(name)

    def lying(weights: np.ndarray, updates: dict[str, np.ndarray], examples: dict[str, float]) -> np.ndarray:
        told = {
            site: weights - 8.0 * (update - weights) if site in ("h01", "h04") else update
            for site, update in updates.items()
        }
        return inner(weights, told, examples)

    training = training_of(ModelKind.LOGISTIC, 3, by_site=True)
    fitted = train(training, study_of(3), seven_hospitals(), combine=lying).fitted()  # type: ignore[arg-type]
    truth = np.array([1.5, -1.0, 0.5])
    slopes = np.array([each.value for each in fitted.coefficients[1:]])
    assert bool(np.abs(slopes - truth).max() < 0.4) is survives


# --- What is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("fedadm", "there is no strategy 'fedadm' here; did you mean 'FedAdam'?"),
        ("QFedAvg", "there is no strategy 'QFedAvg' here; did you mean"),
        ("krum(nodes = 1)", "the strategy Krum has no option 'nodes' here; there is num_malicious_nodes."),
        ("krum(num_malicious_nodes = 1.5)", "must be a whole number, at least 0."),
        ("krum(num_malicious_nodes = -1)", "must be a whole number, at least 0."),
        ("fedadam(eta = nan)", "must be a finite number."),
        ("fedadam(eta = true)", "must be a finite number."),
        ("fedadam(eta = 'x')", "must be a finite number."),
        ("fedadam(fraction_train = 0.5)", "the strategy FedAdam has no option 'fraction_train' here;"),
        ("fedmedian(beta = 1)", "the strategy FedMedian has no option 'beta' here; it has none."),
        ("fedadam(eta 1)", "the options of a strategy are written as in krum(num_malicious_nodes = 1), not"),
        ("fedadam(", "a strategy is a name, with options in brackets after it, not 'fedadam('."),
        ("", "a strategy is a name"),
    ],
)
def test_a_strategy_that_cannot_be_is_one_sentence(name: str, sentence: str) -> None:
    with pytest.raises(QueryMistaken) as found:
        combine_named(name)
    assert sentence in found.value.message


def test_a_strategy_without_enough_sites_is_one_sentence() -> None:
    with pytest.raises(QueryMistaken) as found:
        combined(combine_by("Bulyan", num_malicious_nodes=1), rounds(1, sites=4), np.zeros(4))
    assert found.value.message == (
        "the strategy Bulyan cannot combine the models of 4 sites: it makes no model of so few. "
        "The rounds so far are kept and paid for."
    )


def test_a_strategy_that_raises_is_one_sentence() -> None:
    class Broken(FedAvg):
        def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> NoReturn:
            raise ValueError("the moon is full.\nTraceback follows")

    with pytest.raises(QueryMistaken) as found:
        combined(StrategyCombine(Broken(min_available_nodes=1)), rounds(1), np.zeros(4))
    assert "the strategy Broken cannot combine the models of 7 sites: the moon is full. The" in found.value.message
    with pytest.raises(QueryMistaken, match=r"FedTrimmedAvg cannot be made so: `beta` must be in the range"):
        combine_by("FedTrimmedAvg", beta=0.7)


def test_a_strategy_of_ones_own_can_combine() -> None:
    class Twice(FedAvg):
        def aggregate_train(
            self, server_round: int, replies: Iterable[Message]
        ) -> tuple[ArrayRecord | None, MetricRecord | None]:
            arrays, metrics = super().aggregate_train(server_round, replies)
            assert arrays is not None
            return ArrayRecord([2.0 * each for each in arrays.to_numpy_ndarrays()]), metrics

    (moves,) = rounds(1)
    (found,) = combined(StrategyCombine(Twice()), [moves], np.zeros(4))
    np.testing.assert_allclose(found, 2.0 * mean_move(np.zeros(4), moves), rtol=1e-8)


def test_a_result_that_is_not_finite_is_refused() -> None:
    with pytest.raises(QueryMistaken, match="what it made is not finite"):
        combined(combine_by("FedAdam", eta=1e300), rounds(1), np.zeros(4))
