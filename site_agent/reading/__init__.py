"""The hospital's tables as the pipeline sees them."""
