"""The filter: what fits a cap runs, one unit more does not, and the reports agree with the integers."""

import math
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wardround.privacy.accounting.cost import MU_UNIT, PURE_UNIT, SLACK_UNIT, Cost, Fact
from wardround.privacy.accounting.gaussian_dp import delta_of, epsilon_of, mu_of
from wardround.privacy.budget import filter as filter_module
from wardround.privacy.budget.calibration import (
    gaussian_scale,
    laplace_scale,
    mu_squared_units,
    pure_units,
    without_slack,
)
from wardround.privacy.budget.filter import (
    Cap,
    admits,
    epsilon_charged,
    epsilon_remaining,
    epsilon_spent,
    fraction_remaining,
    is_within,
)
from wardround.privacy.budget.parallel import in_parallel
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution

EPSILONS = st.floats(min_value=0.05, max_value=10.0)
DELTAS = st.floats(min_value=math.log(1e-10), max_value=math.log(1e-3)).map(math.exp)
OVERLAPS = st.integers(min_value=1, max_value=5)
USED = st.floats(min_value=0.0, max_value=0.99)
FINE = 2**32
ALL = Fraction(1)


def gaussian_question(epsilon: float, delta: float, overlap: int = 1) -> Cost:
    """What a fine-grained Gaussian question of (epsilon, delta) costs over a patient's sites."""
    scale = gaussian_scale(epsilon=epsilon, delta=delta, l2_sensitivity_squared=FINE**2, shares=ALL, overlap=overlap)
    law = NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, scale)
    fact = Fact(law=law, l1_sensitivity=FINE, l2_sensitivity_squared=FINE**2, dimension=1)
    return in_parallel([fact.cost()] * overlap, overlap=overlap)


def laplace_question(epsilon: float, overlap: int = 1) -> Cost:
    scale = laplace_scale(epsilon=epsilon, l1_sensitivity=FINE, shares=ALL, overlap=overlap)
    law = NoiseDistribution(Mechanism.DISCRETE_LAPLACE, scale)
    fact = Fact(law=law, l1_sensitivity=FINE, l2_sensitivity_squared=FINE**2, dimension=1)
    return in_parallel([fact.cost()] * overlap, overlap=overlap)


def gaussian_query(z: int) -> Cost:
    """A count on a grid of 1/64 with sigma = z patients."""
    law = NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, Fraction(z * 64))
    return Fact(law=law, l1_sensitivity=64, l2_sensitivity_squared=64**2, dimension=1).cost()


# --- Caps ------------------------------------------------------------------------------------------------


def test_a_cap_of_three_admits_1048_queries_at_fifty_and_never_one_more() -> None:
    allowance = Cap(epsilon=3.0, delta=1e-6).allowance()
    spent, admitted = Cost.zero(), 0
    while admits(allowance, spent, gaussian_query(50)):
        spent = spent + gaussian_query(50)
        admitted += 1
    assert admitted == 1048
    # The continuous limit is the same: the integers and the finer grid cost no query.
    assert math.floor(mu_of(3.0, 1e-6) ** 2 * 50**2) == 1048
    assert not admits(allowance, spent, gaussian_query(50))


@given(epsilon=EPSILONS, delta=DELTAS, pure_share=st.sampled_from([0.0, 0.3, 1.0]))
def test_an_allowance_is_within_its_cap(epsilon: float, delta: float, pure_share: float) -> None:
    cap = Cap(epsilon=epsilon, delta=delta, pure_epsilon=epsilon * pure_share)
    allowance = cap.allowance()
    mu = math.sqrt(allowance.mu_squared / MU_UNIT)
    left = epsilon - allowance.pure / PURE_UNIT
    assert delta_of(left, mu) + allowance.slack / SLACK_UNIT <= delta * (1 + 1e-9)


