"""A question asked by error: for each kind of noise the least ε whose half-widths at 95 % are at most those asked for.

Pure, like all planning: a plan follows from study, question and participants with their declared patients, never from
what is spent. Otherwise asking again would be another plan, and paid for twice.

Every part has the most noise that its own aggregates can bear, so nothing is paid for an aggregate that is known better
than it has to be.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from coordinator.accounts.accounting import PlannedQuestion
from coordinator.planning.expected import of_part
from coordinator.planning.plans import loss_of, require_nonce, target_of, whole_cost, with_scales
from coordinator.planning.widest_noise import WidestNoise
from coordinator.store.rounds import Question
from wardround.federation.errors import PlanRefused, QueryMistaken
from wardround.federation.forms.parts import AnswerLayout, Part
from wardround.federation.forms.totals import NoiseSetting, TotalNoise
from wardround.federation.plan.layout import layout
from wardround.federation.plan.plan import Charge, Planned
from wardround.federation.plan.sql_text import label_text
from wardround.federation.plan.task import AskRequest
from wardround.federation.plan.typed import Typed, type_query
from wardround.federation.question.answer import Loss
from wardround.federation.question.query import Aggregate, Query
from wardround.federation.statistics import find, own_definition
from wardround.federation.study.study import Study
from wardround.privacy.accounting.cost import Cost
from wardround.privacy.budget.filter import is_within
from wardround.privacy.noise.distribution import Mechanism

FACTORS = (0.5, 1.0, 2.0)
"""What a dry run shows beside the error that was asked for."""

_STEP, _CLOSE = 16.0, 1.0005


@dataclass(frozen=True, slots=True)
class ByError:
    """A question with its errors, and everything that its plans follow from."""

    request: AskRequest
    typed: Typed
    delta: float
    study: Study
    participants: Mapping[str, int]
    setting: NoiseSetting

    @classmethod
    def of(
        cls, request: AskRequest, query: Query, study: Study, participants: Mapping[str, int], setting: NoiseSetting
    ) -> ByError:
        """The question, typed; `QueryMistaken` where errors make no sense for it."""
        require_nonce(request)
        typed = type_query(query, study)
        aggregates = typed.query.aggregates
        if len(request.errors) != len(aggregates):
            raise QueryMistaken(
                f"the question has {len(aggregates)} aggregates and {len(request.errors)} errors; "
                "give one error for each, in order."
            )
        if any(not (math.isfinite(error) and error > 0.0) for error in request.errors):
            raise QueryMistaken("an error must be a finite number above 0.")
        for aggregate in aggregates:
            if find(aggregate.statistic).votes:
                raise QueryMistaken(
                    f"{label_text(aggregate)} names a value, which has no error to ask for; ask with ε instead."
                )
        delta = target_of(request, study, participants).delta
        # What a simulation without noise would plan is what it would plan with noise.
        return cls(request, typed, delta, study, participants, replace(setting, noiseless=False))

    @property
    def overlap(self) -> int:
        return self.study.overlap_among(self.participants)

    def planned(self) -> tuple[Planned[AnswerLayout], ...]:
        """The plans, first the one that takes the smaller share of its own part of the cap; `QueryMistaken` if none."""
        if found := self.reached(self.request.errors):
            return found
        raise QueryMistaken(self._refusal())

    def errors(self, factor: float) -> tuple[float, ...]:
        """So many times what was asked for."""
        return tuple(min(factor * error, sys.float_info.max) for error in self.request.errors)

    def reached(self, errors: tuple[float, ...]) -> tuple[Planned[AnswerLayout], ...]:
        """The same for other errors; none where no budget reaches them."""
        found = [plan for mechanism in Mechanism if (plan := self._plan(mechanism, errors)) is not None]
        return tuple(sorted(found, key=self.share_of_cap))

    def share_of_cap(self, found: Planned[AnswerLayout]) -> Fraction:
        """The share of its kind's part of the cap that a plan takes."""
        whole, allowance = whole_cost(found.charge.cost, overlap=self.overlap), self.study.cap.allowance()
        return Fraction(lane(whole, found.plan.mechanism), lane(allowance, found.plan.mechanism))

    def loss(self, found: Planned[AnswerLayout]) -> Loss:
        """What a plan costs, as ε at the question's δ."""
        return loss_of(found.charge.cost, overlap=self.overlap, delta=self.delta)

    def asked(self, found: Planned[AnswerLayout], analyst: str) -> PlannedQuestion:
        """A plan of the question, with the ε that it takes.

        A millionth less is kept, for which there is another plan: so `dearer_noise` never takes it for a question that
        was asked for this ε, whose kinds of noise are tried in another order.
        """
        epsilon = self.loss(found).epsilon * (1 - 1e-6)
        return PlannedQuestion(Question(found.plan, analyst, epsilon, self.delta, self.request.asked_by), found)

    def _plan(self, mechanism: Mechanism, errors: tuple[float, ...]) -> Planned[AnswerLayout] | None:
        """The plan of one kind of noise; None where its part of the cap, or the question's ε, does not reach."""
        allowance = self.study.cap.allowance()
        if lane(allowance, mechanism) == 0 or (mechanism is Mechanism.DISCRETE_GAUSSIAN and self.delta == 0.0):
            return None
        form = layout(self.typed, self.study, mechanism)
        wanted = dict(zip(form.query.aggregates, errors, strict=True))
        scales: list[Fraction] = []
        for part in form.parts:
            scale = self._widest(form, part, mechanism, wanted)
            if scale is None:
                return None
            scales.append(scale)
        names = tuple(sorted(self.participants))
        nonce = self.request.nonce.lower()
        try:
            found = with_scales(
                form, tuple(scales), self.study, mechanism, delta=self.delta, participants=names, nonce=nonce
            )
        except PlanRefused:
            return None
        whole, most = whole_cost(found.charge.cost, overlap=self.overlap), self.request.epsilon
        fits = whole.fits(allowance) and (most is None or is_within(whole, epsilon=most, delta=self.delta))
        return found if fits else None

    def _widest(
        self, form: AnswerLayout, part: Part, mechanism: Mechanism, wanted: Mapping[Aggregate, float]
    ) -> Fraction | None:
        """The widest noise with which every aggregate of a part is known well enough; None where none is."""
        patients = sum(self.participants.values())

        def is_enough(noise: TotalNoise) -> bool:
            expected = of_part(form, part, noise, patients=patients)
            return all(each.half_width <= wanted[each.aggregate] for each in expected)

        search = WidestNoise(mechanism, self.setting.noises(sites=len(self.participants)), is_enough)
        return search.scale(alone=own_definition(part).typical is None)

    def _refusal(self) -> str:
        """One sentence: that the errors cannot be had, and the smallest that can."""
        most = self.request.epsilon
        within = "with the study's whole budget" if most is None else f"with ε = {most:g}"
        labels = [label_text(aggregate) for aggregate in self.typed.query.aggregates]
        factor = self._least_factor()
        if factor is None:
            patients = sum(self.participants.values())
            return f"{within} there is no estimate of {', '.join(labels)} for {patients} declared patients."
        # Three digits, if they are enough, and never less: a person will ask for what is offered.
        nearest, above = (tuple(map(digits, self.errors(factor))) for digits in (_three_digits, _three_digits_up))
        least = nearest if self.reached(nearest) else above
        if len(labels) == 1:
            return f"{labels[0]} ± {self.request.errors[0]:g} cannot be had {within}; the smallest is ± {least[0]:g}."
        each = ", ".join(f"{label} ± {error:g}" for label, error in zip(labels, least, strict=True))
        return f"these errors cannot be had {within}; the smallest in the same proportion are {each}."

    def _least_factor(self) -> float | None:
        """By how much all errors must be larger to be reached, to a thousandth; None where that does not help."""
        low, high = 1.0, _STEP
        while not self.reached(self.errors(high)):
            # Ever longer steps: a person may ask for an error that is smaller than any by hundreds of digits.
            low, high = high, _STEP * high * high
            if not math.isfinite(high):
                return None
        while high > _CLOSE * low:
            middle = math.sqrt(low) * math.sqrt(high)
            if self.reached(self.errors(middle)):
                high = middle
            else:
                low = middle
        return high


def lane(cost: Cost, mechanism: object) -> int:
    """The amount of a cost in the part of the budget that pays for this kind of noise."""
    return cost.mu_squared if mechanism is Mechanism.DISCRETE_GAUSSIAN else cost.pure


def split_by_cost(charge: Charge) -> tuple[Fraction, ...]:
    """How the parts of a plan share its charge, whatever decided their noise."""
    costs = [cost.mu_squared + cost.pure for cost in (fact.cost() for fact in charge.facts)]
    return tuple(Fraction(cost, sum(costs)) for cost in costs)


def _three_digits(number: float) -> float:
    return float(f"{number:.3g}")


def _three_digits_up(number: float) -> float:
    nearest = _three_digits(number)
    return nearest if nearest >= number else _three_digits(number + 10.0 ** (math.floor(math.log10(number)) - 2))
