"""Learning on the side of an analyst: requests, the mathematics of models, and what becomes of them."""
