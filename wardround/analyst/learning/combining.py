"""Which strategy combines the sites' private updates: the sum itself, or one of Flower's by its name.

Combining is done on numbers that were released already, so it costs nothing, whatever the strategy does.
"""

from __future__ import annotations

from wardround.analyst.learning.fitted import Combine
from wardround.analyst.learning.request import PLAIN, is_plain
from wardround.federation.errors import ConfigurationMistaken


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
