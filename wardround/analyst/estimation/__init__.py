"""Optimisers and inference from noised sums, whatever the model."""
