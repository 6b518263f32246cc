"""Whether a plan had to use a dearer kind of noise than its question would like, why, and what that cost.

It follows from the plan, the study and the order in which kinds of noise are tried: a better kind that the study could
have paid for was tried first, and its part of the budget was used up. So nothing has to be kept for it, and a stored
answer says the same for ever.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from coordinator.planning.by_error import ByError, lane
from coordinator.planning.expected import expected_errors
from coordinator.planning.plans import log_size, merit, planned_again, planned_with, whole_cost
from coordinator.store.rounds import Question
from wardround.federation.errors import PlanRefused, QueryMistaken
from wardround.federation.forms.parts import AnswerLayout
from wardround.federation.forms.totals import NoiseSetting
from wardround.federation.models.step_layout import StepLayout
from wardround.federation.plan.plan import Planned, PrivacyTarget
from wardround.federation.plan.task import AskRequest
from wardround.federation.plan.typed import type_query
from wardround.federation.question.answer import DearerNoise, WhyDearer
from wardround.federation.study.study import Study
from wardround.privacy.noise.distribution import Mechanism

_WORTH_SAYING = 1.05


def dearer_noise(
    question: Question, study: Study, participants: Mapping[str, int], setting: NoiseSetting
) -> DearerNoise | None:
    """What the other kind of noise would have been; None where it would not be better, or the study has none of it."""
    other = _OTHER.get(question.plan.mechanism)
    if other is None or setting.noiseless or question.delta == 0.0 or lane(study.cap.allowance(), other) == 0:
        return None
    try:
        found = planned_again(question, study).planned
        if isinstance(found.layout, StepLayout):
            return None
        planned = Planned(found.plan, found.layout, found.charge)
        target = PrivacyTarget(question.epsilon, question.delta)
        return _Comparing(planned, target, study, participants, setting).dearer(other)
    except (QueryMistaken, PlanRefused):
        # What was asked once may be too small for the other kind, or no longer be asked at all.
        return None


@dataclass(frozen=True, slots=True)
class _Comparing:
    """A plan of a question, what it was asked for, and everything that plans follow from."""

    found: Planned[AnswerLayout]
    target: PrivacyTarget
    study: Study
    participants: Mapping[str, int]
    setting: NoiseSetting

    def dearer(self, other: Mechanism) -> DearerNoise | None:
        """What this other kind of noise would have been; None where it would not be better."""
        plan = self.found.plan
        if merit(plan, self.found.layout) is not None:
            # Keys are compared by more than an error.
            return None
        same, instead = (self._at_same_epsilon(mechanism) for mechanism in (Mechanism(plan.mechanism), other))
        return self._by_epsilon(instead) if same.plan.plan_id == plan.plan_id else self._by_error(other)

    def _at_same_epsilon(self, mechanism: Mechanism) -> Planned[AnswerLayout]:
        plan = self.found.plan
        typed = type_query(self.found.layout.query, self.study)
        return planned_with(typed, self.target, self.study, mechanism, participants=plan.participants, nonce=plan.nonce)

    def _by_epsilon(self, instead: Planned[AnswerLayout]) -> DearerNoise | None:
        """The half-widths of the aggregate for which it matters most."""
        if log_size(instead.plan, instead.layout) >= log_size(self.found.plan, self.found.layout):
            return None
        pairs = [
            (better, actual, place)
            for place, (better, actual) in enumerate(
                zip(self._half_widths(instead), self._half_widths(self.found), strict=True)
            )
            if better is not None and actual is not None
        ]
        better, actual, place = max(
            pairs, key=lambda pair: pair[1] / pair[0] if pair[0] else 0.0, default=(0.0, 0.0, 0)
        )
        if actual <= _WORTH_SAYING * better:
            return None
        whole = whole_cost(instead.charge.cost, overlap=self.study.overlap_among(self.participants))
        why = WhyDearer.USED_UP if whole.fits(self.study.cap.allowance()) else WhyDearer.DOES_NOT_FIT
        return DearerNoise(Mechanism(instead.plan.mechanism).value, why, better, actual, place)

    def _by_error(self, other: Mechanism) -> DearerNoise | None:
        """The ε of both kinds at the error of this plan; only of one that is dearer in every sense was it not liked."""
        widths = [width for width in self._half_widths(self.found) if width is not None]
        request = AskRequest(
            self.found.layout.query, None, self.target.delta, self.found.plan.nonce, errors=tuple(widths)
        )
        asked = ByError.of(request, self.found.layout.query, self.study, self.participants, self.setting)
        for instead in asked.reached(request.errors):
            better, actual = asked.loss(instead).epsilon, asked.loss(self.found).epsilon
            liked = asked.share_of_cap(instead) < asked.share_of_cap(self.found)
            if instead.plan.mechanism is other and liked and actual > _WORTH_SAYING * better:
                return DearerNoise(other.value, WhyDearer.USED_UP, better, actual)
        return None

    def _half_widths(self, found: Planned[AnswerLayout]) -> list[float | None]:
        setting = dataclasses.replace(self.setting, noiseless=False)
        errors = expected_errors(found.plan, found.layout, self.participants, setting)
        return [each.half_width for each in errors]


_OTHER: Mapping[object, Mechanism] = {
    Mechanism.DISCRETE_GAUSSIAN: Mechanism.DISCRETE_LAPLACE,
    Mechanism.DISCRETE_LAPLACE: Mechanism.DISCRETE_GAUSSIAN,
}