def test_without_delta_everything_is_in_the_pure_lane() -> None:
    assert Cap(epsilon=1.5, delta=0.0).allowance() == Cost(0, 3 * PURE_UNIT // 2, 0)
    assert Cap(epsilon=1.5, delta=0.0, pure_epsilon=1.0).allowance() == Cost(0, 3 * PURE_UNIT // 2, 0)


@given(epsilon=EPSILONS, delta=DELTAS, overlap=OVERLAPS)
def test_a_fresh_filter_admits_exactly_its_cap(epsilon: float, delta: float, overlap: int) -> None:
    asked = gaussian_question(epsilon, delta, overlap)
    assert admits(Cap(epsilon, delta).allowance(), Cost.zero(), asked)
    assert admits(Cap(epsilon, 0.0).allowance(), Cost.zero(), laplace_question(epsilon, overlap))


@given(epsilon=EPSILONS, delta=DELTAS)
def test_one_unit_above_the_allowance_is_refused_in_every_component(epsilon: float, delta: float) -> None:
    allowance = Cap(epsilon, delta, pure_epsilon=epsilon / 2).allowance()
    assert admits(allowance, Cost.zero(), allowance)
    for unit in (Cost(1, 0, 0), Cost(0, 1, 0), Cost(0, 0, 1)):
        assert not admits(allowance, unit, allowance)
        assert not admits(allowance, allowance, unit)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf, 2e8])
def test_a_cap_needs_a_positive_finite_epsilon(epsilon: float) -> None:
    with pytest.raises(ValueError, match="cap's epsilon"):
        Cap(epsilon=epsilon, delta=1e-6)


@pytest.mark.parametrize("delta", [1.0, -1e-6, math.nan, math.inf, 1e-15])
def test_a_cap_needs_a_delta_that_leaves_room_for_slack(delta: float) -> None:
    with pytest.raises(ValueError, match="cap's delta"):
        Cap(epsilon=1.0, delta=delta)


@pytest.mark.parametrize("pure", [-0.1, 1.1, math.nan, math.inf])
def test_a_pure_lane_is_within_the_cap(pure: float) -> None:
    with pytest.raises(ValueError, match="pure epsilon"):
        Cap(epsilon=1.0, delta=1e-6, pure_epsilon=pure)


# --- What was spent --------------------------------------------------------------------------------------


@given(epsilon=EPSILONS, delta=DELTAS, used=USED)
def test_spent_epsilon_is_within_the_cap_while_the_filter_admits(epsilon: float, delta: float, used: float) -> None:
    cap = Cap(epsilon, delta, pure_epsilon=epsilon / 4)
    allowance = cap.allowance()
    assert epsilon_spent(allowance, cap) <= epsilon
    assert epsilon_spent(allowance, cap) == pytest.approx(epsilon, rel=1e-6)
    part = Cost(int(used * allowance.mu_squared), int(used * allowance.pure), 1)
    assert epsilon_spent(part, cap) <= epsilon_spent(allowance, cap)


def test_spent_epsilon_of_the_exact_schedule() -> None:
    spent = sum([gaussian_query(50)] * 1000, start=Cost.zero())
    cap = Cap(3.0, 1e-6)
    exact = epsilon_of(without_slack(1e-6), math.sqrt(1000) / 50)
    assert exact <= epsilon_spent(spent, cap) <= exact * (1 + 1e-6)


def test_an_overdraft_is_reported_as_it_is() -> None:
    cap = Cap(1.0, 1e-6)
    allowance = cap.allowance()
    assert epsilon_spent(allowance + allowance, cap) > 1.3
    assert epsilon_remaining(allowance + allowance, cap, delta=1e-6) == 0.0
    assert fraction_remaining(allowance + allowance, cap) == 0.0


def test_an_absurd_charge_still_has_an_epsilon_to_report() -> None:
    assert epsilon_charged(Cost(2**120, 0, 1), delta=1e-6) > 2**79


def test_gaussian_loss_has_no_epsilon_without_delta() -> None:
    assert epsilon_charged(Cost(1, 0, 0), delta=0.0) == math.inf
    assert epsilon_charged(Cost(0, PURE_UNIT, 0), delta=0.0) == 1.0
    assert epsilon_charged(Cost.zero(), delta=0.0) == 0.0


