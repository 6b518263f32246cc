"""Which strategy combines the sites' private updates: the sum itself, or one of Flower's by its name.

Combining is done on numbers that were released already, so it costs nothing, whatever the strategy does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wardround.analyst.estimation.fitted import Combine
from wardround.analyst.learning.request import PAID, PLAIN, is_plain
from wardround.federation.errors import ConfigurationMistaken, QueryMistaken


def combine_named(strategy: str) -> Combine | None:
    """The combination of a request's `strategy`; None is the sum itself."""
    if is_plain(strategy):
        return None
    try:
        from wardround.analyst.flower.strategies import combine_by  # noqa: PLC0415 - an extra, loaded only when named
    except ImportError:
        raise ConfigurationMistaken(
            f"the strategy {strategy!r} is one of Flower's, which is not installed; "
            f"install it with pip install 'wardround[flower]', or use strategy = \"{PLAIN}\"."
        ) from None
    return combine_by(strategy)


def require_combinable(strategy: str, *, sites: Sequence[str], weights: int) -> None:
    """`QueryMistaken` where a strategy cannot combine so many sites: told before the training is charged, not after.

    Tried on models of nothing but zeros with a combination of its own, because some remember what they were given.
    """
    combine = combine_named(strategy)
    if combine is None:
        return
    zeros = np.zeros(weights)
    try:
        combine(zeros, dict.fromkeys(sites, zeros), dict.fromkeys(sites, 1.0))
    except QueryMistaken as mistake:
        raise QueryMistaken(f"{mistake.message.removesuffix(PAID)}Nothing was charged.") from None
