"""The page that says when not to use wardround shows what dry runs compute, and dry runs what answers then have."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

from tests.docs.pages import ROOT, prose
from tools.when_not import EPSILONS, HOSPITALS, MEASURES, STUDY, SURE, expected, federation, tables
from wardround import ModelKind, TrainingRequest
from wardround.simulation import SimulatedFederation, SimulatedSite, find_sites, parse_study
from wardround.simulation.noise import SeededNoise

PAGE = ROOT / "docs" / "when-not.md"
TEXT = PAGE.read_text("utf-8")


def test_the_page_shows_the_tables_that_the_command_prints() -> None:
    made = list(tables())
    assert re.findall(r"(?m)(?:^\|.*\n)+", TEXT) == [f"{table}\n" for table in made]
    cells = re.findall(r"± [\d.]+", "\n".join(made))
    limits = [f"± {measure.useful:g}" for measure in MEASURES]
    told = re.findall(r"± [\d.]*\d", re.sub(r"(?m)^\|.*$", "", TEXT))
    assert len(told) > 5
    assert set(told) <= {*cells, *limits}


@pytest.mark.parametrize("hospitals", HOSPITALS)
def test_the_rule_of_thumb_keeps_a_count_within_five_per_cent(hospitals: int) -> None:
    assert "200 × √hospitals ÷ ε" in TEXT
    with federation(hospitals, 10_000) as client:
        for epsilon in EPSILONS:
            patients = 200 * math.sqrt(hospitals) / epsilon
            assert 0.03 < expected(client, "COUNT(DISTINCT patient_id)", epsilon) / patients < 0.05
    assert f"{200 * math.sqrt(20) / 0.3:,.0f} with 20 hospitals and ε = 0.3" in " ".join(prose(PAGE).split())


def test_an_answer_has_the_error_that_the_tables_say(tmp_path: Path) -> None:
    """Five hospitals with 10,000 patients between them, really asked and trained, with noise of the right law."""
    study, draw = parse_study(STUDY), np.random.default_rng(7)
    for number in range(5):
        home = tmp_path / "tables" / f"hospital-{number}"
        home.mkdir(parents=True)
        # Scores of the two outcomes are normal and apart so that the best model has an AUC of 0.75.
        died = draw.random(2000) < 0.3
        sbp = (130 + 10 * (draw.normal(0, 1, 2000) + 0.9539 * died)).clip(80, 200)
        rows = [f"{patient},{sbp[patient]:.1f},true,9,{died[patient]}" for patient in range(2000)]
        (home / "patients.csv").write_text("\n".join(["patient_id,sbp,smoker,months,died", *rows]), "utf-8")
    found = find_sites(tmp_path / "tables", study)
    sites = {
        name: SimulatedSite(dataset, 2000, SeededNoise(seed)) for seed, (name, dataset) in enumerate(found.items())
    }
    (tmp_path / "ledgers").mkdir()
    federated = SimulatedFederation(study, sites, folder=tmp_path / "ledgers")
    (mean,) = federated.client.ask("SELECT AVG(sbp) FROM patients", epsilon=0.3)
    request = TrainingRequest(ModelKind.LOGISTIC, "patients", "died", ("sbp",), 3.0, validation_fraction=0.2)
    auc = federated.client.train(request).trained.fitted.metrics[0]
    federated.close()
    with federation(5, 10_000) as client:
        assert mean.standard_error is not None
        assert auc.standard_error is not None
        # Pressures lie near the middle of their bounds, where the interval is narrowest.
        assert 0.7 < SURE * mean.standard_error / MEASURES[2].half_width(client, 5, 10_000, 0.3) < 0.73
        assert SURE * auc.standard_error == pytest.approx(MEASURES[4].half_width(client, 5, 10_000, 3.0), rel=0.15)
        assert auc.value == pytest.approx(0.75, abs=0.05)
