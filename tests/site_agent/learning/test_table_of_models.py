"""What a model is stands in its own file; everything else reads the table and knows none by name."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.architecture.rules import ROOT, SHIPPED
from wardround.federation.models import MODELS, definition_of
from wardround.federation.models.model_definition import ModelDefinition, TargetScale
from wardround.federation.models.training import Input, ModelKind

# The two that ask for one model of their own: the demonstration and the audit's worlds.
NAMING = {"wardround/cli/demo.py", "wardround/simulation/audit/training_runs.py"}
MODEL_FILES = "wardround/federation/models/"


def naming(member: str) -> set[str]:
    files = (path for root in SHIPPED for path in (ROOT / root).rglob("*.py"))
    return {str(path.relative_to(ROOT)) for path in files if re.search(member, path.read_text(encoding="utf-8"))}


def test_every_kind_of_model_is_in_the_table_once() -> None:
    assert [model.kind for model in MODELS] == list(ModelKind)
    assert all(definition_of(model.kind) is model for model in MODELS)


def test_nothing_outside_its_file_names_a_model() -> None:
    assert {path for path in naming(r"\bModelKind\.[A-Z]") if not path.startswith(MODEL_FILES)} == NAMING


@pytest.mark.parametrize("kind", list(ModelKind))
def test_a_model_is_named_by_its_own_file(kind: ModelKind) -> None:
    files = {Path(path).name for path in naming(rf"\bModelKind\.{kind.name}\b") if path.startswith(MODEL_FILES)}
    assert files == {f"{kind.value}.py"}


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.kind.value)
def test_a_residual_is_at_most_1_and_a_vector_of_its_own(model: ModelDefinition) -> None:
    # PROOFS.md needs the bound; a site multiplies the residual in place.
    score = np.array([-1e100, -3.0, 0.0, 0.25, 3.0, 1e100])
    high = 1.0 if model.scale is TargetScale.YES_OR_NO else 9.0
    for observed in (0.0, 0.5, 1.0, high):
        target = np.full_like(score, min(observed, 1.0) if model.scale is TargetScale.STANDARDISED else observed)
        found = model.residual(score, target, high)
        assert (np.abs(found) <= 1.0).all()
        assert not np.shares_memory(found, score)
        assert not np.shares_memory(found, target)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.kind.value)
def test_information_is_how_fast_the_mean_residual_changes(model: ModelDefinition) -> None:
    # Where nothing is cut: what is expected, on the residual's scale, differentiated.
    score, step, high = np.linspace(-2.0, 1.0, 7), 1e-6, 9.0
    family, _ = model.family(Input("y", "y", 0.0, high), None)
    unit = high if model.scale is TargetScale.IN_UNITS else 1.0
    slope = (model.expected(score + step, high) - model.expected(score - step, high)) / (2.0 * step * unit)
    np.testing.assert_allclose(family.information(score, 1.0), slope, rtol=1e-6)


def test_a_chance_is_one_half_where_scores_are_cut() -> None:
    binary = [model for model in MODELS if model.scale is TargetScale.YES_OR_NO]
    assert binary
    assert all(model.expected(np.zeros(1), 1.0)[0] == 0.5 for model in binary)
