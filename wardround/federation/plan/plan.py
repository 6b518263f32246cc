"""A plan: a query or a step of a training made exact, so that its price and its answer are determined.

`plan_id` is the hash of the canonical encoding. The same plan is charged once and answered with the same
stored bytes forever; anything that differs is another plan and another charge.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Generic, TypeVar

from wardround.federation import canonical
from wardround.federation.errors import InvariantBroken, PlanRefused
from wardround.federation.forms.parts import AnswerLayout, Part
from wardround.federation.limits import MAX_AGGREGATES, Many, Member, Names, Needed, Nonce, StudyHash, Whole
from wardround.federation.models.step_layout import LENGTH, StepLayout, step_form, width_of
from wardround.federation.models.training import Scale, StageKind, Step, Training
from wardround.federation.plan.layout import layout
from wardround.federation.plan.typed import type_query
from wardround.federation.question.query import Query
from wardround.federation.statistics import own_definition
from wardround.federation.study.study import Study
from wardround.privacy.accounting.cost import PURE_UNIT, Cost, Fact, total
from wardround.privacy.budget.facts import AnyFact, AnyMechanism, BlockFact, StageFact, StepFact
from wardround.privacy.mechanisms.partition_selection import LARGEST_THRESHOLD, SelectionFact
from wardround.privacy.mechanisms.private_selection import ChoiceFact, Choosing, exact_epsilon
from wardround.privacy.noise.distribution import Mechanism, NoiseDistribution

SLACK_OF_ONE_SUM = 2**8
"""The arithmetic of composing sampled sums takes about so much of the slack for each of them."""

FEWEST_SUMS = 1024
DEFAULT_SHARE = 10
"""A question that does not say takes this part of the study's ε."""

# A training need not use up the ε that its slack was chosen for.
_SHARES_OF_SLACK = 4


# Without slots, so that what follows from the encoding is computed once. It is kept on the very object and not looked
# up by equality: 40 equals 40.0, but they are two encodings.
@dataclass(frozen=True)
class Plan:
    """What every participant is asked: study, query, mechanism, one noise scale per part, participants.

    `threshold` is what a noised count must pass before its key is shown, in grid steps; 0 where no keys are.
    """

    study_hash: StudyHash
    query: Annotated[Query | Step, Needed("a plan asks nothing.")]
    mechanism: Annotated[AnyMechanism, Member("a mechanism", but=(Choosing.EXPONENTIAL,))]
    scales: Annotated[tuple[Scale, ...], Many("a plan has too few or too many noise scales.", MAX_AGGREGATES, least=1)]
    participants: Annotated[tuple[str, ...], Names("the participants")]
    nonce: Nonce = ""
    threshold: Annotated[int, Whole("a threshold", upper=LARGEST_THRESHOLD)] = 0

    @cached_property
    def encoding(self) -> bytes:
        """The canonical bytes: every task of the plan is signed over them."""
        return canonical.encode(self)

    @cached_property
    def plan_id(self) -> str:
        """The key of everything that happens to this plan."""
        return hashlib.sha256(self.encoding).hexdigest()

    @cached_property
    def block(self) -> str:
        """What the rounds of one training have in common; empty for a question."""
        if not isinstance(self.query, Step):
            return ""
        return canonical.digest((self.study_hash, self.query.training, self.participants, self.nonce))

    @cached_property
    def addressed(self) -> frozenset[str]:
        """The participants, to look for one of a thousand."""
        return frozenset(self.participants)

    @cached_property
    def lists_its_participants_once(self) -> bool:
        """Whether every participant is there once, in order."""
        return tuple(sorted(set(self.participants))) == self.participants

    def laws(self) -> tuple[NoiseDistribution, ...]:
        if not isinstance(self.mechanism, Mechanism):
            raise InvariantBroken(private="a choice adds no noise")
        return tuple(NoiseDistribution(self.mechanism, scale) for scale in self.scales)


@dataclass(frozen=True, slots=True)
class PrivacyTarget:
    """The loss a question asks for, over all sites of one unit and all of its rounds; it fixes the noise."""

    epsilon: float
    delta: float


def privacy_target(epsilon: float | None, delta: float | None, study: Study) -> PrivacyTarget:
    """What a question asks for, with the study's own where it does not say."""
    return PrivacyTarget(
        study.cap.epsilon / DEFAULT_SHARE if epsilon is None else epsilon, study.cap.delta if delta is None else delta
    )


