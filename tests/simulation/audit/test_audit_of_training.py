"""A patient with fifty rows, whole trainings, two worlds: what leaves a site tells no more than was charged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from site_agent.learning.training_step import take
from site_agent.reading.examples import Examples
from tests.simulation.audit.audited_site import ROOM, TrainingSite
from wardround.federation.models.step_layout import LENGTH, moved, pack, step_form
from wardround.federation.models.training import StageKind, Training
from wardround.federation.plan.training_budget import StagePlan, cost_of
from wardround.privacy.accounting.gaussian_dp import epsilon_of
from wardround.privacy.inference.audit_bounds import Statistic, epsilon_bound, likelihood_ratio, mu_bound
from wardround.privacy.mechanisms.randomness import Chance, SecureChance
from wardround.privacy.noise.distribution import NoiseDistribution
from wardround.privacy.noise.vectors import IntVector
from wardround.simulation.audit.question_claims import scaled
from wardround.simulation.audit.training_claims import (
    by_rows,
    plan_of_folds,
    plan_of_steps,
    plan_of_sums,
    training_of,
    without_samples,
)
from wardround.simulation.audit.training_runs import (
    CANARY_ROWS,
    START,
    Hospitals,
    Releasing,
    Tried,
    hospitals,
    law_of,
    rounds_of,
    site,
    telling,
    trained,
    training_study,
)
from wardround.simulation.noise import SeededNoise, ZeroNoise

# Few trainings prove little, and how much is luck: here it is the same luck every time.
pytestmark = pytest.mark.usefixtures("same_noise")
ALPHA = 1e-6
STUDY = training_study(epsilon=ROOM)
DELTA = STUDY.cap.delta
WHOLE = (*plan_of_sums(), StagePlan(StageKind.SCORES, Fraction(1)))
HALF = Fraction(1, 2)


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Hospitals:
    return hospitals(tmp_path_factory.mktemp("crowd"))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Hospitals:
    return hospitals(tmp_path_factory.mktemp("alone"), learning_from_others=False)


Worlds = tuple[Examples | Callable[[StageKind], Examples], Examples | Callable[[StageKind], Examples]]


def samples_of(
    folder: Path, training: Training, worlds: Worlds, *, count: int, chance: Chance | None = None
) -> tuple[IntVector, IntVector]:
    """Whole trainings through a site's pipeline in both worlds; each is charged, once."""
    found = []
    for name, world in zip(("with", "without"), worlds, strict=True):
        trying = TrainingSite(folder / name, world, chance=chance)
        found.append(trying.trained(training, count=count))
        assert trying.spent.mu_squared == count * cost_of(training, 2).mu_squared
    return found[0], found[1]


def told(samples: tuple[IntVector, IntVector], tried: Tried) -> tuple[Statistic, Statistic]:
    return telling(samples[0], tried), telling(samples[1], tried)


def proved(samples: tuple[IntVector, IntVector], tried: Tried) -> float:
    return mu_bound(*told(samples, tried), alpha=ALPHA, delta=tried.claim().slack)


# --- Through the pipeline ---------------------------------------------------------------------------------


def test_trainings_through_a_sites_pipeline_tell_no_more_than_is_charged(tmp_path: Path, crowd: Hospitals) -> None:
    tried = Tried(training_of(WHOLE, STUDY, epsilon=6.0), STUDY, crowd.learning, crowd.without)
    samples = samples_of(tmp_path, tried.training, (crowd.learning, crowd.without), count=80)
    mu = tried.claim().mu
    assert proved(samples, tried) <= mu
    # So few prove little, but they are not asleep: the means of the ratio are μ² apart, within five deviations.
    with_unit, without = told(samples, tried)
    assert abs(with_unit.mean() - without.mean() - mu**2) < 5 * mu * (2 / 80) ** 0.5


def test_clipping_rows_instead_of_patients_is_flagged(tmp_path: Path, crowd: Hospitals) -> None:
    training = training_of(plan_of_steps(4), STUDY, epsilon=4.0)
    worlds = by_rows(crowd.learning), by_rows(crowd.without)
    samples = samples_of(tmp_path, training, worlds, count=80)
    # Whoever suspects it looks for fifty patients; whoever does not finds them by looking for one.
    for suspected in (worlds, (crowd.learning, crowd.without)):
        tried = Tried(training, STUDY, *suspected)
        assert proved(samples, tried) > tried.claim().mu


