"""A model is added to a copy of the tree by the four files that ARCHITECTURE.md names, and trained end to end."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from tests.architecture.copied_tree import changed_copy, run
from tests.architecture.rules import ROOT

MODELS = "wardround/federation/models"
ADDED = f"{MODELS}/cauchit.py"

# A chance whose slope falls slowly on both sides, so that outcomes far from what was expected pull little.
CAUCHIT = '''\
"""Cauchit regression: the chance of a yes is Cauchy's distribution function of a linear score."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from wardround.federation.models.model_definition import Family, ModelDefinition, TargetScale, yes_or_no
from wardround.federation.models.training import Input, ModelKind, Vector


def _chance(score: Vector, high: float) -> Vector:
    del high
    return 0.5 + np.arctan(score) / np.pi


def _residual(score: Vector, target: Vector, high: float) -> Vector:
    return _chance(score, high) - target


class CauchitFamily:
    """Outcomes yes or no; the residual is the chance minus the outcome."""

    def mean_residual(self, score: Vector, limit: float) -> Vector:
        yes, no = _chance(score, 1.0), _chance(-score, 1.0)
        return no * np.minimum(yes, limit) - yes * np.minimum(no, limit)

    def information(self, score: Vector, limit: float) -> Vector:
        kept = np.minimum(_chance(score, 1.0), limit) + np.minimum(_chance(-score, 1.0), limit)
        slope: Vector = kept / (np.pi * (1.0 + np.square(score)))
        return slope

    def square(self, score: Vector, limit: float) -> Vector:
        yes, no = _chance(score, 1.0), _chance(-score, 1.0)
        return no * np.square(np.minimum(yes, limit)) + yes * np.square(np.minimum(no, limit))


def _family(target: Input, released: tuple[float, float] | None) -> tuple[Family, float]:
    del target, released
    return CauchitFamily(), 0.0


MODEL = ModelDefinition(
    kind=ModelKind.CAUCHIT,
    target=yes_or_no,
    scale=TargetScale.YES_OR_NO,
    expected=_chance,
    residual=_residual,
    family=_family,
    moments_share=Fraction(1, 20),
    clip=0.5,
)
'''
# One line each, and where it goes.
LINES = (
    (f"{MODELS}/__init__.py", "import linear, logistic", "import cauchit, linear, logistic"),
    (f"{MODELS}/__init__.py", "    perceptron.MODEL,\n", "    perceptron.MODEL,\n    cauchit.MODEL,\n"),
    (
        f"{MODELS}/training.py",
        '    PERCEPTRON = "perceptron"\n',
        '    PERCEPTRON = "perceptron"\n    CAUCHIT = "cauchit"\n',
    ),
    (
        "protos/plan.proto",
        "  MODEL_KIND_PERCEPTRON = 4;\n",
        "  MODEL_KIND_PERCEPTRON = 4;\n  MODEL_KIND_CAUCHIT = 5;\n",
    ),
)
TOUCHED = {name for name, _, _ in LINES}

TRAINING = """\
import json, pathlib, sys

from protos.words import STEP
from tests.analyst.learning.clinics import SIZES, federation, patients, request, study, write
from wardround import QueryMistaken, load_model
from wardround.federation.ledger.verify.verify import verify
from wardround.federation.models.training import Step
from wardround.simulation.sites import find_sites

folder = pathlib.Path(sys.argv[1])
found = federation(folder / "federation", find_sites(write(folder / "tables"), study()))
asked = request(kind="cauchit", validation_fraction=0.25)
preview = found.client.preview_training(asked)
result = found.client.train(asked).save(folder / "model")
step = Step(result.trained.beginning.outline.training, 0, 0)
try:
    found.client.train(request(kind="cauchit", target="stay"))
    refused = ""
except QueryMistaken as mistake:
    refused = mistake.message
everybody = {row["patient_id"]: row for site, number in SIZES.items() for row in patients(site, number)}.values()
columns = {name: [row[name] for row in everybody] for name in asked.features}
whole = found.client.train(request(kind="cauchit", validation_fraction=0.0, clip=1.0, rounds=12))
excess = whole.predict(columns) - [row["readmitted"] == "true" for row in everybody]
ages = [(float(row["age"]) - 62) / 14 for row in everybody]
found.close()
rows = {"age": [62, 85], "sbp": [125.0, 125.0], "sex": ["F", "F"], "smoker": [False, False]}
print(json.dumps({
    "trained": result.document(),
    "previewed": preview.document(),
    "predicted": load_model(folder / "model").predict(rows).tolist(),
    "excess": [float(excess.mean()), float((excess * ages).mean())],
    "travelled": STEP.decode(STEP.encode(step)) == step,
    "refused": refused,
    "problems": [len(verify(folder / "federation" / site).problems) for site in ("", *SIZES)],
}))
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree with one model more."""
    folder = tmp_path_factory.mktemp("tree")
    return changed_copy(folder, added={ADDED: CAUCHIT}, lines=LINES, beside=("tests/analyst/learning",))


def test_the_architecture_names_the_files_that_a_new_model_takes() -> None:
    (row,) = re.findall(r"(?m)^\| model \| .*$", (ROOT / "ARCHITECTURE.md").read_text("utf-8"))
    named = set(re.findall(r"`(\w[\w/]+\.(?:py|proto))`", row))
    assert named == {f"{MODELS}/poisson.py", *TOUCHED}
    assert len({ADDED, *TOUCHED}) == 4


def test_a_new_model_is_trained_kept_and_used_end_to_end(tree: Path, tmp_path: Path) -> None:
    found = json.loads(run(tree, "-c", TRAINING, str(tmp_path)))
    trained = found["trained"]
    assert trained["kind"] == found["previewed"]["kind"] == "cauchit"
    assert found["travelled"]
    assert found["problems"] == [0] * 5
    assert found["refused"].startswith("the target of a cauchit model must be yes or no")
    metrics = {each["name"]: each["value"] for each in trained["metrics"]}
    assert metrics["auc"] > 0.7
    assert abs(metrics["calibration"]) < 0.05
    # Where it ends, its own residuals of those it learnt from cancel, also along an input: they were its gradient.
    assert found["excess"] == pytest.approx([0.0, 0.0], abs=0.001)
    # Without noise: what it expects is its own function of its own coefficients.
    effects = {each["name"]: each["value"] for each in trained["coefficients"]}
    for age, chance in zip((62, 85), found["predicted"], strict=True):
        score = effects["(intercept)"] + effects["age"] * age + effects["sbp"] * 125
        assert chance == pytest.approx(0.5 + math.atan(score) / math.pi, abs=0.01)
    assert found["predicted"][1] > found["predicted"][0] + 0.1
