"""An answer as an analyst hears it: what was stored, with what is spent and left by now."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping

from coordinator.accounts.accounting import Balances
from coordinator.rounds.stored_answers import StoredAnswer
from wardround.federation.errors import InvariantBroken
from wardround.federation.plan.plan import Plan
from wardround.federation.question.answer import Answer, DearerNoise, Loss, PrivacyStatement
from wardround.federation.study.study import Study

_REMEMBERED = 10_000


def told_answer(
    plan: Plan,
    stored: StoredAnswer,
    now: Balances,
    study: Study,
    *,
    delta: float,
    replayed: bool,
    dearer: DearerNoise | None,
    patients: Mapping[str, int],
) -> Answer:
    """The answer of a plan; `patients` are the numbers that sites declared."""
    if stored.mechanism != plan.mechanism.value:
        raise InvariantBroken(private="a stored answer was made by another plan")
    lacking = sorted(set(plan.participants) - set(stored.outcome.answered))
    return Answer(
        plan_id=plan.plan_id,
        unit=study.unit.value,
        replayed=replayed,
        noiseless=stored.noiseless,
        answered=stored.outcome.answered,
        refused=stored.outcome.refused,
        missing=stored.outcome.missing,
        estimates=stored.estimates,
        privacy=statement(
            now,
            mechanism=stored.mechanism,
            cost=stored.charged,
            overlap=stored.overlap,
            composition=stored.composition,
            delta=delta,
        ),
        left_out=stored.left_out,
        dearer=dearer,
        asked_patients=sum(patients[site] for site in plan.participants) if lacking else None,
        lacking_patients=sum(patients[site] for site in lacking) if lacking else None,
    )


def statement(
    now: Balances, *, mechanism: str, cost: Loss, overlap: int, composition: str, delta: float
) -> PrivacyStatement:
    """What a plan costs, and what is spent and left now."""
    return PrivacyStatement(
        mechanism=mechanism,
        charged=cost,
        spent=now.spent(),
        remaining=now.remaining(delta=delta),
        overlap=overlap,
        composition=composition,
    )


class Replays:
    """Whether the stored answer was there when an analyst asked; only for show, so only in memory."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._asked: OrderedDict[tuple[str, str], bool] = OrderedDict()

    def note(self, analyst: str, plan_id: str, *, replayed: bool) -> None:
        with self._guard:
            self._asked[analyst, plan_id] = replayed
            self._asked.move_to_end((analyst, plan_id))
            if len(self._asked) > _REMEMBERED:
                self._asked.popitem(last=False)

    def replayed(self, analyst: str, plan_id: str, *, otherwise: bool) -> bool:
        with self._guard:
            return self._asked.get((analyst, plan_id), otherwise)
