"""A whole federation in one process, from the same code the roles run."""
