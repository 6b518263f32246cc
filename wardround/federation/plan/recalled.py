"""What a site knows of one plan that a coordinator from a backup may have forgotten.

Everything in it is under somebody's signature: the site's own entries, the coordinator's receipt, the analyst's word.
The plan needs none, because its id is the hash of what it says.
"""

from __future__ import annotations

from dataclasses import dataclass

from wardround.federation.limits import PlanId
from wardround.federation.plan.plan import Plan
from wardround.federation.plan.task import Declined, Released
from wardround.federation.trust.asked_by import AskedBy
from wardround.federation.trust.entry import Entry


@dataclass(frozen=True, slots=True)
class Recalled:
    """A plan that a site charged, held or refused, with who asked it, what was answered, and the receipt for that.

    Without `charged` nothing was spent yet; without `plan` an earlier version of the site kept none.
    """

    plan_id: PlanId
    plan: Plan | None = None
    asked_by: AskedBy | None = None
    charged: Entry | None = None
    receipt: Entry | None = None
    answer: Released | Declined | None = None

    def fault(self) -> str | None:
        """Plan and answer are about the plan that is named."""
        others = (self.plan, self.answer)
        same = all(other is None or other.plan_id == self.plan_id for other in others)
        return None if same else "what is recalled is about another plan."
