"""A hospital's SELECT: whose rows each of its rows is made of, and that no row can fail it."""