@given(epsilon=EPSILONS, delta=DELTAS, overlap=OVERLAPS)
def test_a_question_is_charged_what_it_asked(epsilon: float, delta: float, overlap: int) -> None:
    charged = epsilon_charged(gaussian_question(epsilon, delta, overlap), delta=delta)
    assert charged == pytest.approx(epsilon, rel=1e-6)
    pure = epsilon_charged(laplace_question(epsilon, overlap), delta=delta)
    assert pure <= epsilon
    assert pure == pytest.approx(epsilon, rel=1e-6)


@given(mu_squared=st.integers(min_value=1, max_value=2**46), pure=st.integers(min_value=0, max_value=2**70))
def test_a_charge_is_never_rounded_down(mu_squared: int, pure: int) -> None:
    charged = epsilon_charged(Cost(mu_squared, pure, 1), delta=1e-6)
    gaussian = epsilon_of(without_slack(1e-6), math.sqrt(mu_squared / MU_UNIT) * (1 - 1e-15))
    assert Fraction(charged) >= Fraction(gaussian) + Fraction(pure, PURE_UNIT)


# --- What remains ----------------------------------------------------------------------------------------


@given(epsilon=EPSILONS, delta=DELTAS, used=USED, overlap=OVERLAPS)
def test_the_remaining_gaussian_question_is_admitted_and_hardly_more(
    epsilon: float, delta: float, used: float, overlap: int
) -> None:
    cap = Cap(epsilon, delta)
    allowance = cap.allowance()
    spent = Cost(int(used * allowance.mu_squared), 0, int(used * allowance.slack))
    remaining = epsilon_remaining(spent, cap, delta=delta, overlap=overlap)
    # A delta large enough alone needs no epsilon; there is then no largest question to test.
    if remaining > 1e-3:
        assert admits(allowance, spent, gaussian_question(remaining, delta, overlap))
        assert not admits(allowance, spent, gaussian_question(remaining * 1.001, delta, overlap))


@given(epsilon=EPSILONS, used=USED, overlap=OVERLAPS)
def test_the_remaining_pure_question_is_admitted_and_hardly_more(epsilon: float, used: float, overlap: int) -> None:
    cap = Cap(epsilon, 0.0)
    allowance = cap.allowance()
    spent = Cost(0, int(used * allowance.pure), 0)
    remaining = epsilon_remaining(spent, cap, delta=0.0, overlap=overlap)
    assert admits(allowance, spent, laplace_question(remaining, overlap))
    assert not admits(allowance, spent, laplace_question(remaining * 1.001, overlap))


@given(delta=DELTAS)
def test_a_question_at_a_smaller_delta_has_less_epsilon_remaining_than_one_at_a_larger(delta: float) -> None:
    cap = Cap(3.0, 1e-3)
    here = epsilon_remaining(Cost.zero(), cap, delta=delta)
    there = epsilon_remaining(Cost.zero(), cap, delta=delta / 2)
    assert there >= here
    assert admits(cap.allowance(), Cost.zero(), gaussian_question(there, delta / 2))


@pytest.mark.parametrize("left", [16478405823895121, 15478405823895121, 10478405823895121])
def test_the_remaining_question_fits_even_where_integers_are_finer_than_doubles(left: int) -> None:
    cap = Cap(1e4, 1e-6)
    allowance = cap.allowance()
    spent = replace(Cost.zero(), mu_squared=allowance.mu_squared - left)
    remaining = epsilon_remaining(spent, cap, delta=1e-6)
    assert mu_squared_units(epsilon=remaining, delta=1e-6) <= left
    assert mu_squared_units(epsilon=remaining * (1 + 1e-12), delta=1e-6) > left


@given(value=st.fractions(min_value=0, max_value=1000, max_denominator=2**60))
def test_reports_round_in_the_direction_they_say(value: Fraction) -> None:
    up, down = filter_module._up(value), filter_module._down(value)
    assert Fraction(down) <= value <= Fraction(up)
    assert up in (down, math.nextafter(down, math.inf))


