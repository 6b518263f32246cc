"""The words of a training, and one file a model."""
