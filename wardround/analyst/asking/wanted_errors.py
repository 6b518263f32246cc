"""Which error a question may have, as a person says it: one number, one for each aggregate in order, or by name.

An error is half of the interval at 95 %, in the unit of its aggregate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from wardround.analyst.asking.multi_round import MultiRoundQuestion
from wardround.analyst.showing.interpretation import plural
from wardround.analyst.tables.presentation import BoundQuestion
from wardround.federation.errors import Mistaken, QueryMistaken
from wardround.federation.plan.sql_text import aggregate_text, label_text

WantedError = float | Sequence[float] | Mapping[str, float]


def errors_of(wanted: WantedError | None, course: MultiRoundQuestion) -> tuple[float, ...]:
    """The error of each aggregate, in the question's order; none where none is wanted."""
    if wanted is None:
        return ()
    if course.rounds > 1:
        raise QueryMistaken(
            f"this question takes {course.rounds} rounds ({course.titles[0]} first), so its error is not known "
            "beforehand; ask it with ε instead."
        )
    asked = course.asked(())
    labels = [label_text(aggregate) for aggregate in asked.query.aggregates]
    match wanted:
        case Mapping():
            numbers = _by_name(wanted, asked, labels)
        case Sequence():
            numbers = list(wanted)
        case _:
            numbers = [wanted]
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise QueryMistaken(f"an error must be a number above 0, not {number!r}.")
        if not (math.isfinite(number) and number > 0):
            raise QueryMistaken(f"an error must be a finite number above 0, not {number!r}.")
    if len(numbers) != len(labels):
        there = f"there {'is' if len(numbers) == 1 else 'are'} {len(numbers)} {plural(len(numbers), 'error')}"
        if len(labels) == 1:
            raise QueryMistaken(f"{there} for {labels[0]}; give one.")
        raise QueryMistaken(
            f"{there} for {len(labels)} aggregates; give one for each of {', '.join(labels)}, in this order or by name."
        )
    return tuple(float(number) for number in numbers)


def read_errors(texts: Sequence[str]) -> WantedError | None:
    """What `--error` says: `50`, several of them in order, or `AVG(sbp)=0.5`."""
    if not texts:
        return None
    named = {
        name.strip(): _number(number, text)
        for text in texts
        for name, equals, number in [text.rpartition("=")]
        if equals
    }
    if not named:
        return [_number(text, text) for text in texts]
    if len(named) < len(texts):
        raise Mistaken("--error is given once for each aggregate, either all in order or all by different names.")
    return named


def _number(number: str, text: str) -> float:
    try:
        return float(number)
    except ValueError:
        raise Mistaken(
            f'--error is {text!r}; it must be a number, such as 50, or a name and a number, such as "AVG(sbp)=0.5".'
        ) from None


def _by_name(wanted: Mapping[str, float], asked: BoundQuestion, labels: Sequence[str]) -> list[float]:
    """The numbers in the question's order; an aggregate has its label, its SQL and its alias as names."""
    aliases = asked.view.names or ("",) * len(labels)
    left = {_plain(name): name for name in wanted}
    numbers: list[float] = []
    for aggregate, label, alias in zip(asked.query.aggregates, labels, aliases, strict=True):
        names = [_plain(name) for name in (alias, label, aggregate_text(aggregate)) if name]
        found = next((name for name in names if name in left), None)
        if found is None:
            raise QueryMistaken(f"there is no error for {alias or label}; give one for each of {', '.join(labels)}.")
        numbers.append(wanted[left.pop(found)])
    if left:
        unknown = next(iter(left.values()))
        raise QueryMistaken(
            f"there is an error for {unknown!r}, which the question does not ask; it asks {', '.join(labels)}."
        )
    return numbers


def _plain(name: str) -> str:
    return "".join(name.split()).casefold()
