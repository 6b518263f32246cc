"""Learning on the side of an analyst: requests, rounds, and what becomes of a model."""