# Without slots, so that the cost is derived once.
@dataclass(frozen=True)
class Charge:
    """What one plan costs one site: facts that never change, and the integers derived from them.

    A step of a training costs its whole `block` where that is not paid yet, and nothing where it is.
    """

    plan_id: str
    facts: tuple[AnyFact, ...]
    block: str = ""
    place: int = 0
    dimension: int = 0

    @cached_property
    def cost(self) -> Cost:
        """The amounts the ledger adds up, rounded against us."""
        return total(self.facts)

    def is_paid_by(self, facts: tuple[AnyFact, ...]) -> bool:
        """Whether an entry with these facts charged this plan: whole, or as a further round of its block."""
        return facts == self.facts or (bool(self.block) and facts == self.continued().facts)

    def continued(self) -> Charge:
        """The charge of a further round, where the block is paid already."""
        return Charge(
            self.plan_id, (StepFact(self.block, self.place, self.dimension),), self.block, self.place, self.dimension
        )


_Form = TypeVar("_Form", bound=AnswerLayout | StepLayout)
_Form_co = TypeVar("_Form_co", bound=AnswerLayout | StepLayout, covariant=True)


@dataclass(frozen=True, slots=True)
class Planned(Generic[_Form_co]):
    """A plan with what each side finds out about it, once: the layout of its answer, and its price."""

    plan: Plan
    layout: _Form_co
    charge: Charge


def form_of(plan: Plan, study: Study) -> AnswerLayout | StepLayout:
    """The form of this plan's answer, of a question or of a step; `PlanRefused` when it does not fit the study."""
    return _step_form_of(plan, study) if isinstance(plan.query, Step) else shape_of(plan, study)


def _step_form_of(plan: Plan, study: Study) -> StepLayout:
    _require_study(plan, study)
    step = plan.query
    if not isinstance(step, Step):
        raise InvariantBroken(private="a question is no step")
    form = step_form(step, study)
    stage = step.training.stages[step.stage]
    if plan.mechanism is not Mechanism.DISCRETE_GAUSSIAN or plan.scales != (stage.scale,) or plan.threshold:
        raise PlanRefused("a step is noised by discrete Gaussian noise, as its training says.")
    return form


def _require_study(plan: Plan, study: Study) -> None:
    if plan.study_hash != study.study_hash:
        raise PlanRefused("the plan names a study that this site did not sign.")


def shape_of(plan: Plan, study: Study) -> AnswerLayout:
    """The form of a question's answer; `PlanRefused` when the plan does not fit the study."""
    _require_study(plan, study)
    if isinstance(plan.query, Step):
        raise InvariantBroken(private="a step is no question")
    form = layout(type_query(plan.query, study), study, plan.mechanism)
    # Compared as bytes: 40 and 40.0 are equal numbers but two encodings, and so two plan ids.
    if canonical.encode(form.query) != canonical.encode(plan.query) or len(plan.scales) != len(form.parts):
        raise PlanRefused("the plan is not in canonical form.")
    definition = own_definition(form.parts[0])
    if (plan.threshold != 0) != definition.selects_keys:
        raise PlanRefused("a plan has a threshold exactly where keys are selected.")
    if not isinstance(plan.mechanism, Mechanism) and (
        plan.mechanism is not Choosing.PERMUTE_AND_FLIP or not definition.votes
    ):
        raise PlanRefused("a plan chooses by permute-and-flip, and only where a choice is asked for.")
    return form


def price(plan: Plan, study: Study) -> Charge:
    """What this plan costs at one site. Both sides find it out; nobody sends it."""
    return planned(plan, form_of(plan, study), study).charge


def planned(plan: Plan, form: _Form, study: Study) -> Planned[_Form]:
    """The plan with its price: of a layout that it was made from, or that `form_of` checked it against."""
    return Planned(plan, form, _charge(plan, form, study))


