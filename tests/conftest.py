"""What every test shares: repeatable examples, no clock inside them, no proxy, and `same_noise` on demand."""

from __future__ import annotations

import hypothesis

from tests.fixtures.entropy import same_noise
from tests.fixtures.surroundings import no_proxy

# A shared machine can stall any single example; what must be quick is measured by tests marked `serial`.
hypothesis.settings.register_profile("wardround", deadline=None, print_blob=True)
hypothesis.settings.load_profile("wardround")

__all__ = ["no_proxy", "same_noise"]
