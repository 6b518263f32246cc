"""Several rounds as one question.

A course says what to ask next from what was answered so far, and nothing else: each round is an ordinary question
with a plan of its own, so a course that was interrupted goes on when it is asked again, and pays for nothing twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from wardround.analyst.asking import quantile_search as search
from wardround.analyst.asking.binding import open_columns, with_keys
from wardround.analyst.tables.presentation import BoundQuestion, Presentation
from wardround.federation.errors import QueryMistaken
from wardround.federation.forms.parts import narrowed
from wardround.federation.plan.sql_text import aggregate_text
from wardround.federation.plan.typed import Typed, type_query
from wardround.federation.question.answer import Answer, Estimate, Loss, NoEstimate
from wardround.federation.question.query import MAX_KEYS, Aggregate, Query, Statistic
from wardround.federation.study.study import Study
from wardround.privacy.accounting.gaussian_dp import epsilon_of, mu_of
from wardround.privacy.budget.calibration import without_slack

_ANY_SHARE = 0.5
# Rounded down by more than the arithmetic errs, so that all rounds together stay within what was asked.
_DOWN = 1 - 1e-9


class MultiRoundQuestion(Protocol):
    """The rounds of one question."""

    @property
    def rounds(self) -> int:
        """How many there are at most."""

    @property
    def titles(self) -> tuple[str, ...]:
        """What each of them asks, in a few words."""

    def question(self, answers: Sequence[Answer]) -> Typed | None:
        """The next round after these answers, typed; None when there is no more to ask."""

    def asked(self, answers: Sequence[Answer]) -> BoundQuestion:
        """The question that the whole course answers."""

    def estimates(self, answers: Sequence[Answer]) -> tuple[Estimate, ...]: ...

    def note(self, answers: Sequence[Answer]) -> str:
        """What a reader must know about how it went; often nothing."""


@dataclass(frozen=True, slots=True)
class OneRound:
    """An ordinary question."""

    whole: BoundQuestion
    typed: Typed

    @property
    def rounds(self) -> int:
        return 1

    @property
    def titles(self) -> tuple[str, ...]:
        return ("the question",)

    def question(self, answers: Sequence[Answer]) -> Typed | None:
        return None if answers else self.typed

    def asked(self, answers: Sequence[Answer]) -> BoundQuestion:  # noqa: ARG002
        return self.whole

    def estimates(self, answers: Sequence[Answer]) -> tuple[Estimate, ...]:
        return answers[-1].estimates

    def note(self, answers: Sequence[Answer]) -> str:  # noqa: ARG002
        return ""


@dataclass(frozen=True, slots=True)
class KeysFirst:
    """The keys of an open category over the same cohort, then the question about those that were released."""

    whole: BoundQuestion
    column: str
    first: Typed
    study: Study

    @property
    def rounds(self) -> int:
        return 2

    @property
    def titles(self) -> tuple[str, ...]:
        return f"KEYS({self.column})", f"the question, with the keys of {self.column} that were released"

    def question(self, answers: Sequence[Answer]) -> Typed | None:
        """KEYS over the cohort; then the question, unless there are no keys."""
        match len(answers):
            case 0:
                return self.first
            case 1:
                return type_query(self.asked(answers).query, self.study) if self._keys(answers) else None
            case _:
                return None

    def asked(self, answers: Sequence[Answer]) -> BoundQuestion:
        """The question with its keys, once they are known."""
        keys = self._keys(answers)
        return with_keys(self.whole, self.column, keys) if keys else self.whole

    def estimates(self, answers: Sequence[Answer]) -> tuple[Estimate, ...]:
        """Those of the second round; none without keys."""
        return answers[1].estimates if len(answers) == self.rounds else ()

    def note(self, answers: Sequence[Answer]) -> str:
        keys = len(self._keys(answers))
        if not keys:
            return f"No value of {self.column} is held by enough patients to be shown, so there is nothing to group by."
        return f"{keys} {'value' if keys == 1 else 'values'} of {self.column} could be shown; rarer ones were left out."

    def _keys(self, answers: Sequence[Answer]) -> tuple[str, ...]:
        counts = answers[0].estimates if answers else ()
        found = {str(key): each.value for each in counts for _, key in each.group if each.value is not None}
        largest = sorted(found, key=lambda key: (-found[key], key))[:MAX_KEYS]
        return tuple(sorted(largest))


@dataclass(frozen=True, slots=True)
class Search:
    """One quantile by ten shares."""

    whole: BoundQuestion
    bounds: tuple[float, float]
    study: Study

    @property
    def rounds(self) -> int:
        return search.ROUNDS

    @property
    def titles(self) -> tuple[str, ...]:
        return (f"SHARE_BELOW({self._quantile.column}, …)",) * self.rounds

    @property
    def _quantile(self) -> Aggregate:
        return self.whole.query.aggregates[0]

    @property
    def _level(self) -> float:
        return self._quantile.level or 0.0

    def question(self, answers: Sequence[Answer]) -> Typed | None:
        """The share below the middle of what is left."""
        if len(answers) == self.rounds:
            return None
        value = search.next_value(self._level, self.bounds, self._shares(answers))
        below = Aggregate(Statistic.BELOW, self._quantile.column, level=value, clips=self._quantile.clips)
        return type_query(Query(self.whole.query.table, (below,), self.whole.query.cohort), self.study)

    def asked(self, answers: Sequence[Answer]) -> BoundQuestion:  # noqa: ARG002
        return self.whole

    def estimates(self, answers: Sequence[Answer]) -> tuple[Estimate, ...]:
        """The quantile that the rounds agree on."""
        result = search.found(self._level, self.bounds, self._shares(answers))
        # Rounds without an estimate say nothing; when all of them do, so does the search.
        known = any(answer.estimates[0].reason is None for answer in answers)
        return (
            Estimate(
                Statistic.QUANTILE.value,
                self._quantile.column,
                (),
                result.value if known else None,
                result.standard_error if known else None,
                result.interval if known else self.bounds,
                search.CONFIDENCE,
                term=f"{self._level:.12g}",
                reason=None if known else NoEstimate.TOO_FEW,
                place=0,
            ),
        )

    def note(self, answers: Sequence[Answer]) -> str:
        return f"Found by noisy binary search in {len(answers)} rounds; the interval is what no round excludes."

    def _shares(self, answers: Sequence[Answer]) -> list[search.ReleasedShare]:
        shares: list[search.ReleasedShare] = []
        for answer in answers:
            value = search.next_value(self._level, self.bounds, shares)
            estimate = answer.estimates[0]
            # A share that is not known may be any: its middle, and an error that excludes nothing.
            share, error = (
                (_ANY_SHARE, _ANY_SHARE) if estimate.value is None else (estimate.value, estimate.standard_error)
            )
            shares.append(search.ReleasedShare(value, share, error or 0.0))
        return shares


def course_of(asked: BoundQuestion, study: Study, *, by_search: bool) -> MultiRoundQuestion:
    """The rounds that a settled question takes; `QueryMistaken` when it cannot be asked so."""
    unknown = open_columns(asked, study)
    if by_search:
        return _search(asked, study)
    if not unknown:
        exact = type_query(asked.query, study)
        return OneRound(BoundQuestion(exact.query, asked.view), exact)
    if len(unknown) > 1:
        raise QueryMistaken(
            f"the values of {unknown[0]!r} and {unknown[1]!r} are not public; "
            f"list those of one of them, as in WHERE {unknown[1]} IN ('…')."
        )
    # A mistake anywhere in the question is found now, with some key in place of those to come.
    type_query(with_keys(asked, unknown[0], ("?",)).query, study)
    keys = Query(asked.query.table, (Aggregate(Statistic.KEYS, unknown[0]),), asked.query.cohort)
    return KeysFirst(asked, unknown[0], type_query(keys, study), study)


def round_epsilon(epsilon: float, delta: float, rounds: int, study: Study) -> float:
    """The ε of each round, so that all of them together cost no more than `epsilon` at `delta`.

    Gaussian losses add up in squares of μ. Where pure noise may be used they add up in ε, which is never more.
    """
    if rounds == 1:
        return epsilon
    evenly = epsilon / rounds * _DOWN
    if delta == 0.0:
        return evenly
    alone = without_slack(delta)
    squared = epsilon_of(alone, mu_of(epsilon, alone) / math.sqrt(rounds)) * _DOWN
    return squared if study.cap.pure_epsilon < squared else evenly


def composed(losses: Sequence[Loss]) -> Loss:
    """What several rounds cost together: squares of μ where there is a δ, ε where there is none."""
    pure = math.fsum(loss.epsilon for loss in losses if loss.delta == 0.0)
    gaussian = [loss for loss in losses if loss.delta > 0.0]
    if not gaussian:
        return Loss(pure, 0.0)
    delta = max(loss.delta for loss in gaussian)
    if len(losses) == 1:
        return losses[0]
    if any(not math.isfinite(loss.epsilon) for loss in gaussian):
        return Loss(math.inf, delta)
    squares = math.fsum(mu_of(loss.epsilon, without_slack(loss.delta)) ** 2 for loss in gaussian if loss.epsilon > 0.0)
    return Loss((epsilon_of(without_slack(delta), math.sqrt(squares)) if squares > 0.0 else 0.0) + pure, delta)


def _search(asked: BoundQuestion, study: Study) -> Search:
    query = type_query(asked.query, study).query if not open_columns(asked, study) else asked.query
    if len(query.aggregates) != 1 or query.aggregates[0].statistic is not Statistic.QUANTILE or query.group_by:
        raise QueryMistaken(
            "a search finds one quantile; ask one MEDIAN, QUANTILE or PERCENTILE_CONT without GROUP BY, "
            f"not {', '.join(aggregate_text(each) for each in query.aggregates)[:100]}."
        )
    quantile = query.aggregates[0]
    column = narrowed(study.table(query.table).column(quantile.column or ""), quantile)
    low, high = column.numeric_bounds or (0, 1)
    return Search(BoundQuestion(query, Presentation(names=asked.view.names)), (float(low), float(high)), study)
