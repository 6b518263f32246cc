"""An answer as an analyst hears it: what was stored, with what is spent and left by now."""

from __future__ import annotations

from coordinator.accounts.accounting import Balances
from coordinator.rounds.stored_answers import StoredAnswer
from wardround.federation.errors import InvariantBroken
from wardround.federation.plan.plan import Plan
from wardround.federation.question.answer import Answer, DearerNoise, Loss, PrivacyStatement
from wardround.federation.study.study import Study


def told(
    plan: Plan,
    stored: StoredAnswer,
    now: Balances,
    study: Study,
    *,
    delta: float,
    replayed: bool,
    dearer: DearerNoise | None,
) -> Answer:
    """The answer of a plan."""
    if stored.mechanism != plan.mechanism.value:
        raise InvariantBroken(private="a stored answer was made by another plan")
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
