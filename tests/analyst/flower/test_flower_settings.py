"""Settings that an app sends to sites have no effect here, and that is said once, by name."""

from __future__ import annotations

import logging

import numpy as np
import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'wardround[flower]'")

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from tests.analyst.flower.apps import app_of
from tests.analyst.learning.clinics import request
from wardround.analyst.flower.run_app import grid_over, run_app
from wardround.simulation.federation import SimulatedFederation

SHORT = request(rounds=3)
SECRET = 0.123456


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "wardround.flower"]


def app_with(**settings: float) -> ServerApp:
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        del context
        first = ArrayRecord([np.zeros(5)])
        for_training, for_scores = ConfigRecord(dict(settings)), ConfigRecord({"batch-size": 8})
        FedAvg().start(grid, first, num_rounds=2, train_config=for_training, evaluate_config=for_scores)

    return app


def test_an_app_is_told_once_which_settings_have_no_effect(
    clinics: SimulatedFederation, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        result = run_app(app_with(lr=SECRET, epochs=3), clinics.client, SHORT)
    assert told(caplog) == [
        "Sites read no settings of an app, so these have no effect: lr, epochs. The request decides.",
        "Sites read no settings of an app, so these have no effect: batch-size. The request decides.",
    ]
    assert result.notes == (
        "Sites read no settings of an app, so these have no effect: lr, epochs, batch-size. The request decides.",
    )
    assert str(SECRET) not in caplog.text


def test_what_flower_sends_by_itself_is_no_setting(
    clinics: SimulatedFederation, caplog: pytest.LogCaptureFixture
) -> None:
    app, _ = app_of(FedAvg, size=5)
    with caplog.at_level(logging.WARNING):
        result = run_app(app, clinics.client, SHORT)
    assert (told(caplog), result.notes) == ([], ())


def test_settings_beside_a_message_to_one_site_are_named_too(
    clinics: SimulatedFederation, caplog: pytest.LogCaptureFixture
) -> None:
    grid = grid_over(clinics.client, SHORT)
    records = [RecordDict({"arrays": ArrayRecord([np.zeros(5)])}) for _ in grid.get_node_ids()]
    records[-1]["mine"] = ConfigRecord({"dropout": SECRET})
    sent = [Message(record, place, "train") for record, place in zip(records, grid.get_node_ids(), strict=True)]
    with caplog.at_level(logging.WARNING):
        replies = list(grid.send_and_receive(sent))
    assert all(each.has_content() for each in replies)
    assert (grid.unread, len(told(caplog))) == (("dropout",), 1)