SUMS = (StagePlan(StageKind.MOMENTS, Fraction(1, 5)), StagePlan(StageKind.GRADIENT, Fraction(4, 5), rounds=2))
LONG = {
    "sums over everybody": (SUMS, False, 0.75),
    "local steps": (plan_of_steps(4), False, 0.75),
    "secret samples": (plan_of_steps(16, rate=Fraction(3, 4)), True, 0.45),
}


@pytest.mark.slow
@pytest.mark.parametrize(("plan", "is_alone", "share"), LONG.values(), ids=LONG)
def test_two_thousand_trainings_prove_most_of_what_is_charged_and_no_more(
    tmp_path: Path, crowd: Hospitals, alone: Hospitals, plan: tuple[StagePlan, ...], is_alone: bool, share: float
) -> None:
    place = alone if is_alone else crowd
    tried = Tried(training_of(plan, STUDY, epsilon=12.0), STUDY, place.learning, place.without)
    samples = samples_of(tmp_path, tried.training, (place.learning, place.without), count=2000)
    claim, bound = tried.claim(), proved(samples, tried)
    assert share * claim.mu < bound <= claim.mu
    # As ε at the study's δ; and without any law in mind, by counting.
    assert epsilon_of(DELTA, bound) <= epsilon_of(DELTA - claim.slack, claim.mu) <= 12.0
    assert 1.0 < epsilon_bound(*told(samples, tried), alpha=ALPHA, delta=DELTA) <= 12.0


@pytest.mark.slow
def test_two_thousand_trainings_tell_no_more_of_a_patient_held_out(tmp_path: Path, crowd: Hospitals) -> None:
    tried = Tried(training_of(plan_of_folds(), STUDY, epsilon=12.0), STUDY, crowd.trying, crowd.without)
    samples = samples_of(tmp_path, tried.training, (crowd.trying, crowd.without), count=2000)
    assert 0.75 * tried.claim().mu < proved(samples, tried) <= tried.claim().mu


# --- Broken on purpose ------------------------------------------------------------------------------------


class HalfTheNoise(SecureChance):
    def draw(self, law: NoiseDistribution, size: int) -> IntVector:
        return super().draw(scaled(law, HALF), size)


