"""Whether a question is signed by the analyst who asks it: looked at before anything is charged or handed on.

A site looks again, against the key that it knows the analyst by; here a signature that no site would accept is told to
whoever made it. One that is missing is no fault: analysts of earlier versions do not sign.
"""

from __future__ import annotations

from wardround.federation import canonical
from wardround.federation.errors import MalformedMessage, QueryMistaken
from wardround.federation.plan.plan import Plan
from wardround.federation.trust.asked_by import AskedBy


def require_own(asked_by: AskedBy | None, *, analyst: str, plan: Plan) -> None:
    """Refuse a signature under another name than the caller's, or over anything but what the plan asks."""
    if asked_by is None:
        return
    if asked_by.analyst != analyst:
        raise MalformedMessage("a question is signed under another name than its caller's certificate has.")
    query = canonical.encode(plan.query)
    if not asked_by.covers(study_hash=plan.study_hash, query=query, nonce=plan.nonce):
        raise QueryMistaken(
            "the question's signature does not cover it as it would be asked of sites, and nothing was charged; "
            "bring wardround on this machine to the coordinator's version."
        )
