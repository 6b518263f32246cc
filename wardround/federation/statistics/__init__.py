"""Every statistic, one file each, and the table of them: the rest of the house reads it and knows none by name."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import assert_never

from wardround.federation.forms.definition import Definition
from wardround.federation.forms.parts import Part
from wardround.federation.question.query import Aggregate, Statistic
from wardround.federation.statistics.correlation import CORRELATION
from wardround.federation.statistics.count import COUNT
from wardround.federation.statistics.crosstab import CHI_SQUARE
from wardround.federation.statistics.histogram import HISTOGRAM
from wardround.federation.statistics.keys import KEYS
from wardround.federation.statistics.mean import MEAN
from wardround.federation.statistics.mode import MODE
from wardround.federation.statistics.quantile import QUANTILE
from wardround.federation.statistics.regression import REGRESSION
from wardround.federation.statistics.share_below import SHARE_BELOW
from wardround.federation.statistics.spread import STD, VARIANCE
from wardround.federation.statistics.sum import SUM
from wardround.federation.statistics.survival import SURVIVAL


def _listed(statistic: Statistic) -> Definition:  # noqa: C901, PLR0911, PLR0912 - a line for each
    """The table; a statistic that is not in it is an error of types."""
    match statistic:
        case Statistic.COUNT:
            return COUNT
        case Statistic.SUM:
            return SUM
        case Statistic.MEAN:
            return MEAN
        case Statistic.VARIANCE:
            return VARIANCE
        case Statistic.STD:
            return STD
        case Statistic.HISTOGRAM:
            return HISTOGRAM
        case Statistic.QUANTILE:
            return QUANTILE
        case Statistic.BELOW:
            return SHARE_BELOW
        case Statistic.CHI_SQUARE:
            return CHI_SQUARE
        case Statistic.CORRELATION:
            return CORRELATION
        case Statistic.REGRESSION:
            return REGRESSION
        case Statistic.SURVIVAL:
            return SURVIVAL
        case Statistic.CHOICE:
            return MODE
        case Statistic.KEYS:
            return KEYS
        case _:
            assert_never(statistic)


_DEFINED = {statistic: _listed(statistic) for statistic in Statistic}
ALL = tuple(_DEFINED.values())
ALLOWED_BY_DEFAULT = tuple(definition.statistic for definition in ALL if not definition.selects_keys)
"""What a hospital allows that lists nothing: all but what shows texts of its own tables."""


def find(statistic: Statistic) -> Definition:
    """What a statistic is."""
    return _DEFINED[statistic]


def own_definition(part: Part) -> Definition:
    """The statistic whose file reads the integers of a part."""
    return _DEFINED[part.owner]


def together(aggregates: Sequence[Aggregate]) -> list[tuple[Definition, tuple[Aggregate, ...]]]:
    """Aggregates that one part answers, with the statistic that it belongs to, in the order of the first of each."""
    absorbing = {
        (absorbed, each.column, each.clips): each
        for each in reversed(aggregates)
        for absorbed in find(each.statistic).absorbs
    }
    parts: dict[Hashable, tuple[Definition, list[Aggregate]]] = {}
    for aggregate in aggregates:
        taken = absorbing.get((aggregate.statistic, aggregate.column, aggregate.clips), aggregate)
        definition = find(taken.statistic)
        parts.setdefault(definition.together(taken), (definition, []))[1].append(aggregate)
    return [(definition, tuple(found)) for definition, found in parts.values()]
