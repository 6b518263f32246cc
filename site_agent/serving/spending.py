"""How what was spent stands to what site.toml allows, in words."""

from __future__ import annotations

from wardround.privacy.accounting.cost import Cost
from wardround.privacy.budget.filter import Cap, epsilon_charged, epsilon_spent


def spending(spent: Cost, cap: Cap) -> tuple[bool, str]:
    """Whether more may be spent at all, and what was.

    A cap that was lowered undoes nothing. As long as either lane is above what it allows now, the two together are
    bounded by no cap, so nothing more is spent in any.
    """
    text, allowance = f"spent ε = {epsilon_spent(spent, cap):.3g} of {cap.epsilon:g}", cap.allowance()
    if spent.fits(allowance):
        return True, text
    lanes = []
    if spent.mu_squared > allowance.mu_squared:
        gaussian = epsilon_charged(Cost(spent.mu_squared, 0, 0), delta=cap.delta)
        lanes.append(f"ε = {gaussian:.3g} under Gaussian noise, where {cap.epsilon - cap.pure_epsilon:g} is allowed")
    if spent.pure > allowance.pure:
        pure = epsilon_charged(Cost(0, spent.pure, 0), delta=cap.delta)
        lanes.append(f"ε = {pure:.3g} under Laplace noise, where {cap.pure_epsilon:g} is allowed")
    if spent.slack > allowance.slack:
        lanes.append("more of δ than is allowed")
    return False, f"{text}: {' and '.join(lanes)}; nothing more is answered until site.toml allows as much as was spent"
