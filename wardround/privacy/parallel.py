"""Parallel composition over sites.

A patient's loss comes only from the sites that hold its rows: never from all of them, and
never from fewer than the study declared possible.
"""

from collections.abc import Iterable

from wardround.privacy.loss import Cost


def in_parallel(site_costs: Iterable[Cost], *, overlap: int) -> Cost:
    """The cost over all sites, for the patient it costs most.

    That patient is at the `overlap` dearest sites. Each component takes its own dearest sites,
    which bounds every patient at once (PROOFS.md#parallel).
    """
    if overlap < 1:
        raise ValueError(f"overlap must be at least 1, not {overlap}")
    costs = tuple(site_costs)
    return Cost(
        mu_squared=_dearest((cost.mu_squared for cost in costs), overlap),
        pure=_dearest((cost.pure for cost in costs), overlap),
        slack=_dearest((cost.slack for cost in costs), overlap),
    )


def _dearest(amounts: Iterable[int], overlap: int) -> int:
    return sum(sorted(amounts, reverse=True)[:overlap])
