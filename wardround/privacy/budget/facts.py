"""What a ledger stores as the reason of a charge: a closed list, each with its own price.

A cost is derived from a fact whenever it is needed, so a better price later tightens old entries, and an
entry that claims another cost than its facts is noticed.
"""

from typing import TypeAlias

from wardround.privacy.accounting.cost import Fact
from wardround.privacy.budget.training_charge import BlockFact, StepFact
from wardround.privacy.mechanisms.partition_selection import SelectionFact
from wardround.privacy.mechanisms.private_selection import ChoiceFact, Choosing
from wardround.privacy.noise.distribution import Mechanism

AnyFact: TypeAlias = Fact | SelectionFact | ChoiceFact | BlockFact | StepFact
"""A noised vector, the keys that pass a threshold, one choice, a whole training, or a further round of one."""

AnyMechanism: TypeAlias = Mechanism | Choosing
"""What a plan may name: a noise, or a way of choosing."""
