"""The words of a training, and one file for each model."""
