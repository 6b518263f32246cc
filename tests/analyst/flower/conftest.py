"""The clinics of the trainings, each module with tables and each test with a federation of its own."""

from tests.analyst.learning.trained_at import clinics, datasets

__all__ = ["clinics", "datasets"]
