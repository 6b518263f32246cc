"""Two ports and one process."""