class KeptCoins(SecureChance):
    """One coin for each unit, and the same for every step of a round."""

    def __init__(self, steps: int) -> None:
        self._steps = steps

    def sample(self, units: int, rate: Fraction) -> NDArray[np.intp]:
        once = super().sample(units // self._steps, rate)
        borders = np.arange(self._steps) * (units // self._steps)
        return (borders[:, np.newaxis] + once).reshape(-1)


@pytest.mark.slow
def test_half_the_noise_is_flagged(tmp_path: Path, crowd: Hospitals) -> None:
    tried = Tried(training_of(plan_of_steps(4), STUDY, epsilon=8.0), STUDY, crowd.learning, crowd.without)
    worlds = crowd.learning, crowd.without
    samples = samples_of(tmp_path, tried.training, worlds, count=600, chance=HalfTheNoise())
    assert proved(samples, tried) > tried.claim().mu


@pytest.mark.slow
def test_a_patient_in_both_folds_is_flagged(tmp_path: Path, crowd: Hospitals) -> None:
    training = training_of(plan_of_folds(), STUDY, epsilon=14.0)

    def everywhere(kind: StageKind) -> Examples:
        return crowd.trying if kind is StageKind.SCORES else crowd.learning

    samples = samples_of(tmp_path, training, (everywhere, crowd.without), count=2000)
    learnt, tried = (Tried(training, STUDY, world, crowd.without) for world in (crowd.learning, crowd.trying))
    found = [telling(sums, learnt) + telling(sums, tried) for sums in samples]
    assert mu_bound(*found, alpha=ALPHA, delta=learnt.claim().slack) > learnt.claim().mu


@pytest.mark.slow
def test_coins_that_are_kept_for_all_steps_are_flagged(tmp_path: Path, alone: Hospitals) -> None:
    steps, delta = 36, 0.01
    training = training_of(plan_of_steps(steps, rate=Fraction(1, 8)), STUDY, epsilon=3.0)
    worlds = alone.learning, alone.without
    samples = samples_of(tmp_path, training, worlds, count=2500, chance=KeptCoins(steps))
    claim = Tried(training, STUDY, *worlds).claim()
    # All steps or none: the sum of their ratios is what tells.
    found = told(samples, Tried(without_samples(training), STUDY, *worlds))
    assert epsilon_bound(*found, alpha=ALPHA, delta=delta) > epsilon_of(delta - claim.slack, claim.mu)


# --- Folds, exactly ---------------------------------------------------------------------------------------

SAMPLED = (
    StagePlan(StageKind.MOMENTS, Fraction(1, 10)),
    StagePlan(StageKind.GRADIENT, Fraction(9, 10), 2, 3, HALF),
    StagePlan(StageKind.SCORES, Fraction(1)),
)


def anew(world: Examples, chance: Callable[[int], Chance]) -> Releasing:
    """A site whose chance begins anew in every round, so that the coins of one fold move no noise of the other."""
    return lambda form: site(world, chance(form.step.place))(form)


@pytest.mark.parametrize("plan", [WHOLE, SAMPLED], ids=["everybody", "samples"])
def test_a_patient_changes_nothing_in_the_rounds_of_the_other_fold(
    crowd: Hospitals, plan: tuple[StagePlan, ...]
) -> None:
    training = training_of(plan, STUDY)
    scores = step_form(list(rounds_of(training))[-1][1](START), STUDY).width
    for chance in (lambda _: ZeroNoise(), SeededNoise):
        without, learning, trying = (
            trained(training, STUDY, anew(world, chance)) for world in (crowd.without, crowd.learning, crowd.trying)
        )
        assert learning[-scores:].tolist() == without[-scores:].tolist()
        assert trying[:-scores].tolist() == without[:-scores].tolist()
        # And in its own it does: one whole contribution to every sum over everybody.
        assert learning[:-scores].tolist() != without[:-scores].tolist()
        assert np.abs(trying[-scores:] - without[-scores:]).tolist().count(LENGTH) == 1


def test_the_canary_has_fifty_rows_and_one_whole_contribution(crowd: Hospitals) -> None:
    assert crowd.learning.target.size == crowd.without.target.size + CANARY_ROWS
    training = training_of(WHOLE, STUDY)
    for stage, asked in rounds_of(training):
        form = step_form(asked(START), STUDY)
        world = crowd.trying if stage.kind is StageKind.SCORES else crowd.learning
        with_unit, without = (take(form, each, law_of(form.step), ZeroNoise()) for each in (world, crowd.without))
        length = float(np.linalg.norm(with_unit - without))
        assert LENGTH - 3 < length <= LENGTH


# --- The statistic ----------------------------------------------------------------------------------------


def test_what_tells_is_the_likelihood_ratio_of_every_sum(crowd: Hospitals) -> None:
    for plan in (WHOLE, plan_of_steps(5)):
        training = training_of(plan, STUDY)
        tried = Tried(training, STUDY, crowd.learning, crowd.without)
        released = np.array([trained(training, STUDY, site(crowd.learning)) for _ in range(3)])
        for found, sums in zip(telling(released, tried), released, strict=True):
            assert found == pytest.approx(ratio_sum_by_sum(sums, tried), rel=1e-3, abs=1e-3)


def ratio_sum_by_sum(sums: IntVector, tried: Tried) -> float:
    """With the site's own sums, one step after another."""
    single = replace(tried.training, stages=tuple(replace(each, steps=1) for each in tried.training.stages))
    total, weights = 0.0, START
    for (stage, _), (_, asked) in zip(rounds_of(tried.training), rounds_of(single), strict=True):
        for _ in range(stage.steps):
            step = asked(weights)
            form = step_form(replace(step, weights=pack(START)) if stage.kind is StageKind.SCORES else step, STUDY)
            line, sums = sums[: form.width], sums[form.width :]
            law = law_of(form.step)
            with_unit, without = (take(form, each, law, ZeroNoise()) for each in (tried.with_unit, tried.without))
            total += likelihood_ratio(line[np.newaxis], law, with_unit=with_unit, without=without)[0]
            if stage.kind is StageKind.GRADIENT:
                weights = moved(weights, line, form)
    assert sums.size == 0
    return total
