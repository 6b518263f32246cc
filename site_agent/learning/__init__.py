"""Learning inside a hospital: from its rows to the noised sums of a training step."""
