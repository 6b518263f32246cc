"""Parallel composition: the dearest sites of one patient, and never fewer than declared."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wardround.privacy.accounting.cost import Cost
from wardround.privacy.budget.parallel import Group, groups_among, in_one_sum, in_parallel, over_groups

AMOUNTS = st.integers(min_value=0, max_value=2**60)
COSTS = st.builds(Cost, AMOUNTS, AMOUNTS, AMOUNTS)


def test_ten_disjoint_hospitals_cost_as_much_as_one() -> None:
    site = Cost(mu_squared=7, pure=3, slack=1)
    assert in_parallel([site] * 10, overlap=1) == site


def test_five_serial_questions_cost_five_times_five_parallel_ones() -> None:
    question = Cost(mu_squared=7, pure=3, slack=1)
    serial = in_parallel([sum([question] * 5, start=Cost.zero())], overlap=1)
    parallel = in_parallel([question] * 5, overlap=1)
    assert serial == sum([parallel] * 5, start=Cost.zero())


def test_a_patient_at_two_sites_pays_the_two_dearest() -> None:
    sites = [Cost(1, 0, 0), Cost(10, 0, 0), Cost(100, 0, 0)]
    assert in_parallel(sites, overlap=2) == Cost(110, 0, 0)


def test_each_component_takes_its_own_dearest_sites() -> None:
    assert in_parallel([Cost(9, 0, 1), Cost(0, 9, 2)], overlap=1) == Cost(9, 9, 2)


@given(sites=st.lists(COSTS, max_size=6), overlap=st.integers(min_value=1, max_value=8))
def test_no_patient_pays_more_than_the_parallel_cost(sites: list[Cost], overlap: int) -> None:
    bound = in_parallel(sites, overlap=overlap)
    for size in range(min(overlap, len(sites)) + 1):
        for held_by in itertools.combinations(sites, size):
            assert sum(held_by, start=Cost.zero()).fits(bound)


@given(sites=st.lists(COSTS, max_size=6), overlap=st.integers(min_value=1, max_value=8))
def test_a_wider_overlap_never_costs_less(sites: list[Cost], overlap: int) -> None:
    assert in_parallel(sites, overlap=overlap).fits(in_parallel(sites, overlap=overlap + 1))


@given(sites=st.permutations([Cost(1, 8, 0), Cost(2, 4, 0), Cost(4, 2, 1), Cost(8, 1, 2)]))
def test_the_order_of_sites_never_matters(sites: list[Cost]) -> None:
    assert in_parallel(sites, overlap=2) == Cost(12, 12, 3)


@given(sites=st.lists(COSTS, max_size=5), more=COSTS, overlap=st.integers(min_value=1, max_value=6))
def test_one_more_site_never_costs_less(sites: list[Cost], more: Cost, overlap: int) -> None:
    assert in_parallel(sites, overlap=overlap).fits(in_parallel([*sites, more], overlap=overlap))


@given(before=st.lists(COSTS, min_size=1, max_size=5), asked=COSTS, overlap=st.integers(min_value=1, max_value=6))
def test_asking_every_site_costs_at_most_overlap_times_more(before: list[Cost], asked: Cost, overlap: int) -> None:
    after = in_parallel([cost + asked for cost in before], overlap=overlap)
    assert after.fits(in_parallel(before, overlap=overlap) + sum([asked] * overlap, start=Cost.zero()))


def test_no_sites_cost_nothing() -> None:
    assert in_parallel([], overlap=3) == Cost.zero()


@pytest.mark.parametrize("overlap", [0, -1])
def test_an_overlap_below_one_is_refused(overlap: int) -> None:
    with pytest.raises(ValueError, match="overlap must be at least 1"):
        in_parallel([], overlap=overlap)


# --- Groups of sites that share patients -------------------------------------------------------------------

NAMES = ("a", "b", "c", "d", "e")


@st.composite
def sharings(draw: st.DrawFn) -> tuple[dict[str, Cost], tuple[Group, ...], int | None]:
    spent = {name: draw(COSTS) for name in NAMES}
    cut = draw(st.integers(0, 5))
    declared = (Group(NAMES[:cut], draw(st.integers(1, cut))),) if cut else ()
    return spent, declared, draw(st.one_of(st.none(), st.integers(1, 5)))


@given(sharings())
def test_no_patient_of_any_group_pays_more_than_the_cost_over_groups(
    sharing: tuple[dict[str, Cost], tuple[Group, ...], int | None],
) -> None:
    spent, declared, overlap = sharing
    groups = groups_among(spent, declared=declared, overlap=overlap)
    bound = over_groups(spent, groups)
    for group in groups:
        for patient in itertools.combinations(group.sites, group.overlap):
            assert sum((spent[site] for site in patient), start=Cost.zero()).fits(bound)


@given(sharings())
def test_groups_never_cost_more_than_one_group_of_all_with_the_widest_overlap(
    sharing: tuple[dict[str, Cost], tuple[Group, ...], int | None],
) -> None:
    spent, declared, overlap = sharing
    groups = groups_among(spent, declared=declared, overlap=overlap)
    widest = max(group.overlap for group in groups)
    assert over_groups(spent, groups).fits(in_parallel(spent.values(), overlap=widest))


def test_the_example_of_three_shared_hospitals_and_a_pair() -> None:
    spent = {name: Cost(10 * (place + 1), 0, 1) for place, name in enumerate(NAMES)}
    groups = groups_among(spent, declared=[Group(("a", "b", "c"), 2)], overlap=1)
    assert over_groups(spent, groups) == Cost(50, 0, 2)
    assert over_groups(spent, groups_among(spent, declared=[], overlap=None)) == Cost(150, 0, 5)


def test_a_site_outside_every_group_is_not_free() -> None:
    with pytest.raises(ValueError, match="outside: b"):
        over_groups({"a": Cost(1, 0, 0), "b": Cost(1, 0, 0)}, [Group(("a",), 1)])


def test_one_noised_total_costs_a_patient_at_j_sites_j_squared() -> None:
    assert in_one_sum(Cost(7, 3, 1), sites=3) == Cost(63, 9, 3)
    with pytest.raises(ValueError, match="one site at least"):
        in_one_sum(Cost(7, 3, 1), sites=0)
