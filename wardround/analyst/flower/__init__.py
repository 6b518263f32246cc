"""Flower's strategies and grids over releases that are private already: an extra of the analyst's, never of a site's.

Nothing is told to anybody: Flower's own reports about its use are switched off before any of it is loaded.
"""

import os

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