@given(mu_squared=st.integers(min_value=1, max_value=2**70))
def test_the_root_of_a_ledger_is_never_rounded_down(mu_squared: int) -> None:
    root = filter_module._root_up(mu_squared)
    assert Fraction(root) ** 2 >= Fraction(mu_squared, MU_UNIT)
    assert Fraction(math.nextafter(root, 0.0)) ** 2 < Fraction(mu_squared, MU_UNIT)


def test_the_lane_with_more_left_answers() -> None:
    cap = Cap(3.0, 1e-6, pure_epsilon=1.0)
    allowance = cap.allowance()
    fresh = epsilon_remaining(Cost.zero(), cap, delta=1e-6)
    assert fresh == pytest.approx(2.0, rel=1e-9)
    assert epsilon_remaining(replace(allowance, pure=0), cap, delta=1e-6) == 1.0
    assert epsilon_remaining(Cost.zero(), cap, delta=0.0) == 1.0
    assert epsilon_remaining(allowance, cap, delta=1e-6) == 0.0


def test_nothing_gaussian_remains_without_slack_for_every_site() -> None:
    cap = Cap(3.0, 1e-6)
    spent = Cost(0, 0, cap.allowance().slack - 1)
    assert epsilon_remaining(spent, cap, delta=1e-6, overlap=1) > 2.9
    assert epsilon_remaining(spent, cap, delta=1e-6, overlap=2) == 0.0


def test_nothing_remains_below_one_unit_for_every_site() -> None:
    assert epsilon_remaining(Cost(0, PURE_UNIT - 1, 0), Cap(1.0, 0.0), delta=0.0, overlap=2) == 0.0
    assert epsilon_remaining(Cost(0, PURE_UNIT - 1, 0), Cap(1.0, 0.0), delta=0.0, overlap=1) > 0.0
    cap = Cap(1.0, 1e-6)
    spent = Cost(cap.allowance().mu_squared - 1, 0, 0)
    assert epsilon_remaining(spent, cap, delta=1e-9, overlap=2) == 0.0
    assert epsilon_remaining(spent, cap, delta=1e-9, overlap=1) > 0.0


def test_a_delta_that_alone_exceeds_what_is_left_leaves_no_question() -> None:
    cap = Cap(1.0, 1e-6)
    allowance = cap.allowance()
    spent = replace(allowance, mu_squared=allowance.mu_squared - 10, slack=0)
    assert epsilon_remaining(spent, cap, delta=0.5) == 0.0


