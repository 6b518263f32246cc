"""What every test shares: repeatable examples, no clock inside them, and `same_noise` for those who ask for it."""

from __future__ import annotations

import hypothesis

from tests.fixtures.entropy import same_noise

# A shared machine can stall any single example; what must be quick is measured by tests marked `serial`.
hypothesis.settings.register_profile("wardround", deadline=None, print_blob=True)
hypothesis.settings.load_profile("wardround")

__all__ = ["same_noise"]