def _charge(plan: Plan, form: AnswerLayout | StepLayout, study: Study) -> Charge:
    try:
        charge = (
            _block_charge(plan, form) if isinstance(form, StepLayout) else Charge(plan.plan_id, facts_of(plan, form))
        )
        cost = charge.cost
    except ValueError as error:
        raise PlanRefused(f"the plan's noise is outside what can be accounted: {error}") from None
    if isinstance(form, StepLayout) and cost.slack > training_slack(form.step.training, cost, study):
        raise PlanRefused(
            "the training uses a far larger share of δ than of ε; nothing else could be asked afterwards."
        )
    if plan.threshold and cost.slack > selection_slack(cost, study):
        raise PlanRefused(
            "the plan's threshold is too low: showing a key of one patient takes more δ than the plan's share of ε."
        )
    return charge


def selection(law: NoiseDistribution, part: Part, threshold: int) -> SelectionFact:
    """The fact of a selection of keys with this noise."""
    return SelectionFact(law, threshold, max_keys=part.max_groups, steps=part.increment)


def selection_slack(cost: Cost, study: Study) -> int:
    """How much slack a selection may take at one site: as large a share of the study's as its share of the loss.

    Each lane has the share of the slack that it has of ε. So the questions that fit a study's ε fit its δ, whoever
    plans them, and no plan can take more.
    """
    allowance, whole = study.cap.allowance(), Fraction(study.cap.epsilon)
    share = Fraction(cost.pure, PURE_UNIT) / whole
    if cost.mu_squared and allowance.mu_squared:
        share += (1 - Fraction(study.cap.pure_epsilon) / whole) * Fraction(cost.mu_squared, allowance.mu_squared)
    return math.floor(allowance.slack * min(share, Fraction(1)))


def training_slack(training: Training, cost: Cost, study: Study) -> int:
    """How much slack a training may take at one site: as a selection, but for a few times of that.

    A hospital limits the ε of a plan. Without this one plan of hardly any ε could take all of the slack, and so end
    what the study may ask. Very small shares are raised to what the arithmetic of so many sums takes.
    """
    sums = sum(stage.rounds * stage.steps for stage in training.stages)
    least = SLACK_OF_ONE_SUM * max(sums, FEWEST_SUMS) + max(cost.slack - training.slack, 0)
    return max(_SHARES_OF_SLACK * selection_slack(cost, study), least)


def choice(plan: Plan, part: Part) -> ChoiceFact:
    """The fact of a choice: one unit moves every candidate's count by at most 1, all the same way, so ε is 1/scale."""
    # A scale of the wire, as it would be that of Laplace noise.
    scale = NoiseDistribution(Mechanism.DISCRETE_LAPLACE, plan.scales[0]).scale
    return ChoiceFact(Choosing.PERMUTE_AND_FLIP, exact_epsilon(1 / scale), part.dimension)


def folds_of(training: Training, inputs: int) -> tuple[tuple[StageFact, ...], tuple[StageFact, ...]]:
    """What is added up over the patients that a training learns from, and over those it is tried on."""
    folds: dict[bool, list[StageFact]] = {False: [], True: []}
    for stage in training.stages:
        fact = StageFact(
            law=NoiseDistribution(Mechanism.DISCRETE_GAUSSIAN, stage.scale),
            l2_sensitivity_squared=LENGTH**2,
            dimension=width_of(stage.kind, training.model, inputs),
            count=stage.rounds * stage.steps,
            rate=stage.rate,
        )
        folds[stage.kind is StageKind.SCORES].append(fact)
    return tuple(folds[False]), tuple(folds[True])


def _block_charge(plan: Plan, form: StepLayout) -> Charge:
    """The whole training, whichever of its rounds is asked first."""
    training, block, place = form.step.training, plan.block, form.step.place
    learnt, tried = folds_of(training, len(form.inputs))
    whole = BlockFact(block, place, training.rounds, form.dimension, learnt, tried, training.slack)
    return Charge(plan.plan_id, (whole,), block, place, form.dimension)


def facts_of(plan: Plan, form: AnswerLayout) -> tuple[AnyFact, ...]:
    """What a question's plan does to each of its parts: of a choice or a selection of keys, one fact."""
    if plan.mechanism is Choosing.PERMUTE_AND_FLIP:
        return (choice(plan, form.parts[0]),)
    if plan.threshold:
        return (selection(plan.laws()[0], form.parts[0], plan.threshold),)
    return tuple(
        Fact(law, part.l1_sensitivity, part.l2_sensitivity_squared, part.dimension)
        for law, part in zip(plan.laws(), form.parts, strict=True)
    )
