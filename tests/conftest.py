"""What every test shares: repeatable examples, and no clock inside them."""

from __future__ import annotations

import hypothesis

# A shared machine can stall any single example; what must be quick is measured by tests marked `serial`.
hypothesis.settings.register_profile("wardround", deadline=None, print_blob=True)
hypothesis.settings.load_profile("wardround")
