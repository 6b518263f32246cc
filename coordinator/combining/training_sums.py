"""The answer to a step of a training: the sites' noised sums, added up in integers or one by one. Post-processing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coordinator.combining import added
from wardround.federation.forms.release import Release
from wardround.federation.question.answer import Update

_ENDS = np.iinfo(np.int64)


def updates(releases: Sequence[Release], *, by_site: bool) -> tuple[Update, ...]:
    """One update for each site that answered, in the order of their names, or one for all of them."""
    if by_site:
        ordered = sorted(releases, key=lambda release: release.site)
        return tuple(Update(release.site, release.values.astype("<i8").tobytes()) for release in ordered)
    total, far = added([each.values for each in releases])
    for place, exact in far.items():
        # Only a site that sends the ends of the range can come above them; the sum then stays at the end.
        total[place] = min(max(exact, _ENDS.min), _ENDS.max)
    return (Update("", total.astype("<i8").tobytes()),)
