"""What a hospital's policy is asked about a plan: the same two questions at the site that decides, and before it.

The site refuses by the answers. A coordinator, which knows the site's public limits, only foresees the refusal.
"""

from __future__ import annotations

from wardround.federation.models.training import Step
from wardround.federation.question.query import Query
from wardround.federation.trust.public_limits import TRAINING, PublicLimits
from wardround.privacy.accounting.cost import Cost
from wardround.privacy.budget.filter import is_within


def not_allowed(query: Query | Step, limits: PublicLimits) -> tuple[str, ...]:
    """What is asked for and not allowed, as site.toml would name it."""
    needed = (TRAINING,) if isinstance(query, Step) else [each.statistic.value for each in query.aggregates]
    return tuple(word for word in dict.fromkeys(needed) if word not in limits.statistics)


def affordable(cost: Cost, limits: PublicLimits) -> bool:
    """Whether one plan may cost so much; of a training the whole price counts, whichever of its rounds it is."""
    return is_within(cost, epsilon=limits.max_epsilon, delta=limits.delta)
