"""The same app, the same noise: in one process, and over loopback gRPC with mutual TLS, to the last bit."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'wardround[flower]'")

from flwr.serverapp.strategy import FedAdam

from site_agent.serving.folder import open_folder
from site_agent.serving.serve import make_agent
from site_agent.store.ledger import SiteLedger
from tests.analyst.flower.apps import app_of
from tests.integration.building import build
from tests.integration.stage import Federation, closing
from tests.integration.terms import Terms, rows_of
from wardround.analyst.asking.client import connect
from wardround.analyst.flower.run_app import AppResult, run_app
from wardround.analyst.learning.request import TrainingRequest
from wardround.federation.models.training import ModelKind
from wardround.federation.study.study_file import parse_study
from wardround.simulation.federation import SimulatedFederation, SimulatedSite
from wardround.simulation.noise import SeededNoise
from wardround.simulation.sites import find_sites

# No deadline that a busy machine could pass: a round without one of the sites is another model.
TERMS = Terms(epsilon=10.0, sites=("two", "three", "four"), min_sites=2, deadline_seconds=600.0)
# Nobody is held out: who is depends on a key that each hospital keeps to itself.
REQUEST = TrainingRequest(
    ModelKind.LOGISTIC, "encounters", "diagnosis", ("age", "sbp"), 1.0, rounds=4, validation_fraction=0.0
)


def seeded(site: str) -> SeededNoise:
    return SeededNoise(sum(site.encode()))


@contextlib.contextmanager
def serving(federation: Federation, site: str) -> Iterator[None]:
    """A site's agent over gRPC in a thread of this process, so that its noise can be seeded."""
    folder = open_folder(federation.site(site))
    ledger = SiteLedger(folder.ledger, identity=folder.identity())
    agent = make_agent(folder, ledger, noise=seeded(site))
    thread = threading.Thread(target=agent.serve)
    thread.start()
    try:
        yield
    finally:
        agent.stop()
        thread.join(120.0)
        assert not thread.is_alive()
        ledger.close()


def in_process(folder: Path) -> tuple[AppResult, np.ndarray]:
    for site in TERMS.sites:
        (folder / "tables" / site).mkdir(parents=True)
        (folder / "tables" / site / "encounters.csv").write_text(rows_of(site), encoding="utf-8")
    study = parse_study(TERMS.study())
    datasets = find_sites(folder / "tables", study)
    sites = {name: SimulatedSite(dataset, 1000, noise=seeded(name)) for name, dataset in datasets.items()}
    (folder / "simulated").mkdir()
    found = SimulatedFederation(study, sites, folder=folder / "simulated")
    app, kept = app_of(FedAdam, size=3)
    result = run_app(app, found.client, REQUEST)
    found.close()
    return result, kept.weights


def over_grpc(folder: Path) -> tuple[AppResult, np.ndarray]:
    build(folder / "federation", TERMS)
    app, kept = app_of(FedAdam, size=3)
    with closing(Federation(folder / "federation", TERMS)) as federation, contextlib.ExitStack() as stack:
        federation.start_coordinator()
        for site in TERMS.sites:
            stack.enter_context(serving(federation, site))
        with connect(federation.profile()) as client:
            result = run_app(app, client, REQUEST)
    return result, kept.weights


def test_an_app_comes_to_the_same_model_in_process_and_over_grpc(tmp_path: Path) -> None:
    (simulated, first), (remote, second) = in_process(tmp_path), over_grpc(tmp_path)
    assert np.array_equal(first, second)
    assert [answer.plan_id for answer in simulated.answers] == [answer.plan_id for answer in remote.answers]
    assert simulated.model_id == remote.model_id
    assert simulated.privacy.charged == remote.privacy.charged
    assert remote.answers[-1].answered == tuple(sorted(TERMS.sites))