@given(used=st.integers(min_value=0, max_value=1000))
def test_the_remaining_fraction_falls_with_every_unit(used: int) -> None:
    for cap in (Cap(3.0, 1e-6), Cap(1.0, 0.0), Cap(1.0, 1e-6, pure_epsilon=1.0)):
        allowance = cap.allowance()
        lane = "pure" if cap.delta == 0.0 or cap.pure_epsilon else "mu_squared"
        whole = getattr(allowance, lane)
        spent = replace(Cost.zero(), **{lane: whole * used // 1000})
        assert fraction_remaining(spent, cap) == pytest.approx(1 - used / 1000, abs=1e-9)
    assert fraction_remaining(Cost.zero(), Cap(3.0, 1e-6)) == 1.0


def test_a_budget_too_small_for_one_unit_has_nothing_remaining() -> None:
    assert fraction_remaining(Cost.zero(), Cap(2.0**-41, 0.0)) == 0.0
    assert epsilon_remaining(Cost.zero(), Cap(2.0**-41, 0.0), delta=0.0) == 0.0


# --- Adaptive analysts -----------------------------------------------------------------------------------


def profile(epsilon: float, mu: float) -> float:
    """Delta of mu-GDP at any epsilon, negative ones included; nothing asked means mu = 0."""
    if epsilon >= 0.0:
        return delta_of(epsilon, mu)
    return -math.expm1(epsilon) + math.exp(epsilon) * delta_of(-epsilon, mu)


def pure_then_gaussian(epsilon: float, pure: float, mu: float) -> float:
    """Delta of the worst pure mechanism (randomised response) followed by mu-GDP."""
    truth = 1.0 / (1.0 + math.exp(-pure))
    return truth * profile(epsilon - pure, mu) + (1.0 - truth) * profile(epsilon + pure, mu)


def adaptive_delta(epsilon: float, *, first: float, switch: float, low: Cost, high: Cost) -> float:
    """Delta of an analyst who asks a Gaussian question, then `low` or `high` by its answer.

    Integrated over the first answer x, which is N(first, 1) in one world and N(0, 1) in the other.
    """
    step = 1.0 / 32.0
    total = 0.0
    for index in range(-10 * 32, 14 * 32):
        x = (index + 0.5) * step
        density = math.exp(-0.5 * (x - first) ** 2) / math.sqrt(2.0 * math.pi)
        loss = first * x - 0.5 * first * first
        then = high if x > switch else low
        mu = math.sqrt(then.mu_squared / MU_UNIT)
        total += step * density * pure_then_gaussian(epsilon - loss, then.pure / PURE_UNIT, mu)
    return total


@pytest.mark.parametrize("switch", [-1.0, 0.0, 1.0, 2.5, 4.0])
@pytest.mark.parametrize("epsilon", [0.5, 1.5, 3.0])
def test_an_analyst_who_stops_or_goes_on_by_an_answer_gains_nothing(switch: float, epsilon: float) -> None:
    delta = 1e-4
    mu = mu_of(epsilon, delta)
    first = 0.6 * mu
    rest = Cost(math.floor((mu**2 - first**2) * MU_UNIT), 0, 0)
    for low, high in ((Cost.zero(), rest), (rest, Cost.zero()), (rest, rest)):
        reached = adaptive_delta(epsilon, first=first, switch=switch, low=low, high=high)
        assert reached <= delta * (1 + 1e-6)
    # The whole allowance, spent without looking, is tight: the test could have failed.
    assert adaptive_delta(epsilon, first=first, switch=switch, low=rest, high=rest) >= delta * (1 - 1e-6)


@pytest.mark.parametrize("switch", [-1.0, 0.5, 2.0, 4.0])
def test_an_analyst_who_changes_lanes_by_an_answer_gains_nothing(switch: float) -> None:
    pure, gaussian, delta = 0.7, 1.3, 1e-4
    mu = mu_of(gaussian, delta)
    first = 0.6 * mu
    rest = math.floor((mu**2 - first**2) * MU_UNIT)
    lanes = [Cost(used, whole, 0) for used in (0, rest) for whole in (0, int(pure * PURE_UNIT))]
    for low in lanes:
        for high in lanes:
            reached = adaptive_delta(gaussian + pure, first=first, switch=switch, low=low, high=high)
            assert reached <= delta


@given(st.floats(1e-3, 20.0), st.sampled_from([1e-9, 1e-6, 1e-3]), st.floats(0.0, 1.0))
def test_a_cost_is_within_an_epsilon_to_the_unit(epsilon: float, delta: float, share: float) -> None:
    pure = pure_units(epsilon * share)
    left = Fraction(epsilon) - Fraction(pure, PURE_UNIT)
    gaussian = mu_squared_units(epsilon=filter_module._down(left), delta=delta) if left > 0 else 0
    for cost, within in (
        (Cost(gaussian, pure, 0), True),
        (Cost(gaussian + 1, pure, 0), False),
        (Cost(0, pure_units(epsilon), 0), True),
        (Cost(0, pure_units(epsilon) + 1, 0), False),
        (Cost(1, pure_units(epsilon) + 1, 0), False),
    ):
        assert is_within(cost, epsilon=epsilon, delta=delta) is within, cost
    assert not is_within(Cost(1, 0, 0), epsilon=epsilon, delta=0.0)
    assert is_within(Cost(0, pure, 0), epsilon=epsilon, delta=0.0)
