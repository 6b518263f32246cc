"""Why a site refuses a plan: a closed list of public reasons, the only words of a refusal that leave the hospital.

Each of them follows from the plan, the study, site.toml, the ledger, a schema or a person's decision, and none from a
row. A table that closed because a row could not be read is not among them: to analysts its site is away.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class RefusalReason(StrEnum):
    """The code that a site signs; what is stored and sent is this text, so it never changes."""

    PLAN = "PlanRefused"
    STATISTIC = "StatisticNotAllowed"
    TRAINING = "TrainingNotAllowed"
    EPSILON = "EpsilonTooLarge"
    COMPANY = "TooFewParticipants"
    MEMORY = "TooMuchMemory"
    SCHEMA = "SchemaRefused"
    OWN_BUDGET = "BudgetExceeded"
    DENIED = "ApprovalDenied"
    SIGNATURE = "SignatureNotValid"
    ANALYST = "AnalystNotAllowed"

    @property
    def words(self) -> str:
        """The reason as a person says it, about a hospital that was named before."""
        return _WORDS[self]


_WORDS = {
    # Earlier versions had this one code for all that a policy says.
    RefusalReason.PLAN: "its policy does not allow the plan, or the plan does not fit the study",
    RefusalReason.STATISTIC: "it does not allow this statistic",
    RefusalReason.TRAINING: "it does not allow models to be trained",
    RefusalReason.EPSILON: "it allows a smaller ε a question",
    RefusalReason.COMPANY: "it takes part only where more hospitals are asked",
    RefusalReason.MEMORY: "the question could take more memory than it gives to one",
    RefusalReason.SCHEMA: "its table does not have the columns or types that the study describes",
    RefusalReason.OWN_BUDGET: "its own budget does not allow the question",
    RefusalReason.DENIED: "a person there declined it",
    RefusalReason.SIGNATURE: "the analyst's signature does not cover the question, or not at its price",
    RefusalReason.ANALYST: "it does not answer this analyst",
}


def refusal_words(code: str) -> str:
    """The words of a refusal's code; a code that only a later version knows stands for itself."""
    return RefusalReason(code).words if code in set(RefusalReason) else code


def refusal_texts(refused: Iterable[tuple[str, str]]) -> list[str]:
    """Who refused, each with the words of its code."""
    return [f"{site} ({refusal_words(code)})" for site, code in refused]
