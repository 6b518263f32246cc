"""Canonical bytes, which are signed and hashed: of studies, plans and tasks, and of who asked."""

from __future__ import annotations

from collections.abc import Iterator

from tests.recorded.questions import STUDY
from tests.recorded.recording import Json
from tests.recorded.spoken import ASKED_BY, PLANS, SIGNED, TASKS
from wardround.federation import canonical
from wardround.federation.study.study_file import parse_study

_EVERYTHING = """
name = "everything"
unit = "event"
overlap = 2
min_sites = 3
deadline_seconds = 90
approval_seconds = 3600
[budget]
epsilon = 3.0
delta = 1e-6
pure_epsilon = 0.5
[[groups]]
sites = ["north", "south"]
overlap = 2
[tables.stays]
unit_key = "pid"
max_rows_per_unit = 3
[tables.stays.columns]
cost = { type = "number", lower = 0, upper = 1000, step = 1, default = 7 }
code = { type = "category" }
"""


def documents() -> Iterator[tuple[str, Json]]:
    for title, text in (("questions", STUDY.replace("{pure}", "")), ("everything", _EVERYTHING)):
        study = parse_study(text)
        yield f"study {title}", [study.study_hash, canonical.encode(study).decode("ascii")]
    for place, plan in enumerate(PLANS):
        yield f"plan {place}", [plan.plan_id, plan.encoding.decode("ascii")]
    for place, signed in enumerate(TASKS):
        yield f"task {place}", signed.task.encode().decode("ascii")
    for place, asked in enumerate(ASKED_BY):
        plan = PLANS[place % 2]
        message = asked.message(plan.study_hash, canonical.encode(plan.query), plan.nonce)
        yield f"asked by {place}", [canonical.digest(asked), canonical.encode(asked).decode("ascii")]
        yield f"asked by {place}, signed", message.decode("ascii")
    for place, signed in enumerate(SIGNED):
        yield f"stored task {place}", canonical.encode(signed).decode("ascii")
