"""The library and the door: `import wardround` is the analyst's client.

    with wardround.connect("ada.profile") as federation:
        print(federation.ask("SELECT diagnosis, AVG(sbp) FROM encounters GROUP BY diagnosis", epsilon=0.5))

Names are loaded when they are first used, so that a site agent, which imports this package for the shared
words, never loads the analyst's side.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wardround.analyst.asking.builder import Draft, bins, month, query
    from wardround.analyst.asking.client import Client, connect
    from wardround.analyst.learning.model_store import StoredModel, load_model
    from wardround.analyst.learning.request import TrainingRequest, read_request
    from wardround.analyst.learning.trained_model import TrainingPreview, TrainingResult
    from wardround.analyst.showing.budget import BudgetResult
    from wardround.analyst.showing.result import PreviewResult, Result
    from wardround.analyst.sql.read import parse
    from wardround.federation.errors import (
        AwaitingApproval,
        BudgetExceeded,
        FederationError,
        Mistaken,
        QueryMistaken,
        Refused,
        Unavailable,
    )
    from wardround.federation.models.training import ModelKind
    from wardround.federation.question.answer import Estimate, Progress
    from wardround.federation.question.cohort import And, Between, Comparison, IsNull, Not, Operator, Or, Within
    from wardround.federation.question.query import Aggregate, Clip, GroupBy, Grouping, Query, Statistic
    from wardround.federation.study.study import Study

__all__ = [
    "Aggregate",
    "And",
    "AwaitingApproval",
    "Between",
    "BudgetExceeded",
    "BudgetResult",
    "Client",
    "Clip",
    "Comparison",
    "Draft",
    "Estimate",
    "FederationError",
    "GroupBy",
    "Grouping",
    "IsNull",
    "Mistaken",
    "ModelKind",
    "Not",
    "Operator",
    "Or",
    "PreviewResult",
    "Progress",
    "Query",
    "QueryMistaken",
    "Refused",
    "Result",
    "Statistic",
    "StoredModel",
    "Study",
    "TrainingPreview",
    "TrainingRequest",
    "TrainingResult",
    "Unavailable",
    "Within",
    "bins",
    "connect",
    "load_model",
    "month",
    "parse",
    "query",
    "read_request",
]

_HOMES = {
    "wardround.analyst.asking.builder": ("Draft", "bins", "month", "query"),
    "wardround.analyst.asking.client": ("Client", "connect"),
    "wardround.analyst.showing.budget": ("BudgetResult",),
    "wardround.analyst.learning.model_store": ("StoredModel", "load_model"),
    "wardround.analyst.learning.request": ("TrainingRequest", "read_request"),
    "wardround.analyst.learning.trained_model": ("TrainingPreview", "TrainingResult"),
    "wardround.analyst.showing.result": ("PreviewResult", "Result"),
    "wardround.analyst.sql.read": ("parse",),
    "wardround.federation.question.answer": ("Estimate", "Progress"),
    "wardround.federation.errors": (
        "AwaitingApproval",
        "BudgetExceeded",
        "FederationError",
        "GroupBy",
        "Grouping",
        "Mistaken",
        "QueryMistaken",
        "Refused",
        "Unavailable",
    ),
    "wardround.federation.question.cohort": (
        "And",
        "Between",
        "Comparison",
        "IsNull",
        "Not",
        "Operator",
        "Or",
        "Within",
    ),
    "wardround.federation.question.query": ("Aggregate", "Clip", "GroupBy", "Grouping", "Query", "Statistic"),
    "wardround.federation.study.study": ("Study",),
    "wardround.federation.models.training": ("ModelKind",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    found: object = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
