"""The words of a training, and one file a model; the table of them that everything else reads."""

from __future__ import annotations

from wardround.federation.models import linear, logistic, perceptron, poisson
from wardround.federation.models.model_definition import ModelDefinition
from wardround.federation.models.training import ModelKind

MODELS = (
    linear.MODEL,
    logistic.MODEL,
    poisson.MODEL,
    perceptron.MODEL,
)
_BY_KIND = {model.kind: model for model in MODELS}


def definition_of(kind: ModelKind) -> ModelDefinition:
    """What there is to know about a model of this kind."""
    return _BY_KIND[kind]
