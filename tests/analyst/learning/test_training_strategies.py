"""Combining the sites' models by a strategy: without Flower, as a training of its own, and when it fails."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from tests.analyst.learning.clinics import request, spent
from wardround.analyst.asking import named_strategy
from wardround.analyst.asking.named_strategy import combine_named
from wardround.federation.errors import ConfigurationMistaken, QueryMistaken
from wardround.simulation.federation import SimulatedFederation

SHORT = {"rounds": 3}


def test_the_sum_itself_needs_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wardround.analyst.flower.strategies", None)
    assert combine_named("fedavg") is None
    assert combine_named("FedAvg") is None
    with pytest.raises(ConfigurationMistaken) as found:
        combine_named("fedadam")
    assert found.value.message == (
        "the strategy 'fedadam' is one of Flower's, which is not installed; "
        "install it with pip install 'wardround[flower]', or use strategy = \"fedavg\"."
    )


def test_another_strategy_is_another_training(clinics: SimulatedFederation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under one name the second would go on with the first one's rounds, and be refused half-way."""

    def halved(weights: np.ndarray, updates: object, examples: object) -> np.ndarray:
        return weights / 2.0

    def kept(weights: np.ndarray, updates: object, examples: object) -> np.ndarray:
        return weights + 0.1

    monkeypatch.setattr(named_strategy, "combine_named", {"halved": halved, "kept": kept, "Kept ": kept}.get)
    first = clinics.client.train(request(**SHORT, strategy="halved"))
    assert "has already begun" not in str(clinics.client.preview_training(request(**SHORT, strategy="kept")))
    second = clinics.client.train(request(**SHORT, strategy="kept"))
    assert first.model_id != second.model_id
    assert second.privacy.spent.epsilon > first.privacy.spent.epsilon
    again = clinics.client.train(request(**SHORT, strategy="Kept "))
    assert again.model_id == second.model_id
    assert again.privacy.spent == second.privacy.spent


def test_a_strategy_that_fails_is_one_sentence_and_nothing_is_lost(
    clinics: SimulatedFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(weights: np.ndarray, updates: object, examples: object) -> np.ndarray:
        # Not of the zeros that it is tried on beforehand.
        if any(np.any(each) for each in updates.values()):  # type: ignore[attr-defined]
            raise QueryMistaken("the strategy 'broken' failed.")
        return weights

    monkeypatch.setattr(named_strategy, "combine_named", lambda name: broken)
    with pytest.raises(QueryMistaken, match="the strategy 'broken' failed"):
        clinics.client.train(request(**SHORT, strategy="broken"))
    assert spent(clinics) == pytest.approx(1.0, rel=1e-3)
    monkeypatch.setattr(named_strategy, "combine_named", lambda name: None)
    clinics.client.train(request(**SHORT, strategy="broken"))
    assert spent(clinics) == pytest.approx(1.0, rel=1e-3)


def test_a_strategy_for_more_sites_than_there_are_is_told_before_the_charge(clinics: SimulatedFederation) -> None:
    pytest.importorskip("flwr", reason="Flower is not installed here")
    with pytest.raises(QueryMistaken) as found:
        clinics.client.train(request(**SHORT, strategy="bulyan(num_malicious_nodes = 1)"))
    assert found.value.message.startswith("the strategy Bulyan cannot combine the models of ")
    assert found.value.message.endswith(". Nothing was charged.")
    assert spent(clinics) == 0.0
    for strategy in ("FedAvgM", "FedAdagrad", "FedAdam", "FedYogi", "FedMedian", "FedTrimmedAvg", "Krum", "MultiKrum"):
        assert clinics.client.preview_training(request(**SHORT, strategy=strategy))
