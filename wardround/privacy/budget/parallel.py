"""Parallel composition over sites.

A patient's loss comes only from the sites that hold its rows: never from all of them, and
never from fewer than the study declared possible.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from wardround.privacy.accounting.cost import Cost


@dataclass(frozen=True, slots=True)
class Group:
    """Sites that share patients: each of their patients is at no more than `overlap` of them, and nowhere else."""

    sites: tuple[str, ...]
    overlap: int


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


def groups_among(sites: Iterable[str], *, declared: Iterable[Group], overlap: int | None) -> tuple[Group, ...]:
    """Every one of `sites` in a group: the declared ones, and one of all others under `overlap`.

    Without an overlap a patient of the others may be at all of them, which is the strictest reading.
    """
    present, promised = sorted(set(sites)), tuple(declared)
    named = {site for group in promised for site in group.sites}
    others = tuple(site for site in present if site not in named)
    members = [(tuple(site for site in group.sites if site in present), group.overlap) for group in promised]
    members.append((others, len(others) if overlap is None else overlap))
    return tuple(Group(inside, min(limit, len(inside))) for inside, limit in members if inside)


def over_groups(site_costs: Mapping[str, Cost], groups: Iterable[Group]) -> Cost:
    """The cost for the patient it costs most, when every patient belongs to one of the groups.

    The dearest group in each component; a site outside every group would be free, so there must be none.
    """
    found = tuple(groups)
    outside = set(site_costs) - {site for group in found for site in group.sites}
    if outside:
        raise ValueError(f"every site must be in a group; outside: {', '.join(sorted(outside))}")
    costs = [
        in_parallel((site_costs[site] for site in group.sites if site in site_costs), overlap=group.overlap)
        for group in found
    ]
    return Cost(
        mu_squared=max((cost.mu_squared for cost in costs), default=0),
        pure=max((cost.pure for cost in costs), default=0),
        slack=max((cost.slack for cost in costs), default=0),
    )


def in_one_sum(cost: Cost, *, sites: int) -> Cost:
    """The cost of one noised total for a patient whose rows are at `sites` of its sites.

    The shifts add up before the one noise: sites times the distance, so its square for squared mu
    (PROOFS.md#one-sum).
    """
    if sites < 1:
        raise ValueError(f"a patient is at one site at least, not {sites}")
    return Cost(mu_squared=sites**2 * cost.mu_squared, pure=sites * cost.pure, slack=sites * cost.slack)


def _dearest(amounts: Iterable[int], overlap: int) -> int:
    return sum(sorted(amounts, reverse=True)[:overlap])
